//! Errors of encoding and decoding.

use std::fmt;

use thiserror::Error;

/// The bytes are not the record that they should be.
#[derive(Clone, Eq, Error, PartialEq)]
#[error("{kind} at byte {offset}{}", Place(.record, .field))]
pub struct DecodeError {
    /// Why decoding failed.
    pub kind: DecodeErrorKind,
    /// Where the offending value (a field, or an element of a vector) begins in the payload of its
    /// frame.
    pub offset: usize,
    /// The innermost record that was being read; empty outside of a record. This is the name of the
    /// type in this crate, or the name in `zookeeper.jute` if this crate has no such type.
    pub record: &'static str,
    /// The field of that record; empty outside of a record.
    pub field: &'static str,
}

crate::debug_by_message!(DecodeError);

/// Why a field is invalid.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// A create request combines an opcode with flags that it does not allow.
    #[error("create flags {flags} are illegal with opcode {op}")]
    IllegalFlags {
        /// The opcode of the request.
        op: i32,
        /// Its flags.
        flags: i32,
    },
    /// A TTL is outside 1 ms to 2^40 - 1 ms.
    #[error("a TTL of {0} ms is not between 1 and 1099511627775")]
    IllegalTtl(i64),
    /// A length or count is below -1.
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// Text is neither UTF-8 nor CESU-8 (UTF-8 with surrogate pairs).
    #[error("text is not UTF-8")]
    NotText,
    /// A required value is null.
    #[error("null where a value is required")]
    Null,
    /// The name of a child is 256 MiB long, or longer.
    #[error("a name of {0} bytes is too long")]
    TooLong(usize),
    /// The input ends inside a field.
    #[error("{need} bytes needed, {have} left")]
    UnexpectedEnd {
        /// How many bytes the field needs.
        need: usize,
        /// How many bytes are left.
        have: usize,
    },
    /// An opcode is unknown to this crate, or not allowed here.
    #[error("opcode {0} is not expected here")]
    UnexpectedOp(i32),
}

crate::debug_by_message!(DecodeErrorKind);

/// A message could not be framed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The payload is longer than the limit; nothing was written.
    #[error("a payload of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// The length of the payload.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

crate::debug_by_message!(EncodeError);

/// A length prefix is negative: the byte stream does not use this protocol, or the reader has lost
/// synchronization.
#[derive(Clone, Copy, Eq, Error, PartialEq)]
#[error("frame length {length} is negative")]
pub struct FrameError {
    /// The length that was read.
    pub length: i32,
}

crate::debug_by_message!(FrameError);

impl DecodeError {
    /// Creates an error about the value at `offset`, without a record.
    pub(crate) const fn new(kind: DecodeErrorKind, offset: usize) -> Self {
        Self { kind, offset, record: "", field: "" }
    }

    /// Creates an error about an opcode at `offset` that is unknown, or not allowed there.
    pub(crate) const fn unexpected_op(op: i32, offset: usize) -> Self {
        Self::new(DecodeErrorKind::UnexpectedOp(op), offset)
    }

    /// Adds the record and field, unless the error already names an inner record.
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
