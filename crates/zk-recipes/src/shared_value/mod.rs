//! A value that clients share: the data of one znode.

mod builder;
mod contention;
mod error;
mod value;
mod versioned;
mod write;

pub use self::builder::SharedValueBuilder;
pub use self::error::ValueError;
pub use self::value::{SharedValue, ValueChanges};
#[cfg(test)]
pub(crate) use self::versioned::Revision;
pub use self::versioned::Versioned;
