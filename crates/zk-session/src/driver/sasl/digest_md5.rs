//! DIGEST-MD5 (RFC 2831), as ZooKeeper servers use it: quality of protection `auth`, and a fixed
//! service and host.

use std::fmt;

use bytes::Bytes;
use jute_codec::SaslToken;
use md5::{Digest as _, Md5};

use super::directives::{Directives, Malformed, parse, quoted};
use super::mechanism::{Exchange, Mechanism};
use crate::error::{OptionDefect, SaslFailure};
use crate::host::Host;
use crate::machine::SaslStep;

const NAME: &str = "DIGEST-MD5";
/// Servers and clients use this in place of the name of the server.
const URI: &str = "zookeeper/zk-sasl-md5";

/// A name and a password.
#[derive(Clone)]
pub(super) struct DigestMd5 {
    name: String,
    password: String,
}

impl DigestMd5 {
    pub(super) fn new(name: String, password: String) -> Self {
        Self { name, password }
    }
}

impl fmt::Debug for DigestMd5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestMd5").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Mechanism for DigestMd5 {
    fn defect(&self) -> Option<OptionDefect> {
        (self.name.is_empty() || self.password.is_empty()).then_some(OptionDefect::Empty)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn begin(&self, _: &Host, random: [u8; 16]) -> Result<(Box<dyn Exchange>, Bytes), SaslFailure> {
        let exchange = DigestExchange {
            credentials: self.clone(),
            cnonce: hex(&random),
            expected_proof: None,
        };
        // The first message is empty: the server begins with a challenge.
        Ok((Box::new(exchange), Bytes::new()))
    }
}

struct DigestExchange {
    credentials: DigestMd5,
    cnonce: String,
    /// The proof that the server must present, once the client has presented its own.
    expected_proof: Option<String>,
}

impl Exchange for DigestExchange {
    fn step(&mut self, reply: Option<Bytes>) -> Result<SaslStep, SaslFailure> {
        let Some(reply) = reply else {
            // A null token ends the exchange, so the server has proven nothing.
            return Err(match self.expected_proof {
                None => SaslFailure::NotOffered,
                Some(_) => SaslFailure::NotMutual,
            });
        };
        let directives = parse(&reply).map_err(refuse)?;
        match &self.expected_proof {
            None => self.respond(&directives),
            Some(expected) if directives.get("rspauth") == Some(expected) => Ok(SaslStep::Done),
            Some(_) => Err(SaslFailure::NotMutual),
        }
    }
}

impl DigestExchange {
    fn respond(&mut self, challenge: &Directives) -> Result<SaslStep, SaslFailure> {
        let nonce = challenge.get("nonce").ok_or(SaslFailure::Challenge("it has no nonce"))?;
        if challenge.get("algorithm").is_none_or(|algorithm| algorithm != "md5-sess") {
            return Err(SaslFailure::Challenge("its algorithm is not md5-sess"));
        }
        let offers_auth = |offered: &String| offered.split(',').any(|qop| qop.trim() == "auth");
        if challenge.get("qop").is_some_and(|offered| !offers_auth(offered)) {
            return Err(SaslFailure::NoAcceptableLayer);
        }
        let realm = challenge.get("realm").map_or("", String::as_str);
        let DigestMd5 { name, password } = &self.credentials;
        let key = key(name, realm, password, nonce, &self.cnonce);
        let cnonce = &self.cnonce;
        self.expected_proof = Some(proof(&key, nonce, cnonce, ""));
        let proof = proof(&key, nonce, cnonce, "AUTHENTICATE");
        let (name, realm, nonce) = (quoted(name), quoted(realm), quoted(nonce));
        let response = format!(
            "charset=utf-8,username={name},realm={realm},nonce={nonce},nc=00000001,\
             cnonce=\"{cnonce}\",digest-uri=\"{URI}\",maxbuf=65536,response={proof},qop=auth"
        );
        Ok(SaslStep::Send(SaslToken(Some(response.into()))))
    }
}

/// Returns the hexadecimal form of H(A1), as RFC 2831 calls it.
fn key(name: &str, realm: &str, password: &str, nonce: &str, cnonce: &str) -> String {
    let secret = [&*text(name), &*text(realm), &*text(password)].join(&b':');
    let mut hash = Md5::new();
    hash.update(Md5::digest(secret));
    hash.update(format!(":{nonce}:{cnonce}"));
    hex(&hash.finalize())
}

/// Returns the proof of the client, whose method is `AUTHENTICATE`, or of the server, which has no
/// method.
fn proof(key: &str, nonce: &str, cnonce: &str, method: &str) -> String {
    let request = hex(&Md5::digest(format!("{method}:{URI}")));
    hex(&Md5::digest(format!("{key}:{nonce}:00000001:{cnonce}:auth:{request}")))
}

/// Encodes text for the hash: in ISO 8859-1 if possible, and otherwise in UTF-8.
fn text(text: &str) -> Vec<u8> {
    let narrow: Option<Vec<u8>> = text.chars().map(|letter| u8::try_from(letter).ok()).collect();
    narrow.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refuse(malformed: Malformed) -> SaslFailure {
    match malformed {
        Malformed::NoDirectives => SaslFailure::OtherMechanism(NAME),
        Malformed::OpenQuote => SaslFailure::Challenge("a quotation mark is not closed"),
        Malformed::TooLong => SaslFailure::Challenge("it is longer than 2,047 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str = "realm=\"zk-sasl-md5\",nonce=\"OA6MG9tEQGm2hhA6MG9tEQGm2hhOA6MG9tEQGm2h\",\
                             charset=utf-8,algorithm=md5-sess";

    fn exchange() -> Box<dyn Exchange> {
        let mechanism = DigestMd5::new("alice".into(), "alicesecret".into());
        let host = Host { name: "zk".into(), port: 2181 };
        let (exchange, first) = mechanism.begin(&host, [7; 16]).expect("it needs nothing");
        assert_eq!(first, "", "the server begins");
        exchange
    }

    fn sent(step: Result<SaslStep, SaslFailure>) -> Directives {
        match step {
            Ok(SaslStep::Send(SaslToken(Some(token)))) => parse(&token).expect("it is well-formed"),
            other => panic!("{other:?}"),
        }
    }

    /// The example of RFC 2831, section 4, whose URI is different.
    #[test]
    fn the_key_is_that_of_the_specification() {
        let key = key("chris", "elwood.innosoft.com", "secret", "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk");
        let request = hex(&Md5::digest("AUTHENTICATE:imap/elwood.innosoft.com"));
        let response = format!("{key}:OA6MG9tEQGm2hh:00000001:OA6MHXh6VqTrRk:auth:{request}");
        assert_eq!(hex(&Md5::digest(response)), "d388dad90d4bbd760a152321f2143af7");
    }

    #[test]
    fn a_server_that_knows_the_password_is_believed_and_no_other() {
        let mut client = exchange();
        let response = sent(client.step(Some(CHALLENGE.into())));
        assert_eq!(response["username"], "alice");
        assert_eq!(response["digest-uri"], URI);
        assert_eq!(response["cnonce"], "07".repeat(16));
        assert!(!response["response"].is_empty() && !response.contains_key("password"));
        let nonce = &response["nonce"];
        let proof_with = |password| {
            let key = key("alice", "zk-sasl-md5", password, nonce, &response["cnonce"]);
            Bytes::from(format!("rspauth={}", proof(&key, nonce, &response["cnonce"], "")))
        };
        assert_eq!(client.step(Some(proof_with("guess"))), Err(SaslFailure::NotMutual));
        assert_eq!(client.step(Some("rspauth=".into())), Err(SaslFailure::NotMutual));
        assert_eq!(client.step(Some(Bytes::new())), Err(SaslFailure::NotMutual));
        assert_eq!(client.step(None), Err(SaslFailure::NotMutual));
        assert_eq!(client.step(Some(proof_with("alicesecret"))), Ok(SaslStep::Done));
    }

    #[test]
    fn servers_without_this_mechanism_are_recognized() {
        assert_eq!(exchange().step(None), Err(SaslFailure::NotOffered));
        let gssapi = Bytes::from_static(&[0x60, 0x82, 0x02, 0xb4]);
        assert_eq!(exchange().step(Some(gssapi)), Err(SaslFailure::OtherMechanism(NAME)));
        assert_eq!(exchange().step(Some("x".into())), Err(SaslFailure::OtherMechanism(NAME)));
    }

    #[test]
    fn challenges_that_cannot_be_answered_are_refused() {
        let failure = |challenge: &str| {
            exchange().step(Some(challenge.to_owned().into())).expect_err("it is refused")
        };
        assert_eq!(failure("algorithm=md5-sess"), SaslFailure::Challenge("it has no nonce"));
        let no_algorithm = SaslFailure::Challenge("its algorithm is not md5-sess");
        assert_eq!(failure("nonce=\"n\""), no_algorithm);
        let open = SaslFailure::Challenge("a quotation mark is not closed");
        assert_eq!(failure("nonce=\"n"), open);
        let padding = 2047 - CHALLENGE.len() - ",x=".len();
        let padded = |padding| format!("{CHALLENGE},x={}", "y".repeat(padding));
        sent(exchange().step(Some(padded(padding).into())));
        let long = SaslFailure::Challenge("it is longer than 2,047 bytes");
        assert_eq!(failure(&padded(padding + 1)), long);
        let only_encrypted = format!("{CHALLENGE},qop=\"auth-int,auth-conf\"");
        assert_eq!(failure(&only_encrypted), SaslFailure::NoAcceptableLayer);
        sent(exchange().step(Some(format!("{CHALLENGE},qop=\"auth-int, auth\"").into())));
    }

    #[test]
    fn text_is_latin_if_possible() {
        assert_eq!(text("ä"), [0xe4]);
        assert_eq!(text("ä€"), "ä€".as_bytes());
    }
}
