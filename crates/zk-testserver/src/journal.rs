//! What happened, for tests to look at: requests in order of arrival, commits in order of zxid.

use std::collections::VecDeque;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};

/// A request that arrived. Pings and handshakes are left out.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Session that asked.
    pub session: i64,
    /// Connection it came on; connections are numbered from 1.
    pub connection: u64,
    /// Its xid.
    pub xid: i32,
    /// Its opcode.
    pub op: OpCode,
    /// Its path as asked for; the first one of a multi.
    pub path: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// Its transaction, if it was a write that is committed.
    pub zxid: Option<i64>,
    /// When it arrived, since the start of the server.
    pub at: Duration,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Processed with this result, and answered.
    Applied(ErrorCode),
    /// Processed with this result, but a fault kept the reply, or a part of it, from leaving.
    AppliedUnanswered(ErrorCode),
    /// Never processed: the connection was cut or frozen before, or the session is over.
    Dropped,
    /// In the log, to be committed later; the reply never leaves.
    Held,
    /// Answered with an error by a fault, and not processed.
    Refused(ErrorCode),
}

/// A transaction that was applied, or was refused by validation and took a zxid all the same.
///
/// A successful multi has one record per operation, all with the same zxid. The end of a session
/// has one record without a path and one per ephemeral that went with it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CommitRecord {
    /// Its zxid.
    pub zxid: i64,
    /// Session that wrote; 0 for the server itself and for edits by the test.
    pub session: i64,
    /// What was done.
    pub op: OpCode,
    /// Path, with the number that a sequential mode appended. `None` if there is no single path.
    pub path: Option<String>,
    /// `OK`, or why it was refused.
    pub error: ErrorCode,
}

/// Both logs, bounded: the oldest records go first.
#[derive(Debug)]
pub(crate) struct Journal {
    capacity: usize,
    requests: VecDeque<RequestRecord>,
    commits: VecDeque<CommitRecord>,
}

impl Journal {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, requests: VecDeque::new(), commits: VecDeque::new() }
    }

    pub(crate) fn request(&mut self, record: RequestRecord) {
        push(&mut self.requests, record, self.capacity);
    }

    pub(crate) fn commit(&mut self, record: CommitRecord) {
        push(&mut self.commits, record, self.capacity);
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.requests.iter().cloned().collect()
    }

    pub(crate) fn commits(&self) -> Vec<CommitRecord> {
        self.commits.iter().cloned().collect()
    }

    pub(crate) fn clear_requests(&mut self) {
        self.requests.clear();
    }
}

fn push<T>(log: &mut VecDeque<T>, record: T, capacity: usize) {
    log.push_back(record);
    if log.len() > capacity {
        log.pop_front();
    }
}
