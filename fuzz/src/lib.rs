//! Properties that must hold for all inputs, with one function for each fuzz target.
//!
//! The properties are in this library and not in the targets, so that `cargo test --lib` checks
//! them on the seeds without a fuzzer.

#![forbid(unsafe_code)]

pub mod seeds;

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, DecodeError, DecodeErrorKind, Frame, FrameDecoder, FrameError,
    MultiOp, MultiResult, NameList, OpCode, ReadOp, ReadResult, Reader, Record, ReplyHeader,
    Request, RequestHeader, Response, WatcherEvent, encode_frame, xid,
};

/// The opcodes that a byte of the input selects. The seeds depend on the order.
pub const OPS: [OpCode; 30] = [
    OpCode::CREATE,
    OpCode::DELETE,
    OpCode::EXISTS,
    OpCode::GET_DATA,
    OpCode::SET_DATA,
    OpCode::GET_ACL,
    OpCode::SET_ACL,
    OpCode::GET_CHILDREN,
    OpCode::SYNC,
    OpCode::PING,
    OpCode::GET_CHILDREN2,
    OpCode::CHECK,
    OpCode::MULTI,
    OpCode::CREATE2,
    OpCode::RECONFIG,
    OpCode::CHECK_WATCHES,
    OpCode::REMOVE_WATCHES,
    OpCode::CREATE_CONTAINER,
    OpCode::CREATE_TTL,
    OpCode::MULTI_READ,
    OpCode::AUTH,
    OpCode::SET_WATCHES,
    OpCode::SASL,
    OpCode::GET_EPHEMERALS,
    OpCode::GET_ALL_CHILDREN_NUMBER,
    OpCode::SET_WATCHES2,
    OpCode::ADD_WATCH,
    OpCode::WHO_AM_I,
    OpCode::CLOSE_SESSION,
    OpCode(99),
];

/// Checks a stream. The input is `[limit / 4, chunk - 1, stream...]`. The frames must not depend on
/// how the stream is split, and must equal those of a simple reference decoder, respect the limit,
/// and survive a round trip.
pub fn frame(data: &[u8]) {
    let [limit, chunk, stream @ ..] = data else { return };
    let limit = usize::from(*limit) * 4;
    let frames = frames_of(stream, limit, stream.len().max(1));
    assert_eq!(frames, frames_of(stream, limit, usize::from(*chunk) + 1), "split differently");
    assert_eq!(frames, reference_frames(stream, limit), "reference decoder");

    let mut again = BytesMut::new();
    let mut whole = Vec::new();
    for frame in frames.0 {
        if let Frame::Complete(payload) = &frame {
            let limit = limit.max(FrameDecoder::HEAD);
            let written = encode_frame(&mut again, limit, |out| out.extend_from_slice(payload));
            assert_eq!(written, Ok(()), "a decoded frame fits the limit");
            whole.push(frame);
        }
    }
    assert_eq!(frames_of(&again, limit, 7), (whole, None), "after a round trip");
}

/// Checks a handshake record, which is decoded as a request and as a response. The input is
/// `[place, record...]`.
pub fn connect(data: &[u8]) {
    let [place, record @ ..] = data else { return };
    if let Some(request) = fixpoint(record, *place, ConnectRequest::decode, Record::encode) {
        assert!(request.password.len() <= record.len());
    }
    if let Some(response) = fixpoint(record, *place, ConnectResponse::decode, Record::encode) {
        assert!(response.password.len() <= record.len());
    }
}

/// Checks a message from a server. The input is `[opcode, place, header, record...]`: a watch event
/// if the header has the xid of one, otherwise the reply to a request with this opcode.
pub fn reply(data: &[u8]) {
    let [op, place, payload @ ..] = data else { return };
    let op = selected(*op);
    let Some(header) = fixpoint(payload, 0, ReplyHeader::decode, Record::encode) else { return };
    let record = payload.get(HEADER_REPLY..).expect("the header was decoded");
    if header.xid == xid::NOTIFICATION {
        fixpoint(record, *place, WatcherEvent::decode, Record::encode);
    } else {
        let decode = |input: &mut Reader| Response::decode(op, input);
        let response = fixpoint(record, *place, decode, Response::encode);
        if let Some(Response::GetEphemerals(paths)) = &response {
            in_proportion(paths, record.len());
        }
        if let Some(Response::GetChildren(names)) = response {
            assert_eq!(names.iter().len(), names.len());
            assert_eq!(names.iter().count(), names.len());
            assert_eq!(names.iter().collect::<NameList>(), names);
            assert!(names.into_iter().len() <= record.len() / 4);
        }
    }
}

/// Checks a request. The input is `[place, header, record...]`.
pub fn request(data: &[u8]) {
    let [place, payload @ ..] = data else { return };
    let Some(header) = fixpoint(payload, 0, RequestHeader::decode, Record::encode) else { return };
    let record = payload.get(HEADER_REQUEST..).expect("the header was decoded");
    let decode = |input: &mut Reader| Request::decode(header.op, input);
    let Some(request) = fixpoint(record, *place, decode, Request::encode) else { return };
    assert_eq!(request.op(), header.op, "the opcode survives the round trip");
    if let Request::SetWatches(watches) = &request {
        in_proportion(&watches.data, record.len());
        in_proportion(&watches.exist, record.len());
        in_proportion(&watches.child, record.len());
    }
}

/// Checks a list of operations, results, reads or read results. The input is
/// `[list, place, elements...]`. Two concatenated lists without the end mark between them must be
/// read as one list.
pub fn multi(data: &[u8]) {
    let [list, place, record @ ..] = data else { return };
    let op = if list % 2 == 0 { OpCode::MULTI } else { OpCode::MULTI_READ };
    if list % 4 < 2 {
        let decode = |input: &mut Reader| Request::decode(op, input);
        let Some(request) = fixpoint(record, *place, decode, Request::encode) else { return };
        let twice = doubled(&request, Request::encode);
        match (request, decode(&mut Reader::new(twice)).expect("two concatenated lists")) {
            (Request::Multi(once), Request::Multi(twice)) => {
                in_proportion::<MultiOp>(&once, record.len());
                assert_eq!(twice, [&once[..], &once[..]].concat());
            }
            (Request::MultiRead(once), Request::MultiRead(twice)) => {
                in_proportion::<ReadOp>(&once, record.len());
                assert_eq!(twice, [&once[..], &once[..]].concat());
            }
            other => panic!("not lists: {other:?}"),
        }
    } else {
        let decode = |input: &mut Reader| Response::decode(op, input);
        let Some(response) = fixpoint(record, *place, decode, Response::encode) else { return };
        let twice = doubled(&response, Response::encode);
        match (response, decode(&mut Reader::new(twice)).expect("two concatenated lists")) {
            (Response::Multi(once), Response::Multi(twice)) => {
                in_proportion::<MultiResult>(&once, record.len());
                assert_eq!(twice, [&once[..], &once[..]].concat());
            }
            (Response::MultiRead(once), Response::MultiRead(twice)) => {
                in_proportion::<ReadResult>(&once, record.len());
                assert_eq!(twice, [&once[..], &once[..]].concat());
            }
            other => panic!("not lists: {other:?}"),
        }
    }
}

/// Decodes the input. A value must survive a round trip, must not grow, and decoding must leave the
/// bytes after it alone. A prefix of its encoding, selected by `place`, must be an error or, for
/// handshakes, decode to a value that is encoded as this prefix. The offset of an error must be
/// inside the input.
fn fixpoint<T: Debug + PartialEq>(
    input: &[u8],
    place: u8,
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
    encode: impl Fn(&T, &mut BytesMut),
) -> Option<T> {
    let mut reader = Reader::new(Bytes::copy_from_slice(input));
    let value = match decode(&mut reader) {
        Ok(value) => value,
        Err(error) => {
            assert!(error.offset <= input.len(), "{error:?}");
            assert_ne!(error.to_string(), "");
            return None;
        }
    };
    let wire = written(&value, &encode);
    assert!(wire.len() <= reader.position(), "longer than the input: {value:?}");

    let mut reader = Reader::new(wire.clone());
    assert_eq!(decode(&mut reader).as_ref(), Ok(&value), "after a round trip");
    assert_eq!(reader.remaining(), 0, "bytes after the record: {value:?}");

    let length = wire.len() * usize::from(place) / 256;
    if length < wire.len() {
        let prefix = wire.slice(..length);
        match decode(&mut Reader::new(prefix.clone())) {
            Ok(shorter) => assert_eq!(written(&shorter, &encode), prefix),
            Err(DecodeError { kind: DecodeErrorKind::UnexpectedEnd { need, have }, .. }) => {
                assert!(have < need);
            }
            Err(error) => panic!("expected an unexpected end, got: {error}"),
        }
    }
    Some(value)
}

fn written<T>(value: &T, encode: impl Fn(&T, &mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(value, &mut out);
    out.freeze()
}

/// Encodes the list twice, with one end mark.
fn doubled<T>(list: &T, encode: impl Fn(&T, &mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(list, &mut out);
    out.truncate(out.len() - END_MARK);
    encode(list, &mut out);
    out.freeze()
}

/// Checks that memory use depends on the bytes received, not on the counts that they claim.
#[allow(clippy::ptr_arg, reason = "a slice has no capacity")]
fn in_proportion<T>(list: &Vec<T>, input: usize) {
    assert!(list.capacity() * size_of::<T>() <= 40 * input + 1024);
}

fn frames_of(stream: &[u8], limit: usize, chunk: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for chunk in stream.chunks(chunk) {
        buffer.extend_from_slice(chunk);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(buffer.len() < 4 + limit.max(FrameDecoder::HEAD), "the buffer grows");
    }
    (frames, None)
}

/// Decodes the frames without keeping state, as a reference for the decoder.
fn reference_frames(mut stream: &[u8], limit: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = stream.split_first_chunk() {
        let length = i32::from_be_bytes(*prefix);
        let Ok(size) = usize::try_from(length) else {
            return (frames, Some(FrameError { length }));
        };
        if size > limit.max(FrameDecoder::HEAD) {
            let Some(head) = rest.get(..FrameDecoder::HEAD) else { break };
            let head = Bytes::copy_from_slice(head);
            frames.push(Frame::Oversized { head, length: size });
        } else {
            let Some(payload) = rest.get(..size) else { break };
            frames.push(Frame::Complete(Bytes::copy_from_slice(payload)));
        }
        stream = rest.get(size..).unwrap_or_default();
    }
    (frames, None)
}

fn selected(byte: u8) -> OpCode {
    *OPS.get(usize::from(byte) % OPS.len()).expect("the index is reduced to the length")
}

/// The lengths of the header of a request, of the header of a reply, and of the end mark of a list.
const HEADER_REQUEST: usize = 8;
const HEADER_REPLY: usize = 16;
const END_MARK: usize = 9;
