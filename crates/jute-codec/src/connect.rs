//! The handshake: first frame in each direction, without headers.
//!
//! Both records are written by hand because their last field is optional: peers before 3.4 end
//! the record before `read_only`, and a server answers with the field only if it was asked with
//! it.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::error::DecodeError;
use crate::wire::{Reader, Record};

/// Asks for a new session, or to resume one.
#[derive(Clone, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
pub struct ConnectRequest {
    /// Always 0; servers ignore it.
    pub protocol_version: i32,
    /// Highest zxid seen in replies. A server that has not reached it closes the connection.
    pub last_zxid_seen: i64,
    /// Wanted session timeout, in milliseconds.
    pub timeout_ms: i32,
    /// Session to resume; 0 asks for a new one.
    pub session_id: i64,
    /// Password of that session; 16 zero bytes, by custom, for a new one.
    pub password: Bytes,
    /// Whether a read-only server will do. `None` leaves the field out, as before 3.4.
    pub read_only: Option<bool>,
}

/// Answers [`ConnectRequest`].
#[derive(Clone, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// Negotiated session timeout in milliseconds. Zero or less: the session is gone.
    pub timeout_ms: i32,
    /// The session; 0 if it is gone.
    pub session_id: i64,
    /// Its password: opaque bytes, 16 of them from Apache servers.
    pub password: Bytes,
    /// Whether this is a read-only server. `None` if the field is left out.
    pub read_only: Option<bool>,
}

impl Record for ConnectRequest {
    fn encode(&self, out: &mut BytesMut) {
        self.protocol_version.encode(out);
        self.last_zxid_seen.encode(out);
        self.timeout_ms.encode(out);
        self.session_id.encode(out);
        self.password.encode(out);
        if let Some(read_only) = self.read_only {
            read_only.encode(out);
        }
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: input.field("ConnectRequest", "protocol_version")?,
            last_zxid_seen: input.field("ConnectRequest", "last_zxid_seen")?,
            timeout_ms: input.field("ConnectRequest", "timeout_ms")?,
            session_id: input.field("ConnectRequest", "session_id")?,
            password: input.field("ConnectRequest", "password")?,
            read_only: optional_bool(input)?,
        })
    }
}

impl Record for ConnectResponse {
    fn encode(&self, out: &mut BytesMut) {
        self.protocol_version.encode(out);
        self.timeout_ms.encode(out);
        self.session_id.encode(out);
        self.password.encode(out);
        if let Some(read_only) = self.read_only {
            read_only.encode(out);
        }
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: input.field("ConnectResponse", "protocol_version")?,
            timeout_ms: input.field("ConnectResponse", "timeout_ms")?,
            session_id: input.field("ConnectResponse", "session_id")?,
            password: input.field("ConnectResponse", "password")?,
            read_only: optional_bool(input)?,
        })
    }
}

/// The password stays out of logs: whoever has it can take the session over.
impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("last_zxid_seen", &self.last_zxid_seen)
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// The password stays out of logs: whoever has it can take the session over.
impl fmt::Debug for ConnectResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectResponse")
            .field("timeout_ms", &self.timeout_ms)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

fn optional_bool(input: &mut Reader) -> Result<Option<bool>, DecodeError> {
    if input.remaining() == 0 { Ok(None) } else { bool::decode(input).map(Some) }
}
