//! The shipped client with servers that misbehave.
//!
//! `storms` counts the connections of many clients to servers that fail in various ways. `stakes`
//! has failing and healthy servers while a lock is held. `addresses` has one host name for several
//! servers. `strangers` has servers that do not speak ZooKeeper's
//! protocol, and `keepers` ClickHouse Keeper.

mod addresses;
mod keepers;
mod peer;
mod stakes;
mod storms;
mod strangers;
