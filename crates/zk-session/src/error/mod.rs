//! Why something failed, and what is known about its effect.

mod auth;
mod config;
mod connect;
mod denied;
mod failure;
mod operation;
mod sasl;
mod target;
mod tls;

pub use self::auth::AuthError;
pub use self::config::{ChrootDefect, ConfigError, HostDefect, OptionDefect, PathDefect};
pub use self::connect::{ConnectError, HandOverError};
pub use self::denied::{Denied, MISSING_CHROOT};
pub use self::failure::{ConnectionFailure, FailureCause, TransportError};
pub use self::operation::{OpError, Outcome, WatchEnded};
pub use self::sasl::SaslFailure;
#[cfg(feature = "tokio")]
pub(crate) use self::target::Refusal;
pub use self::target::Target;
pub use self::tls::TlsFailure;
