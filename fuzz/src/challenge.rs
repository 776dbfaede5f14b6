//! The properties of the parser of DIGEST-MD5 challenges, which belongs to zk-session.

#[path = "../../crates/zk-session/src/driver/sasl/directives.rs"]
mod directives;

use allocation_counter::measure;

use self::directives::{Directives, Malformed, parse, quoted};

/// Checks a challenge. The input is the challenge. The directives must equal those of a simple
/// reference parser, survive a round trip, and need memory in proportion to the input.
pub fn challenge(data: &[u8]) {
    let mut parsed = None;
    let memory = measure(|| parsed = Some(parse(data))).bytes_max;
    assert!(memory <= 400 * data.len() as u64 + 4096, "{memory} bytes for {}", data.len());
    let parsed = parsed.expect("it was parsed");
    assert_eq!(parsed, reference(data), "the reference differs");
    let Ok(directives) = parsed else { return };

    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    let directives: Directives =
        directives.into_iter().filter(|(name, _)| is_plain(name)).collect();
    let written = directives.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let written = written.collect::<Vec<_>>().join(", ");
    match parse(written.as_bytes()) {
        Ok(again) => assert_eq!(again, directives, "after a round trip"),
        Err(Malformed::TooLong) => assert!(written.len() > 2047, "{} bytes", written.len()),
        Err(other) => panic!("{other:?} after a round trip"),
    }
}

/// Parses a challenge, one character at a time.
fn reference(data: &[u8]) -> Result<Directives, Malformed> {
    if data.len() >= 2048 {
        return Err(Malformed::TooLong);
    }
    let text = String::from_utf8(data.to_vec()).map_err(|_| Malformed::NoDirectives)?;
    let mut directives = Directives::new();
    let mut state = State::Between;
    let mut name = String::new();
    let mut value = String::new();
    for letter in text.chars() {
        state = match (state, letter) {
            (State::Between, ',' | ' ') => State::Between,
            (State::Between | State::Name, '=') => State::Begin,
            (State::Between | State::Name, letter) => {
                name.push(letter);
                State::Name
            }
            (State::Begin, '"') => State::Quoted,
            (State::Begin | State::Token, ',') => {
                add(&mut directives, &mut name, value.trim());
                value.clear();
                State::Between
            }
            (State::Begin | State::Token, letter) => {
                value.push(letter);
                State::Token
            }
            (State::Quoted, '"') => {
                add(&mut directives, &mut name, &value);
                value.clear();
                State::Between
            }
            (State::Quoted, '\\') => State::Escaped,
            (State::Quoted | State::Escaped, letter) => {
                value.push(letter);
                State::Quoted
            }
        };
    }
    match state {
        State::Between => Ok(directives),
        State::Name => Err(Malformed::NoDirectives),
        State::Begin | State::Token => {
            add(&mut directives, &mut name, value.trim());
            Ok(directives)
        }
        State::Quoted | State::Escaped => Err(Malformed::OpenQuote),
    }
}

enum State {
    Begin,
    Between,
    Escaped,
    Name,
    Quoted,
    Token,
}

fn add(directives: &mut Directives, name: &mut String, value: &str) {
    let key = std::mem::take(name).trim().to_ascii_lowercase();
    directives.entry(key).or_insert_with(|| value.to_owned());
}
