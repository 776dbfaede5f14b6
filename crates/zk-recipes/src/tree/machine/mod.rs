//! Deleting a subtree.

mod delete;

pub(crate) use self::delete::DeleteTree;
