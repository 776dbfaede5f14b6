//! The machine of a group.

pub(super) mod roster;
