//! The role of a contender.

/// Which other contenders a contender tolerates.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// None.
    Exclusive,
    /// Other shared ones: a reader.
    Shared,
}
