//! Records for tests: requests in the order of arrival, commits in the order of their zxid, and
//! watch events in the order in which they were sent.

use std::collections::VecDeque;
use std::time::Duration;

use jute_codec::{ErrorCode, EventType, OpCode, SessionId, Zxid};

/// A request that arrived. Pings and handshakes are not recorded.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// The session that sent the request.
    pub session: SessionId,
    /// The connection on which the request arrived; connections are numbered from 1.
    pub connection: u64,
    /// The xid of the request.
    pub xid: i32,
    /// The opcode of the request.
    pub op: OpCode,
    /// The path in the request; the first one of a multi.
    pub path: Option<String>,
    /// What happened to the request.
    pub outcome: Outcome,
    /// The zxid of the transaction, if the request was a write and was committed.
    pub zxid: Option<Zxid>,
    /// When the request arrived: the time since the start of the server.
    pub at: Duration,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The server processed the request with this result, and replied.
    Applied(ErrorCode),
    /// The server processed the request with this result, but a fault suppressed the reply or a
    /// part of it.
    AppliedUnanswered(ErrorCode),
    /// The server did not process the request: the connection had been cut or frozen, or the
    /// session had expired.
    Dropped,
    /// The server logged the request and commits it later. The server never replies to it.
    Held,
    /// A fault or throttling made the server reply with this error without processing the request.
    Refused(ErrorCode),
    /// The server processed the request, and a fault made it reply with an error instead of the
    /// result.
    Misreported {
        /// The result.
        result: ErrorCode,
        /// The error of the reply.
        reported: ErrorCode,
    },
}

/// A transaction that was applied, or that failed validation. Both kinds of transactions use up a
/// zxid.
///
/// A successful multi has one record per operation, all with the same zxid. The end of a session
/// has one record without a path, and one for each ephemeral that it deleted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CommitRecord {
    /// The zxid of the transaction.
    pub zxid: Zxid,
    /// The session that sent the write; [`SessionId::NONE`] for the server itself and for edits by
    /// the test.
    pub session: SessionId,
    /// The operation.
    pub op: OpCode,
    /// The path, with the number that the server appended for a sequential mode. `None` if there is
    /// no single path.
    pub path: Option<String>,
    /// `OK`, or why the transaction failed.
    pub error: ErrorCode,
}

/// A watch event that was sent completely.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct EventRecord {
    /// The session whose watch fired.
    pub session: SessionId,
    /// The connection on which the event was sent.
    pub connection: u64,
    /// What happened to the znode.
    pub kind: EventType,
    /// The path of the znode.
    pub path: String,
    /// Number of requests that were recorded before the event. A request is recorded when it has been
    /// processed, so the events that it causes are recorded before it.
    pub requests_before: usize,
    /// When the event was sent: the time since the start of the server.
    pub at: Duration,
}

/// All logs. When they are full, the oldest records are discarded.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: usize,
    requests: VecDeque<RequestRecord>,
    /// Number of requests since the log was cleared, including those that were discarded.
    requests_total: usize,
    commits: VecDeque<CommitRecord>,
    events: VecDeque<EventRecord>,
}

impl Journal {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            requests: VecDeque::new(),
            requests_total: 0,
            commits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn request(&mut self, record: RequestRecord) {
        self.requests_total += 1;
        push(&mut self.requests, record, self.capacity);
    }

    pub(crate) fn commit(&mut self, record: CommitRecord) {
        push(&mut self.commits, record, self.capacity);
    }

    pub(crate) fn event(&mut self, mut record: EventRecord) {
        record.requests_before = self.requests_total;
        push(&mut self.events, record, self.capacity);
    }

    pub(crate) fn events(&self) -> Vec<EventRecord> {
        self.events.iter().cloned().collect()
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.requests.iter().cloned().collect()
    }

    pub(crate) fn commits(&self) -> Vec<CommitRecord> {
        self.commits.iter().cloned().collect()
    }

    pub(crate) fn clear_requests(&mut self) {
        self.requests.clear();
        self.requests_total = 0;
        self.events.clear();
    }
}

fn push<T>(log: &mut VecDeque<T>, record: T, capacity: usize) {
    log.push_back(record);
    if log.len() > capacity {
        log.pop_front();
    }
}
