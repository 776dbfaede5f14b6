//! The behaviour of servers on which the client and the locks rely, as tests for every server.
//!
//! The list of tests is the same for every target; see [`zk_tests::target`] for the choice of the
//! target. A difference between two targets is a bug of the in-process server, or a wrong
//! assumption of this project.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "helpers fail by a panic, as the tests they serve do"
)]

mod acl;
mod barrier;
mod cache;
mod chroot;
mod compound;
mod coverage;
mod create;
mod data;
mod double_barrier;
mod ensemble;
mod every_lock;
mod exclusive_lock;
mod expiry;
mod group;
mod handles;
mod lagging;
mod limits;
mod lock;
mod multi;
mod operations;
mod persistent;
mod presence;
mod queries;
mod quota;
mod raw;
mod removal;
mod restore;
mod rw_lock;
mod semaphore;
mod session;
mod settled;
mod shared_value;
mod tree;
mod watch;
mod work_queue;
