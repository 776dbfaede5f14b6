//! Primitives of jute: how integers, booleans, buffers, text and vectors stand on the wire.
//!
//! Everything is big-endian, without alignment or tags. Lengths and counts are signed 32-bit
//! numbers; -1 stands for null. Source: `org.apache.jute.BinaryInputArchive`.

use bytes::{Buf, Bytes, BytesMut};
use bytestring::ByteString;

use crate::error::{DecodeError, DecodeErrorKind};

/// A value with a place on the wire.
pub trait Record: Sized {
    /// Appends the value.
    fn encode(&self, out: &mut BytesMut);

    /// Reads the value. Bytes behind it stay in `input`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] says what was wrong and where.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError>;
}

/// A payload being read.
#[derive(Clone, Debug)]
pub struct Reader {
    rest: Bytes,
    length: usize,
}

impl Reader {
    /// Starts at the first byte of a payload.
    pub fn new(payload: Bytes) -> Self {
        Self { length: payload.len(), rest: payload }
    }

    /// Bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Bytes that were read.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Takes what was not read yet.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    /// Reads a field and names it in an error that has no name yet.
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

    /// Reads a length and then that many bytes; `None` for null.
    fn buffer(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let offset = self.position();
        let Some(length) = self.length()? else { return Ok(None) };
        self.need(length).map_err(|error| DecodeError { offset, ..error })?;
        Ok(Some(self.rest.split_to(length)))
    }

    /// Skips bytes and reads text of a length, if it is UTF-8. Nothing is read otherwise.
    pub(crate) fn text(&mut self, skipped: usize, length: usize) -> Option<ByteString> {
        let end = skipped + length;
        let text = ByteString::try_from(self.rest.slice(skipped..end)).ok()?;
        self.rest.advance(end);
        Some(text)
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Reads a length or a count; `None` for null.
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

impl Record for i32 {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.need(4)?;
        Ok(input.rest.get_i32())
    }
}

impl Record for i64 {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.need(8)?;
        Ok(input.rest.get_i64())
    }
}

/// Written as 0 or 1; any other byte is read as true, as the official reader does.
impl Record for bool {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&[u8::from(*self)]);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.need(1)?;
        Ok(input.rest.get_u8() != 0)
    }
}

/// A buffer that may be null. Null and empty are different values.
impl Record for Option<Bytes> {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(self.as_deref(), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.buffer()
    }
}

/// A buffer where null means the same as empty.
impl Record for Bytes {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(Some(self), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(input.buffer()?.unwrap_or_default())
    }
}

/// Text that may be null.
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

/// Text; null is an error.
impl Record for ByteString {
    fn encode(&self, out: &mut BytesMut) {
        encode_buffer(Some(self.as_bytes()), out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let offset = input.position();
        Option::decode(input)?.ok_or_else(|| DecodeError::new(DecodeErrorKind::Null, offset))
    }
}

/// A vector; null is read as empty.
impl<T: Record> Record for Vec<T> {
    fn encode(&self, out: &mut BytesMut) {
        length_prefix(self.len()).encode(out);
        for element in self {
            element.encode(out);
        }
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = input.length()?.unwrap_or(0);
        // The count is the peer's claim. Reserve no more than the bytes that are really there.
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

/// Nothing longer than `i32::MAX` survives the frame limit, so saturation is never seen.
pub(crate) fn length_prefix(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Reads the form that Java servers write for characters above U+FFFF: each half of a surrogate
/// pair as three bytes (CESU-8).
fn join_surrogates(mut rest: &[u8]) -> Option<String> {
    let mut joined = String::with_capacity(rest.len());
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(valid) => valid,
            Err(error) => std::str::from_utf8(rest.get(..error.valid_up_to())?).ok()?,
        };
        joined.push_str(valid);
        rest = rest.get(valid.len()..)?;
        if let Some((pair, behind)) = rest.split_at_checked(6) {
            joined.push(surrogate_pair(pair)?);
            rest = behind;
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
