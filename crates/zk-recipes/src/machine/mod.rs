//! The vocabulary of all recipe machines. It needs no sockets, no clock and no random numbers.
//!
//! A [`Machine`] consumes one [`Input`] at a time (a reply to its flight, an event of one of its
//! watches, a change of the session, an elapsed timer) and returns one [`Step`]: submit a flight,
//! wait, or finish. It has at most one flight pending. Nothing in this folder knows about locks, so
//! that a queue, a counter or a barrier can use it as well.
//!
//! The machines themselves live in the folders of their recipes. They are public for tests only,
//! and semantic versioning does not cover them.

mod answer;
pub(crate) mod directory;
#[cfg(feature = "tokio")]
mod ensure;
mod failure;
#[cfg(feature = "tokio")]
mod issue;
mod leaving;
#[cfg(feature = "tokio")]
mod monitor;
mod news;
#[cfg(feature = "tokio")]
mod once;
mod operation;
mod pause;
#[cfg(feature = "tokio")]
mod read_all;
#[cfg(feature = "tokio")]
mod remove;
mod repeat;
mod step;
mod verdict;
mod watch;

pub use self::answer::{Answer, Answers, Needs};
pub use self::failure::Failure;
pub use self::leaving::{Leaving, Refusal, Removal};
pub use self::news::News;
pub use self::repeat::Repeating;
pub use self::step::{Input, Machine, SessionView, Step};
pub use self::watch::WatchNumber;
pub use crate::action::FailedAction;

#[cfg(feature = "tokio")]
pub(crate) use self::ensure::Ensure;
#[cfg(feature = "tokio")]
pub(crate) use self::issue::Issue;
#[cfg(feature = "tokio")]
pub(crate) use self::monitor::{Aspect, Monitor};
#[cfg(feature = "tokio")]
pub(crate) use self::once::{Marker, Once, Settled};
pub(crate) use self::operation::{
    barrier, child, create, delete, exists, flight, list, name_of, owned_copy, parent, read,
    refused_operation, write,
};
#[cfg(feature = "tokio")]
pub(crate) use self::operation::{multi_refusal, watch_existence};
pub(crate) use self::pause::spread;
#[cfg(feature = "tokio")]
pub(crate) use self::pause::{PAUSE, Pauses};
#[cfg(feature = "tokio")]
pub(crate) use self::read_all::ReadAll;
#[cfg(feature = "tokio")]
pub(crate) use self::remove::Remove;
#[cfg(feature = "tokio")]
pub(crate) use self::verdict::{Verdict, replayable};
pub(crate) use self::watch::WatchNumbers;
#[cfg(feature = "tokio")]
pub(crate) use self::watch::{WATCH_CHECK, WATCH_CHECK_MIN, is_check_due, next_check};
