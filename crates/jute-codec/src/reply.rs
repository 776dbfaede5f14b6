//! Replies: a header, then, if it reports success, the record of the operation.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::code::{ErrorCode, OpCode};
use crate::data::{Acl, ClientInfo, Stat};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::multi::{self, MultiResult, ReadResult};
use crate::names::NameList;
use crate::request::SaslToken;
use crate::wire::{Reader, Record};

record! {
    /// Prefix of every reply but the handshake's, and of every watch event.
    #[derive(Copy)]
    pub struct ReplyHeader {
        /// Echo of the request's xid, or one of [`xid`](crate::xid).
        xid: i32,
        /// Last transaction the server had applied when it answered. Only values above 0 in
        /// ordinary replies count as seen: events carry -1 or more, auth and SASL 0, unknown
        /// opcodes -1.
        zxid: i64,
        /// Result.
        err: ErrorCode,
    }
}

record! {
    /// Path and stat of a new znode.
    pub struct Create2Reply {
        /// Path with the number that a sequential mode appended.
        path: ByteString,
        /// Stat.
        stat: Stat,
    }
}

record! {
    /// Data and stat of a znode.
    pub struct DataReply {
        /// Data; null and empty are different values.
        data: Option<Bytes>,
        /// Stat.
        stat: Stat,
    }
}

record! {
    /// Access control list and stat of a znode.
    pub struct AclReply {
        /// The list.
        acl: Vec<Acl>,
        /// Stat.
        stat: Stat,
    }
}

record! {
    /// Children and stat of a znode.
    pub struct ChildrenReply {
        /// Names of the children, in no particular order.
        children: NameList,
        /// Stat of the znode itself.
        stat: Stat,
    }
}

/// What follows the header of a successful reply.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Response {
    /// A persistent watch was added; the number is 0.
    AddWatch(ErrorCode),
    /// Access control list.
    GetAcl(AclReply),
    /// Number of descendants.
    GetAllChildrenNumber(i32),
    /// Names of the children, in no particular order.
    GetChildren(NameList),
    /// Children and stat.
    GetChildren2(ChildrenReply),
    /// Path of the new znode.
    Create(ByteString),
    /// Path and stat of the new znode.
    Create2(Create2Reply),
    /// Nothing follows: delete, ping, auth, watches restored, checked or removed, session closed.
    Empty,
    /// Stat of an existing znode.
    Exists(Stat),
    /// Data and stat.
    GetData(DataReply),
    /// Paths of the session's ephemerals.
    GetEphemerals(Vec<ByteString>),
    /// Results of a multi. The multi has failed if any of them is an
    /// [`Error`](MultiResult::Error), though the header says `OK`.
    Multi(Vec<MultiResult>),
    /// Results of a multiRead.
    MultiRead(Vec<ReadResult>),
    /// The new configuration.
    Reconfig(DataReply),
    /// A SASL token.
    Sasl(SaslToken),
    /// Stat after the change of the access control list.
    SetAcl(Stat),
    /// Stat after the change of the data.
    SetData(Stat),
    /// Echo of the path.
    Sync(ByteString),
    /// Identities of the connection.
    WhoAmI(Vec<ClientInfo>),
}

impl Response {
    /// Appends the record that follows the header.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::AddWatch(code) => code.encode(out),
            Self::GetAcl(record) => record.encode(out),
            Self::GetAllChildrenNumber(number) => number.encode(out),
            Self::GetChildren(names) => names.encode(out),
            Self::GetChildren2(record) => record.encode(out),
            Self::Create(path) | Self::Sync(path) => path.encode(out),
            Self::Create2(record) => record.encode(out),
            Self::Empty => {}
            Self::Exists(stat) | Self::SetAcl(stat) | Self::SetData(stat) => stat.encode(out),
            Self::GetData(record) | Self::Reconfig(record) => record.encode(out),
            Self::GetEphemerals(paths) => paths.encode(out),
            Self::Multi(results) => multi::encode_results(results, out),
            Self::MultiRead(results) => multi::encode_read_results(results, out),
            Self::Sasl(token) => token.encode(out),
            Self::WhoAmI(identities) => identities.encode(out),
        }
    }

    /// Reads the record that follows the header of a successful reply to a request with this
    /// opcode. (A failed SASL round is the one failure with a body: a null token.)
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::UnexpectedOp`] for an opcode without a known answer, at the first byte
    /// behind the header; others for bytes that are no such record.
    pub fn decode(op: OpCode, input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::ADD_WATCH => Self::AddWatch(input.field("ErrorResponse", "err")?),
            OpCode::AUTH
            | OpCode::CHECK_WATCHES
            | OpCode::CLOSE_SESSION
            | OpCode::DELETE
            | OpCode::PING
            | OpCode::REMOVE_WATCHES
            | OpCode::SET_WATCHES
            | OpCode::SET_WATCHES2 => Self::Empty,
            OpCode::CREATE => Self::Create(input.field("CreateResponse", "path")?),
            OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                Self::Create2(Record::decode(input)?)
            }
            OpCode::EXISTS => Self::Exists(Record::decode(input)?),
            OpCode::GET_ACL => Self::GetAcl(Record::decode(input)?),
            OpCode::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber(
                input.field("GetAllChildrenNumberResponse", "total_number")?,
            ),
            OpCode::GET_CHILDREN => {
                Self::GetChildren(input.field("GetChildrenResponse", "children")?)
            }
            OpCode::GET_CHILDREN2 => Self::GetChildren2(Record::decode(input)?),
            OpCode::GET_DATA => Self::GetData(Record::decode(input)?),
            OpCode::GET_EPHEMERALS => {
                Self::GetEphemerals(input.field("GetEphemeralsResponse", "ephemerals")?)
            }
            OpCode::MULTI => Self::Multi(multi::decode_results(input)?),
            OpCode::MULTI_READ => Self::MultiRead(multi::decode_read_results(input)?),
            OpCode::RECONFIG => Self::Reconfig(Record::decode(input)?),
            OpCode::SASL => Self::Sasl(input.field("SetSASLResponse", "token")?),
            OpCode::SET_ACL => Self::SetAcl(Record::decode(input)?),
            OpCode::SET_DATA => Self::SetData(Record::decode(input)?),
            OpCode::SYNC => Self::Sync(input.field("SyncResponse", "path")?),
            OpCode::WHO_AM_I => Self::WhoAmI(input.field("WhoAmIResponse", "client_info")?),
            _ => {
                return Err(DecodeError::new(
                    DecodeErrorKind::UnexpectedOp(op.0),
                    input.position(),
                ));
            }
        })
    }
}
