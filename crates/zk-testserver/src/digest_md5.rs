//! The SASL mechanism DIGEST-MD5 (RFC 2831) with the parameters of ZooKeeper servers.
//!
//! The server sends a challenge, the client proves that it knows the password, and the server
//! proves the same. The challenge is not random, because runs of a test must not differ.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// All ZooKeeper servers use these names, no matter what they are called.
const REALM: &str = "zk-sasl-md5";
const URI: &str = "zookeeper/zk-sasl-md5";

/// Users with their passwords, which are not printed.
#[derive(Clone, Default, Eq, PartialEq)]
pub(crate) struct Users(BTreeMap<String, String>);

impl Users {
    pub(crate) fn insert(&mut self, user: String, password: String) {
        self.0.insert(user, password);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How far a connection is with the exchange.
#[derive(Debug, Default)]
pub(crate) enum Exchange {
    #[default]
    New,
    /// The client has this nonce.
    Challenged(String),
    Complete,
}

/// The result of a round.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Round {
    /// The exchange goes on with this token.
    Continue(String),
    /// This user has proved to know the password, and gets this token.
    Complete(String, String),
    /// The credentials are wrong, or the token is not what the mechanism expects.
    Refused,
}

impl Exchange {
    /// Handles a token. The seed must differ between connections.
    pub(crate) fn round(&mut self, token: &[u8], users: &Users, seed: u64) -> Round {
        match std::mem::replace(self, Self::Complete) {
            // Servers ignore the first token.
            Self::New => {
                let nonce = nonce(seed);
                let challenge =
                    format!("realm=\"{REALM}\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess");
                *self = Self::Challenged(nonce);
                Round::Continue(challenge)
            }
            Self::Challenged(nonce) => verify(token, &nonce, users).unwrap_or(Round::Refused),
            Self::Complete => Round::Refused,
        }
    }
}

/// Returns 40 characters.
fn nonce(seed: u64) -> String {
    let half = |salt: u8| {
        let mut half = md5::Context::new();
        half.consume([salt]);
        half.consume(seed.to_be_bytes());
        half.finalize().0
    };
    let bytes: Vec<u8> = half(0).into_iter().chain(half(1)).take(30).collect();
    STANDARD.encode(bytes)
}

/// Checks the response to a challenge. Returns `None` if it is refused.
fn verify(token: &[u8], nonce: &str, users: &Users) -> Option<Round> {
    let fields = directives(std::str::from_utf8(token).ok()?)?;
    let field = |name: &str| fields.get(name).map(String::as_str);
    let user = field("username")?;
    let cnonce = field("cnonce")?;
    let authorized = field("authzid").unwrap_or(user);
    let is_expected = field("realm") == Some(REALM)
        && field("nonce") == Some(nonce)
        && field("nc") == Some("00000001")
        && field("digest-uri") == Some(URI)
        && field("qop").unwrap_or("auth") == "auth"
        && authorized == user;
    let password = users.0.get(user).filter(|_| is_expected)?;

    let mut secret = md5::Context::new();
    for part in [user, ":", REALM, ":", password] {
        secret.consume(encoded(part));
    }
    let mut a1 = secret.finalize().to_vec();
    a1.extend_from_slice(format!(":{nonce}:{cnonce}").as_bytes());
    if let Some(authzid) = field("authzid") {
        a1.extend_from_slice(format!(":{authzid}").as_bytes());
    }
    let proof = |method: &str| {
        let (key, a2) = (md5::compute(&a1), md5::compute(format!("{method}:{URI}")));
        format!("{:x}", md5::compute(format!("{key:x}:{nonce}:00000001:{cnonce}:auth:{a2:x}")))
    };
    let is_right = field("response") == Some(proof("AUTHENTICATE").as_str());
    is_right.then(|| Round::Complete(user.to_owned(), format!("rspauth={}", proof(""))))
}

/// Encodes text as ISO 8859-1 if that is possible, and otherwise as UTF-8, as the RFC requires.
fn encoded(text: &str) -> Vec<u8> {
    let latin: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    latin.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// Parses `name=value` pairs, separated by commas. A value may be quoted. Returns `None` if the text
/// is malformed or repeats a name.
fn directives(text: &str) -> Option<BTreeMap<String, String>> {
    let mut fields = BTreeMap::new();
    let mut rest = text.trim_start_matches([',', ' ']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        rest = if let Some(quoted) = after.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            loop {
                match characters.next()? {
                    (end, '"') => break quoted.get(end + 1..)?,
                    (_, '\\') => value.push(characters.next()?.1),
                    (_, character) => value.push(character),
                }
            }
        } else {
            let end = after.find(',').unwrap_or(after.len());
            let (plain, rest) = after.split_at(end);
            value.push_str(plain.trim_end());
            rest
        };
        if fields.insert(name.trim().to_owned(), value).is_some() {
            return None;
        }
        let next = rest.trim_start_matches(' ');
        if !next.is_empty() && !next.starts_with(',') {
            return None;
        }
        rest = next.trim_start_matches([',', ' ']);
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "mbgIDWViOpLclDfv8Ouj/NWx85wVMUnaJhxsZqQW";
    const CNONCE: &str = "AAECAwQFBgcICQoLDA0ODw==";
    const RESPONSE: &str = "2ab8b855ad7ae37c9cd2bcde1c50877f";
    const PROOF: &str = "rspauth=7392d6adedba0ec24a102f10341878c4";

    fn token() -> String {
        format!(
            "charset=utf-8,username=\"bob\",realm=\"zk-sasl-md5\",nonce=\"{NONCE}\",nc=00000001,\
             cnonce=\"{CNONCE}\",digest-uri=\"zookeeper/zk-sasl-md5\",maxbuf=65536,\
             response={RESPONSE},qop=auth"
        )
    }

    /// The second round of a conversation that was captured on a server 3.9.3.
    #[test]
    fn proofs_of_both_sides_equal_those_of_a_real_server() {
        let mut users = Users::default();
        users.insert("bob".to_owned(), "bobsecret".to_owned());
        let mut exchange = Exchange::Challenged(NONCE.to_owned());
        let complete = Round::Complete("bob".to_owned(), PROOF.to_owned());
        assert_eq!(exchange.round(token().as_bytes(), &users, 0), complete);
        assert_eq!(exchange.round(token().as_bytes(), &users, 0), Round::Refused, "it is over");
    }

    #[test]
    fn directives_with_quotes_escapes_and_gaps() {
        let fields = directives(r#", a=1 , b="x,\"y\\", c="","#).expect("well-formed");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fields, [("a", "1"), ("b", r#"x,"y\"#), ("c", "")]);
        for bad in ["a", "a=1,a=2", "a=\"1", "a=\"1\"b=2", "a=\"\\"] {
            assert_eq!(directives(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_is_latin_if_possible() {
        assert_eq!(encoded("é"), [0xe9]);
        assert_eq!(encoded("é€"), "é€".as_bytes());
    }

    #[test]
    fn users_are_printed_without_passwords() {
        let mut users = Users::default();
        users.insert("chris".to_owned(), "hunter2".to_owned());
        assert_eq!(format!("{users:?}"), "{\"chris\"}");
    }
}
