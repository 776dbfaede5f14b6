//! The machine of a presence.

mod obstacle;
pub(crate) mod presence;
pub(crate) mod profile;
