//! Why a client has no connection, for messages and diagnosis.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::sasl::SaslFailure;
use super::tls::TlsFailure;
use crate::host::Host;
use crate::machine::cause::DisconnectCause;

/// Why there is no connection to a server.
#[derive(Clone, Eq, Error, PartialEq)]
#[error("{host}: {cause}")]
#[non_exhaustive]
pub struct ConnectionFailure {
    /// The server that was tried last.
    pub host: Host,
    /// What went wrong, or how far the attempt has progressed.
    pub cause: FailureCause,
}

jute_codec::debug_by_message!(ConnectionFailure);

/// What went wrong with a connection, or how far an unfinished attempt to connect has progressed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FailureCause {
    /// The attempt is unfinished: the server has not accepted the connection yet.
    #[error("it has not accepted yet")]
    NotAccepted,
    /// The attempt is unfinished: the server has not replied to the handshake yet.
    #[error("it accepted, but has not answered the handshake yet")]
    NoHandshake,
    /// The attempt is unfinished: the server has not replied to a request yet.
    #[error("it has answered no request yet")]
    NoReply,
    /// The session's task did not run for this long, so the client could neither send nor receive.
    /// The process was paused, code in its runtime blocks, or nothing drives the runtime.
    #[error(
        "the session's task did not run for {0:?}: the process was paused, code in the runtime of \
         the client blocks, or nothing drives that runtime; if blocking cannot be avoided, use \
         `dedicated_thread`"
    )]
    NotRun(Duration),
    /// The transport could not be opened.
    #[error("cannot connect: {0}")]
    Connect(TransportError),
    /// The peer closed the connection before it replied to the handshake.
    #[error(
        "the peer closed the connection and did not answer the handshake (a server without a \
         quorum, a port for TLS, or not a ZooKeeper server)"
    )]
    HandshakeClosed,
    /// The transport failed before the peer replied to the handshake.
    #[error("no answer to the handshake: {0}")]
    Handshake(TransportError),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The transport failed.
    #[error("{0}")]
    Transport(TransportError),
    /// SASL failed before the connection was opened, for example because no KDC has replied.
    #[error(transparent)]
    Sasl(SaslFailure),
    /// TLS failed, or its certificates could not be read.
    #[error(transparent)]
    Tls(TlsFailure),
    /// The client ended the connection.
    #[error(transparent)]
    Disconnected(DisconnectCause),
}

jute_codec::debug_by_message!(FailureCause);

/// An [`io::Error`] of a transport, in a form that can be cloned and compared.
#[derive(Clone, Eq, Error, PartialEq)]
#[error("{message}")]
#[non_exhaustive]
pub struct TransportError {
    /// Kind of the error.
    pub kind: io::ErrorKind,
    /// Its message.
    pub message: String,
}

jute_codec::debug_by_message!(TransportError);

impl From<&io::Error> for TransportError {
    fn from(error: &io::Error) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}
