//! What another client needs to continue a session.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::types::{SessionId, Zxid};

/// The format of the text, so that a later format can be told apart.
const FORMAT: &str = "zk-session-1";

/// What another client, in this process or another one, needs to continue a session.
///
/// [`Client::hand_over`](crate::Client::hand_over) returns it, and
/// [`ClientBuilder::resume`](crate::ClientBuilder::resume) takes it. To pass it to another process,
/// use [`to_secret_text`](Self::to_secret_text) and `str::parse`. Anyone who has it can take over
/// the session, so it is as secret as a password; `Debug` shows only the session id.
#[derive(Clone, Eq, PartialEq)]
pub struct SessionTicket {
    pub(crate) session: SessionId,
    pub(crate) password: Bytes,
    pub(crate) last_zxid: Zxid,
    pub(crate) next_xid: i32,
    /// Session timeout that the server granted last.
    pub(crate) granted: Duration,
    /// Session timeout with which the session was created.
    pub(crate) created: Duration,
}

/// The text is not one of [`SessionTicket::to_secret_text`]. The text is not shown, because it may
/// contain a secret.
#[derive(Clone, Copy, Eq, Error, PartialEq)]
#[error("the text is not a session ticket of this version of the client")]
#[non_exhaustive]
pub struct InvalidTicket;

jute_codec::debug_by_message!(InvalidTicket);

impl SessionTicket {
    /// Returns the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the session timeout that the server has granted. The ticket is worthless once no
    /// client has used the session for this long.
    pub fn timeout(&self) -> Duration {
        self.granted
    }

    /// Returns the ticket as text, which `str::parse` reads. The text is a secret.
    pub fn to_secret_text(&self) -> String {
        let Self { session, password, last_zxid, next_xid, granted, created } = self;
        let password: String = password.iter().map(|byte| format!("{byte:02x}")).collect();
        let (granted, created) = (granted.as_millis(), created.as_millis());
        let (session, zxid) = (session.0, last_zxid.0);
        format!("{FORMAT}:{session:x}:{password}:{zxid:x}:{next_xid}:{granted}:{created}")
    }
}

impl FromStr for SessionTicket {
    type Err = InvalidTicket;

    fn from_str(text: &str) -> Result<Self, InvalidTicket> {
        parse(text).ok_or(InvalidTicket)
    }
}

fn parse(text: &str) -> Option<SessionTicket> {
    let mut parts = text.trim().split(':');
    let is_known = parts.next()? == FORMAT;
    let session = u64::from_str_radix(parts.next()?, 16).ok()?;
    let password = parse_hex(parts.next()?)?;
    let zxid = u64::from_str_radix(parts.next()?, 16).ok()?;
    let next_xid: i32 = parts.next()?.parse().ok()?;
    let mut timeout = || Some(Duration::from_millis(parts.next()?.parse::<u32>().ok()?.into()));
    let (granted, created) = (timeout()?, timeout()?);
    let is_whole = parts.next().is_none();
    let is_sound = is_known
        && is_whole
        && session != 0
        && next_xid > 0
        && !granted.is_zero()
        && !created.is_zero();
    is_sound.then(|| SessionTicket {
        session: SessionId(session.cast_signed()),
        password: password.into(),
        last_zxid: Zxid(zxid.cast_signed()),
        next_xid,
        granted,
        created,
    })
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digits = |at| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    (0..text.len()).step_by(2).map(digits).collect()
}

/// Shows only the session id.
impl fmt::Debug for SessionTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTicket").field("session", &self.session).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> SessionTicket {
        SessionTicket {
            session: SessionId(-0x7f00_0000_0000_0001),
            password: Bytes::from_static(b"\x00\xffpassword"),
            last_zxid: Zxid(0x1_0000_0007),
            next_xid: 42,
            granted: Duration::from_secs(30),
            created: Duration::from_secs(20),
        }
    }

    #[test]
    fn the_text_is_read_as_it_was_written() {
        assert_eq!(ticket().to_secret_text().parse(), Ok(ticket()));
    }

    #[test]
    fn neither_debug_nor_an_error_shows_the_password() {
        let text = format!(
            "{:?} {:?} {InvalidTicket}",
            ticket(),
            ticket().to_secret_text().replace("zk", "x").parse::<SessionTicket>()
        );
        assert!(!text.contains("70617373") && !text.contains("password\""), "{text}");
        assert!(text.contains("SessionTicket"), "{text}");
    }

    #[test]
    fn other_texts_are_refused() {
        let good = ticket().to_secret_text();
        let half = good.get(..good.len() / 2).unwrap().to_owned();
        for bad in [
            String::new(),
            "zk-session-1".into(),
            half,
            format!("{good}:1"),
            good.replace("zk-session-1", "zk-session-2"),
            good.replace(":42:", ":0:"),
            good.replace("00ff", "0ff"),
        ] {
            assert_eq!(bad.parse::<SessionTicket>(), Err(InvalidTicket), "{bad}");
        }
    }
}
