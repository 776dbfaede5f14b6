//! Which record a message has: the part of the protocol that `schema.jute` does not define.
//!
//! Opcodes are numbers here, so that a wrong constant of jute-codec makes a difference.

use jute_codec::OpCode;

/// A position in the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// A single record.
    Record(&'static str),
    /// What follows the header of a request with this opcode.
    Request(OpCode),
    /// What follows the header of the successful reply to such a request.
    Response(OpCode),
}

/// What a message consists of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Body {
    List(List),
    Nothing,
    Record(&'static str),
}

/// The lists whose elements have a header each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum List {
    Ops,
    ReadResults,
    Reads,
    Results,
}

impl Layout {
    /// Returns the body, or `None` if this opcode is not allowed here.
    pub fn body(self) -> Option<Body> {
        match self {
            Self::Record(name) => Some(Body::Record(name)),
            Self::Request(op) => request(op.0),
            Self::Response(op) => response(op.0),
        }
    }

    /// Returns the opcode; 0 if this is a record outside of a request and its reply.
    pub fn op(self) -> i32 {
        match self {
            Self::Record(_) => 0,
            Self::Request(op) | Self::Response(op) => op.0,
        }
    }
}

impl List {
    /// Returns the opcodes that the headers of the elements may have.
    pub fn ops(self) -> &'static [i32] {
        match self {
            Self::Ops => &[1, 2, 5, 13, 15, 19, 21],
            Self::ReadResults => &[4, 8, -1],
            Self::Reads => &[4, 8],
            Self::Results => &[1, 2, 5, 13, 15, 19, 21, -1],
        }
    }

    /// Returns the body of an element, or `None` if this opcode is not allowed here.
    pub fn body(self, op: i32) -> Option<Body> {
        match self {
            _ if !self.ops().contains(&op) => None,
            Self::Results | Self::ReadResults if op == -1 => Some(Body::Record("ErrorResponse")),
            Self::Ops if op == 13 => Some(Body::Record("CheckVersionRequest")),
            Self::Results if op == 13 => Some(Body::Nothing),
            Self::Ops | Self::Reads => request(op),
            Self::Results | Self::ReadResults => response(op),
        }
    }

    pub fn is_of_requests(self) -> bool {
        matches!(self, Self::Ops | Self::Reads)
    }
}

fn request(op: i32) -> Option<Body> {
    Some(Body::Record(match op {
        1 | 15 | 19 => "CreateRequest",
        2 => "DeleteRequest",
        3 => "ExistsRequest",
        4 => "GetDataRequest",
        5 => "SetDataRequest",
        6 => "GetACLRequest",
        7 => "SetACLRequest",
        8 => "GetChildrenRequest",
        9 => "SyncRequest",
        12 => "GetChildren2Request",
        14 => return Some(Body::List(List::Ops)),
        16 => "ReconfigRequest",
        17 => "CheckWatchesRequest",
        18 => "RemoveWatchesRequest",
        21 => "CreateTTLRequest",
        22 => return Some(Body::List(List::Reads)),
        100 => "AuthPacket",
        101 => "SetWatches",
        102 => "GetSASLRequest",
        103 => "GetEphemeralsRequest",
        104 => "GetAllChildrenNumberRequest",
        105 => "SetWatches2",
        106 => "AddWatchRequest",
        11 | 107 | -11 => return Some(Body::Nothing),
        _ => return None,
    }))
}

fn response(op: i32) -> Option<Body> {
    Some(Body::Record(match op {
        1 => "CreateResponse",
        3 => "ExistsResponse",
        4 | 16 => "GetDataResponse",
        5 => "SetDataResponse",
        6 => "GetACLResponse",
        7 => "SetACLResponse",
        8 => "GetChildrenResponse",
        9 => "SyncResponse",
        12 => "GetChildren2Response",
        14 => return Some(Body::List(List::Results)),
        15 | 19 | 21 => "Create2Response",
        22 => return Some(Body::List(List::ReadResults)),
        102 => "SetSASLResponse",
        103 => "GetEphemeralsResponse",
        104 => "GetAllChildrenNumberResponse",
        106 => "ErrorResponse",
        107 => "WhoAmIResponse",
        2 | 11 | 17 | 18 | 100 | 101 | 105 | -11 => return Some(Body::Nothing),
        _ => return None,
    }))
}
