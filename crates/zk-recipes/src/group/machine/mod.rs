//! The machines of a group.

pub(super) mod presence;
pub(super) mod roster;
