//! The members of the ensemble: their configuration, and requests that change it.

pub(crate) mod addresses;
mod config;
mod member;
mod reconfig;

pub use self::config::{ConfigVersion, EnsembleConfig};
pub use self::member::{Member, MemberAddress, MemberDefect, Role};
pub use self::reconfig::Reconfig;

/// The znode that has the configuration. It is the same for every client, whatever its chroot.
pub(crate) const CONFIG: &str = "/zookeeper/config";
