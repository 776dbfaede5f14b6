//! Requests that no client should send.

use bytes::BytesMut;
use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, OpCode, Record as _, Request};

use crate::peer::*;

/// Sends invalid paths, for every operation.
pub(crate) fn paths(stage: &Stage) {
    let mut one = stage.connect();
    one.ask(&create("/a"));
    let odd =
        ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/\u{1}", "/\0", "/\u{e000}", "/ü/..."];
    for path in odd {
        one.ask_all([
            create(path),
            create_mode(path, CreateMode::PersistentSequential),
            set_data(path, "x", -1),
            get_data(path, false),
            exists(path, false),
            Request::GetAcl(path.into()),
            set_acl(path, Acl::open(), -1),
            delete(path, -1),
            Request::Sync(path.into()),
            Request::Multi(vec![check(path, -1)]),
        ]);
    }
    one.ask_all([
        create("/ü"),
        create("/ü/€𝄞"),
        get_children("/ü", false),
        get_children2("/", false),
    ]);
    one.close();
}

/// Sends bodies that do not fit their opcodes. Opcode 21 with a plain flag crashes real servers.
pub(crate) fn garbage(stage: &Stage) {
    let mut one = stage.connect();
    one.ask(&create("/a"));
    let create_with = |flags: i32, ttl: Option<i64>| {
        let mut body = BytesMut::new();
        ByteString::from("/flags").encode(&mut body);
        Some(bytes::Bytes::new()).encode(&mut body);
        Acl::open().encode(&mut body);
        flags.encode(&mut body);
        ttl.into_iter().for_each(|ttl| ttl.encode(&mut body));
        body
    };
    for (op, flags, ttl) in [
        (OpCode::CREATE, 4, None),
        (OpCode::CREATE, 5, None),
        (OpCode::CREATE, 7, None),
        (OpCode::CREATE, -1, None),
        (OpCode::CREATE2, 9, None),
        (OpCode::CREATE_CONTAINER, 0, None),
        (OpCode::CREATE_CONTAINER, 1, None),
        (OpCode::CREATE_CONTAINER, 2, None),
        (OpCode::CREATE_CONTAINER, 3, None),
        (OpCode::CREATE_CONTAINER, 5, Some(1)),
        (OpCode::CREATE_TTL, 5, Some(0)),
        (OpCode::CREATE_TTL, 5, Some(-5)),
        (OpCode::CREATE_TTL, 6, Some(1 << 40)),
    ] {
        one.ask_raw(op, &create_with(flags, ttl));
        one.ask_all([exists("/flags", false), delete("/flags", -1)]);
    }
    // Each operation gets a body that is too short, and a body that is too long.
    for op in [
        OpCode::CREATE,
        OpCode::CREATE2,
        OpCode::DELETE,
        OpCode::EXISTS,
        OpCode::GET_DATA,
        OpCode::SET_DATA,
        OpCode::GET_ACL,
        OpCode::SET_ACL,
        OpCode::GET_CHILDREN,
        OpCode::GET_CHILDREN2,
        OpCode::SYNC,
        OpCode::CHECK,
        OpCode::MULTI,
        OpCode::MULTI_READ,
        OpCode::CHECK_WATCHES,
        OpCode::REMOVE_WATCHES,
        OpCode::ADD_WATCH,
        OpCode::GET_EPHEMERALS,
        OpCode::GET_ALL_CHILDREN_NUMBER,
        OpCode::RECONFIG,
    ] {
        one.ask_raw(op, &[0, 0, 0]);
        one.ask_raw(op, &[0, 0, 0, 9, b'/']);
    }
    one.ask_raw(OpCode::GET_DATA, b"\0\0\0\x02/a\0and more");
    one.ask_raw(OpCode::EXISTS, b"\xff\xff\xff\xff\0");
    one.ask(&exists("/a", false));
    one.close();
    // Each of these may end its connection.
    for (op, body) in [
        (OpCode(99), &b""[..]),
        (OpCode(-1), b""),
        (OpCode(0), b""),
        (OpCode(-11), b"and more"),
        (OpCode(20), b"\0\0\0\x02/a\0\0\0\0"),
        (OpCode::AUTH, b"\0\0"),
        (OpCode::SET_WATCHES, b"\0\0"),
        (OpCode::SASL, b"\0\0"),
        (OpCode::SASL, b"\0\0\0\x03abc"),
        (OpCode::SASL, b"\xff\xff\xff\xff"),
        (OpCode::CHECK, b"\0\0\0\x02/a\0\0\0\x09"),
        (OpCode::CHECK, b"\0\0\0\x05/none\0\0\0\0"),
        (OpCode(-10), b""),
        // This request is the last, because it uses up zxids.
        (OpCode(-10), b"\0\0\0\0"),
    ] {
        let mut one = stage.connect();
        one.ask_raw(op, body);
        one.ask_all([exists("/a", false), Request::Ping]);
        one.drop_connection();
    }
}

/// Writes the znodes that `setquota` writes, and shows their effect.
pub(crate) fn quota(stage: &Stage) {
    let mut one = stage.connect();
    one.ask_all([
        create("/q"),
        create("/q/a"),
        create("/zookeeper/quota/q"),
        create("/zookeeper/quota/q/zookeeper_limits"),
        create("/zookeeper/quota/q/zookeeper_stats"),
        get_data("/zookeeper/quota/q/zookeeper_stats", false),
        get_data("/zookeeper/quota/q/zookeeper_limits", false),
        create("/q/b"),
        set_data("/q/b", "longer than before", -1),
        get_data("/zookeeper/quota/q/zookeeper_stats", false),
        delete("/q/b", -1),
        get_data("/zookeeper/quota/q/zookeeper_stats", false),
    ]);
    one.close();
}
