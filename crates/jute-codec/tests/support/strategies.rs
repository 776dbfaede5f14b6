//! Strategies for all messages of the protocol.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    Acl, AclReply, AddWatchMode, AddWatchRequest, AuthPacket, CheckRequest, ChildrenReply,
    ClientInfo, ConnectRequest, ConnectResponse, Create2Reply, CreateMode, CreateRequest,
    DataReply, DeleteRequest, ErrorCode, EventType, Id, KeeperState, MultiOp, MultiResult,
    NameList, OpCode, Permissions, ReadOp, ReadRequest, ReadResult, ReconfigRequest, ReplyHeader,
    Request, RequestHeader, Response, SaslToken, SessionId, SetAclRequest, SetDataRequest,
    SetWatches, SetWatches2, Stat, Ttl, Version, WatcherEvent, WatcherType, WatchesRequest, Zxid,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Opcodes that a client may send and that have a reply.
pub(crate) const OPS: [OpCode; 28] = [
    OpCode::ADD_WATCH,
    OpCode::AUTH,
    OpCode::CHECK_WATCHES,
    OpCode::CLOSE_SESSION,
    OpCode::CREATE,
    OpCode::CREATE2,
    OpCode::CREATE_CONTAINER,
    OpCode::CREATE_TTL,
    OpCode::DELETE,
    OpCode::EXISTS,
    OpCode::GET_ACL,
    OpCode::GET_ALL_CHILDREN_NUMBER,
    OpCode::GET_CHILDREN,
    OpCode::GET_CHILDREN2,
    OpCode::GET_DATA,
    OpCode::GET_EPHEMERALS,
    OpCode::MULTI,
    OpCode::MULTI_READ,
    OpCode::PING,
    OpCode::RECONFIG,
    OpCode::REMOVE_WATCHES,
    OpCode::SASL,
    OpCode::SET_ACL,
    OpCode::SET_DATA,
    OpCode::SET_WATCHES,
    OpCode::SET_WATCHES2,
    OpCode::SYNC,
    OpCode::WHO_AM_I,
];

pub(crate) fn ops() -> impl Strategy<Value = OpCode> {
    select(&OPS[..])
}

pub(crate) fn requests() -> impl Strategy<Value = Request> {
    ops().prop_flat_map(request)
}

/// Generates replies, each with its opcode.
pub(crate) fn responses() -> impl Strategy<Value = (OpCode, Response)> {
    ops().prop_flat_map(|op| (Just(op), response(op)))
}

/// Generates a request with this opcode.
pub(crate) fn request(op: OpCode) -> BoxedStrategy<Request> {
    match op {
        OpCode::ADD_WATCH => (text(), any::<i32>())
            .prop_map(|(path, mode)| AddWatchRequest { path, mode: AddWatchMode(mode) })
            .prop_map(Request::AddWatch)
            .boxed(),
        OpCode::AUTH => (text(), buffer())
            .prop_map(|(scheme, auth)| Request::Auth(AuthPacket { scheme, auth }))
            .boxed(),
        OpCode::CHECK_WATCHES => watches().prop_map(Request::CheckWatches).boxed(),
        OpCode::CLOSE_SESSION => Just(Request::CloseSession).boxed(),
        OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
            create(op).prop_map(Request::Create).boxed()
        }
        OpCode::DELETE => (text(), any::<i32>())
            .prop_map(|(path, version)| {
                Request::Delete(DeleteRequest { path, version: Version(version) })
            })
            .boxed(),
        OpCode::EXISTS => read().prop_map(Request::Exists).boxed(),
        OpCode::GET_ACL => text().prop_map(Request::GetAcl).boxed(),
        OpCode::GET_ALL_CHILDREN_NUMBER => text().prop_map(Request::GetAllChildrenNumber).boxed(),
        OpCode::GET_CHILDREN => read().prop_map(Request::GetChildren).boxed(),
        OpCode::GET_CHILDREN2 => read().prop_map(Request::GetChildren2).boxed(),
        OpCode::GET_DATA => read().prop_map(Request::GetData).boxed(),
        OpCode::GET_EPHEMERALS => option::of(text()).prop_map(Request::GetEphemerals).boxed(),
        OpCode::MULTI => vec(multi_op(), 0..5).prop_map(Request::Multi).boxed(),
        OpCode::MULTI_READ => vec(read_op(), 0..5).prop_map(Request::MultiRead).boxed(),
        OpCode::PING => Just(Request::Ping).boxed(),
        OpCode::RECONFIG => reconfig().prop_map(Request::Reconfig).boxed(),
        OpCode::REMOVE_WATCHES => watches().prop_map(Request::RemoveWatches).boxed(),
        OpCode::SASL => buffer().prop_map(|token| Request::Sasl(SaslToken(token))).boxed(),
        OpCode::SET_ACL => (text(), acl(), any::<i32>())
            .prop_map(|(path, acl, version)| SetAclRequest { path, acl, version: Version(version) })
            .prop_map(Request::SetAcl)
            .boxed(),
        OpCode::SET_DATA => set_data().prop_map(Request::SetData).boxed(),
        OpCode::SET_WATCHES => set_watches().prop_map(Request::SetWatches).boxed(),
        OpCode::SET_WATCHES2 => set_watches2().prop_map(Request::SetWatches2).boxed(),
        OpCode::SYNC => text().prop_map(Request::Sync).boxed(),
        OpCode::WHO_AM_I => Just(Request::WhoAmI).boxed(),
        _ => panic!("{op} is not in the list"),
    }
}

/// Generates a reply to a request with this opcode.
pub(crate) fn response(op: OpCode) -> BoxedStrategy<Response> {
    match op {
        OpCode::ADD_WATCH => code().prop_map(Response::AddWatch).boxed(),
        OpCode::CREATE => text().prop_map(Response::Create).boxed(),
        OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => (text(), stat())
            .prop_map(|(path, stat)| Response::Create2(Create2Reply { path, stat }))
            .boxed(),
        OpCode::EXISTS => stat().prop_map(Response::Exists).boxed(),
        OpCode::GET_ACL => {
            (acl(), stat()).prop_map(|(acl, stat)| Response::GetAcl(AclReply { acl, stat })).boxed()
        }
        OpCode::GET_ALL_CHILDREN_NUMBER => {
            any::<i32>().prop_map(Response::GetAllChildrenNumber).boxed()
        }
        OpCode::GET_CHILDREN => names().prop_map(Response::GetChildren).boxed(),
        OpCode::GET_CHILDREN2 => (names(), stat())
            .prop_map(|(children, stat)| Response::GetChildren2(ChildrenReply { children, stat }))
            .boxed(),
        OpCode::GET_DATA => data().prop_map(Response::GetData).boxed(),
        OpCode::GET_EPHEMERALS => texts().prop_map(Response::GetEphemerals).boxed(),
        OpCode::MULTI => vec(multi_result(), 0..5).prop_map(Response::Multi).boxed(),
        OpCode::MULTI_READ => vec(read_result(), 0..5).prop_map(Response::MultiRead).boxed(),
        OpCode::RECONFIG => data().prop_map(Response::Reconfig).boxed(),
        OpCode::SASL => buffer().prop_map(|token| Response::Sasl(SaslToken(token))).boxed(),
        OpCode::SET_ACL => stat().prop_map(Response::SetAcl).boxed(),
        OpCode::SET_DATA => stat().prop_map(Response::SetData).boxed(),
        OpCode::SYNC => text().prop_map(Response::Sync).boxed(),
        OpCode::WHO_AM_I => vec((text(), text()), 0..4)
            .prop_map(|list| {
                let identity = |(auth_scheme, user)| ClientInfo { auth_scheme, user };
                Response::WhoAmI(list.into_iter().map(identity).collect())
            })
            .boxed(),
        _ => Just(Response::Empty).boxed(),
    }
}

pub(crate) fn request_header() -> impl Strategy<Value = RequestHeader> {
    (any::<i32>(), any::<i32>()).prop_map(|(xid, op)| RequestHeader { xid, op: OpCode(op) })
}

pub(crate) fn reply_header() -> impl Strategy<Value = ReplyHeader> {
    (any::<i32>(), any::<i64>(), code()).prop_map(|(xid, zxid, err)| ReplyHeader {
        xid,
        zxid: Zxid(zxid),
        err,
    })
}

pub(crate) fn connect_request() -> impl Strategy<Value = ConnectRequest> {
    (any::<i32>(), any::<i64>(), any::<i32>(), any::<i64>(), bytes(), any::<Option<bool>>())
        .prop_map(
            |(protocol_version, last_zxid_seen, timeout_ms, session_id, password, read_only)| {
                ConnectRequest {
                    protocol_version,
                    last_zxid_seen: Zxid(last_zxid_seen),
                    timeout_ms,
                    session_id: SessionId(session_id),
                    password,
                    read_only,
                }
            },
        )
}

pub(crate) fn connect_response() -> impl Strategy<Value = ConnectResponse> {
    (any::<i32>(), any::<i32>(), any::<i64>(), bytes(), any::<Option<bool>>()).prop_map(
        |(protocol_version, timeout_ms, session_id, password, read_only)| ConnectResponse {
            protocol_version,
            timeout_ms,
            session_id: SessionId(session_id),
            password,
            read_only,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = WatcherEvent> {
    (any::<i32>(), any::<i32>(), text()).prop_map(|(kind, state, path)| WatcherEvent {
        kind: EventType(kind),
        state: KeeperState(state),
        path,
    })
}

/// Generates a create request. The opcode alone determines `with_stat`.
fn create(op: OpCode) -> impl Strategy<Value = CreateRequest> {
    let modes = match op {
        OpCode::CREATE_CONTAINER => Just(CreateMode::Container).boxed(),
        OpCode::CREATE_TTL => prop_oneof![
            ttl().prop_map(CreateMode::PersistentTtl),
            ttl().prop_map(CreateMode::PersistentSequentialTtl),
        ]
        .boxed(),
        _ => select(vec![
            CreateMode::Persistent,
            CreateMode::Ephemeral,
            CreateMode::PersistentSequential,
            CreateMode::EphemeralSequential,
        ])
        .boxed(),
    };
    (text(), buffer(), acl(), modes).prop_map(move |(path, data, acl, mode)| {
        let with_stat = op != OpCode::CREATE;
        CreateRequest { path, data, acl, mode, with_stat }
    })
}

fn ttl() -> impl Strategy<Value = Ttl> {
    (1..1_i64 << 40).prop_map(|ms| Ttl::from_millis(ms).expect("in range"))
}

fn set_data() -> impl Strategy<Value = SetDataRequest> {
    (text(), buffer(), any::<i32>()).prop_map(|(path, data, version)| SetDataRequest {
        path,
        data,
        version: Version(version),
    })
}

fn set_watches() -> impl Strategy<Value = SetWatches> {
    (any::<i64>(), texts(), texts(), texts()).prop_map(|(relative_zxid, data, exist, child)| {
        SetWatches { relative_zxid: Zxid(relative_zxid), data, exist, child }
    })
}

fn set_watches2() -> impl Strategy<Value = SetWatches2> {
    (set_watches(), texts(), texts()).prop_map(|(one_shot, persistent, persistent_recursive)| {
        let SetWatches { relative_zxid, data, exist, child } = one_shot;
        SetWatches2 { relative_zxid, data, exist, child, persistent, persistent_recursive }
    })
}

fn reconfig() -> impl Strategy<Value = ReconfigRequest> {
    (option::of(text()), option::of(text()), option::of(text()), any::<i64>()).prop_map(
        |(joining_servers, leaving_servers, new_members, config_id)| ReconfigRequest {
            joining_servers,
            leaving_servers,
            new_members,
            config_id,
        },
    )
}

fn read() -> impl Strategy<Value = ReadRequest> {
    (text(), any::<bool>()).prop_map(|(path, watch)| ReadRequest { path, watch })
}

fn watches() -> impl Strategy<Value = WatchesRequest> {
    (text(), any::<i32>()).prop_map(|(path, kind)| WatchesRequest { path, kind: WatcherType(kind) })
}

fn multi_op() -> impl Strategy<Value = MultiOp> {
    let creates = [OpCode::CREATE, OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL];
    prop_oneof![
        (text(), any::<i32>()).prop_map(|(path, version)| MultiOp::Check(CheckRequest {
            path,
            version: Version(version)
        })),
        select(creates.to_vec()).prop_flat_map(create).prop_map(MultiOp::Create),
        (text(), any::<i32>()).prop_map(|(path, version)| MultiOp::Delete(DeleteRequest {
            path,
            version: Version(version)
        })),
        set_data().prop_map(MultiOp::SetData),
    ]
}

fn multi_result() -> impl Strategy<Value = MultiResult> {
    prop_oneof![
        Just(MultiResult::Check),
        text().prop_map(|path| MultiResult::Create { path }),
        (text(), stat()).prop_map(|(path, stat)| MultiResult::Create2 { path, stat }),
        Just(MultiResult::Delete),
        code().prop_map(MultiResult::Error),
        stat().prop_map(MultiResult::SetData),
    ]
}

fn read_op() -> impl Strategy<Value = ReadOp> {
    prop_oneof![text().prop_map(ReadOp::GetChildren), text().prop_map(ReadOp::GetData)]
}

fn read_result() -> impl Strategy<Value = ReadResult> {
    prop_oneof![
        names().prop_map(ReadResult::Children),
        (buffer(), stat()).prop_map(|(data, stat)| ReadResult::Data { data, stat }),
        code().prop_map(ReadResult::Error),
    ]
}

fn data() -> impl Strategy<Value = DataReply> {
    (buffer(), stat()).prop_map(|(data, stat)| DataReply { data, stat })
}

fn stat() -> impl Strategy<Value = Stat> {
    (any::<[i64; 6]>(), any::<[i32; 5]>()).prop_map(|(longs, ints)| {
        let [czxid, mzxid, ctime, mtime, ephemeral_owner, pzxid] = longs;
        let [version, cversion, aversion, data_length, num_children] = ints;
        Stat {
            czxid: Zxid(czxid),
            mzxid: Zxid(mzxid),
            ctime,
            mtime,
            version: Version(version),
            cversion: Version(cversion),
            aversion: Version(aversion),
            ephemeral_owner: SessionId(ephemeral_owner),
            data_length,
            num_children,
            pzxid: Zxid(pzxid),
        }
    })
}

fn acl() -> impl Strategy<Value = Vec<Acl>> {
    let entry = (any::<i32>(), text(), text())
        .prop_map(|(perms, scheme, id)| Acl { perms: Permissions(perms), id: Id { scheme, id } });
    vec(entry, 0..4)
}

/// Generates any code; known ones are more likely.
fn code() -> impl Strategy<Value = ErrorCode> {
    prop_oneof![-130..1, any::<i32>()].prop_map(ErrorCode)
}

/// Generates any text; paths are more likely.
fn text() -> impl Strategy<Value = ByteString> {
    prop_oneof!["/[a-z0-9/-]{0,20}", any::<String>()].prop_map(ByteString::from)
}

fn texts() -> impl Strategy<Value = Vec<ByteString>> {
    vec(text(), 0..4)
}

/// Generates any names, including long ones, which the slow path decodes.
fn names() -> impl Strategy<Value = NameList> {
    let name = prop_oneof![4 => text(), 1 => "[a-z0-9é-]{100,200}".prop_map(ByteString::from)];
    vec(name, 0..4).prop_map(NameList::from_iter)
}

fn buffer() -> impl Strategy<Value = Option<Bytes>> {
    option::of(bytes())
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}
