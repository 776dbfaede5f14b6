//! Flights: operations that are submitted, sent and answered together.

use jute_codec::{Request, Response};

use crate::error::OpError;
use crate::time::Time;
use crate::types::SessionId;

/// Names a flight; chosen by whoever submits it, never twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "an opaque number")]
pub struct Token(pub u64);

/// Names a one-shot watch; chosen by whoever asks for it, never twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "opaque numbers")]
pub struct WatchId {
    /// Whom its event goes to.
    pub owner: u64,
    /// Which of the owner's watches it is.
    pub local: u64,
}

/// A request, and the name of the watch it leaves if it asks for one.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Operation {
    /// The request, with paths as the server knows them.
    pub request: Request,
    /// Name of its watch. Only exists, getData and getChildren leave one.
    pub watch: Option<WatchId>,
}

/// One or a few operations that go out on one connection or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Flight {
    /// The operations, in the order they are sent and executed.
    pub operations: Vec<Operation>,
    /// Session they belong to. In another session they fail and are not sent.
    pub session: Option<SessionId>,
    /// When to stop waiting. What was not sent by then is not sent.
    pub deadline: Option<Time>,
}

/// Answer to a flight.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Reply {
    /// Session in which the flight was sent; `None` if it was not sent.
    pub session: Option<SessionId>,
    /// Number of the connection on which it was sent; 0 if it was not sent.
    pub connection: u64,
    /// One result for each operation.
    pub results: Vec<Result<Response, OpError>>,
}

impl Reply {
    /// The same error for each operation of a flight that was not sent.
    pub(crate) fn unsent(operations: usize, error: &OpError) -> Self {
        Self { session: None, connection: 0, results: vec![Err(error.clone()); operations] }
    }
}
