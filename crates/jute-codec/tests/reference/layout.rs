//! What a message consists of.
//!
//! Opcodes are numbers here, so that a wrong constant of jute-codec makes a difference.

use jute_codec::OpCode;

use super::schema::{Content, Operation, operations};

/// A position in the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Layout {
    /// A single record.
    Record(&'static str),
    /// What follows the header of a request with this opcode.
    Request(OpCode),
    /// What follows the header of the successful reply to such a request.
    Response(OpCode),
}

/// What a message consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Body {
    List(List),
    Nothing,
    Record(&'static str),
}

/// The lists whose elements have a header each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum List {
    Ops,
    ReadResults,
    Reads,
    Results,
}

impl Layout {
    /// Returns the body, or `None` if this opcode is not allowed here.
    pub(crate) fn body(self) -> Option<Body> {
        match self {
            Self::Record(name) => Some(Body::Record(name)),
            Self::Request(op) => request(op.0),
            Self::Response(op) => response(op.0),
        }
    }

    /// Returns the opcode; 0 if this is a record outside of a request and its reply.
    pub(crate) fn op(self) -> i32 {
        match self {
            Self::Record(_) => 0,
            Self::Request(op) | Self::Response(op) => op.0,
        }
    }
}

impl List {
    /// Returns the opcodes that the headers of the elements may have.
    pub(crate) fn ops(self) -> &'static [i32] {
        match self {
            Self::Ops => &[1, 2, 5, 13, 15, 19, 21],
            Self::ReadResults => &[4, 8, -1],
            Self::Reads => &[4, 8],
            Self::Results => &[1, 2, 5, 13, 15, 19, 21, -1],
        }
    }

    /// Returns the body of an element, or `None` if this opcode is not allowed here.
    pub(crate) fn body(self, op: i32) -> Option<Body> {
        match self {
            _ if !self.ops().contains(&op) => None,
            Self::Results | Self::ReadResults if op == -1 => Some(Body::Record("ErrorResponse")),
            Self::Ops if op == 13 => Some(Body::Record("CheckVersionRequest")),
            Self::Results if op == 13 => Some(Body::Nothing),
            Self::Ops | Self::Reads => request(op),
            Self::Results | Self::ReadResults => response(op),
        }
    }

    pub(crate) fn is_of_requests(self) -> bool {
        matches!(self, Self::Ops | Self::Reads)
    }
}

fn request(op: i32) -> Option<Body> {
    let operation = operation(op)?;
    let list = if op == MULTI { List::Ops } else { List::Reads };
    Some(Body::of(operation.request, list))
}

fn response(op: i32) -> Option<Body> {
    let operation = operation(op)?;
    let list = if op == MULTI { List::Results } else { List::ReadResults };
    Some(Body::of(operation.reply, list))
}

fn operation(op: i32) -> Option<&'static Operation> {
    operations().iter().find(|known| known.op == op && !known.is_part)
}

impl Body {
    fn of(content: Content, list: List) -> Self {
        match content {
            Content::List => Self::List(list),
            Content::Nothing => Self::Nothing,
            Content::Record(name) => Self::Record(name),
        }
    }
}

/// The list of operations; the other list is that of reads.
const MULTI: i32 = 14;
