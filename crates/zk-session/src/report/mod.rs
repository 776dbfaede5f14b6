//! What a client reports about itself to its operators.

pub(crate) mod health;
pub(crate) mod latency;
pub mod metrics;
pub(crate) mod stats;
