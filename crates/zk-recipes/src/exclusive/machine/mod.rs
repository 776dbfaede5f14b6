//! The machines of an exclusive lock.

pub(crate) mod attempt;
pub(crate) mod id;
pub(crate) mod removal;
