//! Operations: the table of all of them, the future of one, and those that need types of their own.

pub(crate) mod table;
pub(crate) mod terms;

#[cfg(feature = "tokio")]
pub(crate) mod create;
#[cfg(feature = "tokio")]
pub(crate) mod exposure;
#[cfg(feature = "tokio")]
pub(crate) mod multi;
#[cfg(feature = "tokio")]
pub(crate) mod multi_read;
#[cfg(feature = "tokio")]
pub(crate) mod op;
