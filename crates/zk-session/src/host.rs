//! The address of one server.

use std::fmt;
#[cfg(feature = "tokio")]
use std::net::IpAddr;

/// Client port of a host whose port is not given: 2181, also with TLS.
pub const DEFAULT_PORT: u16 = 2181;

/// A server of the ensemble.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Host {
    /// Name or IP address. An IPv6 address has no brackets here.
    pub name: String,
    /// Client port.
    pub port: u16,
}

#[cfg(feature = "tokio")]
impl Host {
    /// Returns whether the name stands for the machine that uses it.
    pub(crate) fn is_loopback(&self) -> bool {
        let name = self.name.trim_end_matches('.');
        let address = name.parse::<IpAddr>();
        address.is_ok_and(|address| address.to_canonical().is_loopback())
            || name.eq_ignore_ascii_case("localhost")
    }

    /// Returns whether the name is an address on which servers listen, but at which nobody reaches
    /// them, such as 0.0.0.0.
    pub(crate) fn is_wildcard(&self) -> bool {
        let address = self.name.parse::<IpAddr>();
        address.is_ok_and(|address| address.to_canonical().is_unspecified())
    }
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
