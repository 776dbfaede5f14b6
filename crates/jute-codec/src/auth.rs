//! Credentials: auth packets and SASL tokens.

use std::fmt;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use crate::error::DecodeError;
use crate::wire::{Reader, Record};

/// Adds an identity to the connection.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct AuthPacket {
    /// The scheme, such as `digest`.
    pub scheme: ByteString,
    /// The credentials, such as `user:password`.
    pub auth: Option<Bytes>,
}

impl Record for AuthPacket {
    fn encode(&self, out: &mut BytesMut) {
        // The field `type`, which servers ignore.
        0_i32.encode(out);
        self.scheme.encode(out);
        self.auth.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.field::<i32>("AuthPacket", "type")?;
        Ok(Self {
            scheme: input.field("AuthPacket", "scheme")?,
            auth: input.field("AuthPacket", "auth")?,
        })
    }
}

// The credentials stay out of logs.
impl fmt::Debug for AuthPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthPacket").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// The token of one SASL round. Null and empty are different values.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct SaslToken(pub Option<Bytes>);

impl Record for SaslToken {
    fn encode(&self, out: &mut BytesMut) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(Option::decode(input)?))
    }
}

// The token stays out of logs, because it may be sufficient to authenticate.
impl fmt::Debug for SaslToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslToken").finish_non_exhaustive()
    }
}
