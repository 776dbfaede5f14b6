//! Why a connection ended, or was not made.

use std::time::Duration;

use jute_codec::{DecodeError, ErrorCode, FrameError};
use thiserror::Error;

/// Why the machine gave up a connection, or an attempt to get one.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum DisconnectCause {
    /// The credentials were refused.
    #[error("the server refused the credentials")]
    CredentialsRefused,
    /// The peer sent a frame that cannot be one.
    #[error("the peer does not speak the ZooKeeper protocol: {0}")]
    Frame(#[from] FrameError),
    /// The lease has ended, and this connection cannot make a new one as soon as another can.
    #[error("the lease has ended, and a new connection makes a new one sooner")]
    LeaseEnded,
    /// The session that was given up before was not closed in time.
    #[error("the server did not close the session that was given up within {0:?}")]
    NoClose(Duration),
    /// The credentials were neither accepted nor refused in time.
    #[error("the server opened the session, but did not answer the credentials within {0:?}")]
    NoAuthReply(Duration),
    /// The transport was not open in time.
    #[error("no connection within {0:?}")]
    NoConnection(Duration),
    /// The handshake was not answered in time.
    #[error("the peer accepted the connection, but did not answer the handshake within {0:?}")]
    NoHandshake(Duration),
    /// The session was resumed, and then no request was answered in time.
    #[error("the server resumed the session, but answered no request within {0:?}")]
    NoReply(Duration),
    /// What came instead of an answer to the handshake; its first bytes.
    #[error("the peer does not speak the ZooKeeper protocol: its answer to the handshake begins with {}", described(.0))]
    NotZooKeeper([u8; 4]),
    /// A message cannot be read.
    #[error("the peer does not speak the ZooKeeper protocol: bad {what}: {error}")]
    Record {
        /// Which message.
        what: &'static str,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// Bytes arrived, but a ping was not answered, and no reply ahead of it made progress, for that
    /// long.
    #[error("a ping was not answered for {0:?}")]
    PingOverdue(Duration),
    /// The server gave no session, although none was presented.
    #[error("the server refused to open a session")]
    SessionRefused,
    /// The server answered a request of the session with the word that the session is not its own.
    #[error("the server does not serve the session any more")]
    SessionMoved,
    /// The server answered the handshake with the end of the session.
    #[error("the session has expired")]
    SessionExpired,
    /// The server answered the handshake with another session.
    #[error("the server resumed another session than the one presented")]
    SessionSwapped,
    /// Watches were not restored.
    #[error("the server refused to restore watches: {0}")]
    SetWatches(ErrorCode),
    /// Nothing was heard for that long.
    #[error("nothing was heard for {0:?}")]
    Silence(Duration),
    /// A session that was given up before is closed now, or gone; the next one can be opened.
    #[error("the session that was given up is gone")]
    StaleIsGone,
    /// The client has stopped.
    #[error("the client has stopped")]
    Stopped,
    /// A frame that has to be read whole is longer than the limit.
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    /// A reply belongs to no request, or not to the oldest: the two sides have lost count.
    #[error("a reply has the xid {0}, which is not that of the oldest request")]
    Xid(i32),
}

impl DisconnectCause {
    /// True if the server did what it should: there is nothing to back off from.
    pub(super) fn is_an_answer(&self) -> bool {
        matches!(self, Self::SessionExpired | Self::SessionSwapped | Self::StaleIsGone)
    }

    /// True if it says that something has failed.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, Self::StaleIsGone | Self::Stopped)
    }
}

/// The first bytes of a peer, and what kind of server begins like that.
fn described(bytes: &[u8; 4]) -> String {
    let kind = match bytes {
        b"HTTP" => " (an HTTP server?)",
        [0x15 | 0x16, 0x03, ..] => " (a TLS port?)",
        _ => "",
    };
    format!("\"{}\"{kind}", bytes.escape_ascii())
}
