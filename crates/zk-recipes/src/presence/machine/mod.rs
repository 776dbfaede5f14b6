//! The machine of a presence.

pub(crate) mod presence;
