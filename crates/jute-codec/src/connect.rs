//! The handshake: the first frame in each direction, without a header.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::error::DecodeError;
use crate::ids::{SessionId, Zxid};
use crate::wire::{Reader, Record};

/// Requests a new session, or resumes one.
#[derive(Clone, Eq, PartialEq)]
pub struct ConnectRequest {
    /// Always 0; servers ignore it.
    pub protocol_version: i32,
    /// Highest zxid seen in replies. A server that has not reached this zxid closes the connection.
    pub last_zxid_seen: Zxid,
    /// Requested session timeout, in milliseconds.
    pub timeout_ms: i32,
    /// Session to resume; [`SessionId::NONE`] requests a new one.
    pub session_id: SessionId,
    /// Password of the session to resume. For a new session, clients send 16 zero bytes by
    /// convention.
    pub password: Bytes,
    /// Whether the client accepts a read-only server. `None` omits the field, as clients before 3.4
    /// do.
    pub read_only: Option<bool>,
}

/// The reply to a [`ConnectRequest`].
#[derive(Clone, Eq, PartialEq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// Negotiated session timeout, in milliseconds. Zero or less means that the session has
    /// expired.
    pub timeout_ms: i32,
    /// The session; [`SessionId::NONE`] if it has expired.
    pub session_id: SessionId,
    /// Password of the session: opaque bytes, 16 of them from Apache servers.
    pub password: Bytes,
    /// Whether this is a read-only server. `None` if the field is omitted.
    pub read_only: Option<bool>,
}

/// Implements both handshake records, given their fields before `password`.
///
/// The macro `record!` cannot define these records. The last field is optional: peers before 3.4
/// end the record before `read_only`, and a server omits it from its response if the request
/// omitted it. The password must also stay out of logs, because it is sufficient to take over the
/// session.
macro_rules! handshake_record {
    ($name:ident { $( $field:ident ),* }) => {
        impl Record for $name {
            fn encode(&self, out: &mut BytesMut) {
                $( self.$field.encode(out); )*
                self.password.encode(out);
                if let Some(read_only) = self.read_only {
                    read_only.encode(out);
                }
            }

            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                Ok(Self {
                    $( $field: input.field(stringify!($name), stringify!($field))?, )*
                    password: input.field(stringify!($name), "password")?,
                    read_only: optional_bool(input)?,
                })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    $( .field(stringify!($field), &self.$field) )*
                    .field("read_only", &self.read_only)
                    .finish_non_exhaustive()
            }
        }
    };
}

handshake_record!(ConnectRequest { protocol_version, last_zxid_seen, timeout_ms, session_id });
handshake_record!(ConnectResponse { protocol_version, timeout_ms, session_id });

fn optional_bool(input: &mut Reader) -> Result<Option<bool>, DecodeError> {
    if input.remaining() == 0 { Ok(None) } else { bool::decode(input).map(Some) }
}
