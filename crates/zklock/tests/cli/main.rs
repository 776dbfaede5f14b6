//! The program `zklock`, as it was built, against the server for tests. Nothing here is a call of its
//! code: what counts is what a shell sees.

#![expect(
    clippy::unwrap_used,
    reason = "these are helpers of tests, which the exemption leaves out"
)]

mod commands;
mod crowd;
mod doctor;
mod following;
mod keyboard;
mod losses;
mod outages;
mod page;
mod picture;
mod queues;
mod settings;
mod strangers;
mod terminal;
mod waiting;
mod world;
