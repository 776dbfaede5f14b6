//! What the client and the locks rely on, said once and run against every server.
//!
//! The list of tests is the same for every target; see [`zk_tests::target`] for how one is chosen.
//! A difference between two targets is a bug of the in-process server, or an assumption of ours
//! that does not hold.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "helpers fail by a panic, as the tests they serve do"
)]

#[path = "conformance/acl.rs"]
mod acl;
#[path = "conformance/chroot.rs"]
mod chroot;
#[path = "conformance/create.rs"]
mod create;
#[path = "conformance/data.rs"]
mod data;
#[path = "conformance/every_lock.rs"]
mod every_lock;
#[path = "conformance/exclusive_lock.rs"]
mod exclusive_lock;
#[path = "conformance/expiry.rs"]
mod expiry;
#[path = "conformance/limits.rs"]
mod limits;
#[path = "conformance/lock.rs"]
mod lock;
#[path = "conformance/multi.rs"]
mod multi;
#[path = "conformance/raw.rs"]
mod raw;
#[path = "conformance/restore.rs"]
mod restore;
#[path = "conformance/rw_lock.rs"]
mod rw_lock;
#[path = "conformance/session.rs"]
mod session;
#[path = "conformance/watch.rs"]
mod watch;
