//! The work queue.

mod aside;
mod builder;
mod core;
mod error;
mod layout;
mod leased;
mod put;
mod queue;
mod sweep;
mod take;

pub(crate) mod machine;

pub use self::{
    aside::{BlockReason, BlockedItem},
    builder::WorkQueueBuilder,
    error::WorkQueueError,
    leased::Leased,
    put::Put,
    queue::WorkQueue,
    take::{Take, TakeBatch},
};
