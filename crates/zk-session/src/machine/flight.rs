//! Flights: operations that are submitted, sent and completed together.

use std::num::NonZeroU64;

use bytestring::ByteString;
use jute_codec::{ReadRequest, Request, Response};

use crate::error::{OpError, Target};
use crate::operation::table::Facts;
use crate::time::Time;
use crate::types::SessionId;

/// Identifies a flight. The submitter chooses it and never reuses it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u64);

/// Identifies a recipient of watch events: a lane or a watcher.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct OwnerId(pub u64);

impl OwnerId {
    /// The owner of flights that set no watch.
    pub(crate) const NONE: Self = Self(0);
}

/// Identifies a watch among the watches of one owner. The owner chooses it and never reuses it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WatchNumber(NonZeroU64);

impl WatchNumber {
    /// The first number.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The last number.
    pub const LAST: Self = Self(NonZeroU64::MAX);

    /// Returns the watch number with this value, or `None` for 0, which is not a watch number.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the value of the number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Identifies a watch of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct WatchId {
    /// The recipient of its event.
    pub owner: OwnerId,
    /// Its number among the owner's watches.
    pub number: WatchNumber,
}

/// A request, and the number of the watch that it sets, if any.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Operation {
    /// The request. The machine expects the server's paths, including the chroot.
    pub request: Request,
    /// Number of the watch that the request sets. Only exists, getData, getChildren and addWatch
    /// set watches. The watches of addWatch report to watch streams only, not to lanes.
    pub watch: Option<WatchNumber>,
    /// Whether flights may share its reply; see [`shared_list`](Self::shared_list). It has an
    /// effect only on a getChildren without a watch.
    pub is_shared: bool,
}

impl Operation {
    /// Creates an operation that sets no watch.
    pub fn new(request: Request) -> Self {
        Self { request, watch: None, is_shared: false }
    }

    /// Creates an operation that sets a watch with this number.
    pub fn watched(request: Request, watch: WatchNumber) -> Self {
        Self { request, watch: Some(watch), is_shared: false }
    }

    /// Creates a request for a list of children that several flights can share. The list is read
    /// after the operations before it in the flight, but possibly later than the operations after
    /// it.
    ///
    /// While another request for a shared list of the same path is in flight, this operation is not
    /// sent. When that request completes, one new request is sent on behalf of all flights that
    /// then wait for the path. Its reply, even if it is an error, completes all of them.
    pub fn shared_list(path: ByteString) -> Self {
        let request = Request::GetChildren(ReadRequest { path, watch: false });
        Self { request, watch: None, is_shared: true }
    }

    /// Returns whether the operation succeeds only after a quorum has committed it.
    pub fn is_write(&self) -> bool {
        Facts::of(self.request.op()).is_write
    }

    /// Returns the path if this is a list that flights may share.
    pub(crate) fn shared_path(&self) -> Option<&ByteString> {
        let Request::GetChildren(read) = &self.request else { return None };
        (self.is_shared && !read.watch).then_some(&read.path)
    }

    /// Returns the operation and the path that an error of this operation names.
    pub(crate) fn target(&self) -> Target {
        Target::of(&self.request)
    }
}

/// One or a few operations that are sent on the same connection or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flight {
    /// The operations in the order in which they are sent and executed. A shared list may be sent
    /// later than the operations after it.
    pub operations: Vec<Operation>,
    /// The session that the operations are meant for. In any other session they fail without being
    /// sent.
    pub session: Option<SessionId>,
    /// When to stop waiting. An operation that is not sent by then is never sent.
    pub deadline: Option<Time>,
}

impl Flight {
    /// Returns the operation and the path that an error of the whole flight names: its first.
    pub(crate) fn target(&self) -> Target {
        self.operations.first().map(Operation::target).unwrap_or_default()
    }
}

/// The results of a flight.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Session in which the flight was sent; `None` if it was not sent.
    pub session: Option<SessionId>,
    /// Number of the connection on which it was sent; 0 if it was not sent.
    pub connection: u64,
    /// One result for each operation, in the same order.
    pub results: Vec<Result<Response, OpError>>,
    /// The operation that made a server refuse a multi of the flight. The result of that multi has
    /// its error code.
    pub refused: Option<Box<Target>>,
}

impl Reply {
    /// Creates the reply to a flight that was not sent: the same error for each operation.
    pub(crate) fn unsent(flight: &Flight, error: &OpError) -> Self {
        let result = |operation: &Operation| Err(error.clone().about(operation.target()));
        let results = flight.operations.iter().map(result).collect();
        Self { session: None, connection: 0, results, refused: None }
    }
}
