//! The task that runs a session: it moves bytes between the session machine and the transport, arms
//! one timer, and passes on what the machine reports.
//!
//! Each session is one task, on the runtime of its user or on a thread of its own. It never runs user
//! code, so nothing that a user does with a reply can delay a heartbeat, except blocking the
//! runtime's threads.

#![expect(clippy::disallowed_methods, reason = "this is the driver: it owns clock and tasks")]

pub(crate) mod access;
mod beside;
mod blocking;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod connection_log;
pub(crate) mod ends;
pub(crate) mod ensemble_follower;
#[cfg(feature = "metrics")]
mod export;
pub(crate) mod host_source;
pub(crate) mod janitor;
pub(crate) mod lane_event;
pub(crate) mod lane_queue;
mod lanes;
pub(crate) mod latest;
pub(crate) mod meter;
pub(crate) mod notices;
mod probe;
mod round;
mod router;
pub(crate) mod sasl;
pub(crate) mod shared;
pub(crate) mod task;
pub(crate) mod thread;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod watch_queue;
