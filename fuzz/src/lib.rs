//! Properties that must hold for all inputs, with one function for each fuzz target.
//!
//! The properties are in this library and not in the targets, so that `cargo test --lib` checks
//! them on the seeds without a fuzzer.

#![forbid(unsafe_code)]

mod challenge;
mod fixpoint;
mod frames;
mod message;
#[path = "../../crates/jute-codec/tests/reference/mod.rs"]
mod reference;
pub mod seeds;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use arbitrary::Unstructured;
use bytes::BytesMut;
use jute_codec::{
    ConnectRequest, ConnectResponse, OpCode, Reader, ReplyHeader, Request, RequestHeader, Response,
    WatcherEvent, xid,
};

pub use crate::challenge::challenge;
use crate::fixpoint::{check_written, fixpoint};
pub use crate::frames::frame;
use crate::message::Message;
use crate::reference::{Choices, Layout, Value, generate, layouts, operations};

/// The opcodes that a byte of the input selects: those of `schema.jute`, and an unknown one. The
/// seeds depend on the order.
pub static OPS: LazyLock<Vec<OpCode>> =
    LazyLock::new(|| operations().iter().map(|it| OpCode(it.op)).chain([OpCode(99)]).collect());

/// Checks a handshake record, which is decoded as a request and as a response. The input is
/// `[place, record...]`.
pub fn connect(data: &[u8]) {
    let [place, record @ ..] = data else { return };
    fixpoint::<ConnectRequest>(Layout::Record("ConnectRequest"), record, *place);
    fixpoint::<ConnectResponse>(Layout::Record("ConnectResponse"), record, *place);
}

/// Checks a message from a server. The input is `[opcode, place, header, record...]`: a watch event
/// if the header has the xid of one, otherwise the reply to a request with this opcode.
pub fn reply(data: &[u8]) {
    let [op, place, payload @ ..] = data else { return };
    let op = *OPS.get(usize::from(*op) % OPS.len()).expect("the index is below the length");
    let layout = Layout::Record("ReplyHeader");
    let Some(header) = fixpoint::<ReplyHeader>(layout, payload, 0) else { return };
    let record = payload.get(HEADER_REPLY..).expect("the header was decoded");
    if header.xid == xid::NOTIFICATION {
        fixpoint::<WatcherEvent>(Layout::Record("WatcherEvent"), record, *place);
    } else {
        fixpoint::<Response>(Layout::Response(op), record, *place);
    }
}

/// Checks a request. The input is `[place, header, record...]`.
pub fn request(data: &[u8]) {
    let [place, payload @ ..] = data else { return };
    let layout = Layout::Record("RequestHeader");
    let Some(header) = fixpoint::<RequestHeader>(layout, payload, 0) else { return };
    let record = payload.get(HEADER_REQUEST..).expect("the header was decoded");
    let Some(request) = fixpoint::<Request>(Layout::Request(header.op), record, *place) else {
        return;
    };
    assert_eq!(request.op(), header.op, "the opcode survives the round trip");
}

/// Checks a list of operations, results, reads or read results. The input is
/// `[list, place, elements...]`. Two concatenated lists without the end mark between them must be
/// read as one list.
pub fn multi(data: &[u8]) {
    let [list, place, record @ ..] = data else { return };
    let op = if list % 2 == 0 { OpCode::MULTI } else { OpCode::MULTI_READ };
    if list % 4 < 2 {
        list_of::<Request>(Layout::Request(op), record, *place);
    } else {
        list_of::<Response>(Layout::Response(op), record, *place);
    }
}

fn list_of<T: Message>(layout: Layout, record: &[u8], place: u8) {
    let Some(once) = fixpoint::<T>(layout, record, place) else { return };
    let mut out = BytesMut::new();
    once.write(&mut out);
    out.truncate(out.len() - END_MARK);
    once.write(&mut out);
    let twice = T::read(layout, &mut Reader::new(out.freeze())).expect("two concatenated lists");
    match (once.to_value(), twice.to_value()) {
        (Value::List(once), Value::List(twice)) => assert_eq!(twice, [&once[..], &once].concat()),
        other => panic!("not lists: {other:?}"),
    }
}

/// Checks a value that the input chooses, of any layout. The input is `[layout, place, choices...]`.
/// The codec must read what the reference writes, and must write the same bytes.
pub fn structured(data: &[u8]) {
    let [layout, place, choices @ ..] = data else { return };
    let layouts = layouts(&OPS);
    let layout =
        *layouts.get(usize::from(*layout) % layouts.len()).expect("it is below the length");
    let mut input = Unstructured::new(choices);
    let value = generate(layout, &mut Random(&mut input)).expect("only layouts with a body");
    match layout {
        Layout::Record("ConnectRequest") => check_written::<ConnectRequest>(layout, &value, *place),
        Layout::Record("ConnectResponse") => {
            check_written::<ConnectResponse>(layout, &value, *place);
        }
        Layout::Record("ReplyHeader") => check_written::<ReplyHeader>(layout, &value, *place),
        Layout::Record("RequestHeader") => check_written::<RequestHeader>(layout, &value, *place),
        Layout::Record(_) => check_written::<WatcherEvent>(layout, &value, *place),
        Layout::Request(_) => check_written::<Request>(layout, &value, *place),
        Layout::Response(_) => check_written::<Response>(layout, &value, *place),
    }
}

/// The choices of a fuzzer.
struct Random<'a, 'b>(&'a mut Unstructured<'b>);

impl Choices for Random<'_, '_> {
    fn below(&mut self, end: usize) -> usize {
        // Zero if the input has ended.
        self.0.choose_index(end).unwrap_or(0)
    }

    fn number(&mut self) -> i64 {
        // Numbers of all lengths are equally likely.
        let bits = self.below(65);
        let number: i64 = self.0.arbitrary().unwrap_or(0);
        number.checked_shr(u32::try_from(64 - bits).unwrap_or(0)).unwrap_or(0)
    }
}

/// What the target `structured` generates. The seeds depend on the order.
static LAYOUTS: LazyLock<Vec<Layout>> = LazyLock::new(|| layouts(&OPS));

/// The lengths of the header of a request, of the header of a reply, and of the end mark of a list.
const HEADER_REQUEST: usize = 8;
const HEADER_REPLY: usize = 16;
const END_MARK: usize = 9;
