//! Encoded values decode to the same values, and no input causes a panic.
//!
//! The tests check four properties of every request, reply, header, handshake record and event: it
//! survives a round trip, decoding does not consume the bytes after it, each proper prefix is an
//! error that says where the input ends, and damaged or arbitrary bytes never cause a panic. Only
//! handshake records have a legal prefix, because their last field is optional.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

mod reference;
#[path = "support/strategies.rs"]
mod strategies;

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    ConnectRequest, ConnectResponse, DecodeError, DecodeErrorKind, OpCode, Reader, Record,
    ReplyHeader, Request, RequestHeader, Response, WatcherEvent,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::reference::{Layout, ToValue, Value};
use crate::strategies::Written;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn requests_survive_the_wire(written in strategies::requests(), tail in tail()) {
        let op = written.op;
        let request = Request::decode(op, &mut Reader::new(written.wire.clone())).unwrap();
        prop_assert_eq!(request.op(), op);
        check_written(&written, &request, Request::encode)?;
        let paths: Vec<&str> = request.paths().into_iter().map(|path| &**path).collect();
        prop_assert_eq!(&paths, &paths_in(&written.value));
        let path = request.path().map(|path| &**path);
        prop_assert!(path.is_none() || paths == path.into_iter().collect::<Vec<_>>());
        let mut copy = request.clone();
        let mutable: Vec<&str> = copy.paths_mut().into_iter().map(|path| &**path).collect();
        prop_assert_eq!(paths, mutable);
        check_whole(&request, &written.wire, &tail, |input| Request::decode(op, input))?;
        check_prefixes(&written.wire, |input| Request::decode(op, input))?;
    }

    #[test]
    fn replies_survive_the_wire(written in strategies::responses(), tail in tail()) {
        let op = written.op;
        let response = Response::decode(op, &mut Reader::new(written.wire.clone())).unwrap();
        check_written(&written, &response, Response::encode)?;
        let mut copy = response.clone();
        let paths: Vec<&str> = copy.paths_mut().into_iter().map(|path| &**path).collect();
        prop_assert_eq!(paths, paths_in(&written.value));
        check_whole(&response, &written.wire, &tail, |input| Response::decode(op, input))?;
        check_prefixes(&written.wire, |input| Response::decode(op, input))?;
    }

    #[test]
    fn headers_and_events_survive_the_wire(
        request in strategies::request_header(),
        reply in strategies::reply_header(),
        event in strategies::event(),
        tail in tail(),
    ) {
        check_record(&request, &tail, RequestHeader::decode)?;
        check_record(&reply, &tail, ReplyHeader::decode)?;
        check_record(&event, &tail, WatcherEvent::decode)?;
    }

    #[test]
    fn handshakes_survive_the_wire(
        request in strategies::connect_request(),
        response in strategies::connect_response(),
        tail in tail(),
    ) {
        if request.read_only.is_some() {
            check_whole(&request, &written(|out| request.encode(out)), &tail, Record::decode)?;
        }
        if response.read_only.is_some() {
            check_whole(&response, &written(|out| response.encode(out)), &tail, Record::decode)?;
        }
        // Without the optional field, no prefix is legal.
        let request = ConnectRequest { read_only: None, ..request };
        check_record(&request, &[], ConnectRequest::decode)?;
        let response = ConnectResponse { read_only: None, ..response };
        check_record(&response, &[], ConnectResponse::decode)?;
    }

    #[test]
    fn a_handshake_without_its_last_byte_has_no_read_only_flag(
        request in strategies::connect_request(),
        response in strategies::connect_response(),
        read_only: bool,
    ) {
        let request = ConnectRequest { read_only: Some(read_only), ..request };
        let mut wire = written(|out| request.encode(out));
        wire.truncate(wire.len() - 1);
        let decoded = ConnectRequest::decode(&mut Reader::new(wire)).unwrap();
        prop_assert_eq!(decoded, ConnectRequest { read_only: None, ..request });

        let response = ConnectResponse { read_only: Some(read_only), ..response };
        let mut wire = written(|out| response.encode(out));
        wire.truncate(wire.len() - 1);
        let decoded = ConnectResponse::decode(&mut Reader::new(wire)).unwrap();
        prop_assert_eq!(decoded, ConnectResponse { read_only: None, ..response });
    }

    #[test]
    fn damaged_requests_never_panic(written in strategies::requests(), damage in damage()) {
        check_hostile(written.op, &damaged(written.wire, &damage))?;
    }

    #[test]
    fn damaged_replies_never_panic(written in strategies::responses(), damage in damage()) {
        check_hostile(written.op, &damaged(written.wire, &damage))?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..160), unknown: i32) {
        for op in OpCode::KNOWN.iter().copied().chain([OpCode(unknown)]) {
            check_hostile(op, &bytes)?;
        }
        check_decoded(&bytes, ConnectRequest::decode, Record::encode)?;
        check_decoded(&bytes, ConnectResponse::decode, Record::encode)?;
        check_decoded(&bytes, RequestHeader::decode, Record::encode)?;
        check_decoded(&bytes, ReplyHeader::decode, Record::encode)?;
        check_decoded(&bytes, WatcherEvent::decode, Record::encode)?;
    }
}

#[test]
fn the_reference_has_every_decodable_opcode() {
    let unknown = |result: Result<(), DecodeError>| {
        matches!(result, Err(DecodeError { kind: DecodeErrorKind::UnexpectedOp(_), .. }))
    };
    for op in (-1000..1000).map(OpCode) {
        let request = Request::decode(op, &mut Reader::new(Bytes::new())).map(drop);
        let response = Response::decode(op, &mut Reader::new(Bytes::new())).map(drop);
        assert_eq!(unknown(request), Layout::Request(op).body().is_none(), "request {op}");
        assert_eq!(unknown(response), Layout::Response(op).body().is_none(), "reply {op}");
    }
}

/// Checks that the codec reads what the reference has written, and writes the same bytes.
fn check_written<T: ToValue>(
    written: &Written,
    decoded: &T,
    encode: impl Fn(&T, &mut BytesMut),
) -> Result<(), TestCaseError> {
    prop_assert_eq!(decoded.to_value(), written.value.clone());
    let mut out = BytesMut::new();
    encode(decoded, &mut out);
    prop_assert_eq!(out.freeze(), written.wire.clone());
    Ok(())
}

/// Returns the paths of a message, which chroots have to translate. Those of setWatches are not
/// among them, because they come from earlier requests.
fn paths_in(value: &Value) -> Vec<&str> {
    match value {
        Value::Record(fields) => fields
            .iter()
            .filter(|(name, _)| matches!(*name, "path" | "prefixPath" | "ephemerals"))
            .flat_map(|(_, value)| paths_in(value))
            .collect(),
        Value::List(elements) => elements.iter().flat_map(|(_, value)| paths_in(value)).collect(),
        Value::Vector(elements) => elements.iter().flat_map(paths_in).collect(),
        Value::Text(text) => text.as_deref().into_iter().collect(),
        Value::Bool(_) | Value::Buffer(_) | Value::Int(_) | Value::Long(_) => Vec::new(),
    }
}

/// Checks all properties of a record without optional fields.
fn check_record<T: Record + Debug + PartialEq>(
    value: &T,
    tail: &[u8],
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    let wire = written(|out| value.encode(out));
    check_whole(value, &wire, tail, &decode)?;
    check_prefixes(&wire, &decode)
}

/// Checks that the value is decoded, and that bytes after it stay in the input.
fn check_whole<T: Debug + PartialEq>(
    value: &T,
    wire: &[u8],
    tail: &[u8],
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    let mut reader = Reader::new([wire, tail].concat().into());
    let decoded = decode(&mut reader);
    prop_assert_eq!(decoded.as_ref(), Ok(value));
    prop_assert_eq!(reader.position(), wire.len());
    prop_assert_eq!(&reader.into_rest()[..], tail);
    Ok(())
}

/// Checks that every proper prefix is an error that says how many bytes are missing, and in which
/// field.
fn check_prefixes<T: Debug + PartialEq>(
    wire: &[u8],
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    for length in 0..wire.len() {
        let mut reader = Reader::new(Bytes::copy_from_slice(&wire[..length]));
        let error = decode(&mut reader).map(|value| format!("{length} bytes gave {value:?}"));
        let error = error.expect_err("a beginning is not a whole record");
        let DecodeErrorKind::UnexpectedEnd { need, have } = error.kind else {
            return Err(TestCaseError::fail(format!("{length} bytes gave {error:?}")));
        };
        prop_assert!(have < need && have <= length, "{error:?}");
        prop_assert!(error.offset <= length - have, "{error:?}");
        prop_assert!(!error.record.is_empty() && !error.field.is_empty(), "{error:?}");
    }
    Ok(())
}

/// Decodes arbitrary bytes as the body of a request and of a reply.
fn check_hostile(op: OpCode, bytes: &[u8]) -> Result<(), TestCaseError> {
    let decode = |input: &mut Reader| Request::decode(op, input);
    check_decoded(bytes, decode, Request::encode)?;
    let decode = |input: &mut Reader| Response::decode(op, input);
    check_decoded(bytes, decode, Response::encode)
}

/// Checks that decoding arbitrary bytes returns an error at an offset inside the input, or a value
/// that survives a round trip and does not grow.
fn check_decoded<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
    encode: impl Fn(&T, &mut BytesMut),
) -> Result<(), TestCaseError> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
    match decode(&mut reader) {
        Ok(value) => {
            let wire = written(|out| encode(&value, out));
            prop_assert!(wire.len() <= reader.position());
            let mut reader = Reader::new(wire);
            prop_assert_eq!(decode(&mut reader), Ok(value));
            prop_assert_eq!(reader.remaining(), 0);
        }
        Err(error) => prop_assert!(error.offset <= bytes.len(), "{error:?}"),
    }
    Ok(())
}

fn written(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze()
}

fn tail() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

/// Generates positions and new values. Small values and -1 make plausible lengths.
fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    vec((any::<prop::sample::Index>(), prop_oneof![0_u8..8, Just(0xff), any::<u8>()]), 1..6)
}

fn damaged(wire: Bytes, damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut bytes = wire.to_vec();
    for (place, value) in damage {
        if !bytes.is_empty() {
            let at = place.index(bytes.len());
            bytes[at] = *value;
        }
    }
    bytes
}
