//! Which permission a client lacks, for the messages of refusals.

use std::fmt;

use jute_codec::OpCode;

use crate::abridged::Abridged;

/// What a server of a missing chroot makes of a request for the root of the client.
pub const MISSING_CHROOT: &str = "the chroot does not exist on the servers; create it, or let \
                                  `create_chroot` do that when a client connects, which needs the \
                                  permission CREATE on the parent of the chroot";

/// Why a server refuses an operation with `NO_AUTH`: its `Display` says which permission the client
/// lacks, and on which znode.
#[derive(Clone, Copy, Debug)]
pub struct Denied<'a> {
    /// The operation, if it is known.
    pub operation: Option<OpCode>,
    /// Its path, as the client sees it.
    pub path: &'a str,
    /// The path is that on the servers, so its root is not the chroot.
    pub is_at_server: bool,
}

impl<'a> Denied<'a> {
    /// Returns the permission that the operation needs, and the znode whose list has to grant it.
    /// `None` if that is not known. Source: `PrepRequestProcessor.pRequest2Txn` and
    /// `FinalRequestProcessor`.
    fn needed(&self) -> Option<(&'static str, &'a str)> {
        let Self { operation, path, .. } = *self;
        let parent = match path.rsplit_once('/')? {
            ("", _) => "/",
            (parent, _) => parent,
        };
        Some(match operation? {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                ("CREATE", parent)
            }
            OpCode::DELETE => ("DELETE", parent),
            OpCode::GET_ACL => ("READ or ADMIN", path),
            OpCode::SET_ACL => ("ADMIN", path),
            OpCode::SET_DATA => ("WRITE", path),
            OpCode::CHECK
            | OpCode::EXISTS
            | OpCode::GET_ALL_CHILDREN_NUMBER
            | OpCode::GET_CHILDREN
            | OpCode::GET_CHILDREN2
            | OpCode::GET_DATA => ("READ", path),
            _ => return None,
        })
    }
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((permission, znode)) = self.needed() else {
            return f.write_str(
                "the access control list of the znode, or of its parent, forbids it; check the \
                 credentials of the client",
            );
        };
        write!(f, "the client lacks the permission {permission} on {:?}", Abridged(znode))?;
        if znode == "/" && !self.is_at_server {
            f.write_str(", which is the chroot if the client has one")?;
        }
        f.write_str("; check the access control list there, and the credentials of the client")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_permission_is_that_which_the_operation_needs_where_it_needs_it() {
        for (operation, path, expected) in [
            (OpCode::CREATE2, "/a/b", "CREATE on \"/a\";"),
            (OpCode::CREATE_CONTAINER, "/a", "CREATE on \"/\", which is the chroot if"),
            (OpCode::DELETE, "/a/b", "DELETE on \"/a\";"),
            (OpCode::EXISTS, "/a/b", "READ on \"/a/b\";"),
            (OpCode::GET_CHILDREN, "/", "READ on \"/\", which is the chroot if"),
            (OpCode::SET_DATA, "/a/b", "WRITE on \"/a/b\";"),
            (OpCode::SET_ACL, "/a/b", "ADMIN on \"/a/b\";"),
            (OpCode::GET_ACL, "/a/b", "READ or ADMIN on \"/a/b\";"),
            (OpCode::MULTI, "/a/b", "of the znode, or of its parent"),
        ] {
            let denied =
                Denied { operation: Some(operation), path, is_at_server: false }.to_string();
            assert!(denied.contains(expected), "{denied}");
        }
        let operation = Some(OpCode::CREATE2);
        let at_server = Denied { operation, path: "/app", is_at_server: true }.to_string();
        assert!(at_server.contains("CREATE on \"/\";"), "{at_server}");
    }
}
