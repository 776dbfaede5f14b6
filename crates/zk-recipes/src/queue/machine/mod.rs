//! The machines of a queue, which claim a place, wait for their turn, and remove the znode.

pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod removal;
pub(crate) mod seat;
pub(crate) mod standing;
