//! Strategies for all messages of the protocol.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{
    ConnectRequest, ConnectResponse, ErrorCode, EventType, KeeperState, OpCode, ReplyHeader,
    RequestHeader, SessionId, WatcherEvent, Zxid,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::reference::{Choices, Layout, Spelling, Value, encode, generate, operations};

/// A message that the reference has made of choices, and has written.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) op: OpCode,
    pub(crate) value: Value,
    pub(crate) wire: Bytes,
}

/// Generates requests.
pub(crate) fn requests() -> impl Strategy<Value = Written> {
    messages(Layout::Request)
}

/// Generates replies.
pub(crate) fn responses() -> impl Strategy<Value = Written> {
    messages(Layout::Response)
}

fn messages(layout: fn(OpCode) -> Layout) -> impl Strategy<Value = Written> {
    let ops = operations().iter().filter(|it| !it.is_part).map(|it| OpCode(it.op));
    let choices = vec(any::<u64>(), 0..80);
    (select(ops.collect::<Vec<_>>()), choices).prop_map(move |(op, choices)| {
        let mut choices = Drawn(choices.into_iter());
        let value = generate(layout(op), &mut choices).expect("the operation has this message");
        let wire = encode(layout(op), &value, Spelling::Utf8).into();
        Written { op, value, wire }
    })
}

/// The choices that a strategy has drawn, and then zeros.
struct Drawn(std::vec::IntoIter<u64>);

impl Choices for Drawn {
    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("64 bits suffice");
        usize::try_from(self.0.next().unwrap_or(0) % end).expect("it is below the end")
    }

    fn number(&mut self) -> i64 {
        // Numbers of all lengths are equally likely.
        let number = self.0.next().unwrap_or(0).cast_signed();
        number >> self.below(64)
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

/// Generates any code; known ones are more likely.
fn code() -> impl Strategy<Value = ErrorCode> {
    prop_oneof![-130..1, any::<i32>()].prop_map(ErrorCode)
}

/// Generates any text; paths are more likely.
fn text() -> impl Strategy<Value = ByteString> {
    prop_oneof!["/[a-z0-9/-]{0,20}", any::<String>()].prop_map(ByteString::from)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}
