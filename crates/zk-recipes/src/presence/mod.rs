//! Presences: znodes that exist for as long as their owners want, in whichever session.

mod error;
mod keeper;
pub(crate) mod machine;
mod service;
pub(crate) mod state;
pub(crate) mod stay;

pub use self::error::PresenceError;
pub use self::service::{Presence, PresenceBuilder};
pub use self::state::{Absence, PresenceState};
