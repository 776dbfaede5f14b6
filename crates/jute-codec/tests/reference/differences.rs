//! Where jute-codec reads something else than ZooKeeper on purpose, with the reasons. Everything
//! else must be equal.
//!
//! Three more differences are in the place that they concern:
//!
//! - Text must be UTF-8 or Java's spelling of it ([`text`](super::text)). Java replaces what is
//!   neither, so two names could become equal. Here it is an error.
//! - A length or count below -1 is an error. Java reads a vector with such a count as empty, and
//!   refuses a buffer or text with such a length. No peer writes either.
//! - jute-codec has no limit on the length of a buffer. ZooKeeper has `jute.maxbuffer`, which
//!   [`FrameDecoder`](jute_codec::FrameDecoder) replaces by a limit on the frame.

use jute_codec::DecodeErrorKind;

use super::value::Value;

/// The place of a field.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The opcode of the request, or of the element if it is in a list; 0 if there is none.
    pub(crate) op: i32,
    /// Whether the record is an element of a list.
    pub(crate) is_listed: bool,
    pub(crate) record: &'static str,
    pub(crate) field: &'static str,
}

/// What null means in a field that may be null in ZooKeeper.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Null {
    Empty,
    Kept,
    Refused,
}

impl Place {
    /// Null text. ZooKeeper accepts it everywhere.
    pub(crate) fn null_text(self) -> Null {
        match self.record {
            // It means that a part of the request is absent.
            "ReconfigRequest" | "GetEphemeralsRequest" => Null::Kept,
            // Some clients write an empty identity as null, and servers treat both alike.
            "Id" => Null::Empty,
            // A path or name that is null makes no sense, and would be a burden on every caller.
            _ => Null::Refused,
        }
    }

    /// A null buffer.
    pub(crate) fn null_buffer(self) -> Null {
        // No password and an empty one are equally wrong, and servers treat both alike.
        if self.field == "passwd" { Null::Empty } else { Null::Kept }
    }

    /// Replaces or refuses the value of a field.
    pub(crate) fn accepted(self, value: Value) -> Result<Value, DecodeErrorKind> {
        match (self.record, self.field, value) {
            // Servers ignore it.
            ("AuthPacket", "type", _) => Ok(Value::Int(0)),
            // Servers ignore it inside of a multiRead.
            ("GetDataRequest" | "GetChildrenRequest", "watch", _) if self.is_listed => {
                Ok(Value::Bool(false))
            }
            ("CreateRequest" | "CreateTTLRequest", "flags", Value::Int(flags)) => {
                // Servers refuse the other flags with BadArguments, or terminate.
                let read = self.flags().iter().find(|(written, _)| *written == flags);
                read.map(|(_, read)| Value::Int(*read))
                    .ok_or(DecodeErrorKind::IllegalFlags { op: self.op, flags })
            }
            // Servers refuse the others with BadArguments.
            ("CreateTTLRequest", "ttl", Value::Long(ms)) if !(1..=TTL_MAX).contains(&ms) => {
                Err(DecodeErrorKind::IllegalTtl(ms))
            }
            (_, _, value) => Ok(value),
        }
    }

    /// Returns the flags that the opcode may have, and those that servers read in place of them.
    pub(crate) fn flags(self) -> &'static [(i32, i32)] {
        match self.op {
            1 | 15 => &[(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)],
            19 => &[(4, 4), (0, 4), (1, 4)],
            _ => &[(5, 5), (6, 6)],
        }
    }
}

/// The opcode of a result. The results of create2, createContainer and createTTL have the same
/// record, and callers know what they asked for.
pub(crate) fn result_op(op: i32) -> i32 {
    if matches!(op, 19 | 21) { 15 } else { op }
}

/// The longest time to live that servers accept, in milliseconds.
pub(crate) const TTL_MAX: i64 = 0xff_ffff_ffff;
