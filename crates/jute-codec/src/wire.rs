//! The primitives of jute: integers, booleans, buffers, text and vectors.
//!
//! Everything is big-endian, without alignment or tags. Lengths and counts are signed 32-bit
//! numbers; -1 means null. Source: `org.apache.jute.BinaryInputArchive`.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;

use crate::error::{DecodeError, DecodeErrorKind};

/// A value with a wire format.
pub trait Record: Sized {
    /// Appends the value.
    fn encode(&self, out: &mut BytesMut);

    /// Reads the value. Bytes after it stay in `input`.
    ///
    /// # Errors
    ///
    /// Returns why the bytes are invalid, and where.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError>;
}

/// Reads a payload from front to back.
#[derive(Clone)]
pub struct Reader {
    rest: Bytes,
    length: usize,
}

impl Reader {
    /// Creates a reader at the first byte of a payload.
    pub fn new(payload: Bytes) -> Self {
        Self { length: payload.len(), rest: payload }
    }

    /// Returns how many bytes have not been read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns how many bytes have been read.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Returns the bytes that have not been read.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    /// Reads a field. Adds these names to an error that does not name a record yet.
    pub(crate) fn field<T: Record>(
        &mut self,
        record: &'static str,
        field: &'static str,
    ) -> Result<T, DecodeError> {
        T::decode(self).map_err(|error| error.within(record, field))
    }

    fn need(&self, need: usize) -> Result<(), DecodeError> {
        let have = self.rest.len();
        if have < need {
            let kind = DecodeErrorKind::UnexpectedEnd { need, have };
            return Err(DecodeError::new(kind, self.position()));
        }
        Ok(())
    }

    /// Reads a length and that many bytes. Returns `None` for null.
    fn buffer(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let offset = self.position();
        let Some(length) = self.length()? else { return Ok(None) };
        self.need(length).map_err(|error| DecodeError { offset, ..error })?;
        Ok(Some(self.rest.split_to(length)))
    }

    /// Skips bytes, then reads `length` bytes of text. Reads nothing if the text is not UTF-8.
    pub(crate) fn text(&mut self, skipped: usize, length: usize) -> Option<ByteString> {
        let end = skipped + length;
        let text = ByteString::try_from(self.rest.slice(skipped..end)).ok()?;
        self.rest.advance(end);
        Some(text)
    }

    /// Returns the bytes that have not been read, without reading them.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Reads a length or a count. Returns `None` for null.
    pub(crate) fn length(&mut self) -> Result<Option<usize>, DecodeError> {
        self.need(4)?;
        let offset = self.position();
        let length = self.rest.get_i32();
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(DecodeError::new(DecodeErrorKind::NegativeLength(length), offset)),
        }
    }
}

// The bytes stay out of logs, because they may contain a password.
impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("position", &self.position())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

macro_rules! integer_record {
    ($ty:ty, $get:ident) => {
        impl Record for $ty {
            fn encode(&self, out: &mut BytesMut) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                input.need(size_of::<Self>())?;
                Ok(input.rest.$get())
            }
        }
    };
}

integer_record!(i32, get_i32);
integer_record!(i64, get_i64);

/// Encodes `true` as 1 and `false` as 0. Any other byte decodes as true, as in the official
/// implementation.
impl Record for bool {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&[u8::from(*self)]);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.need(1)?;
        Ok(input.rest.get_u8() != 0)
    }
}

/// A nullable buffer. Null and empty are different values.
impl Record for Option<Bytes> {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(self.as_deref(), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.buffer()
    }
}

/// A buffer that is never null: null decodes as empty.
impl Record for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(Some(self), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(input.buffer()?.unwrap_or_default())
    }
}

/// Nullable text.
impl Record for Option<ByteString> {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(self.as_ref().map(|text| text.as_bytes().as_ref()), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let offset = input.position();
        let Some(length) = input.length()? else { return Ok(None) };
        input.need(length).map_err(|error| DecodeError { offset, ..error })?;
        if let Some(text) = input.text(0, length) {
            return Ok(Some(text));
        }
        match join_surrogates(&input.rest.split_to(length)) {
            Some(joined) => Ok(Some(joined.into())),
            None => Err(DecodeError::new(DecodeErrorKind::NotText, offset)),
        }
    }
}

/// Text. Null is an error.
impl Record for ByteString {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(Some(self.as_bytes()), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let offset = input.position();
        Option::decode(input)?.ok_or_else(|| DecodeError::new(DecodeErrorKind::Null, offset))
    }
}

/// A vector. Null decodes as empty.
impl<T: Record> Record for Vec<T> {
    fn encode(&self, out: &mut BytesMut) {
        length_prefix(self.len()).encode(out);
        for element in self {
            element.encode(out);
        }
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = input.length()?.unwrap_or(0);
        // The peer may claim any count. Reserve no more than the bytes received can contain.
        let fits = input.remaining() / size_of::<T>().max(1);
        let mut elements = Self::with_capacity(count.min(fits));
        for _ in 0..count {
            elements.push(T::decode(input)?);
        }
        Ok(elements)
    }
}

pub(crate) fn encode_buffer(bytes: Option<&[u8]>, out: &mut BytesMut) {
    match bytes {
        None => (-1_i32).encode(out),
        Some(bytes) => {
            length_prefix(bytes.len()).encode(out);
            out.extend_from_slice(bytes);
        }
    }
}

/// Converts a length to its prefix, and saturates. No peer sees a saturated prefix, because frames
/// longer than `i32::MAX` bytes cannot be sent.
pub(crate) fn length_prefix(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Decodes CESU-8, which Java servers write: a character above U+FFFF is a surrogate pair, and each
/// half has three bytes.
fn join_surrogates(mut rest: &[u8]) -> Option<String> {
    let mut joined = String::with_capacity(rest.len());
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(valid) => valid,
            Err(error) => std::str::from_utf8(rest.get(..error.valid_up_to())?).ok()?,
        };
        joined.push_str(valid);
        rest = rest.get(valid.len()..)?;
        if let Some((pair, after)) = rest.split_at_checked(6) {
            joined.push(surrogate_pair(pair)?);
            rest = after;
        } else if !rest.is_empty() {
            return None;
        }
    }
    Some(joined)
}

fn surrogate_pair(bytes: &[u8]) -> Option<char> {
    let &[
        0xed,
        high_1 @ 0xa0..=0xaf,
        high_0 @ 0x80..=0xbf,
        0xed,
        low_1 @ 0xb0..=0xbf,
        low_0 @ 0x80..=0xbf,
    ] = bytes
    else {
        return None;
    };
    let high = u32::from(high_1 & 0x0f) << 6 | u32::from(high_0 & 0x3f);
    let low = u32::from(low_1 & 0x0f) << 6 | u32::from(low_0 & 0x3f);
    char::from_u32(0x1_0000 + (high << 10 | low))
}
