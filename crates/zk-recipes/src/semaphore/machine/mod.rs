//! The machines of a semaphore: waiting for a permit, and changing their number.

mod ahead;
pub(crate) mod attempt;
pub(crate) mod resize;
pub(crate) mod standing;
