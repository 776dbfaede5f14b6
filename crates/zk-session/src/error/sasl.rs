//! Why a client could not authenticate with SASL.

use std::time::Duration;

use thiserror::Error;

/// Why a client could not authenticate with SASL.
///
/// After any of these, the client drops the connection and sends no request on it. No variant
/// contains a secret.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SaslFailure {
    /// A message of the server is malformed or violates the mechanism.
    #[error("the server's SASL message is invalid: {0}")]
    Challenge(&'static str),
    /// The mechanism has no credentials, or they cannot be used. The text is that of the library.
    #[error("no usable Kerberos credentials: {0}")]
    Credentials(String),
    /// GSSAPI failed. The text is that of the library.
    #[error("GSSAPI failed: {0}")]
    Gssapi(String),
    /// The server requires integrity or encryption of each message, which ZooKeeper does not
    /// support.
    #[error("the server does not offer the SASL quality of protection \"auth\"")]
    NoAcceptableLayer,
    /// The server did not prove its own identity.
    #[error("the server did not prove its identity")]
    NotMutual,
    /// The server does not use SASL.
    #[error(
        "the server has no SASL configuration, and the client must not continue without; check \
         its JAAS section `Server` and its authProvider"
    )]
    NotOffered,
    /// The attempt is unfinished: the first message is not ready yet, for example because no KDC has
    /// replied.
    #[error("there is no first SASL message yet; check that a KDC can be reached")]
    NotReady,
    /// The server uses another mechanism.
    #[error("the server uses another SASL mechanism than {0}")]
    OtherMechanism(&'static str),
    /// The first message was not ready in time, for example because no KDC has replied.
    #[error("there was no first SASL message within {0:?}; check that a KDC can be reached")]
    TimedOut(Duration),
    /// The exchange did not come to an end.
    #[error("the SASL exchange did not end after {0} messages")]
    TooManyRounds(u32),
}

jute_codec::debug_by_message!(SaslFailure);
