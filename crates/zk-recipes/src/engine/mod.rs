//! The async side of all recipes: it feeds machines from a lane of the client. Like the vocabulary
//! of the machines, it knows nothing about locks.

pub(crate) mod attended;
pub(crate) mod call;
pub(crate) mod drive;
pub(crate) mod feed;
pub(crate) mod join;
pub(crate) mod limited;
pub(crate) mod monitor;
pub(crate) mod notice;
pub(crate) mod persistent;
pub(crate) mod removal;
