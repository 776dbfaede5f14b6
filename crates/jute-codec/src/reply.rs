//! Replies: a header, followed by the record of the operation if the header reports success.

use bytes::BytesMut;
use bytestring::ByteString;

use crate::auth::SaslToken;
use crate::data::{Acl, ClientInfo, Stat};
use crate::error::DecodeError;
use crate::ids::Zxid;
use crate::multi::{self, MultiResult, ReadResult};
use crate::names::NameList;
use crate::numbers::{ErrorCode, OpCode};
use crate::operation::{Create2Reply, DataReply};
use crate::wire::{Reader, Record};

record! {
    /// Precedes every watch event, and every reply except the reply to the handshake.
    #[derive(Copy)]
    pub struct ReplyHeader {
        /// The xid of the request, or one of the constants in [`xid`](crate::xid).
        xid: i32,
        /// The last transaction that the server had applied when it replied. A client may treat a
        /// zxid as seen only if it is above 0 and belongs to an ordinary reply: watch events have
        /// -1 or more, replies to auth and SASL have 0, and replies to unknown opcodes have -1.
        zxid: Zxid,
        /// The result.
        err: ErrorCode,
    }
}

record! {
    /// The access control list and stat of a znode.
    pub struct AclReply {
        /// The access control list.
        acl: Vec<Acl>,
        /// The stat.
        stat: Stat,
    }
}

record! {
    /// The names of the children, and the stat of their parent.
    pub struct ChildrenReply {
        /// The names of the children, in no particular order.
        children: NameList,
        /// The stat of the parent.
        stat: Stat,
    }
}

/// The record that follows the header of a successful reply.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Response {
    /// A persistent watch was added. The code is 0.
    AddWatch(ErrorCode),
    /// The access control list and stat.
    GetAcl(AclReply),
    /// The number of descendants.
    GetAllChildrenNumber(i32),
    /// The names of the children, in no particular order.
    GetChildren(NameList),
    /// The names of the children, and the stat of their parent.
    GetChildren2(ChildrenReply),
    /// The path of the new znode.
    Create(ByteString),
    /// The path and stat of the new znode.
    Create2(Create2Reply),
    /// No record, as in the reply to delete, ping, auth, setWatches, checkWatches, removeWatches or
    /// closeSession.
    Empty,
    /// The stat of an existing znode.
    Exists(Stat),
    /// The data and stat.
    GetData(DataReply),
    /// The paths of the session's ephemerals.
    GetEphemerals(Vec<ByteString>),
    /// The results of a multi. The multi failed if any of them is an
    /// [`Error`](MultiResult::Error), although the header says `OK`.
    Multi(Vec<MultiResult>),
    /// The results of a multiRead.
    MultiRead(Vec<ReadResult>),
    /// The new configuration.
    Reconfig(DataReply),
    /// A SASL token.
    Sasl(SaslToken),
    /// The stat after the access control list changed.
    SetAcl(Stat),
    /// The stat after the data changed.
    SetData(Stat),
    /// The path of the request.
    Sync(ByteString),
    /// The identities of the connection.
    WhoAmI(Vec<ClientInfo>),
}

impl Response {
    /// Returns the paths in the reply. The result omits the names of children, which are relative.
    pub fn paths_mut(&mut self) -> Vec<&mut ByteString> {
        match self {
            Self::Create(path) | Self::Sync(path) => vec![path],
            Self::Create2(record) => vec![&mut record.path],
            Self::GetEphemerals(paths) => paths.iter_mut().collect(),
            Self::Multi(results) => results
                .iter_mut()
                .filter_map(|result| match result {
                    MultiResult::Create { path } | MultiResult::Create2 { path, .. } => Some(path),
                    MultiResult::Check
                    | MultiResult::Delete
                    | MultiResult::Error(_)
                    | MultiResult::SetData(_) => None,
                })
                .collect(),
            Self::AddWatch(_)
            | Self::Empty
            | Self::Exists(_)
            | Self::GetAcl(_)
            | Self::GetAllChildrenNumber(_)
            | Self::GetChildren(_)
            | Self::GetChildren2(_)
            | Self::GetData(_)
            | Self::MultiRead(_)
            | Self::Reconfig(_)
            | Self::Sasl(_)
            | Self::SetAcl(_)
            | Self::SetData(_)
            | Self::WhoAmI(_) => Vec::new(),
        }
    }

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
    /// opcode. A failed SASL round is the only failure whose reply has a record: a null token.
    ///
    /// # Errors
    ///
    /// Returns [`UnexpectedOp`](crate::DecodeErrorKind::UnexpectedOp), with the offset of the first
    /// byte after the header, if this crate does not know the reply to the opcode. Returns other
    /// kinds if the bytes are not a valid record.
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
            _ => return Err(DecodeError::unexpected_op(op.0, input.position())),
        })
    }
}
