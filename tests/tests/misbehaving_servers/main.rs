//! The shipped client with servers that misbehave.
//!
//! `storms` counts the connections of many clients to servers that fail in every way.
//! `stakes` has servers that fail while a lock is held, and healthy ones.
//! `addresses` has one name for several servers.
//! `strangers` has servers that do not speak ZooKeeper's protocol.

mod addresses;
mod peer;
mod stakes;
mod storms;
mod strangers;
