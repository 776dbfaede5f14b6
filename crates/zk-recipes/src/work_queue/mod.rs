//! The work queue.

mod aside;
mod builder;
mod core;
mod error;
mod layout;
mod leased;
mod out_of_turn;
mod put;
mod queue;
mod search;
mod stall;
mod stats;
mod sweep;
mod take;

pub(crate) mod machine;

pub use self::{
    aside::{BlockReason, BlockedItem},
    builder::WorkQueueBuilder,
    error::WorkQueueError,
    leased::Leased,
    put::{Put, PutOptions},
    queue::WorkQueue,
    stats::QueueStats,
};
