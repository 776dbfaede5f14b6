//! The address of one server.

use std::fmt;

/// Client port of a host whose port is not given.
pub const DEFAULT_PORT: u16 = 2181;

/// A server of the ensemble.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Host {
    /// Name or IP address. An IPv6 address has no brackets here.
    pub name: String,
    /// Client port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}
