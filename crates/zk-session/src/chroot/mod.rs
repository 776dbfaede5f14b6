//! The chroot of a client: creating it, and translating paths.

pub(crate) mod create;
pub(crate) mod translate;
