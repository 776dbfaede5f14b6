//! Checks bytes and the values that they decode to, for layouts that are easy to get wrong.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use jute_codec::{
    Acl, AddWatchMode, AddWatchRequest, AuthPacket, ConnectRequest, ConnectResponse, CreateMode,
    CreateRequest, DecodeError, DecodeErrorKind, ErrorCode, MultiResult, OpCode, Permissions,
    ReadResult, Reader, ReconfigRequest, Record, ReplyHeader, Request, Response, SaslToken,
    SessionId, Stat, Ttl, Version, Zxid,
};

#[test]
fn a_reply_header_is_xid_zxid_and_code() {
    check(
        &ReplyHeader { xid: 7, zxid: Zxid(0x1_0000_0002), err: ErrorCode::NO_NODE },
        &[0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0x9b],
    );
}

#[test]
fn a_stat_is_68_bytes_in_the_order_of_the_protocol() {
    let stat = Stat {
        czxid: Zxid(1),
        mzxid: Zxid(2),
        ctime: 3,
        mtime: 4,
        version: Version(5),
        cversion: Version(6),
        aversion: Version(7),
        ephemeral_owner: SessionId(8),
        data_length: 9,
        num_children: 10,
        pzxid: Zxid(11),
    };
    let mut wire = Vec::new();
    for long in [1, 2, 3, 4] {
        wire.extend_from_slice(&i64::to_be_bytes(long));
    }
    for int in [5, 6, 7] {
        wire.extend_from_slice(&i32::to_be_bytes(int));
    }
    wire.extend_from_slice(&i64::to_be_bytes(8));
    for int in [9, 10] {
        wire.extend_from_slice(&i32::to_be_bytes(int));
    }
    wire.extend_from_slice(&i64::to_be_bytes(11));
    assert_eq!(wire.len(), 68);
    check(&stat, &wire);
}

#[test]
fn records_without_a_captured_frame_have_the_order_of_the_protocol() {
    let wire = [&prefixed(b"/a")[..], &[0, 0, 0, 1]].concat();
    let mode = AddWatchMode::PERSISTENT_RECURSIVE;
    check(&AddWatchRequest { path: "/a".into(), mode }, &wire);

    let wire = [
        &prefixed(b"joining")[..],
        &prefixed(b"leaving")[..],
        &prefixed(b"members")[..],
        &[0, 0, 0, 0, 0, 0, 1, 0],
    ];
    let request = ReconfigRequest {
        joining_servers: Some("joining".into()),
        leaving_servers: Some("leaving".into()),
        new_members: Some("members".into()),
        config_id: 0x100,
    };
    check(&request, &wire.concat());
}

#[test]
fn passwords_and_credentials_are_not_printed() {
    let secret = Bytes::from_static(b"secret");
    let auth = AuthPacket { scheme: "digest".into(), auth: Some(secret.clone()) };
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: 0,
        session_id: SessionId::NONE,
        password: secret.clone(),
        read_only: None,
    };
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 0,
        session_id: SessionId::NONE,
        password: secret,
        read_only: None,
    };
    let shown = format!("{auth:?} {request:?} {response:?} {:?}", Request::Auth(auth.clone()));
    assert!(!shown.contains("secret") && !shown.contains("115"), "{shown}");
}

#[test]
fn null_and_empty_buffers_are_different() {
    check(&None::<Bytes>, &[0xff; 4]);
    check(&Some(Bytes::new()), &[0; 4]);
    check(&None::<ByteString>, &[0xff; 4]);
    check(&Some(ByteString::new()), &[0; 4]);
}

#[test]
fn null_is_an_empty_vector_or_password_but_not_text() {
    assert_eq!(read::<Vec<Acl>>(&[0xff; 4]), Ok(Vec::new()));
    assert_eq!(read::<Bytes>(&[0xff; 4]), Ok(Bytes::new()));
    assert_eq!(read::<ByteString>(&[0xff; 4]), Err(error(DecodeErrorKind::Null, 0)));
}

#[test]
fn lengths_and_counts_below_minus_one_are_errors() {
    let wire = [0xff, 0xff, 0xff, 0xfe];
    let error = error(DecodeErrorKind::NegativeLength(-2), 0);
    assert_eq!(read::<Bytes>(&wire), Err(error.clone()));
    assert_eq!(read::<ByteString>(&wire), Err(error.clone()));
    assert_eq!(read::<Vec<i32>>(&wire), Err(error));
}

#[test]
fn any_byte_but_zero_is_true() {
    for byte in 1..=255 {
        assert_eq!(read::<bool>(&[byte]), Ok(true));
    }
    check(&true, &[1]);
    check(&false, &[0]);
}

#[test]
fn a_connect_response_without_read_only_is_accepted() {
    let wire = [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0];
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 9,
        session_id: SessionId(5),
        password: Bytes::new(),
        read_only: None,
    };
    check(&response, &wire);
}

#[test]
fn passwords_of_any_length_are_accepted() {
    for length in [0, 1, 16, 32] {
        let mut wire = BytesMut::from(&[0; 16][..]);
        Bytes::from(vec![7; length]).encode(&mut wire);
        let response: ConnectResponse = read(&wire).unwrap();
        assert_eq!(response.password.len(), length);
    }
}

#[test]
fn text_is_written_as_utf8_and_read_as_utf8_or_cesu8() {
    let utf8 = "a\u{1d11e}b\u{20000}\u{10ffff}";
    let cesu8 = [
        b"a\xed\xa0\xb4\xed\xb4\x9e".as_slice(),
        b"b\xed\xa1\x80\xed\xb0\x80".as_slice(),
        b"\xed\xaf\xbf\xed\xbf\xbf".as_slice(),
    ]
    .concat();
    check(&ByteString::from(utf8), &prefixed(utf8.as_bytes()));
    assert_eq!(read::<ByteString>(&prefixed(&cesu8)).unwrap(), utf8);
}

#[test]
fn every_character_above_u_ffff_is_decoded_from_its_surrogate_pair() {
    for number in (0x1_0000..=0x10_ffff).step_by(0x101) {
        let character = char::from_u32(number).unwrap();
        let mut cesu8 = Vec::new();
        for half in character.encode_utf16(&mut [0; 2]) {
            let half = *half;
            cesu8.push(0xe0 | (half >> 12) as u8);
            cesu8.push(0x80 | (half >> 6 & 0x3f) as u8);
            cesu8.push(0x80 | (half & 0x3f) as u8);
        }
        let text = read::<ByteString>(&prefixed(&cesu8)).unwrap();
        assert_eq!(text, character.to_string(), "{number:#x}");
    }
}

#[test]
fn half_a_surrogate_pair_and_other_malformed_bytes_are_not_text() {
    let malformed: [&[u8]; 10] = [
        b"\xed\xa0\xb4",                     // high half alone
        b"\xed\xb4\x9e",                     // low half alone
        b"\xed\xa0\xb4\xed\xa0\xb4",         // high after high
        b"\xed\xb4\x9e\xed\xb4\x9e",         // low after low
        b"\xed\xb4\x9e\xed\xa0\xb4",         // the wrong way round
        b"\xed\xa0\xb4abc",                  // high half, then text
        b"\xed\xa0\xb4\xed\xb4\x9e\xed\xa0", // a pair, then half a half
        b"\xff",
        b"\xc0\x80",      // NUL as two bytes
        b"/\xf0\x9d\x84", // cut off
    ];
    for bytes in malformed {
        let expected = Err(error(DecodeErrorKind::NotText, 0));
        assert_eq!(read::<ByteString>(&prefixed(bytes)), expected, "{bytes:x?}");
    }
}

#[test]
fn create_flags_are_only_legal_with_their_opcodes() {
    let ttl = Ttl::from_millis(1).unwrap();
    let legal = [
        (OpCode::CREATE, 0, CreateMode::Persistent),
        (OpCode::CREATE, 1, CreateMode::Ephemeral),
        (OpCode::CREATE, 2, CreateMode::PersistentSequential),
        (OpCode::CREATE, 3, CreateMode::EphemeralSequential),
        (OpCode::CREATE_CONTAINER, 4, CreateMode::Container),
        (OpCode::CREATE_TTL, 5, CreateMode::PersistentTtl(ttl)),
        (OpCode::CREATE_TTL, 6, CreateMode::PersistentSequentialTtl(ttl)),
        // No official client sends these combinations, but servers interpret them like this.
        (OpCode::CREATE, 4, CreateMode::Persistent),
        (OpCode::CREATE_CONTAINER, 0, CreateMode::Container),
        (OpCode::CREATE_CONTAINER, 1, CreateMode::Container),
    ];
    let creates = [OpCode::CREATE, OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL];
    for op in creates {
        let row = if op == OpCode::CREATE2 { OpCode::CREATE } else { op };
        for flags in -1..9 {
            let read = CreateRequest::decode(op, &mut Reader::new(create(flags, 1)));
            let mode = legal.iter().find(|(op, legal, _)| *op == row && *legal == flags);
            match mode {
                Some((_, _, mode)) => assert_eq!(read.unwrap().mode, *mode, "{op}, {flags}"),
                None => {
                    let kind = DecodeErrorKind::IllegalFlags { op: op.0, flags };
                    let expected = DecodeError {
                        kind,
                        offset: FLAGS,
                        record: "CreateRequest",
                        field: "flags",
                    };
                    assert_eq!(read, Err(expected), "{op}, {flags}");
                }
            }
        }
    }
}

#[test]
fn a_ttl_is_between_one_and_two_to_the_fortieth_minus_one() {
    let max = (1 << 40) - 1;
    for ms in [i64::MIN, -1, 0, max + 1, i64::MAX] {
        assert_eq!(Ttl::from_millis(ms), None, "{ms}");
        let read = CreateRequest::decode(OpCode::CREATE_TTL, &mut Reader::new(create(5, ms)));
        let error = DecodeError {
            kind: DecodeErrorKind::IllegalTtl(ms),
            offset: FLAGS + 4,
            record: "CreateRequest",
            field: "ttl",
        };
        assert_eq!(read, Err(error), "{ms}");
    }
    for ms in [1, max] {
        let read = CreateRequest::decode(OpCode::CREATE_TTL, &mut Reader::new(create(6, ms)));
        let mode = read.unwrap().mode;
        assert_eq!(mode, CreateMode::PersistentSequentialTtl(Ttl::from_millis(ms).unwrap()));
    }
}

#[test]
fn a_multi_is_a_list_without_a_count() {
    let results = vec![
        MultiResult::Delete,
        MultiResult::Error(ErrorCode::BAD_VERSION),
        MultiResult::Create { path: "/a".into() },
    ];
    let wire: &[u8] = &[
        0, 0, 0, 2, 0, 0, 0, 0, 0, // delete, more to come, no error
        0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0x99, // error, more to come, -103
        0xff, 0xff, 0xff, 0x99, // -103
        0, 0, 0, 1, 0, 0, 0, 0, 0, // create, more to come, no error
        0, 0, 0, 2, b'/', b'a', // path
        0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff, // end mark
    ];
    let mut out = BytesMut::new();
    Response::Multi(results.clone()).encode(&mut out);
    assert_eq!(out, wire);
    let read = Response::decode(OpCode::MULTI, &mut Reader::new(out.freeze()));
    assert_eq!(read, Ok(Response::Multi(results)));
}

#[test]
fn results_of_containers_contain_a_stat() {
    for op in [OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL] {
        let mut wire = BytesMut::new();
        Response::Multi(vec![MultiResult::Create2 { path: "/a".into(), stat: Stat::default() }])
            .encode(&mut wire);
        wire[..4].copy_from_slice(&op.0.to_be_bytes());
        let read = Response::decode(OpCode::MULTI, &mut Reader::new(wire.freeze())).unwrap();
        let Response::Multi(results) = read else { panic!("{read:?}") };
        assert!(matches!(&results[..], [MultiResult::Create2 { .. }]), "{op}: {results:?}");
    }
}

/// kazoo writes empty text as null.
#[test]
fn null_in_an_identity_is_decoded_and_encoded_as_empty() {
    let empty = Acl::new(Permissions::ALL, "auth", "");
    let mut null = BytesMut::from(&[0, 0, 0, 31][..]);
    null.extend_from_slice(&prefixed(b"auth"));
    let mut wire = null.clone();
    null.extend_from_slice(&[0xff; 4]);
    assert_eq!(Acl::decode(&mut Reader::new(null.freeze())), Ok(empty.clone()));
    wire.extend_from_slice(&[0; 4]);
    check(&empty, &wire);
    let empty = Acl::new(Permissions::READ, "", "");
    let nulls = Bytes::from_static(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(Acl::decode(&mut Reader::new(nulls)), Ok(empty));
}

#[test]
fn errors_name_the_innermost_record_its_field_and_its_offset() {
    let mut wire = BytesMut::from(&prefixed(b"/a")[..]);
    wire.extend_from_slice(&[0xff; 4]);
    wire.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 31]);
    wire.extend_from_slice(&prefixed(b"world"));
    wire.extend_from_slice(&prefixed(b"any\xff"));
    assert_eq!(request_error(OpCode::CREATE, &wire), "text is not UTF-8 at byte 27, in Id.id");

    let mut wire = BytesMut::from(&[0; 8][..]);
    wire.extend_from_slice(&[0, 0, 0, 1]);
    wire.extend_from_slice(&prefixed(b"/a"));
    wire.extend_from_slice(&[0, 0, 0, 2]);
    wire.extend_from_slice(&prefixed(b"/b"));
    wire.extend_from_slice(&[0, 0, 0, 5, b'/']);
    assert_eq!(
        request_error(OpCode::SET_WATCHES, &wire),
        "5 bytes needed, 1 left at byte 28, in SetWatches.exist"
    );
}

#[test]
fn errors_inside_lists_name_the_result_and_not_the_list() {
    let header = |op: OpCode| [&op.0.to_be_bytes()[..], &[0; 5]].concat();
    let check = |list: OpCode, op: OpCode, record: &[u8], expected: &str| {
        let wire = [header(op), record.to_vec()].concat();
        let read = Response::decode(list, &mut Reader::new(wire.into()));
        assert_eq!(read.unwrap_err().to_string(), expected);
    };
    let null = [0xff; 4];
    let empty = [0; 4];
    let multi = OpCode::MULTI;
    let reads = OpCode::MULTI_READ;
    let at = |what: &str| format!("null where a value is required at byte 9, in {what}");
    check(multi, OpCode::CREATE, &null, &at("CreateResponse.path"));
    check(multi, OpCode::CREATE2, &null, &at("Create2Reply.path"));
    let end = |place| format!("8 bytes needed, 0 left at byte {place}");
    check(multi, OpCode::CREATE2, &empty, &format!("{}, in Stat.czxid", end(13)));
    check(multi, OpCode::SET_DATA, &[], &format!("{}, in Stat.czxid", end(9)));
    check(reads, OpCode::GET_DATA, &null, &format!("{}, in Stat.czxid", end(13)));
    let end = "4 bytes needed, 0 left at byte 9, in";
    check(multi, OpCode::ERROR, &[], &format!("{end} ErrorResponse.err"));
    check(multi, OpCode::DELETE, &[], &format!("{end} MultiHeader.op"));
    check(reads, OpCode::ERROR, &[], &format!("{end} ErrorResponse.err"));
    check(reads, OpCode::GET_DATA, &[], &format!("{end} DataReply.data"));
    check(reads, OpCode::GET_CHILDREN, &[], &format!("{end} GetChildrenResponse.children"));
    let unexpected = "opcode 2 is not expected here at byte 0, in MultiHeader.op";
    check(reads, OpCode::DELETE, &[], unexpected);
}

#[test]
fn a_read_result_keeps_null_data() {
    let results = vec![ReadResult::Data { data: None, stat: Stat::default() }];
    let mut wire = BytesMut::new();
    Response::MultiRead(results.clone()).encode(&mut wire);
    assert_eq!(wire[9..13], [0xff; 4]);
    let read = Response::decode(OpCode::MULTI_READ, &mut Reader::new(wire.freeze()));
    assert_eq!(read, Ok(Response::MultiRead(results)));
}

/// Checks that the value encodes to these bytes, and that they decode to the value.
#[track_caller]
fn check<T: Record + Debug + PartialEq>(value: &T, wire: &[u8]) {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    assert_eq!(&out[..], wire);
    assert_eq!(read::<T>(wire).as_ref(), Ok(value));
}

fn read<T: Record>(wire: &[u8]) -> Result<T, DecodeError> {
    T::decode(&mut Reader::new(Bytes::copy_from_slice(wire)))
}

fn request_error(op: OpCode, wire: &[u8]) -> String {
    let read = Request::decode(op, &mut Reader::new(Bytes::copy_from_slice(wire)));
    read.unwrap_err().to_string()
}

fn error(kind: DecodeErrorKind, offset: usize) -> DecodeError {
    DecodeError { kind, offset, record: "", field: "" }
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// Encodes a request that creates "/" with empty data and an empty access control list.
fn create(flags: i32, ttl: i64) -> Bytes {
    let mut wire = BytesMut::from(&prefixed(b"/")[..]);
    wire.extend_from_slice(&[0; 8]);
    assert_eq!(wire.len(), FLAGS);
    flags.encode(&mut wire);
    ttl.encode(&mut wire);
    wire.freeze()
}

/// The offset of the flags in [`create`].
const FLAGS: usize = 13;

#[test]
fn tokens_in_requests_are_not_printed() {
    let token = Request::Sasl(SaslToken(Some("secret".into())));
    let auth = AuthPacket { scheme: "digest".into(), auth: Some("user:secret".into()) };
    let shown = format!("{token:?} {:?}", Request::Auth(auth));
    assert!(!shown.contains("secret"), "{shown}");
}
