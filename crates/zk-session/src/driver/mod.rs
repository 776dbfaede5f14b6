//! The task that runs a session: it moves bytes between the session machine and the transport, arms
//! one timer, and passes on what the machine reports.
//!
//! Each session is one task. It never runs user code, so nothing that a user does with a reply can
//! delay a heartbeat, except blocking the runtime's threads.

#![expect(clippy::disallowed_methods, reason = "this is the driver: it owns clock and tasks")]

pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod connection_log;
pub(crate) mod ends;
pub(crate) mod janitor;
pub(crate) mod lane_event;
pub(crate) mod lane_queue;
mod lanes;
mod router;
pub(crate) mod shared;
pub(crate) mod task;
pub(crate) mod transport;
