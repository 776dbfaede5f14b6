//! Text as Java writes it: each UTF-16 code unit has one to three bytes, so a character above U+FFFF
//! is written as two surrogates. Other peers write such a character in four bytes.

/// Decodes text of either kind. Returns `None` if it is neither.
pub(crate) fn decode(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::new();
    let mut rest = bytes.iter().map(|byte| u32::from(*byte));
    while let Some(first) = rest.next() {
        let (length, least) = match first {
            0x00..=0x7f => (0, 0),
            0xc0..=0xdf => (1, 0x80),
            0xe0..=0xef => (2, 0x800),
            0xf0..=0xf7 => (3, 0x1_0000),
            _ => return None,
        };
        let mut code = if length == 0 { first } else { first & (0x3f >> length) };
        for _ in 0..length {
            let next = rest.next().filter(|byte| byte & 0xc0 == 0x80)?;
            code = code * 64 + (next - 0x80);
        }
        // No code has more bytes than it needs, and the last one is U+10FFFF.
        if code < least || code > 0x10_ffff {
            return None;
        }
        if code < 0x1_0000 {
            units.push(code as u16);
        } else {
            units.push((0xd7c0 + code / 0x400) as u16);
            units.push((0xdc00 + code % 0x400) as u16);
        }
    }
    String::from_utf16(&units).ok()
}

/// Encodes text as Java does.
pub(crate) fn encode_as_java(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in text.encode_utf16() {
        let low = 0x80 | (unit & 0x3f) as u8;
        let middle = 0x80 | (unit >> 6 & 0x3f) as u8;
        match unit {
            0..0x80 => bytes.push(unit as u8),
            0x80..0x800 => bytes.extend([0xc0 | (unit >> 6) as u8, low]),
            _ => bytes.extend([0xe0 | (unit >> 12) as u8, middle, low]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_both_kinds_is_read() {
        for text in ["", "a\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{1d11e}\u{10ffff}"] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(text));
            assert_eq!(decode(&encode_as_java(text)).as_deref(), Some(text));
        }
        // The known encoding of U+1D11E.
        assert_eq!(encode_as_java("\u{1d11e}"), [0xed, 0xa0, 0xb4, 0xed, 0xb4, 0x9e]);
    }

    #[test]
    fn other_bytes_are_not_text() {
        for bytes in [
            &b"\x80"[..],
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xf0\x80\x80\x80",
            b"\xf4\x90\x80\x80",
            b"\xf8\x88\x80\x80\x80",
            b"\xc3",
            b"\xc3a",
            b"\xed\xa0\xb4",
            b"\xed\xb4\x9e\xed\xa0\xb4",
        ] {
            assert_eq!(decode(bytes), None, "{bytes:x?}");
        }
    }
}
