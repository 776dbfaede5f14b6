//! Incremental encoding and decoding of length-prefixed frames, without I/O.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{EncodeError, FrameError};

/// A frame from the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Frame {
    /// A complete payload.
    Complete(Bytes),
    /// A payload longer than the limit. The decoder keeps its first bytes and skips the rest as it
    /// arrives, so that an oversized reply fails one request instead of the connection.
    Oversized {
        /// The first [`HEAD`](FrameDecoder::HEAD) bytes, which contain the reply header.
        head: Bytes,
        /// Length of the payload.
        length: usize,
    },
}

/// Splits a byte stream into frames.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    limit: usize,
    skip: usize,
}

impl FrameDecoder {
    /// How many bytes of an oversized payload are kept: the length of a reply header.
    pub const HEAD: usize = 16;

    /// Creates a decoder that reports payloads longer than `limit` bytes as oversized. If `limit`
    /// is below [`HEAD`](Self::HEAD), the limit is `HEAD`.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(Self::HEAD), skip: 0 }
    }

    /// Takes the next frame from the front of `buffer`. Returns `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Fails if the length is negative. The bytes after it cannot be trusted, so the caller must
    /// close the connection.
    #[allow(clippy::should_implement_trait, reason = "it takes the buffer as an argument")]
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if self.skip > 0 {
            let skipped = self.skip.min(buffer.len());
            buffer.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
        }
        let Some(prefix) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        let length = usize::try_from(length).map_err(|_| FrameError { length })?;
        if length > self.limit {
            if buffer.len() < 4 + Self::HEAD {
                return Ok(None);
            }
            buffer.advance(4);
            let head = buffer.split_to(Self::HEAD).freeze();
            self.skip = length - Self::HEAD;
            return Ok(Some(Frame::Oversized { head, length }));
        }
        if buffer.len() < 4 + length {
            return Ok(None);
        }
        let mut payload = buffer.split_to(4 + length).freeze();
        payload.advance(4);
        Ok(Some(Frame::Complete(payload)))
    }

    /// Returns how many bytes of an oversized payload remain to be skipped.
    pub fn skipping(&self) -> usize {
        self.skip
    }

    /// Returns how many bytes are missing to complete the frame at the front of `buffer`. The
    /// result is 0 if the length prefix has not arrived, or if the frame will be skipped. A caller
    /// that trusts the peer can reserve the missing bytes at once.
    pub fn missing(&self, buffer: &[u8]) -> usize {
        let length = buffer.first_chunk().filter(|_| self.skip == 0).copied();
        let length = length.and_then(|prefix| usize::try_from(i32::from_be_bytes(prefix)).ok());
        let length = length.filter(|length| *length <= self.limit);
        length.map_or(0, |length| (4 + length).saturating_sub(buffer.len()))
    }
}

/// Appends a frame. `write` appends its payload.
///
/// # Errors
///
/// Fails if the payload is longer than `limit` bytes. `out` is then unchanged.
pub fn encode_frame(
    out: &mut BytesMut,
    limit: usize,
    write: impl FnOnce(&mut BytesMut),
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = out.len() - start - 4;
    let limit = limit.min(i32::MAX as usize);
    if length > limit {
        out.truncate(start);
        return Err(EncodeError::TooLong { length, limit });
    }
    let prefix = (length as u32).to_be_bytes();
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&prefix);
    }
    Ok(())
}
