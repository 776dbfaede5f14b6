//! The behaviour of the server, observed through raw frames.
#![cfg(feature = "tokio")]

mod backlog;
mod client;
mod closing;
mod conduct;
mod deposed;
mod errors;
mod faults;
mod followers;
mod golden;
mod hostile;
mod keeper;
mod lag;
mod late;
mod limits;
mod multi;
mod order;
mod read_only;
mod reception;
mod reconfig;
mod sasl;
mod sessions;
mod state;
mod versions;
mod watches;
