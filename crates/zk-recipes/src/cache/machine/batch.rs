//! Several reads in one request.
//!
//! After a gap, a cache reads everything again, which takes as many reads as there are znodes. With
//! one request for many of them, it takes few requests and round trips. Each read of a request is
//! answered by itself, as if it had been sent alone, and the events that precede the reply on the
//! connection precede all of its results; so what a cache shows does not depend on how its reads are
//! grouped.
//!
//! A request for several reads is an operation of newer servers, which the client sends alone on each
//! connection until one has succeeded. So a few reads are sent as such.

use super::*;

/// Minimum number of reads that wait, for a request of several.
const BATCH_MIN: usize = 8;
/// Maximum number of reads in a request.
pub(super) const BATCH_MAX: usize = 64;
/// Maximum number of bytes that a reply is expected to have. If it turns out to be longer than the
/// client's limit, its reads are sent one by one.
const BATCH_BYTES: usize = 64 * 1024;
/// Bytes of a result besides its data or names.
const RESULT_COST: usize = 128;
/// Bytes of a name in a list, as far as they are guessed.
const NAME_COST: usize = 40;

/// How reads are grouped.
#[derive(Debug)]
pub(super) struct Batches {
    /// The servers do not know the operation.
    are_refused: bool,
    /// Reads that are sent alone, because their results did not fit in a common reply, or because a
    /// refusal must name its znode.
    alone: BTreeSet<(ByteString, Aspect)>,
    /// The usual length of data: it rises at once, and falls slowly.
    typical: usize,
}

impl Default for Batches {
    fn default() -> Self {
        Self { are_refused: false, alone: BTreeSet::new(), typical: 4096 }
    }
}

impl Batches {
    /// Records the length of data that was read.
    pub(super) fn found(&mut self, length: usize) {
        self.typical = length.max(self.typical - self.typical.saturating_sub(length) / 8);
    }

    /// Forgets that a read is sent alone.
    pub(super) fn replied(&mut self, read: &Read) {
        if !self.alone.is_empty() {
            self.alone.remove(&(read.path.clone(), read.aspect));
        }
    }
}

impl CacheMachine {
    /// Takes the reads of the next request.
    pub(in super::super) fn poll_reads(&mut self) -> Vec<Read> {
        let Some(first) = self.poll_read() else { return Vec::new() };
        let is_single = self.source == Source::OneShot
            || self.batches.are_refused
            || self.queue.len() + 1 < BATCH_MIN
            || self.is_alone(&first.path, first.aspect);
        let mut expected = self.expected(&first.path, first.aspect);
        let mut reads = vec![first];
        while !is_single && reads.len() < BATCH_MAX {
            let Some((path, aspect)) = self.queue.front() else { break };
            expected += self.expected(path, *aspect);
            if expected > BATCH_BYTES || self.is_alone(path, *aspect) {
                break;
            }
            let Some(read) = self.poll_read() else { break };
            reads.push(read);
        }
        reads
    }

    fn is_alone(&self, path: &ByteString, aspect: Aspect) -> bool {
        !self.batches.alone.is_empty() && self.batches.alone.contains(&(path.clone(), aspect))
    }

    /// Returns the number of bytes that the result of a read is expected to have.
    fn expected(&self, path: &ByteString, aspect: Aspect) -> usize {
        let known = self.nodes.get(path);
        let content = match aspect {
            Aspect::Data => known.map_or(self.batches.typical, |node| node.data.len()),
            Aspect::List => known.map_or(BATCH_BYTES, |node| {
                usize::try_from(node.stat.num_children).unwrap_or(0) * NAME_COST
            }),
        };
        content + RESULT_COST
    }

    /// Handles the reply to a request of these reads.
    pub(in super::super) fn replies(&mut self, reads: &[Read], result: Result<Response, OpError>) {
        if let [read] = reads {
            self.batches.replied(read);
            return self.reply(read, result);
        }
        match result {
            Ok(Response::MultiRead(results)) if results.len() == reads.len() => {
                for (read, result) in reads.iter().zip(results) {
                    let result = self.result_of(read, result);
                    self.reply(read, result);
                }
            }
            Ok(_) | Err(OpError::Unsupported { .. }) => {
                self.batches.are_refused = true;
                self.send_again(reads);
            }
            Err(OpError::ResponseTooLarge { .. } | OpError::Undecodable { .. }) => {
                self.send_alone(reads);
                self.send_again(reads);
            }
            Err(error) => {
                for read in reads {
                    self.reply(read, Err(error.clone()));
                }
            }
        }
    }

    /// Returns the result of a read as if it had been sent alone.
    fn result_of(&mut self, read: &Read, result: ReadResult) -> Result<Response, OpError> {
        match (read.aspect, result) {
            (Aspect::Data, ReadResult::Data { data, stat }) => {
                Ok(Response::GetData(DataReply { data, stat }))
            }
            (Aspect::List, ReadResult::Children(names)) => Ok(Response::GetChildren(names)),
            (_, ReadResult::Error(ErrorCode::NO_NODE)) => Err(OpError::server(ErrorCode::NO_NODE)),
            // The error of a read that is sent alone names its znode. A result of another kind than
            // requested is a mistake of the server.
            (_, ReadResult::Children(_) | ReadResult::Data { .. } | ReadResult::Error(_)) => {
                self.send_alone(std::slice::from_ref(read));
                Err(OpError::connection_loss(Outcome::NotApplied))
            }
        }
    }

    fn send_alone(&mut self, reads: &[Read]) {
        self.batches.alone.extend(reads.iter().map(|read| (read.path.clone(), read.aspect)));
    }

    /// Requests these reads again.
    fn send_again(&mut self, reads: &[Read]) {
        for read in reads {
            self.reply(read, Err(OpError::connection_loss(Outcome::NotApplied)));
        }
    }
}

/// Returns the operation of these reads.
pub(in super::super) fn operation(reads: &[Read]) -> Operation {
    if let [read] = reads {
        return read.operation();
    }
    let op = |read: &Read| match read.aspect {
        Aspect::Data => ReadOp::GetData(read.path.clone()),
        Aspect::List => ReadOp::GetChildren(read.path.clone()),
    };
    Operation::new(Request::MultiRead(reads.iter().map(op).collect()))
}
