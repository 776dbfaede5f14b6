//! Length-prefixed frames, incrementally and without I/O.

use bytes::{Buf, Bytes, BytesMut};

use crate::error::{EncodeError, FrameError};

/// A frame taken from the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Frame {
    /// A whole payload.
    Complete(Bytes),
    /// A payload longer than the limit. Its first bytes are here, the rest is skipped as it
    /// arrives, so that one oversized reply costs its own request and not the connection.
    Oversized {
        /// The first [`HEAD`](FrameDecoder::HEAD) bytes: as much as a reply header.
        head: Bytes,
        /// Length of the payload.
        length: usize,
    },
}

/// Cuts a byte stream into frames.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    limit: usize,
    skip: usize,
}

impl FrameDecoder {
    /// Bytes of an oversized payload that are kept: the length of a reply header.
    pub const HEAD: usize = 16;

    /// Payloads longer than `limit` are reported as oversized; `limit` is at least
    /// [`HEAD`](Self::HEAD).
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(Self::HEAD), skip: 0 }
    }

    /// Takes the next frame from the front of `buffer`; `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// A negative length: nothing behind it can be trusted, so the connection has to end.
    #[allow(clippy::should_implement_trait, reason = "it borrows the buffer")]
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
        buffer.advance(4);
        Ok(Some(Frame::Complete(buffer.split_to(length).freeze())))
    }

    /// How many bytes of an oversized payload are still to be skipped.
    pub fn skipping(&self) -> usize {
        self.skip
    }

    /// How many bytes the frame at the front of `buffer` still lacks, as far as it is to be kept;
    /// 0 if its length is not there. Whoever trusts the peer can make room for all of them at once.
    pub fn missing(&self, buffer: &[u8]) -> usize {
        let length = buffer.first_chunk().filter(|_| self.skip == 0).copied();
        let length = length.and_then(|prefix| usize::try_from(i32::from_be_bytes(prefix)).ok());
        let length = length.filter(|length| *length <= self.limit);
        length.map_or(0, |length| (4 + length).saturating_sub(buffer.len()))
    }
}

/// Appends a frame whose payload `write` appends.
///
/// # Errors
///
/// The payload is longer than `limit`. `out` is then as it was before.
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
    out.iter_mut().skip(start).zip(prefix).for_each(|(byte, value)| *byte = value);
    Ok(())
}
