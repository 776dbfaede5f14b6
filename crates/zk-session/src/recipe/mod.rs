//! For authors of recipes: access to a client's session below the level of single operations.
//!
//! This module may change in any minor release.
//!
//! A `Lane` submits [flights](Flight) of [operations](Operation), and receives replies, watch
//! events and [changes](Change) of the session in a single order. A `Slot` runs cleanup that must
//! outlive its caller. `Session::of` creates the handle that provides both. These three need the
//! feature `tokio`; the other types serve state machines that do no I/O.

#[cfg(feature = "tokio")]
pub(crate) mod lane;
#[cfg(feature = "tokio")]
mod session;

#[cfg(feature = "tokio")]
pub use self::lane::Lane;
#[cfg(feature = "tokio")]
pub use self::session::Session;
pub use crate::abridged::Abridged;
#[cfg(feature = "tokio")]
pub use crate::driver::janitor::{Due, JANITOR_SLOTS_MAX, Slot};
#[cfg(feature = "tokio")]
pub use crate::driver::lane_event::LaneEvent;
#[cfg(feature = "tokio")]
pub use crate::driver::lane_queue::LeaseNeed;
#[cfg(feature = "tokio")]
pub use crate::driver::notices::Notice;
pub use crate::error::{Denied, MISSING_CHROOT};
pub use crate::machine::{Change, Flight, Operation, Reply, Token, WatchNumber};
#[cfg(feature = "tokio")]
pub use crate::watchdog::Watchdog;
