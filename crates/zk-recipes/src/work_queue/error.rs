//! Why a work queue could not do what its caller asked for.

use jute_codec::ErrorCode;
use thiserror::Error;
use zk_session::recipe::Abridged;
use zk_session::{ConfigError, SlowCommits};

use super::aside::BlockReason;
use crate::error::RecipeError;
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::timed_out::{MayTimeOut, TimedOut};

/// Why a work queue could not do what its caller asked for.
///
/// Lost connections are not among the reasons, because requests are replayed.
#[derive(Clone, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum WorkQueueError {
    /// The only items that nobody has taken cannot be delivered to this client, so the queue is not
    /// empty. [`WorkQueue::blocked`](crate::WorkQueue::blocked) returns all that are known.
    #[error("the item {item:?} is there, but cannot be delivered: {reason}", item = Abridged(.item))]
    Blocked {
        /// The path of the first of these items.
        item: String,
        /// Why it cannot be delivered.
        reason: BlockReason,
    },
    /// The queue is full. Nothing was put.
    #[error(
        "the queue {directory:?} has {length} items, and its limit is {limit}; nothing was put; take \
         items, or build the queue with a higher `limit`",
        directory = Abridged(.directory)
    )]
    Full {
        /// The directory of the queue.
        directory: String,
        /// The number of its items, leased ones included.
        length: usize,
        /// The limit that the queue was built with.
        limit: usize,
    },
    /// The item was not acknowledged, because somebody has created znodes below it. It is not
    /// delivered again before they are deleted.
    #[error(
        "{item:?} was not acknowledged, because somebody has created znodes below it; delete them, \
         and the item is delivered again",
        item = Abridged(.item)
    )]
    HasChildren {
        /// The path of the item.
        item: String,
    },
    /// Somebody other than its taker deleted the item while it was leased.
    #[error("{item:?} was deleted while it was leased", item = Abridged(.item))]
    ItemGone {
        /// The path of the item.
        item: String,
    },
    /// The lease is lost. The item was not acknowledged, and another taker gets it or has it.
    #[error("the lease is lost, so another taker gets the item: {0}")]
    LeaseLost(LostReason),
    /// A body that [stops at risk](crate::Run::stop_at_risk) did not start, because commits take too
    /// long for a lease of the session.
    #[error("{0}")]
    NoLease(SlowCommits),
    /// The sequence counter of the items has reached its end (2^31 - 1 items were put), and there is
    /// an item with the last number. Nothing was put. The counter begins again with the directory, so
    /// stop the producers until the consumers have emptied the queue: servers then remove the
    /// directory, unless somebody has created it by hand.
    #[error(
        "the sequence counter of {directory:?} has reached its end (2147483647), so nothing was put; \
         let the consumers empty the queue, and wait until the servers have removed the directory, or \
         delete it",
        directory = Abridged(.directory)
    )]
    QueueExhausted {
        /// The directory of the items.
        directory: String,
    },
    /// The queue of takers is not in order: it has entries of another kind of lock, or no numbers
    /// left. What a server refuses there, and a timeout, is a [`Recipe`](Self::Recipe) error.
    #[error("the queue of takers failed: {0}")]
    Takers(LockError),
    /// The queue has so many items that this client cannot list them, so it can take none. A client
    /// with a higher [`response_limit`](zk_session::ClientBuilder::response_limit) can. The default
    /// [limit](crate::WorkQueueBuilder::limit) of a queue prevents this.
    #[error(
        "the queue {directory:?} has {items} items, and a list of their names has {bytes} bytes, which \
         is longer than the `response_limit` of this client; take the items with a client that was \
         built with a `response_limit` above that",
        directory = Abridged(.directory)
    )]
    TooLong {
        /// The directory of the queue.
        directory: String,
        /// The number of its items, leased ones included.
        items: usize,
        /// The length of the list.
        bytes: usize,
    },
    /// The outcome is not known. After a put: a server kept answering with errors of unclear
    /// meaning, or the client has ended with its session before the outcome was known, so the items
    /// may have been put. After an acknowledgement: the same, or the lease was
    /// lost and the item is gone, so either this call or a later taker has acknowledged it.
    #[error(
        "it is not known whether the change of {item:?} was applied; read it before you repeat the call",
        item = Abridged(.item)
    )]
    Unknown {
        /// The path of the item, or of the parent of the items.
        item: String,
    },
    /// Any other reason.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

jute_codec::debug_by_message!(WorkQueueError);

impl WorkQueueError {
    /// Returns the code with which a server refused a request, if that is the reason.
    pub fn server_code(&self) -> Option<ErrorCode> {
        if let Self::Recipe(error) = self { error.server_code() } else { None }
    }
}

impl MayTimeOut for WorkQueueError {
    fn timed_out(_: &str) -> Self {
        RecipeError::timed_out().into()
    }

    fn timed_out_mut(&mut self) -> Option<&mut TimedOut> {
        if let Self::Recipe(error) = self { error.timed_out_mut() } else { None }
    }
}

impl From<ConfigError> for WorkQueueError {
    fn from(error: ConfigError) -> Self {
        Self::Recipe(error.into())
    }
}

impl From<LockError> for WorkQueueError {
    fn from(error: LockError) -> Self {
        Self::Recipe(match error {
            LockError::AuthFailed => RecipeError::AuthFailed,
            LockError::Client(error) => RecipeError::Client(error),
            LockError::Closed => RecipeError::Closed,
            LockError::Refused { code, action, path } => {
                RecipeError::Refused { code, action, path }
            }
            LockError::TimedOut(timed_out) => RecipeError::TimedOut(timed_out),
            LockError::ChrootMissing { chroot, path } => {
                RecipeError::ChrootMissing { chroot, path }
            }
            LockError::TooLarge(error) => RecipeError::TooLarge(error),
            LockError::Config(error) => RecipeError::Config(error),
            // A taker waits on in the next session, unless the client opens none.
            LockError::Lost(LostReason::SessionExpired) => RecipeError::SessionExpired,
            LockError::NoLease(slow) => return Self::NoLease(slow),
            error @ (LockError::Lost(_)
            | LockError::MixedKinds { .. }
            | LockError::PermitsDiffer { .. }
            | LockError::QueueExhausted { .. }) => return Self::Takers(error),
        })
    }
}

impl From<Stopped> for WorkQueueError {
    /// A body that was stopped because the lease was at risk is reported as
    /// [`LostReason::AtRisk`], although the taker may still have the item.
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::AtRisk => Self::LeaseLost(LostReason::AtRisk),
            Stopped::Lost(reason) => Self::LeaseLost(reason),
            Stopped::NoLease(slow) => Self::NoLease(slow),
        }
    }
}
