//! The queue: contenders with sequential znodes in one directory, served in the order of their
//! numbers. Fair locks and read/write locks are queues with different names.

pub(crate) mod machine;
pub(crate) mod naming;
pub(crate) mod profile;

#[cfg(feature = "tokio")]
pub(crate) mod contenders;
#[cfg(feature = "tokio")]
pub(crate) mod recipe;
