//! Why a connection ended, or could not be opened.

use std::time::Duration;

use jute_codec::{DecodeError, ErrorCode, FrameError, OpCode};
use thiserror::Error;

use crate::error::SaslFailure;

/// Why the machine ended a connection, or an attempt to open one.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// The server refused credentials that a server has accepted before, or did not say that they
    /// are wrong.
    #[error(
        "the server refused an auth packet, which need not be the fault of the credentials: {0}"
    )]
    AuthRefused(ErrorCode),
    /// The server refused to catch up with the others.
    #[error("the server refused to catch up with what the client has seen on another one: {0}")]
    CatchUp(ErrorCode),
    /// The server refused to close the session.
    #[error("the server refused to close the session: {0}")]
    CloseRefused(ErrorCode),
    /// The server refused the credentials.
    #[error("the server refused the credentials")]
    CredentialsRefused,
    /// The peer sent a watch event before the client had set a watch on the connection.
    #[error("the peer sent a watch event before the client had set a watch")]
    EarlyEvent,
    /// The peer says that the session has expired, but has not authenticated.
    #[error(
        "the server says that the session has expired, and has to authenticate before the client \
         believes it"
    )]
    ExpiryUnproven,
    /// The peer sent an invalid frame.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Frame(#[from] FrameError),
    /// The client looks for what lost requests have left, before it hands over its session.
    #[error(
        "the session is about to be handed over, and the client looks for what lost requests have \
         left"
    )]
    HandOver,
    /// The list of servers has changed, and the client moves to another one.
    #[error("the list of servers has changed, and the client moves to another one")]
    HostsChanged,
    /// The lease has ended, and a new connection can establish another lease sooner than this
    /// connection.
    #[error("the lease has ended, and a new connection can establish another one sooner")]
    LeaseEnded,
    /// The server took too long to close an earlier session that had been given up.
    #[error("the server did not close the session that was given up within {0:?}")]
    NoClose(Duration),
    /// The server neither accepted nor refused the credentials in time.
    #[error("the server opened the session, but did not answer the credentials within {0:?}")]
    NoAuthReply(Duration),
    /// The SASL exchange took too long.
    #[error("the server opened the session, but SASL was not complete within {0:?}")]
    NoSasl(Duration),
    /// The transport did not open in time.
    #[error("no connection within {0:?}")]
    NoConnection(Duration),
    /// The peer did not reply to the handshake in time.
    #[error("the peer accepted the connection, but did not answer the handshake within {0:?}")]
    NoHandshake(Duration),
    /// The server resumed the session, but then replied to no request in time.
    #[error("the server resumed the session, but answered no request within {0:?}")]
    NoReply(Duration),
    /// The peer sent something other than a reply to the handshake. The value holds its first
    /// bytes.
    #[error("the peer does not speak the ZooKeeper protocol: its reply to the handshake begins with {}", described(.0))]
    NotZooKeeper([u8; 4]),
    /// The peer sent an invalid message.
    #[error("the peer does not speak the ZooKeeper protocol: bad {record}: {error}")]
    Record {
        /// Name of the message's record in the protocol.
        record: &'static str,
        /// Why it is invalid.
        error: DecodeError,
    },
    /// Bytes arrived, but for this long a ping got no reply, and no reply due before it made
    /// progress.
    #[error("a ping was not answered for {0:?}")]
    PingOverdue(Duration),
    /// The server is read-only, and another server accepts writes.
    #[error("the server is read-only, and another server accepts writes")]
    ReadWriteServer,
    /// SASL failed.
    #[error(transparent)]
    Sasl(#[from] SaslFailure),
    /// The server refused the SASL credentials that another server has accepted before, does not
    /// know SASL, or requires it of a client that other servers have served without.
    #[error("the server refused the SASL credentials: {0}")]
    SaslRefused(ErrorCode),
    /// The server opened no session, although the client did not ask it to resume one, or it is a
    /// ClickHouse Keeper without a leader.
    #[error("the server refused to open a session")]
    SessionRefused,
    /// The server replied that the session has moved to another server.
    #[error("the session has moved to another server")]
    SessionMoved,
    /// The server replied to the handshake that the session has expired.
    #[error("the session has expired")]
    SessionExpired,
    /// The server replied to the handshake with a different session.
    #[error("the server resumed a different session than the one requested")]
    SessionSwapped,
    /// The server does not know the session, but it is read-only, and the session may have been
    /// opened after the server had lost contact with the others.
    #[error("the server is read-only, and does not know the session")]
    SessionUnknown,
    /// The server does not know the session, but it may be a leader that was deposed before the session
    /// was opened: no reply has shown a state behind that, and the timeout of the session has not passed.
    #[error("the server does not know the session, which may be newer than its state")]
    SessionTooNew,
    /// The server refused to restore watches.
    #[error("the server refused to restore watches: {0}")]
    SetWatches(ErrorCode),
    /// Nothing was received for this long.
    #[error("nothing was received for {0:?}")]
    Silence(Duration),
    /// An earlier session, which had been given up, is now closed or gone, so the next session can
    /// be opened.
    #[error("the session that was given up is gone")]
    StaleSessionEnded,
    /// The client has stopped.
    #[error("the client has stopped")]
    Stopped,
    /// A frame that must be read as a whole exceeds the limit.
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// The server does not know an operation, and closes the connection after it.
    #[error("the server does not know the operation {0}, and closes the connection")]
    UnknownOperation(OpCode),
    /// A reply does not belong to the oldest request: the client and the server are out of step.
    #[error("a reply has the xid {0}, which is not that of the oldest request")]
    Xid(i32),
}

jute_codec::debug_by_message!(DisconnectCause);

impl DisconnectCause {
    /// Returns true if the server behaved correctly, so that there is no reason to back off.
    pub(super) fn is_regular_reply(&self) -> bool {
        matches!(
            self,
            Self::ExpiryUnproven
                | Self::HandOver
                | Self::ReadWriteServer
                | Self::SessionExpired
                | Self::SessionSwapped
                | Self::StaleSessionEnded
                | Self::UnknownOperation(_)
        )
    }

    /// Returns true if the client ended the connection because it waited too long for the server.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::NoAuthReply(_)
                | Self::NoClose(_)
                | Self::NoConnection(_)
                | Self::NoHandshake(_)
                | Self::NoReply(_)
                | Self::NoSasl(_)
                | Self::PingOverdue(_)
                | Self::Silence(_)
        )
    }

    /// Returns true if something has failed.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(
            self,
            Self::HandOver
                | Self::HostsChanged
                | Self::ReadWriteServer
                | Self::StaleSessionEnded
                | Self::Stopped
        )
    }
}

/// Describes the first bytes sent by a peer, and guesses the kind of server.
fn described(bytes: &[u8; 4]) -> String {
    let kind = match bytes {
        b"HTTP" => " (an HTTP server?)",
        [0x15 | 0x16, 0x03, ..] => " (a TLS port?)",
        _ => "",
    };
    format!("\"{}\"{kind}", bytes.escape_ascii())
}
