//! Converts the values of jute-codec, field by field, under the names of `schema.jute`.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, AclReply, AddWatchMode, AddWatchRequest, AuthPacket, CheckRequest, ChildrenReply,
    ClientInfo, ConnectRequest, ConnectResponse, Create2Reply, CreateMode, CreateRequest,
    DataReply, DeleteRequest, ErrorCode, EventType, Id, KeeperState, MultiOp, MultiResult,
    NameList, OpCode, Permissions, ReadOp, ReadRequest, ReadResult, ReconfigRequest, ReplyHeader,
    Request, RequestHeader, Response, SaslToken, SessionId, SetAclRequest, SetDataRequest,
    SetWatches, SetWatches2, Stat, Version, WatcherEvent, WatcherType, WatchesRequest, Zxid,
};

use super::value::Value;

/// A value of jute-codec that can be compared with one of the reference.
pub(crate) trait ToValue {
    /// Converts the value.
    fn to_value(&self) -> Value;
}

/// Converts primitives.
macro_rules! primitives {
    ($( $ty:ty => |$value:ident| $converted:expr; )*) => {
        $( impl ToValue for $ty {
            fn to_value(&self) -> Value {
                let $value = self;
                $converted
            }
        } )*
    };
}

primitives! {
    bool => |value| Value::Bool(*value);
    i32 => |value| Value::Int(*value);
    i64 => |value| Value::Long(*value);
    Bytes => |value| Value::Buffer(Some(value.to_vec()));
    Option<Bytes> => |value| Value::Buffer(value.as_ref().map(|bytes| bytes.to_vec()));
    ByteString => |value| Value::Text(Some(value.to_string()));
    Option<ByteString> => |value| Value::Text(value.as_ref().map(ToString::to_string));
    NameList => |names| {
        Value::Vector(names.iter().map(|name| Value::Text(Some(name.to_owned()))).collect())
    };
}

/// Converts numbers that have a type of their own.
macro_rules! numbers {
    ($( $ty:ident )*) => {
        $( impl ToValue for $ty {
            fn to_value(&self) -> Value {
                self.0.to_value()
            }
        } )*
    };
}

numbers! {
    AddWatchMode ErrorCode EventType KeeperState OpCode Permissions SessionId Version WatcherType
    Zxid
}

impl<T: ToValue> ToValue for Vec<T> {
    fn to_value(&self) -> Value {
        Value::Vector(self.iter().map(ToValue::to_value).collect())
    }
}

/// Converts records. The name in `schema.jute` is on the left, unless it is the same.
macro_rules! records {
    ($( $ty:ident { $( $name:ident $(: $field:ident)? ),* $(,)? } )*) => {
        $( impl ToValue for $ty {
            fn to_value(&self) -> Value {
                Value::Record(vec![
                    $( (stringify!($name), records!(@ self $name $($field)?).to_value()), )*
                ])
            }
        } )*
    };
    (@ $self:ident $name:ident) => { $self.$name };
    (@ $self:ident $name:ident $field:ident) => { $self.$field };
}

records! {
    Acl { perms, id }
    AclReply { acl, stat }
    AddWatchRequest { path, mode }
    CheckRequest { path, version }
    ChildrenReply { children, stat }
    ClientInfo { authScheme: auth_scheme, user }
    Create2Reply { path, stat }
    DataReply { data, stat }
    DeleteRequest { path, version }
    Id { scheme, id }
    ReadRequest { path, watch }
    ReconfigRequest {
        joiningServers: joining_servers, leavingServers: leaving_servers, newMembers: new_members,
        curConfigId: config_id,
    }
    ReplyHeader { xid, zxid, err }
    RequestHeader { xid, type: op }
    SetAclRequest { path, acl, version }
    SetDataRequest { path, data, version }
    SetWatches {
        relativeZxid: relative_zxid, dataWatches: data, existWatches: exist, childWatches: child,
    }
    SetWatches2 {
        relativeZxid: relative_zxid, dataWatches: data, existWatches: exist, childWatches: child,
        persistentWatches: persistent, persistentRecursiveWatches: persistent_recursive,
    }
    Stat {
        czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner: ephemeral_owner,
        dataLength: data_length, numChildren: num_children, pzxid,
    }
    WatcherEvent { type: kind, state, path }
    WatchesRequest { path, type: kind }
}

impl ToValue for ConnectRequest {
    fn to_value(&self) -> Value {
        let fields = vec![
            ("protocolVersion", self.protocol_version.to_value()),
            ("lastZxidSeen", self.last_zxid_seen.to_value()),
            ("timeOut", self.timeout_ms.to_value()),
            ("sessionId", self.session_id.to_value()),
            ("passwd", self.password.to_value()),
        ];
        handshake(fields, self.read_only)
    }
}

impl ToValue for ConnectResponse {
    fn to_value(&self) -> Value {
        let fields = vec![
            ("protocolVersion", self.protocol_version.to_value()),
            ("timeOut", self.timeout_ms.to_value()),
            ("sessionId", self.session_id.to_value()),
            ("passwd", self.password.to_value()),
        ];
        handshake(fields, self.read_only)
    }
}

fn handshake(mut fields: Vec<(&'static str, Value)>, read_only: Option<bool>) -> Value {
    fields.extend(read_only.map(|read_only| ("readOnly", read_only.to_value())));
    Value::Record(fields)
}

impl ToValue for AuthPacket {
    fn to_value(&self) -> Value {
        Value::Record(vec![
            ("type", Value::Int(0)),
            ("scheme", self.scheme.to_value()),
            ("auth", self.auth.to_value()),
        ])
    }
}

impl ToValue for CreateRequest {
    fn to_value(&self) -> Value {
        let (flags, ttl) = match self.mode {
            CreateMode::Persistent => (0, None),
            CreateMode::Ephemeral => (1, None),
            CreateMode::PersistentSequential => (2, None),
            CreateMode::EphemeralSequential => (3, None),
            CreateMode::Container => (4, None),
            CreateMode::PersistentTtl(ttl) => (5, Some(ttl)),
            CreateMode::PersistentSequentialTtl(ttl) => (6, Some(ttl)),
        };
        let mut fields = vec![
            ("path", self.path.to_value()),
            ("data", self.data.to_value()),
            ("acl", self.acl.to_value()),
            ("flags", Value::Int(flags)),
        ];
        fields.extend(ttl.map(|ttl| ("ttl", ttl.as_millis().to_value())));
        Value::Record(fields)
    }
}

fn single(name: &'static str, value: &impl ToValue) -> Value {
    Value::Record(vec![(name, value.to_value())])
}

impl ToValue for Request {
    fn to_value(&self) -> Value {
        match self {
            Self::AddWatch(record) => record.to_value(),
            Self::Auth(record) => record.to_value(),
            Self::CheckWatches(record) | Self::RemoveWatches(record) => record.to_value(),
            Self::CloseSession | Self::Ping | Self::WhoAmI => Value::nothing(),
            Self::Create(record) => record.to_value(),
            Self::Delete(record) => record.to_value(),
            Self::Exists(record)
            | Self::GetChildren(record)
            | Self::GetChildren2(record)
            | Self::GetData(record) => record.to_value(),
            Self::GetAcl(path) | Self::GetAllChildrenNumber(path) | Self::Sync(path) => {
                single("path", path)
            }
            Self::GetEphemerals(prefix) => single("prefixPath", prefix),
            Self::Multi(ops) => Value::List(ops.iter().map(op_value).collect()),
            Self::MultiRead(ops) => Value::List(ops.iter().map(read_value).collect()),
            Self::Reconfig(record) => record.to_value(),
            Self::Sasl(SaslToken(token)) => single("token", token),
            Self::SetAcl(record) => record.to_value(),
            Self::SetData(record) => record.to_value(),
            Self::SetWatches(record) => record.to_value(),
            Self::SetWatches2(record) => record.to_value(),
            other => panic!("convert.rs does not know {:?}", other.op()),
        }
    }
}

impl ToValue for Response {
    fn to_value(&self) -> Value {
        match self {
            Self::AddWatch(code) => single("err", code),
            Self::Create(path) | Self::Sync(path) => single("path", path),
            Self::Create2(record) => record.to_value(),
            Self::Empty => Value::nothing(),
            Self::Exists(stat) | Self::SetAcl(stat) | Self::SetData(stat) => single("stat", stat),
            Self::GetAcl(record) => record.to_value(),
            Self::GetAllChildrenNumber(number) => single("totalNumber", number),
            Self::GetChildren(names) => single("children", names),
            Self::GetChildren2(record) => record.to_value(),
            Self::GetData(record) | Self::Reconfig(record) => record.to_value(),
            Self::GetEphemerals(paths) => single("ephemerals", paths),
            Self::Multi(results) => Value::List(results.iter().map(result_value).collect()),
            Self::MultiRead(results) => {
                Value::List(results.iter().map(read_result_value).collect())
            }
            Self::Sasl(SaslToken(token)) => single("token", token),
            Self::WhoAmI(identities) => single("clientInfo", identities),
            other => panic!("convert.rs does not know {other:?}"),
        }
    }
}

fn op_value(op: &MultiOp) -> (i32, Value) {
    match op {
        MultiOp::Check(record) => (13, record.to_value()),
        MultiOp::Create(record) => (record.op().0, record.to_value()),
        MultiOp::Delete(record) => (2, record.to_value()),
        MultiOp::SetData(record) => (5, record.to_value()),
    }
}

fn result_value(result: &MultiResult) -> (i32, Value) {
    match result {
        MultiResult::Check => (13, Value::nothing()),
        MultiResult::Create { path } => (1, single("path", path)),
        MultiResult::Create2 { path, stat } => {
            (15, Value::Record(vec![("path", path.to_value()), ("stat", stat.to_value())]))
        }
        MultiResult::Delete => (2, Value::nothing()),
        MultiResult::Error(code) => (-1, single("err", code)),
        MultiResult::SetData(stat) => (5, single("stat", stat)),
    }
}

fn read_value(op: &ReadOp) -> (i32, Value) {
    let (op, path) = match op {
        ReadOp::GetChildren(path) => (8, path),
        ReadOp::GetData(path) => (4, path),
    };
    (op, Value::Record(vec![("path", path.to_value()), ("watch", Value::Bool(false))]))
}

fn read_result_value(result: &ReadResult) -> (i32, Value) {
    match result {
        ReadResult::Children(names) => (8, single("children", names)),
        ReadResult::Data { data, stat } => {
            (4, Value::Record(vec![("data", data.to_value()), ("stat", stat.to_value())]))
        }
        ReadResult::Error(code) => (-1, single("err", code)),
    }
}
