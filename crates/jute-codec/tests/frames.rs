//! The decoder returns the same frames however the stream is split, and limits the cost of invalid
//! frames.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

use bytes::{Bytes, BytesMut};
use jute_codec::{EncodeError, Frame, FrameDecoder, FrameError, encode_frame};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Payloads are up to twice as long as the limit, so about half of them are oversized.
    #[test]
    fn frames_do_not_depend_on_how_the_stream_is_split(
        payloads in vec(vec(any::<u8>(), 0..128), 0..8),
        cuts in vec(1_usize..40, 1..8),
    ) {
        let stream: BytesMut = payloads.iter().flat_map(|payload| framed(payload)).collect();
        let mut decoder = FrameDecoder::new(LIMIT);
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.into_iter().cycle() {
            let (chunk, later) = rest.split_at(cut.min(rest.len()));
            buffer.extend_from_slice(chunk);
            while let Some(frame) = decoder.next(&mut buffer).unwrap() {
                frames.push(frame);
            }
            prop_assert!(buffer.len() < 4 + LIMIT, "the buffer grows");
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let expected: Vec<_> = payloads.iter().map(|payload| expected(payload)).collect();
        prop_assert_eq!(frames, expected);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn a_negative_length_stays_an_error(
        payload in vec(any::<u8>(), 0..LIMIT),
        length in i32::MIN..0,
        later in vec(any::<u8>(), 0..20),
    ) {
        let mut buffer = framed(&payload);
        buffer.extend_from_slice(&length.to_be_bytes());
        buffer.extend_from_slice(&later);
        let mut decoder = FrameDecoder::new(LIMIT);
        prop_assert_eq!(decoder.next(&mut buffer), Ok(Some(Frame::Complete(payload.into()))));
        for _ in 0..3 {
            prop_assert_eq!(decoder.next(&mut buffer), Err(FrameError { length }));
        }
    }

    #[test]
    fn a_frame_at_the_limit_is_encoded_and_a_longer_one_leaves_the_buffer_unchanged(
        before in vec(any::<u8>(), 0..20),
        limit in 0_usize..200,
    ) {
        let mut out = BytesMut::from(&before[..]);
        let written = encode_frame(&mut out, limit, |out| out.resize(out.len() + limit + 1, 7));
        prop_assert_eq!(written, Err(EncodeError::TooLong { length: limit + 1, limit }));
        prop_assert_eq!(&out[..], &before[..]);

        encode_frame(&mut out, limit, |out| out.resize(out.len() + limit, 7)).unwrap();
        prop_assert_eq!(&out[..before.len()], &before[..]);
        prop_assert_eq!(&out[before.len()..], &framed(&vec![7; limit])[..]);
    }
}

#[test]
fn a_frame_at_the_limit_is_complete_and_a_longer_one_is_oversized() {
    let mut buffer = framed(&[7; LIMIT]);
    buffer.unsplit(framed(&[8; LIMIT + 1]));
    buffer.unsplit(framed(b"next"));
    let mut decoder = FrameDecoder::new(LIMIT);
    assert_eq!(decoder.next(&mut buffer), Ok(Some(expected(&[7; LIMIT]))));
    let oversized = Frame::Oversized { head: Bytes::from_static(&[8; 16]), length: LIMIT + 1 };
    assert_eq!(decoder.next(&mut buffer), Ok(Some(oversized)));
    assert_eq!(decoder.next(&mut buffer), Ok(Some(Frame::Complete(Bytes::from_static(b"next")))));
    assert_eq!(decoder.next(&mut buffer), Ok(None));
}

#[test]
fn an_oversized_frame_is_reported_before_it_has_arrived_and_is_never_stored() {
    let length = 64 << 20;
    let mut buffer = BytesMut::from(&i32::try_from(length).unwrap().to_be_bytes()[..]);
    buffer.extend_from_slice(&[8; 16]);
    let mut decoder = FrameDecoder::new(LIMIT);
    let oversized = Frame::Oversized { head: Bytes::from_static(&[8; 16]), length };
    assert_eq!(decoder.next(&mut buffer), Ok(Some(oversized)));
    let chunk = vec![8; 1 << 16];
    let mut left = length - FrameDecoder::HEAD;
    while left > 0 {
        let arrived = left.min(chunk.len());
        buffer.extend_from_slice(&chunk[..arrived]);
        assert_eq!(decoder.next(&mut buffer), Ok(None));
        assert!(buffer.is_empty() && buffer.capacity() <= 4 * chunk.len());
        left -= arrived;
    }
    buffer.unsplit(framed(b"next"));
    assert_eq!(decoder.next(&mut buffer), Ok(Some(Frame::Complete(Bytes::from_static(b"next")))));
}

#[test]
fn a_limit_below_a_reply_header_is_raised_to_it() {
    let mut decoder = FrameDecoder::new(0);
    let mut buffer = framed(&[1; 16]);
    assert_eq!(decoder.next(&mut buffer), Ok(Some(Frame::Complete(Bytes::from_static(&[1; 16])))));
}

#[test]
fn an_empty_frame_is_a_frame() {
    let mut buffer = framed(b"");
    assert_eq!(FrameDecoder::new(LIMIT).next(&mut buffer), Ok(Some(expected(b""))));
}

fn framed(payload: &[u8]) -> BytesMut {
    let mut out = BytesMut::from(&u32::try_from(payload.len()).unwrap().to_be_bytes()[..]);
    out.extend_from_slice(payload);
    out
}

fn expected(payload: &[u8]) -> Frame {
    if payload.len() <= LIMIT {
        Frame::Complete(Bytes::copy_from_slice(payload))
    } else {
        Frame::Oversized { head: Bytes::copy_from_slice(&payload[..16]), length: payload.len() }
    }
}

const LIMIT: usize = 64;

#[test]
fn the_missing_bytes_of_a_frame_are_known_once_its_length_has_arrived() {
    let mut frames = FrameDecoder::new(100);
    let mut buffer = BytesMut::from(&[0, 0, 0][..]);
    assert_eq!(frames.missing(&buffer), 0, "the length has not arrived");
    buffer.extend_from_slice(&[100, 7]);
    assert_eq!(frames.missing(&buffer), 99);
    buffer.resize(103, 7);
    assert_eq!(frames.missing(&buffer), 1);
    assert_eq!(frames.next(&mut buffer), Ok(None));
    buffer.extend_from_slice(&[7, 0, 0, 0, 101]);
    assert_eq!(frames.missing(&buffer), 0, "the frame is complete");
    assert!(matches!(frames.next(&mut buffer), Ok(Some(Frame::Complete(_)))));
    assert_eq!(frames.missing(&buffer), 0, "the frame is too long to keep");
    buffer.resize(4 + 50, 7);
    assert!(matches!(frames.next(&mut buffer), Ok(Some(Frame::Oversized { .. }))));
    buffer.clear();
    buffer.extend_from_slice(&[0, 0, 0, 50, 0]);
    assert_eq!(frames.missing(&buffer), 0, "these bytes belong to the skipped frame");
    assert_eq!(frames.missing(&[0xff; 8]), 0, "decoding reports a negative length");
}
