//! The table of operations: what the client knows of each, whatever is asked.

use jute_codec::OpCode;

/// What the client knows of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Facts {
    /// Its name in statistics and metrics: that of the method of [`Client`](crate::Client), where
    /// there is one.
    pub(crate) name: &'static str,
    /// Its name in a sentence, before a path.
    pub(crate) verb: &'static str,
    /// It succeeds only after a quorum has committed it.
    pub(crate) is_write: bool,
    /// It creates a znode.
    pub(crate) is_create: bool,
    /// Servers know it only since 3.6 or later. The oldest supported servers know all others.
    pub(crate) is_newer: bool,
    /// A ClickHouse Keeper may not know it.
    pub(crate) keepers_may_lack: bool,
    pub(crate) reply: ReplyKind,
}

/// What determines the length of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReplyKind {
    /// The names of znodes.
    Names,
    /// The data of znodes.
    Data,
    /// Nothing that clients have stored.
    Short,
}

impl Facts {
    /// Returns what is known of an operation. Each caller reads one or two fields, for each request,
    /// and the compiler can reduce the table to them.
    #[inline(always)]
    pub(crate) const fn of(op: OpCode) -> Self {
        match op {
            OpCode::ADD_WATCH => read("add_watch", "watch").newer(),
            OpCode::AUTH => read("auth", "add the credentials"),
            OpCode::CHECK => read("check", "check"),
            OpCode::CHECK_WATCHES => read("check_watches", "find the watch on").not_in_keepers(),
            OpCode::CLOSE_SESSION => read("close", "close the session"),
            OpCode::CREATE | OpCode::CREATE2 => create("create", "create"),
            OpCode::CREATE_CONTAINER => create("create_container", "create the container"),
            OpCode::CREATE_TTL => create("create_ttl", "create (with a TTL)"),
            OpCode::DELETE => write("delete", "delete"),
            OpCode::EXISTS => read("exists", "read the metadata of"),
            OpCode::GET_ACL => read("get_acl", "read the access control list of"),
            OpCode::GET_ALL_CHILDREN_NUMBER => {
                read("count_descendants", "count the descendants of").newer()
            }
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => {
                read("get_children", "list the children of").replies(ReplyKind::Names)
            }
            OpCode::GET_DATA => read("get_data", "read").replies(ReplyKind::Data),
            OpCode::GET_EPHEMERALS => {
                read("get_ephemerals", "list the ephemeral znodes of the session")
                    .newer()
                    .replies(ReplyKind::Names)
            }
            OpCode::MULTI => write("multi", "commit the multi that begins with"),
            OpCode::MULTI_READ => read("multi_read", "read several znodes")
                .newer()
                .in_keepers()
                .replies(ReplyKind::Data),
            OpCode::PING => read("ping", "ping"),
            OpCode::RECONFIG => write("reconfig", "change the servers of the ensemble"),
            OpCode::REMOVE_WATCHES => {
                read("remove_watches", "remove the watches of").not_in_keepers()
            }
            OpCode::SASL => read("sasl", "authenticate"),
            OpCode::SET_ACL => write("set_acl", "replace the access control list of"),
            OpCode::SET_DATA => write("set_data", "write"),
            // The client sends the newer one only for watches that it could not have set otherwise.
            OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => read("set_watches", "restore watches"),
            OpCode::SYNC => read("sync", "sync"),
            OpCode::WHO_AM_I => read("who_am_i", "list the identities of the connection").newer(),
            // A user of the codec may build a target with any number.
            _ => read("other", "execute the operation on"),
        }
    }

    const fn newer(self) -> Self {
        Self { is_newer: true, keepers_may_lack: true, ..self }
    }

    const fn in_keepers(self) -> Self {
        Self { keepers_may_lack: false, ..self }
    }

    const fn not_in_keepers(self) -> Self {
        Self { keepers_may_lack: true, ..self }
    }

    const fn replies(self, reply: ReplyKind) -> Self {
        Self { reply, ..self }
    }
}

const fn read(name: &'static str, verb: &'static str) -> Facts {
    Facts {
        name,
        verb,
        is_write: false,
        is_create: false,
        is_newer: false,
        keepers_may_lack: false,
        reply: ReplyKind::Short,
    }
}

const fn write(name: &'static str, verb: &'static str) -> Facts {
    Facts { is_write: true, ..read(name, verb) }
}

const fn create(name: &'static str, verb: &'static str) -> Facts {
    Facts { is_create: true, ..write(name, verb) }
}

#[cfg(test)]
mod tests {
    use jute_codec::{DecodeErrorKind, Reader, Request};

    use super::*;

    /// Returns every operation that a request can have.
    fn all() -> impl Iterator<Item = OpCode> {
        (-100..1000).map(OpCode).filter(|op| {
            let nothing = Request::decode(*op, &mut Reader::new(bytes::Bytes::new()));
            let is_unknown = |error| matches!(error, DecodeErrorKind::UnexpectedOp(_));
            !nothing.is_err_and(|error| is_unknown(error.kind))
        })
    }

    #[test]
    fn every_operation_of_the_codec_has_a_line() {
        assert!(all().count() >= 25);
        let other = Facts::of(OpCode(-50));
        let missing: Vec<_> = all().filter(|op| Facts::of(*op) == other).collect();
        assert_eq!(missing, [], "add them to the table");
    }

    #[test]
    fn the_operations_that_change_znodes_are_writes() {
        let is_write = |op: &OpCode| Facts::of(*op).is_write;
        let mut writes: Vec<_> = all().filter(is_write).map(|op| Facts::of(op).name).collect();
        writes.dedup();
        let expected = [
            "create",
            "delete",
            "set_data",
            "set_acl",
            "multi",
            "create",
            "reconfig",
            "create_container",
            "create_ttl",
        ];
        assert_eq!(writes, expected);
        assert!(all().all(|op| !Facts::of(op).is_create || is_write(&op)));
    }
}
