//! Names as path components.
//!
//! Letters and digits of ASCII and `-`, `_`, `.`, `:` and `@` stay as they are. Every other byte of
//! the UTF-8 form becomes `%` and two upper-case hexadecimal digits, and so do the dots of `.` and
//! `..`, which servers refuse as components. `%` itself is encoded, so no two names have the same
//! form.

/// Encodes a name as one path component.
pub(super) fn encode(name: &str) -> String {
    let is_dots = matches!(name, "." | "..");
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_plain(byte) && !is_dots {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.extend([byte >> 4, byte & 15].map(digit));
        }
    }
    encoded
}

/// Decodes a path component. Returns `None` if it does not have the form that [`encode`] gives.
pub(super) fn decode(component: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(component.len());
    let mut rest = component.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut half = || char::from(rest.next()?).to_digit(16);
                u8::try_from(half()? * 16 + half()?).ok()?
            }
            byte => byte,
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    (!name.is_empty() && encode(&name) == component).then_some(name)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'@')
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    #[test]
    fn names_stay_readable_and_leave_no_component() {
        for (name, encoded) in [
            ("orders:42@eu-1.b_c", "orders:42@eu-1.b_c"),
            ("orders/42", "orders%2F42"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("../..", "..%2F.."),
            ("%2F", "%252F"),
            ("a b", "a%20b"),
            ("\0\u{7f}", "%00%7F"),
            ("é€", "%C3%A9%E2%82%AC"),
        ] {
            assert_eq!(encode(name), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(name));
        }
    }

    #[test]
    fn components_of_another_form_are_no_names() {
        for component in ["", "a/b", "%2f", "%41", "%", "%4", "%G0", "%FF", ".", "..", "a b", "é"]
        {
            assert_eq!(decode(component), None, "{component:?}");
        }
    }

    #[test]
    fn every_name_is_one_valid_component_and_can_be_decoded() {
        let mut samples = Samples::new(1);
        for _ in 0..10_000 {
            let name = samples.text();
            if name.is_empty() {
                continue;
            }
            let encoded = encode(&name);
            assert!(!encoded.contains('/'), "{name:?}");
            let path = format!("/locks/{encoded}");
            assert!(zk_session::path::validate(&path).is_ok(), "{name:?}");
            assert_eq!(decode(&encoded), Some(name));
        }
    }
}
