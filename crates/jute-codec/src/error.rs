//! What can be wrong with bytes, and where.

use std::fmt;

use thiserror::Error;

/// Why bytes are not the record they should be.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{kind} at byte {offset}{}", Place(.record, .field))]
pub struct DecodeError {
    /// What was wrong.
    pub kind: DecodeErrorKind,
    /// Where the offending value begins in the payload of its frame: a field, or an element of
    /// a vector.
    pub offset: usize,
    /// Innermost record being read, empty outside of one. Named as the type of this crate, or as
    /// in `zookeeper.jute` where this crate has no type for it.
    pub record: &'static str,
    /// Field of that record, empty outside of one.
    pub field: &'static str,
}

/// What is wrong with a field.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A create request combines an opcode with flags that do not belong to it.
    #[error("create flags {flags} are illegal with opcode {op}")]
    IllegalFlags {
        /// Opcode of the request.
        op: i32,
        /// Its flags.
        flags: i32,
    },
    /// A TTL outside 1 ms to 2^40 - 1 ms.
    #[error("a TTL of {0} ms is not between 1 and 1099511627775")]
    IllegalTtl(i64),
    /// A length or count below -1.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// Text that is neither UTF-8 nor UTF-8 with supplementary characters as surrogate pairs.
    #[error("text is not UTF-8")]
    NotText,
    /// Null where a value is required.
    #[error("null where a value is required")]
    Null,
    /// A name of a child, as long as 256 MiB.
    #[error("a name of {0} bytes is too long")]
    TooLong(usize),
    /// The input ends inside a field.
    #[error("{need} bytes needed, {have} left")]
    UnexpectedEnd {
        /// Bytes the field needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// An operation that may not stand where it stands, or that this crate does not know.
    #[error("opcode {0} is not expected here")]
    UnexpectedOp(i32),
}

/// Why a message could not be framed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The payload is longer than the limit; nothing was written.
    #[error("a payload of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Length of the payload.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

/// A length prefix that cannot be one: the byte stream is not this protocol, or out of step.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("frame length {length} is negative")]
pub struct FrameError {
    /// The length that was read.
    pub length: i32,
}

impl DecodeError {
    /// An error about the value that begins at `offset`, in no record yet.
    pub(crate) const fn new(kind: DecodeErrorKind, offset: usize) -> Self {
        Self { kind, offset, record: "", field: "" }
    }

    /// Names the record and field an error happened in, unless an inner one is named already.
    #[must_use]
    pub(crate) fn within(mut self, record: &'static str, field: &'static str) -> Self {
        if self.record.is_empty() {
            self.record = record;
            self.field = field;
        }
        self
    }
}

struct Place(&'static str, &'static str);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", in {}.{}", self.0, self.1) }
    }
}
