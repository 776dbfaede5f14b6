//! The syntax of DIGEST-MD5 messages (RFC 2831): a list of directives.
//!
//! This module uses nothing of the crate, because the fuzz targets include it by its path.

use std::collections::BTreeMap;

/// Maximum length of a challenge: RFC 2831, section 2.1.1, says that it must be shorter than 2,048
/// bytes.
const CHALLENGE_MAX: usize = 2047;

/// The directives of a message. If a directive is repeated, the first one counts.
pub(super) type Directives = BTreeMap<String, String>;

/// Why a message has no directives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Malformed {
    /// It is not a list of directives, so it may belong to another mechanism.
    NoDirectives,
    /// A quotation mark is not closed.
    OpenQuote,
    /// It is longer than the specification allows.
    TooLong,
}

/// Returns the directives of a message.
pub(super) fn parse(message: &[u8]) -> Result<Directives, Malformed> {
    if message.len() > CHALLENGE_MAX {
        return Err(Malformed::TooLong);
    }
    let message = std::str::from_utf8(message).map_err(|_| Malformed::NoDirectives)?;
    let mut directives = Directives::new();
    let mut rest = message.trim_start_matches([',', ' ']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(Malformed::NoDirectives)?;
        let (value, after) = value(after)?;
        directives.entry(name.trim().to_ascii_lowercase()).or_insert(value);
        rest = after.trim_start_matches([',', ' ']);
    }
    Ok(directives)
}

/// Takes a value, which may be quoted, from the front of a text. Returns it with the rest.
fn value(text: &str) -> Result<(String, &str), Malformed> {
    let Some(inner) = text.strip_prefix('"') else {
        let (value, rest) = text.split_once(',').unwrap_or((text, ""));
        return Ok((value.trim().to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Ok((value, letters.as_str())),
            '\\' => value.extend(letters.next()),
            other => value.push(other),
        }
    }
    Err(Malformed::OpenQuote)
}

/// Writes a value so that [`parse`] returns it.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_quotation_marks_survive() {
        let parsed = parse(format!("a={},b=c", quoted("q\"\\,=")).as_bytes()).expect("well-formed");
        let value = |name: &str| parsed.get(name).map(String::as_str);
        assert_eq!((value("a"), value("b")), (Some("q\"\\,="), Some("c")));
    }
}
