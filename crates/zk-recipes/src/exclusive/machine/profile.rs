//! What the machines of an exclusive lock know about the lock: its options.

pub use crate::lock::options::LockOptions as ExclusiveProfile;
