//! The operation and the path that an error is about, and their names in messages.

use std::borrow::Cow;
use std::fmt;

use bytestring::ByteString;
use jute_codec::{ErrorCode, MultiOp, OpCode, Request};

use super::denied::{Denied, MISSING_CHROOT};
use crate::abridged::Abridged;
use crate::operation::table::Facts;

/// The operation and the path that an [`OpError`](crate::OpError) is about.
///
/// Its `Display` is what the client was asked to do, such as `create "/a"`. Without an operation, it
/// is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Target {
    /// The operation, if it is known.
    pub operation: Option<OpCode>,
    /// The path of the operation, as the client sees it. A multi has several paths, and this is the
    /// one of its first operation. Empty if the path is not known.
    pub path: ByteString,
}

impl Target {
    /// The target of an error that does not name it.
    pub(crate) const UNKNOWN: Self = Self { operation: None, path: ByteString::new() };

    /// Creates the target of an operation on a path.
    pub fn new(operation: OpCode, path: impl Into<ByteString>) -> Self {
        Self { operation: Some(operation), path: path.into() }
    }

    /// Returns the target of a request.
    pub(crate) fn of(request: &Request) -> Self {
        Self::new(request.op(), Self::path_of(request).cloned().unwrap_or_default())
    }

    /// Returns the path of a request that an error names.
    pub(crate) fn path_of(request: &Request) -> Option<&ByteString> {
        // Each operation is asked for its path, and a list of the paths would be allocated.
        request.path().or_else(|| request.paths().first().copied())
    }

    /// Returns the target of one operation of a multi.
    pub(crate) fn part(operation: &MultiOp) -> Self {
        match operation {
            MultiOp::Check(check) => Self::new(OpCode::CHECK, check.path.clone()),
            MultiOp::Create(create) => Self::new(create.op(), create.path.clone()),
            MultiOp::Delete(delete) => Self::new(OpCode::DELETE, delete.path.clone()),
            MultiOp::SetData(write) => Self::new(OpCode::SET_DATA, write.path.clone()),
        }
    }

    /// Returns true if the operation creates a znode.
    pub(crate) fn is_create(&self) -> bool {
        self.operation.is_some_and(|op| Facts::of(op).is_create)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(operation) = self.operation else { return Ok(()) };
        match (operation, &*self.path) {
            (OpCode::MULTI, "") => f.write_str("commit the multi"),
            (operation, "") => f.write_str(Facts::of(operation).verb),
            (operation, path) => {
                write!(f, "{} {:?}", Facts::of(operation).verb, Abridged(path))
            }
        }
    }
}

/// The target of an error at the beginning of its message, before a colon. Empty if it is not known.
pub(crate) struct Label<'a>(pub(crate) &'a Target);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.operation.is_none() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// What a server refused, why, and a hint if the name of the code is not enough: the part of a
/// message between `the server refused ` and what that means for other operations.
pub(crate) struct Refusal<'a> {
    pub(crate) code: ErrorCode,
    pub(crate) target: &'a Target,
    /// Which operation of a multi this is.
    pub(crate) place: Option<&'a dyn fmt::Display>,
    /// The path is that on the servers.
    pub(crate) is_at_server: bool,
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, target, place, is_at_server } = self;
        f.write_str("the server refused ")?;
        match (target.operation, place) {
            (None, None) => f.write_str("to execute the operation")?,
            (None, Some(place)) => write!(f, "{place}")?,
            (Some(_), None) => write!(f, "to {target}")?,
            (Some(_), Some(place)) => write!(f, "to {target}, {place}")?,
        }
        write!(f, ": {code}")?;
        match hint(*code, target, *is_at_server) {
            None => Ok(()),
            Some(hint) => write!(f, " ({hint})"),
        }
    }
}

/// Explains the codes whose names are not enough.
fn hint(code: ErrorCode, target: &Target, is_at_server: bool) -> Option<Cow<'static, str>> {
    let hint = match code {
        ErrorCode::NO_AUTH => {
            let denied = Denied { operation: target.operation, path: &target.path, is_at_server };
            return Some(denied.to_string().into());
        }
        ErrorCode::NO_CHILDREN_FOR_EPHEMERALS => {
            "its parent is ephemeral, and ephemeral znodes cannot have children"
        }
        ErrorCode::NO_NODE if target.is_create() => "its parent does not exist",
        ErrorCode::NO_NODE if &*target.path == "/" => MISSING_CHROOT,
        ErrorCode::NO_NODE if target.operation.is_some() => "it does not exist",
        ErrorCode::NO_WATCHER => "this client has no such watch there",
        ErrorCode::NOT_READ_ONLY => {
            "this server is read-only: it has lost contact with the majority of its ensemble, so it \
             accepts no writes"
        }
        ErrorCode::RECONFIG_DISABLED => "the servers need reconfigEnabled=true",
        ErrorCode::NEW_CONFIG_NO_QUORUM => {
            "too few of the new servers are in contact with the leader"
        }
        ErrorCode::INVALID_ACL => {
            "the access control list is empty or malformed, or grants to the creator, and the \
             server knows no identity of this client"
        }
        _ => return None,
    };
    Some(hint.into())
}
