//! Servers that do not do what they should, and the shipped client.
//!
//! `storms` counts the connections that many clients make to servers that fail in every way.
//! `stakes` lets servers fail while a lock is held, beside others that are healthy.
//! `addresses` gives one name to several servers.
//! `strangers` answers with something that is not ZooKeeper.

#[path = "misbehaving_servers/addresses.rs"]
mod addresses;
#[path = "misbehaving_servers/peer.rs"]
mod peer;
#[path = "misbehaving_servers/stakes.rs"]
mod stakes;
#[path = "misbehaving_servers/storms.rs"]
mod storms;
#[path = "misbehaving_servers/strangers.rs"]
mod strangers;
