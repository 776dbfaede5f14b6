//! The machines of a work queue: putting items, finding the next item, and acknowledging one.

pub(crate) mod ack;
pub(crate) mod look;
pub(crate) mod put;
