//! What a call had seen when its time was up.

use std::fmt;
use std::time::Duration;

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConnectionFailure, SessionId};

/// Maximum length of an identity in an error, in bytes. The rest is cut off, because each waiter
/// keeps the identity of its predecessor.
const IDENTITY_MAX: usize = 64;

/// A call had no result when its time was up.
#[derive(Clone, Eq, Error, PartialEq)]
#[error("timed out after {} at {path:?}: {seen}", Rounded(*.waited), path = Abridged(.path))]
#[non_exhaustive]
pub struct TimedOut {
    /// The path of the lock, or of what else the call waited for.
    pub path: String,
    /// How long the call had waited.
    pub waited: Duration,
    /// What the call had seen last.
    pub seen: LastSeen,
}

jute_codec::debug_by_message!(TimedOut);

/// What a call had seen last when its time was up.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LastSeen {
    /// The client had a connection when the call began, or got one later, and has lost it. The value
    /// says why.
    ConnectionLost(Option<ConnectionFailure>),
    /// The client had no connection during the whole call. The value says why the last attempt to
    /// connect has failed.
    NeverConnected(Option<ConnectionFailure>),
    /// The client was connected, but what the call waits for has not happened.
    Nothing,
    /// The attempt waited behind a znode of its own session: this client holds the lock already, or
    /// waits for it.
    OwnSession(Predecessor),
    /// The attempt waited behind another contender.
    Queued(Predecessor),
    /// A server refused a request of the call with this code, after which the call tried again: it
    /// is overloaded, for example.
    Refused(ErrorCode),
    /// The runtime of the client did not run, so the client could do nothing. A call that notices its
    /// deadline itself tells this from the other reasons if the runtime has not run for a second.
    RuntimeStopped,
    /// The lock was granted, and the call waited for a lease of the session. Only locks that
    /// [treat risk as loss](crate::AtRiskPolicy::TreatAsLost) do so. The lock was given back.
    Unleased,
    /// Nobody was ahead, and the call waited until a server had proven that on a connection with a
    /// lease. The lock was given back.
    Unproven,
}

/// The contender that an attempt waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Predecessor {
    /// Number of contenders ahead that the attempt knows of. Waiters for an exclusive lock know only
    /// the holder.
    pub ahead: usize,
    /// The name of the nearest contender's znode.
    pub name: String,
    /// The identity that the nearest contender has stored in its znode, as text; the beginning of it
    /// if it is long, and empty if there is none, or if it is not known.
    pub identity: String,
    /// The session of the nearest contender, if it is known.
    pub session: Option<SessionId>,
}

/// An error that may contain a [`TimedOut`].
pub(crate) trait MayTimeOut {
    /// Creates a timeout of a call about this path, which the engine completes before the caller
    /// sees it.
    fn timed_out(path: &str) -> Self;

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut>;
}

impl TimedOut {
    /// Creates an error that the engine completes before the caller sees it.
    pub(crate) fn unexplained() -> Box<Self> {
        Self::after(LastSeen::Nothing)
    }

    /// Creates an error that the engine completes before the caller sees it, except for what was
    /// seen.
    pub(crate) fn after(seen: LastSeen) -> Box<Self> {
        Box::new(Self { path: String::new(), waited: Duration::ZERO, seen })
    }
}

impl Predecessor {
    pub(crate) fn new(
        ahead: usize,
        name: &str,
        identity: &str,
        session: Option<SessionId>,
    ) -> Self {
        Self { ahead, name: name.to_owned(), identity: identity.to_owned(), session }
    }
}

/// Returns an identity as text, without its end if it is long.
pub(crate) fn short_identity(data: &[u8]) -> Box<str> {
    let is_long = data.len() > IDENTITY_MAX;
    let text = String::from_utf8_lossy(data.get(..IDENTITY_MAX).unwrap_or(data));
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    if is_long { format!("{text}…").into() } else { text.into() }
}

impl fmt::Display for LastSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectionLost(failure) => {
                f.write_str("the connection was lost, and the client has not reconnected")?;
                write_failure(f, failure.as_ref())
            }
            Self::NeverConnected(failure) => {
                f.write_str("the client had no connection in that time")?;
                write_failure(f, failure.as_ref())?;
                f.write_str("; check the connect string, and whether the servers run")
            }
            Self::Nothing => f.write_str(
                "the client is connected, but what the call waits for did not happen in that time",
            ),
            Self::OwnSession(predecessor) => write!(
                f,
                "{predecessor}, which belongs to the session of this client: the client holds the \
                 lock already, or waits for it. Release the other guard first, or share one \
                 `Holder` between the tasks"
            ),
            Self::Queued(predecessor) => write!(f, "{predecessor}"),
            Self::Refused(code) => {
                write!(f, "a server refused a request of the call, the last time with {code}")?;
                f.write_str(match *code {
                    ErrorCode::THROTTLED_OP => {
                        ": it throttles its clients, because it is overloaded; send fewer requests, \
                         or raise the limits of the server"
                    }
                    ErrorCode::NOT_READ_ONLY => {
                        ": it is read-only, because it has lost contact with the majority of its \
                         ensemble"
                    }
                    _ => "",
                })
            }
            Self::RuntimeStopped => f.write_str(
                "the runtime in which the client was built did not run in that time; it has to run \
                 as long as the client is used",
            ),
            Self::Unleased => f.write_str(
                "the lock was granted, but the client waited for a lease of its session, which begins \
                 when a server has committed a write; check how long the servers take for a write",
            ),
            Self::Unproven => f.write_str(
                "nobody is ahead, but the client waited for a server to prove it, by a committed write \
                 and a read after it; check how long the servers take for a write",
            ),
        }
    }
}

impl fmt::Display for Predecessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ahead, name, identity, session } = self;
        let name = Abridged(name);
        match ahead {
            0 | 1 => f.write_str("it is held by ")?,
            ahead => write!(f, "{ahead} contenders are ahead, the nearest is ")?,
        }
        if identity.is_empty() {
            write!(f, "{name:?}")?;
        } else {
            write!(f, "{identity:?} (znode {name:?})")?;
        }
        session.map_or(Ok(()), |session| write!(f, " of session {session}"))
    }
}

fn write_failure(f: &mut fmt::Formatter<'_>, failure: Option<&ConnectionFailure>) -> fmt::Result {
    failure.map_or(Ok(()), |failure| write!(f, " (last failure: {failure})"))
}

/// A duration without the digits that say nothing.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        write!(f, "{:?}", Duration::from_millis(millis))
    }
}
