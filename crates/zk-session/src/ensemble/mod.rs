//! The members of the ensemble: their configuration, and requests that change it.

mod config;
mod member;
mod reconfig;

pub use self::config::{ConfigVersion, EnsembleConfig};
pub use self::member::{Member, MemberAddress, MemberDefect, Role};
pub use self::reconfig::Reconfig;
