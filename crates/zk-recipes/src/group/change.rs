//! A change of a group.

use super::member::Member;

/// A change of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum GroupChange {
    /// The data of a member have changed. This is the member with its new data.
    Changed(Member),
    /// A member has joined.
    Joined(Member),
    /// A member has left, or its session has expired. This is the member as it was last seen.
    Left(Member),
}
