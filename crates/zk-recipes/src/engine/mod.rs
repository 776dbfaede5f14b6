//! The async side of all recipes: it feeds machines from a lane of the client. Like the vocabulary
//! of the machines, it knows nothing about locks.

pub(crate) mod drive;
pub(crate) mod feed;
pub(crate) mod watchdog;
