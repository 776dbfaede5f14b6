//! Requests: a header, followed by the record of the operation.

use bytes::BytesMut;
use bytestring::ByteString;

use crate::auth::{AuthPacket, SaslToken};
use crate::create::CreateRequest;
use crate::data::Acl;
use crate::error::DecodeError;
use crate::ids::{Version, Zxid};
use crate::multi::{self, MultiOp, ReadOp};
use crate::numbers::{AddWatchMode, OpCode, WatcherType};
use crate::operation::{DeleteRequest, ReadRequest, SetDataRequest};
use crate::wire::{Reader, Record};

record! {
    /// Precedes every request except the handshake.
    #[derive(Copy)]
    pub struct RequestHeader {
        /// Identifies the request in its reply; positive for ordinary requests.
        xid: i32,
        /// The kind of record that follows.
        op: OpCode,
    }
}

record! {
    /// Replaces the access control list of a znode.
    pub struct SetAclRequest {
        /// The path of the znode.
        path: ByteString,
        /// The new list.
        acl: Vec<Acl>,
        /// The expected version of the list (`aversion`); [`Version::ANY`] matches every version.
        version: Version,
    }
}

record! {
    /// Changes the members of the ensemble.
    pub struct ReconfigRequest {
        /// Servers to add or change.
        joining_servers: Option<ByteString>,
        /// The ids of servers to remove.
        leaving_servers: Option<ByteString>,
        /// The complete new membership, which replaces the two fields above.
        new_members: Option<ByteString>,
        /// The expected version of the configuration; -1 matches every version.
        config_id: i64,
    }
}

record! {
    /// Checks or removes watches.
    pub struct WatchesRequest {
        /// The path of the watched znode.
        path: ByteString,
        /// The type of watches to check or remove.
        kind: WatcherType,
    }
}

record! {
    /// Adds a persistent watch.
    pub struct AddWatchRequest {
        /// The path to watch; the znode need not exist.
        path: ByteString,
        /// The kind of watch.
        mode: AddWatchMode,
    }
}

record! {
    /// Restores one-shot watches on a new connection.
    pub struct SetWatches {
        /// The server sends an event at once for each change after this zxid.
        relative_zxid: Zxid,
        /// Watches set by getData, or by exists on an existing znode.
        data: Vec<ByteString>,
        /// Watches set by exists on a missing znode.
        exist: Vec<ByteString>,
        /// Watches set by getChildren.
        child: Vec<ByteString>,
    }
}

record! {
    /// Restores watches of all kinds on a new connection.
    pub struct SetWatches2 {
        /// The server sends an event at once for each change after this zxid that matches a
        /// one-shot watch. Persistent watches miss these changes.
        relative_zxid: Zxid,
        /// Watches set by getData, or by exists on an existing znode.
        data: Vec<ByteString>,
        /// Watches set by exists on a missing znode.
        exist: Vec<ByteString>,
        /// Watches set by getChildren.
        child: Vec<ByteString>,
        /// Persistent watches.
        persistent: Vec<ByteString>,
        /// Persistent recursive watches.
        persistent_recursive: Vec<ByteString>,
    }
}

/// A request of a client.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// Adds a persistent watch (3.6.0).
    AddWatch(AddWatchRequest),
    /// Adds an identity to the connection.
    Auth(AuthPacket),
    /// Checks whether a watch is registered (3.5.0).
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
    /// Reads the data and stat.
    GetData(ReadRequest),
    /// Lists the ephemerals of the session below a prefix (3.6.0).
    GetEphemerals(Option<ByteString>),
    /// Writes atomically.
    Multi(Vec<MultiOp>),
    /// Reads several znodes (3.6.0).
    MultiRead(Vec<ReadOp>),
    /// Keeps the session alive.
    Ping,
    /// Changes the members of the ensemble (3.5.0).
    Reconfig(ReconfigRequest),
    /// Removes watches (3.5.0).
    RemoveWatches(WatchesRequest),
    /// Sends the token of one SASL round.
    Sasl(SaslToken),
    /// Replaces the access control list.
    SetAcl(SetAclRequest),
    /// Replaces the data.
    SetData(SetDataRequest),
    /// Restores one-shot watches.
    SetWatches(SetWatches),
    /// Restores watches of all kinds (3.6.0).
    SetWatches2(SetWatches2),
    /// Waits until the server has caught up with its leader. The reply repeats the path.
    Sync(ByteString),
    /// Lists the identities of the connection (3.7.0).
    WhoAmI,
}

/// The path of a request about one znode, as either a shared or a mutable reference.
macro_rules! path_of {
    ($request:expr $(, $mutable:tt)?) => {
        match $request {
            Self::AddWatch(request) => Some(&$($mutable)? request.path),
            Self::CheckWatches(request) | Self::RemoveWatches(request) => {
                Some(&$($mutable)? request.path)
            }
            Self::Create(request) => Some(&$($mutable)? request.path),
            Self::Delete(request) => Some(&$($mutable)? request.path),
            Self::Exists(request)
            | Self::GetChildren(request)
            | Self::GetChildren2(request)
            | Self::GetData(request) => Some(&$($mutable)? request.path),
            Self::GetAcl(path) | Self::GetAllChildrenNumber(path) | Self::Sync(path) => Some(path),
            Self::SetAcl(request) => Some(&$($mutable)? request.path),
            Self::SetData(request) => Some(&$($mutable)? request.path),
            Self::Auth(_)
            | Self::CloseSession
            | Self::GetEphemerals(_)
            | Self::Multi(_)
            | Self::MultiRead(_)
            | Self::Ping
            | Self::Reconfig(_)
            | Self::Sasl(_)
            | Self::SetWatches(_)
            | Self::SetWatches2(_)
            | Self::WhoAmI => None,
        }
    };
}

/// Lists the paths of a request, as either shared or mutable references.
macro_rules! paths_of {
    ($request:expr, $path:ident, $iter:ident $(, $mutable:tt)?) => {
        match $request {
            Self::GetEphemerals(prefix) => prefix.$iter().collect(),
            Self::Multi(ops) => ops
                .$iter()
                .map(|op| match op {
                    MultiOp::Check(op) => &$($mutable)? op.path,
                    MultiOp::Create(op) => &$($mutable)? op.path,
                    MultiOp::Delete(op) => &$($mutable)? op.path,
                    MultiOp::SetData(op) => &$($mutable)? op.path,
                })
                .collect(),
            Self::MultiRead(ops) => ops
                .$iter()
                .map(|op| match op {
                    ReadOp::GetChildren(path) | ReadOp::GetData(path) => path,
                })
                .collect(),
            other => other.$path().into_iter().collect(),
        }
    };
}

impl Request {
    /// Returns the opcode for the header.
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

    /// Returns the path of an operation on one znode.
    pub fn path(&self) -> Option<&ByteString> {
        path_of!(self)
    }

    /// Returns the same path as [`path`](Self::path), mutably.
    pub fn path_mut(&mut self) -> Option<&mut ByteString> {
        path_of!(self, mut)
    }

    /// Returns the paths of the operation, in the order of the request. The result is empty for
    /// [`GetEphemerals`](Self::GetEphemerals) without a prefix. It omits the paths of
    /// [`SetWatches`](Self::SetWatches) and [`SetWatches2`](Self::SetWatches2), which come from
    /// earlier requests.
    pub fn paths(&self) -> Vec<&ByteString> {
        paths_of!(self, path, iter)
    }

    /// Returns the same paths as [`paths`](Self::paths), mutably.
    pub fn paths_mut(&mut self) -> Vec<&mut ByteString> {
        paths_of!(self, path_mut, iter_mut, mut)
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
    /// Returns [`UnexpectedOp`](crate::DecodeErrorKind::UnexpectedOp), with the offset of the first
    /// byte after the header, for an opcode that clients may not send. Returns other kinds if the
    /// bytes are not a valid record.
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
            _ => return Err(DecodeError::unexpected_op(op.0, input.position())),
        })
    }
}
