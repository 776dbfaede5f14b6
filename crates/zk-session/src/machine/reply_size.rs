//! How many bytes of replies may be on their way.
//!
//! A request is short, and its reply may be megabytes. A server keeps the replies that a slow
//! connection does not take, so thousands of reads of long znodes can exhaust its memory. Nobody
//! knows the length of a reply before it is there, so the machine expects what it has seen last.
//! Each kind of reads has an estimate: it starts high, rises at once to a longer reply, and falls
//! by an eighth of the difference with each shorter one. It counts for all that are in flight,
//! because what was learnt since they were sent holds for them too.
//!
//! While more than [`EXPECTED_MAX`] bytes are expected, other flights wait. Whatever is expected,
//! one can go when nothing is in flight.

use jute_codec::OpCode;

/// Bytes of replies that are expected; beyond that requests wait.
pub(super) const EXPECTED_MAX: u64 = 4 * 1024 * 1024;
/// The first estimate of a read: as long as data can be on a server with its defaults. So the first
/// burst asks for no more than a slow link carries between two pings. If replies turn out to be
/// short, four round trips later hundreds of reads can go at once.
const FIRST_ESTIMATE: u64 = 1024 * 1024;
/// What any other reply is taken for.
const SHORT_REPLY: u64 = 128;

/// The requests in flight, and how long their replies are expected to be.
#[derive(Debug, Default)]
pub(crate) struct ReplySizes {
    children: Reads,
    data: Reads,
    others: u64,
}

/// One kind of reads.
#[derive(Debug)]
struct Reads {
    estimate: u64,
    in_flight: u64,
}

impl Default for Reads {
    fn default() -> Self {
        Self { estimate: FIRST_ESTIMATE, in_flight: 0 }
    }
}

impl ReplySizes {
    pub(crate) fn requested(&mut self, op: OpCode) {
        *self.in_flight(op) += 1;
    }

    /// Nothing was requested after all, or the reply will never come.
    pub(crate) fn taken_back(&mut self, op: OpCode) {
        *self.in_flight(op) -= 1;
    }

    pub(crate) fn answered(&mut self, op: OpCode, length: usize) {
        self.taken_back(op);
        if let Some(reads) = self.reads(op) {
            let length = length as u64;
            reads.estimate = length.max(reads.estimate - reads.estimate.saturating_sub(length) / 8);
        }
    }

    /// Bytes of all replies to come.
    pub(crate) fn expected(&self) -> u64 {
        let reads = |reads: &Reads| reads.estimate * reads.in_flight;
        reads(&self.children) + reads(&self.data) + SHORT_REPLY * self.others
    }

    fn in_flight(&mut self, op: OpCode) -> &mut u64 {
        match Kind::of(op) {
            Kind::Children => &mut self.children.in_flight,
            Kind::Data => &mut self.data.in_flight,
            Kind::Other => &mut self.others,
        }
    }

    fn reads(&mut self, op: OpCode) -> Option<&mut Reads> {
        match Kind::of(op) {
            Kind::Children => Some(&mut self.children),
            Kind::Data => Some(&mut self.data),
            Kind::Other => None,
        }
    }
}

/// What is in a reply.
enum Kind {
    Children,
    Data,
    /// Nothing that grows with what others store.
    Other,
}

impl Kind {
    fn of(op: OpCode) -> Self {
        match op {
            OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 | OpCode::GET_EPHEMERALS => Self::Children,
            OpCode::GET_DATA | OpCode::MULTI_READ => Self::Data,
            _ => Self::Other,
        }
    }
}
