//! The measurements of each request: the operation, how it ended, and how long it took.

use std::time::Duration;

use jute_codec::OpCode;

use super::inflight::INFLIGHT_MAX;
use crate::error::OpError;

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// The server executed it.
    Completed,
    /// The server refused it.
    Refused,
    /// The connection was lost before the reply arrived.
    Lost,
    /// A reply arrived, but it is too long or cannot be decoded.
    Unusable,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sample {
    /// The operation.
    pub(crate) op: OpCode,
    /// How the request ended.
    pub(crate) fate: Fate,
    /// Time from the sending of the request to its end.
    pub(crate) latency: Duration,
}

impl Fate {
    pub(super) fn of<T>(result: &Result<T, OpError>) -> Self {
        match result {
            Ok(_) => Self::Completed,
            Err(OpError::ResponseTooLarge { .. } | OpError::Undecodable { .. }) => Self::Unusable,
            Err(_) => Self::Refused,
        }
    }
}

/// The samples that the driver has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a sample. A driver that takes none, such as a test, gets only the first ones: a round
    /// ends no more requests than can be in flight.
    pub(super) fn add(&mut self, sample: Sample) {
        if self.0.len() < INFLIGHT_MAX {
            self.0.push(sample);
        }
    }

    /// Moves the samples into an empty buffer, whose allocation is used for the next ones.
    pub(super) fn swap(&mut self, buffer: &mut Vec<Sample>) {
        debug_assert!(buffer.is_empty(), "the samples of the last round were processed");
        std::mem::swap(&mut self.0, buffer);
    }
}
