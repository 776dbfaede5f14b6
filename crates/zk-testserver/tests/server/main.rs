//! Behaviour of the server, seen through raw frames.

mod client;
mod smoke;
