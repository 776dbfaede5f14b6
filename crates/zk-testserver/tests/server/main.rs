//! The behaviour of the server, observed through raw frames.
#![cfg(feature = "tokio")]

mod backlog;
mod client;
mod closing;
mod errors;
mod faults;
mod followers;
mod golden;
mod hostile;
mod late;
mod multi;
mod order;
mod reception;
mod sessions;
mod state;
mod watches;
