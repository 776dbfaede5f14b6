//! The machine of the double barrier.

pub(crate) mod meet;
