//! The role of a contender.

/// Which other contenders a contender tolerates.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Tolerates no other contender.
    Exclusive,
    /// Tolerates other shared contenders. This is the role of readers.
    Shared,
}
