//! Memory use grows with the bytes received, not with the lengths and counts that they claim.
//!
//! A counting allocator measures the peak during decoding, including errors and dropped values. The
//! documentation of the crate states the same bound.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use allocation_counter::measure;
use bytes::Bytes;
use jute_codec::{
    ConnectRequest, ConnectResponse, OpCode, Reader, Record, ReplyHeader, Request, RequestHeader,
    Response, WatcherEvent,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn a_huge_length_or_count_in_a_tiny_input_reserves_almost_nothing() {
    for claim in [1 << 10, 1 << 20, 1 << 30, i32::MAX] {
        for before in 0..40 {
            // Zeros decode as empty text, numbers or empty vectors, whatever the first field of the
            // record is.
            let mut input = vec![0; before];
            input.extend_from_slice(&claim.to_be_bytes());
            input.extend_from_slice(&[0; 8]);
            check_all_decoders(&input);
        }
    }
}

#[test]
fn the_smallest_elements_cost_the_most_and_stay_within_the_bound() {
    let count = i32::try_from(COUNT).unwrap();
    let elements = |bytes: &[u8], size: usize| {
        let mut input = bytes.to_vec();
        input.extend_from_slice(&count.to_be_bytes());
        input.resize(input.len() + size * COUNT, 0);
        input
    };
    // The elements are empty names, entries of an access control list, and identities.
    check_all_decoders(&elements(&[], 4));
    check_all_decoders(&elements(&[], 8));
    check_all_decoders(&elements(&[], 12));
    check_all_decoders(&elements(&[0; 8], 12));
    // The elements are results without a record, and operations with an empty path.
    for op in [OpCode::DELETE, OpCode::CHECK] {
        let header = [&op.0.to_be_bytes()[..], &[0; 5]].concat();
        check_all_decoders(&header.repeat(COUNT));
        check_all_decoders(&[&header[..], &[0; 8]].concat().repeat(COUNT));
    }
    for op in [OpCode::GET_DATA, OpCode::GET_CHILDREN, OpCode::CREATE, OpCode::ERROR] {
        let header = [&op.0.to_be_bytes()[..], &[0; 5]].concat();
        for record in [4, 5, 8, 16] {
            check_all_decoders(&[&header[..], &vec![0; record]].concat().repeat(COUNT));
        }
    }
}

#[test]
fn text_in_surrogate_pairs_is_copied_once() {
    let pairs = b"\xed\xa0\xb4\xed\xb4\x9e".repeat(1000);
    let mut input = u32::try_from(pairs.len()).unwrap().to_be_bytes().to_vec();
    input.extend_from_slice(&pairs);
    check_all_decoders(&input);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_input_makes_decoding_reserve_more_than_promised(
        bytes in vec(prop_oneof![4 => Just(0), 1 => 0_u8..16, 1 => any::<u8>()], 0..400),
    ) {
        check_all_decoders(&bytes);
    }
}

#[track_caller]
fn check_all_decoders(input: &[u8]) {
    let payload = Bytes::copy_from_slice(input);
    for op in OpCode::KNOWN.iter().copied() {
        check(&payload, |input| drop(Request::decode(op, input)));
        check(&payload, |input| drop(Response::decode(op, input)));
    }
    check(&payload, |input| drop(ConnectRequest::decode(input)));
    check(&payload, |input| drop(ConnectResponse::decode(input)));
    check(&payload, |input| drop(RequestHeader::decode(input)));
    check(&payload, |input| drop(ReplyHeader::decode(input)));
    check(&payload, |input| drop(WatcherEvent::decode(input)));
}

#[track_caller]
fn check(payload: &Bytes, decode: impl FnOnce(&mut Reader)) {
    let mut reader = Reader::new(payload.clone());
    let peak = measure(|| decode(&mut reader)).bytes_max;
    let promised = 40 * payload.len() + 1024;
    assert!(
        usize::try_from(peak).unwrap() <= promised,
        "{peak} bytes for an input of {}",
        payload.len()
    );
}

/// One more than a power of two, so that a vector has just doubled its capacity.
const COUNT: usize = (1 << 13) + 1;
