//! Requests: a header, then the record of the operation.

use std::fmt;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::code::{AddWatchMode, OpCode, WatcherType};
use crate::create::CreateRequest;
use crate::data::Acl;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::multi::{self, MultiOp, ReadOp};
use crate::wire::{Reader, Record};

record! {
    /// Prefix of every request but the handshake.
    #[derive(Copy)]
    pub struct RequestHeader {
        /// Comes back in the reply; positive for ordinary requests.
        xid: i32,
        /// Which record follows.
        op: OpCode,
    }
}

record! {
    /// Names a znode to read, and whether to watch it.
    pub struct ReadRequest {
        /// Path of the znode.
        path: ByteString,
        /// Whether to leave a one-shot watch.
        watch: bool,
    }
}

record! {
    /// Deletes a znode.
    pub struct DeleteRequest {
        /// Path of the znode.
        path: ByteString,
        /// Expected version of the data; -1 for any.
        version: i32,
    }
}

record! {
    /// Inside a multi: fails it unless the znode exists and has the version.
    pub struct CheckRequest {
        /// Path of the znode.
        path: ByteString,
        /// Expected version of the data; -1 for any.
        version: i32,
    }
}

record! {
    /// Replaces the data of a znode.
    pub struct SetDataRequest {
        /// Path of the znode.
        path: ByteString,
        /// New data; null and empty are different values.
        data: Option<Bytes>,
        /// Expected version of the data; -1 for any.
        version: i32,
    }
}

record! {
    /// Replaces the access control list of a znode.
    pub struct SetAclRequest {
        /// Path of the znode.
        path: ByteString,
        /// New list.
        acl: Vec<Acl>,
        /// Expected version of the list (`aversion`); -1 for any.
        version: i32,
    }
}

record! {
    /// Changes the members of the ensemble.
    pub struct ReconfigRequest {
        /// Servers to add or change.
        joining_servers: Option<ByteString>,
        /// Ids of servers to remove.
        leaving_servers: Option<ByteString>,
        /// The whole new membership, instead of the two above.
        new_members: Option<ByteString>,
        /// Expected version of the configuration; -1 for any.
        config_id: i64,
    }
}

record! {
    /// Names watches to check or remove.
    pub struct WatchesRequest {
        /// Path of the watched znode.
        path: ByteString,
        /// Which of its watches.
        kind: WatcherType,
    }
}

record! {
    /// Adds a persistent watch.
    pub struct AddWatchRequest {
        /// Path to watch; the znode may be missing.
        path: ByteString,
        /// Kind of watch.
        mode: AddWatchMode,
    }
}

record! {
    /// Restores one-shot watches on a new connection.
    pub struct SetWatches {
        /// Changes after this zxid fire at once.
        relative_zxid: i64,
        /// Watches left by getData, or by exists on an existing znode.
        data: Vec<ByteString>,
        /// Watches left by exists on a missing znode.
        exist: Vec<ByteString>,
        /// Watches left by getChildren.
        child: Vec<ByteString>,
    }
}

record! {
    /// Restores watches of all kinds on a new connection.
    pub struct SetWatches2 {
        /// Changes after this zxid fire the one-shot watches at once; persistent ones miss them.
        relative_zxid: i64,
        /// Watches left by getData, or by exists on an existing znode.
        data: Vec<ByteString>,
        /// Watches left by exists on a missing znode.
        exist: Vec<ByteString>,
        /// Watches left by getChildren.
        child: Vec<ByteString>,
        /// Persistent watches.
        persistent: Vec<ByteString>,
        /// Persistent recursive watches.
        persistent_recursive: Vec<ByteString>,
    }
}

/// Adds an identity to the connection.
#[derive(Clone, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
pub struct AuthPacket {
    /// Scheme, such as `digest`.
    pub scheme: ByteString,
    /// Credentials, such as `user:password`.
    pub auth: Option<Bytes>,
}

impl Record for AuthPacket {
    fn encode(&self, out: &mut BytesMut) {
        // `type`, which servers ignore.
        0_i32.encode(out);
        self.scheme.encode(out);
        self.auth.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.field::<i32>("AuthPacket", "type")?;
        Ok(Self {
            scheme: input.field("AuthPacket", "scheme")?,
            auth: input.field("AuthPacket", "auth")?,
        })
    }
}

/// The credentials stay out of logs.
impl fmt::Debug for AuthPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthPacket").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// A token of a round of SASL; null and empty are different values.
#[derive(Clone, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
pub struct SaslToken(pub Option<Bytes>);

impl Record for SaslToken {
    fn encode(&self, out: &mut BytesMut) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(Option::decode(input)?))
    }
}

/// The token stays out of logs: it may be all that proves who somebody is.
impl fmt::Debug for SaslToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslToken").finish_non_exhaustive()
    }
}

/// Everything a client can ask for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Adds a persistent watch (3.6.0).
    AddWatch(AddWatchRequest),
    /// Adds an identity to the connection.
    Auth(AuthPacket),
    /// Asks whether a watch is registered (3.5.0).
    CheckWatches(WatchesRequest),
    /// Ends the session.
    CloseSession,
    /// Creates a znode.
    Create(CreateRequest),
    /// Deletes a znode.
    Delete(DeleteRequest),
    /// Reads the stat of a znode that may be missing.
    Exists(ReadRequest),
    /// Reads the access control list.
    GetAcl(ByteString),
    /// Counts all descendants (3.6.0).
    GetAllChildrenNumber(ByteString),
    /// Lists the children.
    GetChildren(ReadRequest),
    /// Lists the children and reads the stat.
    GetChildren2(ReadRequest),
    /// Reads data and stat.
    GetData(ReadRequest),
    /// Lists the ephemerals of the session below a prefix (3.6.0).
    GetEphemerals(Option<ByteString>),
    /// Writes atomically.
    Multi(Vec<MultiOp>),
    /// Reads several znodes (3.6.0).
    MultiRead(Vec<ReadOp>),
    /// Keeps the session alive.
    Ping,
    /// Changes the ensemble (3.5.0).
    Reconfig(ReconfigRequest),
    /// Removes watches (3.5.0).
    RemoveWatches(WatchesRequest),
    /// One round of SASL; the token.
    Sasl(SaslToken),
    /// Replaces the access control list.
    SetAcl(SetAclRequest),
    /// Replaces the data.
    SetData(SetDataRequest),
    /// Restores one-shot watches.
    SetWatches(SetWatches),
    /// Restores watches of all kinds (3.6.0).
    SetWatches2(SetWatches2),
    /// Waits until the server has caught up with its leader; echoes the path.
    Sync(ByteString),
    /// Lists the identities of the connection (3.7.0).
    WhoAmI,
}

impl Request {
    /// Opcode for the header.
    pub fn op(&self) -> OpCode {
        match self {
            Self::AddWatch(_) => OpCode::ADD_WATCH,
            Self::Auth(_) => OpCode::AUTH,
            Self::CheckWatches(_) => OpCode::CHECK_WATCHES,
            Self::CloseSession => OpCode::CLOSE_SESSION,
            Self::Create(create) => create.op(),
            Self::Delete(_) => OpCode::DELETE,
            Self::Exists(_) => OpCode::EXISTS,
            Self::GetAcl(_) => OpCode::GET_ACL,
            Self::GetAllChildrenNumber(_) => OpCode::GET_ALL_CHILDREN_NUMBER,
            Self::GetChildren(_) => OpCode::GET_CHILDREN,
            Self::GetChildren2(_) => OpCode::GET_CHILDREN2,
            Self::GetData(_) => OpCode::GET_DATA,
            Self::GetEphemerals(_) => OpCode::GET_EPHEMERALS,
            Self::Multi(_) => OpCode::MULTI,
            Self::MultiRead(_) => OpCode::MULTI_READ,
            Self::Ping => OpCode::PING,
            Self::Reconfig(_) => OpCode::RECONFIG,
            Self::RemoveWatches(_) => OpCode::REMOVE_WATCHES,
            Self::Sasl(_) => OpCode::SASL,
            Self::SetAcl(_) => OpCode::SET_ACL,
            Self::SetData(_) => OpCode::SET_DATA,
            Self::SetWatches(_) => OpCode::SET_WATCHES,
            Self::SetWatches2(_) => OpCode::SET_WATCHES2,
            Self::Sync(_) => OpCode::SYNC,
            Self::WhoAmI => OpCode::WHO_AM_I,
        }
    }

    /// Appends the record that follows the header.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::AddWatch(record) => record.encode(out),
            Self::Auth(record) => record.encode(out),
            Self::CheckWatches(record) | Self::RemoveWatches(record) => record.encode(out),
            Self::CloseSession | Self::Ping | Self::WhoAmI => {}
            Self::Create(record) => record.encode(out),
            Self::Delete(record) => record.encode(out),
            Self::Exists(record)
            | Self::GetChildren(record)
            | Self::GetChildren2(record)
            | Self::GetData(record) => record.encode(out),
            Self::GetAcl(path) | Self::GetAllChildrenNumber(path) | Self::Sync(path) => {
                path.encode(out);
            }
            Self::GetEphemerals(prefix) => prefix.encode(out),
            Self::Multi(ops) => multi::encode_ops(ops, out),
            Self::MultiRead(ops) => multi::encode_reads(ops, out),
            Self::Reconfig(record) => record.encode(out),
            Self::Sasl(token) => token.encode(out),
            Self::SetAcl(record) => record.encode(out),
            Self::SetData(record) => record.encode(out),
            Self::SetWatches(record) => record.encode(out),
            Self::SetWatches2(record) => record.encode(out),
        }
    }

    /// Reads the record that follows a header with this opcode.
    ///
    /// # Errors
    ///
    /// [`DecodeErrorKind::UnexpectedOp`] for opcodes that no client may send, at the first byte
    /// behind the header; others for bytes that are no such record.
    pub fn decode(op: OpCode, input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::ADD_WATCH => Self::AddWatch(Record::decode(input)?),
            OpCode::AUTH => Self::Auth(Record::decode(input)?),
            OpCode::CHECK_WATCHES => Self::CheckWatches(Record::decode(input)?),
            OpCode::CLOSE_SESSION => Self::CloseSession,
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                Self::Create(CreateRequest::decode(op, input)?)
            }
            OpCode::DELETE => Self::Delete(Record::decode(input)?),
            OpCode::EXISTS => Self::Exists(Record::decode(input)?),
            OpCode::GET_ACL => Self::GetAcl(input.field("GetACLRequest", "path")?),
            OpCode::GET_ALL_CHILDREN_NUMBER => {
                Self::GetAllChildrenNumber(input.field("GetAllChildrenNumberRequest", "path")?)
            }
            OpCode::GET_CHILDREN => Self::GetChildren(Record::decode(input)?),
            OpCode::GET_CHILDREN2 => Self::GetChildren2(Record::decode(input)?),
            OpCode::GET_DATA => Self::GetData(Record::decode(input)?),
            OpCode::GET_EPHEMERALS => {
                Self::GetEphemerals(input.field("GetEphemeralsRequest", "prefix_path")?)
            }
            OpCode::MULTI => Self::Multi(multi::decode_ops(input)?),
            OpCode::MULTI_READ => Self::MultiRead(multi::decode_reads(input)?),
            OpCode::PING => Self::Ping,
            OpCode::RECONFIG => Self::Reconfig(Record::decode(input)?),
            OpCode::REMOVE_WATCHES => Self::RemoveWatches(Record::decode(input)?),
            OpCode::SASL => Self::Sasl(input.field("GetSASLRequest", "token")?),
            OpCode::SET_ACL => Self::SetAcl(Record::decode(input)?),
            OpCode::SET_DATA => Self::SetData(Record::decode(input)?),
            OpCode::SET_WATCHES => Self::SetWatches(Record::decode(input)?),
            OpCode::SET_WATCHES2 => Self::SetWatches2(Record::decode(input)?),
            OpCode::SYNC => Self::Sync(input.field("SyncRequest", "path")?),
            OpCode::WHO_AM_I => Self::WhoAmI,
            _ => {
                return Err(DecodeError::new(
                    DecodeErrorKind::UnexpectedOp(op.0),
                    input.position(),
                ));
            }
        })
    }
}
