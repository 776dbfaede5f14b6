//! What all locks share: the interface between a recipe and the engine, states, errors, counters.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod recipe;
pub(crate) mod role;

#[cfg(feature = "tokio")]
pub(crate) mod contender;
#[cfg(feature = "tokio")]
pub(crate) mod figures;
#[cfg(feature = "tokio")]
pub(crate) mod kind;
#[cfg(feature = "tokio")]
pub(crate) mod log;
#[cfg(feature = "tokio")]
pub(crate) mod phase;
#[cfg(feature = "tokio")]
pub(crate) mod state;
#[cfg(feature = "tokio")]
pub(crate) mod stats;
