//! Why the credentials of a client could not be changed.

use thiserror::Error;

use super::config::ConfigError;
use super::operation::Outcome;

/// Why the credentials of a running client could not be changed. The client goes on with those that
/// it had, except after [`TimedOut`](Self::TimedOut) with [`Unknown`](Outcome::Unknown).
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AuthError {
    /// The client has stopped before a server had accepted the credentials.
    #[error(
        "the client was closed, or the runtime in which it was built has ended, before a server \
         accepted the new credentials"
    )]
    Closed,
    /// The credentials are invalid. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A server refused the credentials, and has closed the connection.
    #[error(
        "a server refused the new credentials, so the client goes on with those that it had; check \
         their scheme, and whether the servers have an authentication provider for it"
    )]
    Refused,
    /// No server has accepted the credentials within the [timeout](crate::AuthOp::timeout).
    #[error("no server accepted the new credentials in time; {}", after_timeout(*outcome))]
    TimedOut {
        /// Whether the credentials may be used nevertheless. [`NotApplied`](Outcome::NotApplied):
        /// they were on no connection that is still open, and never will be.
        /// [`Unknown`](Outcome::Unknown): a server has them and has not answered, so they may be
        /// added, or refused, later.
        outcome: Outcome,
    },
    /// There are too many credentials, or changes of them that have no result yet. Nothing was sent.
    #[error(
        "the client has {pending} credentials or changes of them; wait for the results of the \
         changes, or replace the credentials instead of adding to them"
    )]
    TooMany {
        /// Their number.
        pending: usize,
    },
    /// Each of these connections ended after the credentials were sent, and before a server
    /// answered.
    #[error(
        "{connections} connections in a row ended before a server answered the new credentials, so \
         the client goes on with those that it had; check the servers, and try again"
    )]
    Unanswered {
        /// Number of connections.
        connections: u32,
    },
}

jute_codec::debug_by_message!(AuthError);

fn after_timeout(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotApplied => "the client goes on with those that it had",
        Outcome::Unknown => "the client may have them later, or lose a connection by a refusal",
    }
}
