//! Converts values to JSON with the field names of `zookeeper.jute`. The golden frames use this
//! form. Buffers are hex strings.

use bytes::Bytes;
use jute_codec::{
    Acl, ClientInfo, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, ErrorCode,
    MultiOp, MultiResult, OpCode, ReadOp, ReadRequest, ReadResult, Request, Response, Stat,
    Version, WatcherEvent, WatchesRequest,
};
use serde_json::{Value, json};

/// Returns the opcode that has this name in the golden frames.
pub(crate) fn op_named(name: &str) -> Option<OpCode> {
    OPS.iter().find(|(_, known)| *known == name).map(|(op, _)| *op)
}

pub(crate) fn connect_request(record: &ConnectRequest) -> Value {
    json!({
        "protocolVersion": record.protocol_version,
        "lastZxidSeen": record.last_zxid_seen.0,
        "timeOut": record.timeout_ms,
        "sessionId": record.session_id.0,
        "passwd": hex(&record.password),
        "readOnly": record.read_only,
    })
}

pub(crate) fn connect_response(record: &ConnectResponse) -> Value {
    json!({
        "protocolVersion": record.protocol_version,
        "timeOut": record.timeout_ms,
        "sessionId": record.session_id.0,
        "passwd": hex(&record.password),
        "readOnly": record.read_only,
    })
}

pub(crate) fn watcher_event(event: &WatcherEvent) -> Value {
    json!({ "type": event.kind.0, "state": event.state.0, "path": &*event.path })
}

pub(crate) fn request(request: &Request) -> Value {
    match request {
        Request::AddWatch(record) => json!({ "path": &*record.path, "mode": record.mode.0 }),
        Request::Auth(record) => {
            json!({ "type": 0, "scheme": &*record.scheme, "auth": buffer(&record.auth) })
        }
        Request::CheckWatches(record) | Request::RemoveWatches(record) => watches(record),
        Request::CloseSession | Request::Ping | Request::WhoAmI => json!({}),
        Request::Create(record) => create(record),
        Request::Delete(record) => path_version(&record.path, record.version),
        Request::Exists(record)
        | Request::GetChildren(record)
        | Request::GetChildren2(record)
        | Request::GetData(record) => read(record),
        Request::GetAcl(path) | Request::GetAllChildrenNumber(path) | Request::Sync(path) => {
            json!({ "path": &**path })
        }
        Request::GetEphemerals(prefix) => json!({ "prefixPath": prefix.as_deref() }),
        Request::Multi(ops) => ops.iter().map(multi_op).collect(),
        Request::MultiRead(ops) => ops.iter().map(read_op).collect(),
        Request::Reconfig(record) => json!({
            "joiningServers": record.joining_servers.as_deref(),
            "leavingServers": record.leaving_servers.as_deref(),
            "newMembers": record.new_members.as_deref(),
            "curConfigId": record.config_id,
        }),
        Request::Sasl(token) => json!({ "token": buffer(&token.0) }),
        Request::SetAcl(record) => json!({
            "path": &*record.path,
            "acl": acl(&record.acl),
            "version": record.version.0,
        }),
        Request::SetData(record) => json!({
            "path": &*record.path,
            "data": buffer(&record.data),
            "version": record.version.0,
        }),
        Request::SetWatches(record) => json!({
            "relativeZxid": record.relative_zxid.0,
            "dataWatches": texts(&record.data),
            "existWatches": texts(&record.exist),
            "childWatches": texts(&record.child),
        }),
        Request::SetWatches2(record) => json!({
            "relativeZxid": record.relative_zxid.0,
            "dataWatches": texts(&record.data),
            "existWatches": texts(&record.exist),
            "childWatches": texts(&record.child),
            "persistentWatches": texts(&record.persistent),
            "persistentRecursiveWatches": texts(&record.persistent_recursive),
        }),
        other => panic!("no JSON form for {other:?}"),
    }
}

pub(crate) fn response(response: &Response) -> Value {
    match response {
        Response::AddWatch(code) => json!({ "err": code.0 }),
        Response::Create(path) | Response::Sync(path) => json!({ "path": &**path }),
        Response::Create2(record) => {
            json!({ "path": &*record.path, "stat": stat(&record.stat) })
        }
        Response::Empty => Value::Null,
        Response::Exists(value) | Response::SetAcl(value) | Response::SetData(value) => {
            json!({ "stat": stat(value) })
        }
        Response::GetAcl(record) => {
            json!({ "acl": acl(&record.acl), "stat": stat(&record.stat) })
        }
        Response::GetAllChildrenNumber(number) => json!({ "totalNumber": number }),
        Response::GetChildren(children) => json!({ "children": names(children) }),
        Response::GetChildren2(record) => {
            json!({ "children": names(&record.children), "stat": stat(&record.stat) })
        }
        Response::GetData(record) | Response::Reconfig(record) => {
            json!({ "data": buffer(&record.data), "stat": stat(&record.stat) })
        }
        Response::GetEphemerals(paths) => json!({ "ephemerals": texts(paths) }),
        Response::Multi(results) => with_end_mark(results.iter().map(multi_result)),
        Response::MultiRead(results) => with_end_mark(results.iter().map(read_result)),
        Response::Sasl(token) => json!({ "token": buffer(&token.0) }),
        Response::WhoAmI(identities) => {
            json!({ "clientInfo": identities.iter().map(identity).collect::<Value>() })
        }
        other => panic!("no JSON form for {other:?}"),
    }
}

fn create(record: &CreateRequest) -> Value {
    let (flags, ttl) = match record.mode {
        CreateMode::Persistent => (0, None),
        CreateMode::Ephemeral => (1, None),
        CreateMode::PersistentSequential => (2, None),
        CreateMode::EphemeralSequential => (3, None),
        CreateMode::Container => (4, None),
        CreateMode::PersistentTtl(ttl) => (5, Some(ttl)),
        CreateMode::PersistentSequentialTtl(ttl) => (6, Some(ttl)),
    };
    let mut value = json!({
        "path": &*record.path,
        "data": buffer(&record.data),
        "acl": acl(&record.acl),
        "flags": flags,
    });
    if let Some(ttl) = ttl {
        value["ttl"] = ttl.as_millis().into();
    }
    value
}

fn multi_op(op: &MultiOp) -> Value {
    let (op, args) = match op {
        MultiOp::Check(check) => (OpCode::CHECK, path_version(&check.path, check.version)),
        MultiOp::Create(record) => (record.op(), create(record)),
        MultiOp::Delete(delete) => (OpCode::DELETE, path_version(&delete.path, delete.version)),
        MultiOp::SetData(record) => (OpCode::SET_DATA, request(&Request::SetData(record.clone()))),
    };
    json!({ "op": op_name(op), "args": args })
}

fn read_op(op: &ReadOp) -> Value {
    let (op, path) = match op {
        ReadOp::GetChildren(path) => (OpCode::GET_CHILDREN, path),
        ReadOp::GetData(path) => (OpCode::GET_DATA, path),
    };
    json!({ "op": op_name(op), "args": { "path": &**path, "watch": false } })
}

fn multi_result(result: &MultiResult) -> Value {
    let (op, err, record) = match result {
        MultiResult::Check => (OpCode::CHECK, ErrorCode::OK, json!({})),
        MultiResult::Create { path } => (OpCode::CREATE, ErrorCode::OK, json!({ "path": &**path })),
        MultiResult::Create2 { path, stat: value } => {
            (OpCode::CREATE2, ErrorCode::OK, json!({ "path": &**path, "stat": stat(value) }))
        }
        MultiResult::Delete => (OpCode::DELETE, ErrorCode::OK, json!({})),
        MultiResult::Error(code) => (OpCode::ERROR, *code, json!({ "err": code.0 })),
        MultiResult::SetData(value) => {
            (OpCode::SET_DATA, ErrorCode::OK, json!({ "stat": stat(value) }))
        }
    };
    json!({ "header": multi_header(op, false, err), "result": record })
}

fn read_result(result: &ReadResult) -> Value {
    let (op, err, record) = match result {
        ReadResult::Children(children) => {
            (OpCode::GET_CHILDREN, ErrorCode::OK, json!({ "children": names(children) }))
        }
        ReadResult::Data { data, stat: value } => {
            let record = json!({ "data": buffer(data), "stat": stat(value) });
            (OpCode::GET_DATA, ErrorCode::OK, record)
        }
        ReadResult::Error(code) => (OpCode::ERROR, *code, json!({ "err": code.0 })),
    };
    json!({ "header": multi_header(op, false, err), "result": record })
}

fn with_end_mark(results: impl Iterator<Item = Value>) -> Value {
    let end = json!({ "header": multi_header(OpCode::ERROR, true, ErrorCode(-1)) });
    results.chain([end]).collect()
}

fn multi_header(op: OpCode, done: bool, err: ErrorCode) -> Value {
    json!({ "type": op.0, "done": done, "err": err.0 })
}

fn read(record: &ReadRequest) -> Value {
    json!({ "path": &*record.path, "watch": record.watch })
}

fn watches(record: &WatchesRequest) -> Value {
    json!({ "path": &*record.path, "type": record.kind.0 })
}

fn path_version(path: &str, version: Version) -> Value {
    json!({ "path": path, "version": version.0 })
}

fn identity(identity: &ClientInfo) -> Value {
    json!({ "authScheme": &*identity.auth_scheme, "user": &*identity.user })
}

fn acl(list: &[Acl]) -> Value {
    let entry = |entry: &Acl| {
        json!({
            "perms": entry.perms.0,
            "id": { "scheme": &*entry.id.scheme, "id": &*entry.id.id },
        })
    };
    list.iter().map(entry).collect()
}

fn stat(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid.0,
        "mzxid": stat.mzxid.0,
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version.0,
        "cversion": stat.cversion.0,
        "aversion": stat.aversion.0,
        "ephemeralOwner": stat.ephemeral_owner.0,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
        "pzxid": stat.pzxid.0,
    })
}

fn texts(texts: &[bytestring::ByteString]) -> Value {
    texts.iter().map(|text| Value::from(&**text)).collect()
}

fn names(names: &jute_codec::NameList) -> Value {
    names.iter().map(Value::from).collect()
}

fn buffer(buffer: &Option<Bytes>) -> Value {
    buffer.as_deref().map_or(Value::Null, hex)
}

fn hex(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn op_name(op: OpCode) -> &'static str {
    OPS.iter().find(|(known, _)| *known == op).expect("the opcode is in the table").1
}

const OPS: &[(OpCode, &str)] = &[
    (OpCode::ADD_WATCH, "addWatch"),
    (OpCode::AUTH, "auth"),
    (OpCode::CHECK, "check"),
    (OpCode::CHECK_WATCHES, "checkWatches"),
    (OpCode::CLOSE_SESSION, "closeSession"),
    (OpCode::CREATE, "create"),
    (OpCode::CREATE2, "create2"),
    (OpCode::CREATE_CONTAINER, "createContainer"),
    (OpCode::CREATE_TTL, "createTTL"),
    (OpCode::DELETE, "delete"),
    (OpCode::EXISTS, "exists"),
    (OpCode::GET_ACL, "getACL"),
    (OpCode::GET_ALL_CHILDREN_NUMBER, "getAllChildrenNumber"),
    (OpCode::GET_CHILDREN, "getChildren"),
    (OpCode::GET_CHILDREN2, "getChildren2"),
    (OpCode::GET_DATA, "getData"),
    (OpCode::GET_EPHEMERALS, "getEphemerals"),
    (OpCode::MULTI, "multi"),
    (OpCode::MULTI_READ, "multiRead"),
    (OpCode::PING, "ping"),
    (OpCode::RECONFIG, "reconfig"),
    (OpCode::REMOVE_WATCHES, "removeWatches"),
    (OpCode::SASL, "sasl"),
    (OpCode::SET_ACL, "setACL"),
    (OpCode::SET_DATA, "setData"),
    (OpCode::SET_WATCHES, "setWatches"),
    (OpCode::SET_WATCHES2, "setWatches2"),
    (OpCode::SYNC, "sync"),
    (OpCode::WHO_AM_I, "whoAmI"),
];
