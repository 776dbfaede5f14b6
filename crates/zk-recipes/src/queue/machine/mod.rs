//! The machines of a queue: claiming a place, waiting for the turn, removing the znode.

pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod removal;
pub(crate) mod standing;
