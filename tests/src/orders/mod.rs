//! Every order in which the contenders of a lock can join and leave.

pub mod rw_lock;
pub mod semaphore;
