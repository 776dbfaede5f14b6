//! The machines of the double barrier.

pub(crate) mod depart;
pub(crate) mod meet;
pub(crate) mod past;
pub(crate) mod survey;
