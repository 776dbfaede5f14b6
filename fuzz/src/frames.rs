//! The properties of framing.

use bytes::{Bytes, BytesMut};
use jute_codec::{Frame, FrameDecoder, FrameError, encode_frame};

/// Checks a stream. The input is `[limit (3), chunk - 1 (2), stream...]`. The frames must not depend
/// on how the stream is split, and must equal those of a simple reference decoder, respect the
/// limit, and survive a round trip.
pub fn frame(data: &[u8]) {
    let [a, b, c, d, e, stream @ ..] = data else { return };
    let limit = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    let chunk = usize::from(u16::from_be_bytes([*d, *e])) + 1;
    let frames = frames_of(stream, limit, stream.len().max(1));
    assert_eq!(frames, frames_of(stream, limit, chunk), "split differently");
    assert_eq!(frames, reference_frames(stream, limit), "reference decoder");

    let mut again = BytesMut::new();
    let mut whole = Vec::new();
    for frame in frames.0 {
        assert_ne!(format!("{frame:?}"), "");
        if let Frame::Complete(payload) = &frame {
            let limit = limit.max(FrameDecoder::HEAD);
            let written = encode_frame(&mut again, limit, |out| out.extend_from_slice(payload));
            assert_eq!(written, Ok(()), "a decoded frame fits the limit");
            if let Some(below) = payload.len().checked_sub(1) {
                let before = again.clone();
                let written = encode_frame(&mut again, below, |out| out.extend_from_slice(payload));
                assert!(written.is_err_and(|error| !error.to_string().is_empty()));
                assert_eq!(again, before, "nothing is written");
            }
            whole.push(frame);
        }
    }
    assert_eq!(frames_of(&again, limit, 7), (whole, None), "after a round trip");
}

fn frames_of(stream: &[u8], limit: usize, chunk: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for chunk in stream.chunks(chunk) {
        buffer.extend_from_slice(chunk);
        loop {
            check_missing(&decoder, &buffer, limit);
            match decoder.next(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        check_missing(&decoder, &buffer, limit);
        assert!(buffer.len() < 4 + limit.max(FrameDecoder::HEAD), "the buffer grows");
        assert!(decoder.skipping() == 0 || buffer.is_empty(), "what is skipped is kept");
    }
    assert_ne!(format!("{decoder:?}"), "");
    (frames, None)
}

/// Checks the number of bytes that the frame at the front of the buffer still needs.
fn check_missing(decoder: &FrameDecoder, buffer: &[u8], limit: usize) {
    let length = match buffer {
        [a, b, c, d, ..] if decoder.skipping() == 0 => {
            i64::from_be_bytes([0, 0, 0, 0, *a, *b, *c, *d])
        }
        _ => 0,
    };
    // A length is an `i32`: what is negative there is large here, and above every limit.
    let is_kept = length <= limit.max(FrameDecoder::HEAD) as i64;
    let expected = if is_kept && length > 0 { length + 4 - buffer.len() as i64 } else { 0 };
    assert_eq!(decoder.missing(buffer) as i64, expected.max(0), "missing of {length} bytes");
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
