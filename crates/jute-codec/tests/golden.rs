//! Frames captured on live servers decode to the values in their entry, and encode to the same
//! bytes. The reference decodes them to these values too, so it is not only the opinion of those who
//! wrote it.
//!
//! `golden_frames.json` was generated with an encoder and a decoder that share no code with this
//! crate. Each entry has exactly one of the kinds below. An entry without a known kind fails the
//! test, so that no entry is skipped.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

mod reference;

use std::collections::BTreeMap;

use crate::reference::{Layout, ToValue, Value, decode, operations};
use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, DecodeError, DecodeErrorKind, ErrorCode, Frame, FrameDecoder,
    OpCode, Reader, Record, ReplyHeader, Request, RequestHeader, Response, WatcherEvent,
    encode_frame, xid,
};
use serde_json::Value as Json;

#[test]
fn every_captured_frame_decodes_as_stated_and_encodes_to_the_same_bytes() {
    let entries: Json = serde_json::from_str(include_str!("golden_frames.json")).unwrap();
    let mut counts = BTreeMap::new();
    for entry in entries.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let kind = Kind::of(entry).unwrap_or_else(|| panic!("{name}: unknown kind of entry"));
        kind.check(name, &unhex(entry["hex"].as_str().unwrap()), &entry["decoded"]);
        *counts.entry(kind).or_insert(0) += 1;
    }
    eprintln!("{counts:?}");
    let expected = BTreeMap::from([
        (Kind::ConnectRequest, 2),
        (Kind::ConnectResponse, 5),
        (Kind::Request, 31),
        (Kind::TruncatedRequest, 1),
        (Kind::UnknownRequest, 1),
        (Kind::Reply, 41),
        (Kind::Refusal, 16),
        (Kind::Event, 6),
        (Kind::FourLetterWord, 3),
    ]);
    assert_eq!(counts, expected);
    assert_eq!(counts.values().sum::<i32>(), 106);
}

/// The kind of message in an entry.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    ConnectRequest,
    ConnectResponse,
    /// A header and a complete record.
    Request,
    /// A header, and a record that is cut off inside its path.
    TruncatedRequest,
    /// A header with an opcode that no server knows.
    UnknownRequest,
    /// A header that reports success, and the record of the operation.
    Reply,
    /// A header that reports a failure, without a record.
    Refusal,
    Event,
    /// Plain text without a frame.
    FourLetterWord,
}

impl Kind {
    fn of(entry: &Json) -> Option<Self> {
        let decoded = entry["decoded"].as_object()?;
        let has = |field| decoded.contains_key(field);
        let to_server = match entry["direction"].as_str()? {
            "c2s" => true,
            "s2c" => false,
            _ => return None,
        };
        let truncated = decoded.get("note").is_some_and(|note| note.as_str().is_some());
        Some(match to_server {
            _ if has("text") => Self::FourLetterWord,
            true if has("ConnectRequest") => Self::ConnectRequest,
            true if has("RequestHeader") && has("op") => Self::Request,
            true if has("RequestHeader") && truncated => Self::TruncatedRequest,
            true if has("RequestHeader") => Self::UnknownRequest,
            false if has("ConnectResponse") => Self::ConnectResponse,
            false if has("WatcherEvent") => Self::Event,
            false if decoded["ReplyHeader"]["err"] == 0 => Self::Reply,
            false if has("ReplyHeader") => Self::Refusal,
            _ => return None,
        })
    }

    #[track_caller]
    fn check(self, name: &str, wire: &[u8], decoded: &Json) {
        if self == Self::FourLetterWord {
            return four_letter_word_is_no_frame(name, wire, decoded);
        }
        let mut reader = Reader::new(only_payload(name, wire));
        let mut again = BytesMut::new();
        encode_frame(&mut again, LIMIT, |out| match self {
            Self::ConnectRequest => {
                let layout = Layout::Record("ConnectRequest");
                let record = ConnectRequest::decode(&mut reader).unwrap();
                as_stated(name, layout, &wire[4..], &record, &decoded["ConnectRequest"]);
                record.encode(out);
            }
            Self::ConnectResponse => {
                let layout = Layout::Record("ConnectResponse");
                let record = ConnectResponse::decode(&mut reader).unwrap();
                as_stated(name, layout, &wire[4..], &record, &decoded["ConnectResponse"]);
                record.encode(out);
            }
            Self::Request => request_as_stated(name, &mut reader, decoded, out),
            Self::TruncatedRequest => refused_as(name, &mut reader, decoded, out, TRUNCATED),
            Self::UnknownRequest => refused_as(name, &mut reader, decoded, out, UNKNOWN),
            Self::Reply => reply_as_stated(name, &mut reader, decoded, out),
            Self::Refusal => {
                let header = reply_header(name, &mut reader, decoded, out);
                assert_ne!(header.err, ErrorCode::OK, "{name}");
                assert!(decoded.get("body").is_none_or(Json::is_null), "{name}");
            }
            Self::Event => {
                let header = reply_header(name, &mut reader, decoded, out);
                assert_eq!(header.xid, xid::NOTIFICATION, "{name}");
                let body = reader.clone().into_rest();
                let event = WatcherEvent::decode(&mut reader).unwrap();
                let layout = Layout::Record("WatcherEvent");
                as_stated(name, layout, &body, &event, &decoded["WatcherEvent"]);
                event.encode(out);
            }
            Self::FourLetterWord => unreachable!("returned above"),
        })
        .unwrap();
        assert_eq!(reader.remaining(), 0, "{name}: bytes after the record");
        assert_eq!(again, wire, "{name}: encoded bytes");
    }
}

fn request_as_stated(name: &str, reader: &mut Reader, decoded: &Json, out: &mut BytesMut) {
    let header = request_header(name, reader, decoded, out);
    assert_eq!(header.op, op_named(&decoded["op"]), "{name}");
    let body = reader.clone().into_rest();
    let request = Request::decode(header.op, reader).unwrap();
    assert_eq!(request.op(), header.op, "{name}");
    as_stated(name, Layout::Request(header.op), &body, &request, &decoded["body"]);
    request.encode(out);
}

/// Checks that decoding fails with the expected error, then copies the body unchanged.
fn refused_as(
    name: &str,
    reader: &mut Reader,
    decoded: &Json,
    out: &mut BytesMut,
    expected: DecodeError,
) {
    let header = request_header(name, reader, decoded, out);
    let body = reader.clone().into_rest();
    assert_eq!(Request::decode(header.op, reader), Err(expected), "{name}");
    *reader = Reader::new(Bytes::new());
    out.extend_from_slice(&body);
}

fn reply_as_stated(name: &str, reader: &mut Reader, decoded: &Json, out: &mut BytesMut) {
    let header = reply_header(name, reader, decoded, out);
    assert_eq!(header.err, ErrorCode::OK, "{name}");
    let op = op_named(&decoded["op"]);
    let body = reader.clone().into_rest();
    let response = Response::decode(op, reader).unwrap();
    as_stated(name, Layout::Response(op), &body, &response, &decoded["body"]);
    if let (Response::Sasl(token), Some(text)) = (&response, decoded["token_text"].as_str()) {
        assert_eq!(token.0.as_deref(), Some(text.as_bytes()), "{name}");
    }
    response.encode(out);
}

fn request_header(
    name: &str,
    reader: &mut Reader,
    decoded: &Json,
    out: &mut BytesMut,
) -> RequestHeader {
    let bytes = reader.clone().into_rest();
    let header = RequestHeader::decode(reader).unwrap();
    let layout = Layout::Record("RequestHeader");
    as_stated(name, layout, &bytes, &header, &decoded["RequestHeader"]);
    header.encode(out);
    header
}

fn reply_header(
    name: &str,
    reader: &mut Reader,
    decoded: &Json,
    out: &mut BytesMut,
) -> ReplyHeader {
    let bytes = reader.clone().into_rest();
    let header = ReplyHeader::decode(reader).unwrap();
    let layout = Layout::Record("ReplyHeader");
    as_stated(name, layout, &bytes, &header, &decoded["ReplyHeader"]);
    header.encode(out);
    header
}

/// Checks that the entry states what the codec and the reference have decoded.
fn as_stated(name: &str, layout: Layout, bytes: &[u8], decoded: &impl ToValue, stated: &Json) {
    let (value, _) = decode(layout, bytes).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
    assert_eq!(decoded.to_value(), value, "{name}: the reference differs");
    assert_same(&value, stated, name);
}

fn assert_same(value: &Value, stated: &Json, name: &str) {
    match (value, stated) {
        (Value::Bool(value), Json::Bool(stated)) => assert_eq!(value, stated, "{name}"),
        (Value::Int(value), stated) => assert_eq!(*stated, *value, "{name}"),
        (Value::Long(value), stated) => assert_eq!(*stated, *value, "{name}"),
        (Value::Text(text), stated) => assert_eq!(text.as_deref(), stated.as_str(), "{name}"),
        (Value::Buffer(bytes), stated) => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex: Option<String> = bytes.as_deref().map(hex);
            assert_eq!(hex.as_deref(), stated.as_str(), "{name}");
        }
        (Value::Vector(elements), Json::Array(stated)) => {
            assert_eq!(elements.len(), stated.len(), "{name}");
            elements.iter().zip(stated).for_each(|(value, json)| assert_same(value, json, name));
        }
        (Value::List(elements), Json::Array(stated)) => {
            // The entries of replies also have the header that ends the list.
            let is_element = |json: &&Json| json["header"]["done"] != true;
            let stated: Vec<&Json> = stated.iter().filter(is_element).collect();
            assert_eq!(elements.len(), stated.len(), "{name}");
            for ((op, element), stated) in elements.iter().zip(stated) {
                match stated.get("op") {
                    Some(stated) => assert_eq!(OpCode(*op), op_named(stated), "{name}"),
                    None => assert_eq!(stated["header"]["type"], *op, "{name}"),
                }
                let body = stated.get("args").or_else(|| stated.get("result"));
                assert_same(element, body.expect("it has a body"), name);
            }
        }
        // A record without fields, and a field that older peers omit, are null in the entries.
        (Value::Record(fields), Json::Null) => assert!(fields.is_empty(), "{name}: {value:?}"),
        (Value::Record(fields), Json::Object(stated)) => {
            let count = stated.values().filter(|json| !json.is_null()).count();
            assert!(fields.len() >= count, "{name}: {value:?} {stated:?}");
            for (field, value) in fields {
                let json = stated.get(*field);
                assert_same(value, json.unwrap_or_else(|| panic!("{name}: {field}")), name);
            }
        }
        (value, stated) => panic!("{name}: {value:?} is not {stated}"),
    }
}

/// Returns the opcode that has this name in the entries.
fn op_named(name: &Json) -> OpCode {
    let name = name.as_str().expect("a name is text");
    let mut known = operations().iter().filter(|known| known.name == name);
    OpCode(known.next().unwrap_or_else(|| panic!("schema.jute has no {name}")).op)
}

/// Checks that the letters of such a word, interpreted as a length, exceed every limit.
fn four_letter_word_is_no_frame(name: &str, wire: &[u8], decoded: &Json) {
    assert_eq!(Some(wire), decoded["text"].as_str().map(str::as_bytes), "{name}");
    let mut buffer = BytesMut::from(wire);
    assert_eq!(FrameDecoder::new(LIMIT).next(&mut buffer), Ok(None), "{name}");
    buffer.extend_from_slice(&[0; 64]);
    let frame = FrameDecoder::new(LIMIT).next(&mut buffer).unwrap();
    assert!(matches!(frame, Some(Frame::Oversized { .. })), "{name}: {frame:?}");
}

fn only_payload(name: &str, wire: &[u8]) -> Bytes {
    let mut buffer = BytesMut::from(wire);
    let frame = FrameDecoder::new(LIMIT).next(&mut buffer).unwrap();
    assert!(buffer.is_empty(), "{name}: bytes after the frame");
    let Some(Frame::Complete(payload)) = frame else { panic!("{name}: {frame:?}") };
    payload
}

fn unhex(hex: &str) -> Vec<u8> {
    assert_eq!(hex.len() % 2, 0);
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const LIMIT: usize = 0xfffff;

/// The error for "path length says 5, only 2 bytes follow": the path begins after the header.
const TRUNCATED: DecodeError = DecodeError {
    kind: DecodeErrorKind::UnexpectedEnd { need: 5, have: 2 },
    offset: 8,
    record: "ReadRequest",
    field: "path",
};

/// The error for the opcode 99, which no server knows.
const UNKNOWN: DecodeError =
    DecodeError { kind: DecodeErrorKind::UnexpectedOp(99), offset: 8, record: "", field: "" };
