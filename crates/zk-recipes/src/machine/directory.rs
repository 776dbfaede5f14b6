//! Making a directory that is missing, with its ancestors.
//!
//! All of them are created in one flight, as containers, which servers remove when they have been
//! emptied. A server that knows no containers (before 3.5.1) gets plain znodes.

use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, ErrorCode};
use zk_session::OpError;
use zk_session::machine::{Operation, Reply};

use super::{Verdict, create, replayable};
use crate::error::LockError;

/// Rounds that have made the directory before a machine gives up. Somebody would have to delete it
/// each time.
const ROUNDS_MAX: u32 = 5;

/// A directory that may have to be made, over the life of an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    has_no_containers: bool,
    rounds: u32,
}

/// How a round went.
#[derive(Debug)]
pub(crate) enum Made {
    /// It is there, or somebody deletes what we make: what needed it tells.
    Perhaps,
    /// The server does not know containers: once more.
    Again,
    Failed(LockError),
    /// The server is overloaded, or answers with an error that may pass.
    Later(OpError),
    SessionOver,
}

impl Directory {
    /// The operations of a round, for the directory at this path.
    pub(crate) fn make(&mut self, path: &ByteString) -> Result<Vec<Operation>, LockError> {
        // The root is always there; what a server misses then is beyond us.
        if self.rounds == ROUNDS_MAX || path == "/" {
            let path = path.to_string();
            let code = ErrorCode::NO_NODE;
            return Err(LockError::Refused { code, operation: "create", path });
        }
        let mode =
            if self.has_no_containers { CreateMode::Persistent } else { CreateMode::Container };
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        let make = |end| -> Option<Operation> {
            let path = path.slice_ref(path.get(..end)?);
            Some(create(path, bytes::Bytes::new(), Acl::open(), mode))
        };
        Ok(ends.filter_map(make).collect())
    }

    /// The directory itself counts: an ancestor may exist without being ours to create. If the
    /// directory could not be made for the want of an ancestor, that ancestor's answer counts.
    pub(crate) fn made(&mut self, path: &str, mut reply: Reply) -> Made {
        let is_unsupported = |result: &Result<_, OpError>| *result == Err(OpError::Unsupported);
        if reply.results.iter().any(is_unsupported) {
            self.has_no_containers = true;
            return Made::Again;
        }
        let mut path = path.to_owned();
        let mut deciding = reply.results.pop();
        if deciding == Some(Err(OpError::Server(ErrorCode::NO_NODE))) {
            let is_in_place = |result: &Result<_, OpError>| {
                matches!(result, Ok(_) | Err(OpError::Server(ErrorCode::NODE_EXISTS)))
            };
            if let Some(depth) = reply.results.iter().position(|result| !is_in_place(result)) {
                deciding = Some(reply.results.swap_remove(depth));
                path = path.split('/').take(depth + 2).collect::<Vec<_>>().join("/");
            }
        }
        let made = match deciding.map(replayable) {
            // Somebody was faster, or deletes what we make.
            Some(Verdict::Refused(OpError::Server(
                ErrorCode::NODE_EXISTS | ErrorCode::NO_NODE,
            ))) => Made::Perhaps,
            Some(Verdict::Refused(error)) => {
                Made::Failed(LockError::definite(error, "create", &path))
            }
            Some(Verdict::Later(error)) => Made::Later(error),
            Some(Verdict::SessionOver) => Made::SessionOver,
            Some(Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown) | None => Made::Perhaps,
        };
        self.rounds += u32::from(matches!(made, Made::Perhaps));
        made
    }
}
