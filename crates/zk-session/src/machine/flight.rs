//! Flights: operations that are submitted, sent and answered together.

use bytestring::ByteString;
use jute_codec::{ReadRequest, Request, Response};

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
    /// Whether flights may share its reply; see [`shared_list`](Self::shared_list). It counts for
    /// a getChildren without a watch, and for nothing else.
    pub is_shared: bool,
}

impl Operation {
    /// A request that leaves no watch.
    pub fn new(request: Request) -> Self {
        Self { request, watch: None, is_shared: false }
    }

    /// A request that leaves a watch, under this name.
    pub fn watched(request: Request, watch: WatchId) -> Self {
        Self { request, watch: Some(watch), is_shared: false }
    }

    /// A list of children that was read after the operations before it in the flight, but perhaps
    /// later than those behind it.
    ///
    /// While a list of the same path is in flight on the connection, this one is not sent. When
    /// that one is answered, one request is sent for all flights that wait for the path by then,
    /// and its reply, be it an error, answers each of them.
    pub fn shared_list(path: ByteString) -> Self {
        let request = Request::GetChildren(ReadRequest { path, watch: false });
        Self { request, watch: None, is_shared: true }
    }

    /// Path of a list that flights may share.
    pub(crate) fn shared_path(&self) -> Option<&ByteString> {
        let Request::GetChildren(read) = &self.request else { return None };
        (self.is_shared && !read.watch).then_some(&read.path)
    }
}

/// One or a few operations that go out on one connection or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Flight {
    /// The operations, in the order they are sent and executed. A shared list may come later.
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
