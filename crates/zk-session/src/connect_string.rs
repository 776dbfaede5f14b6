//! The connect string: `host:port,host:port/chroot`.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;
use crate::path::Chroot;

/// Port of a host that names none.
pub const DEFAULT_PORT: u16 = 2181;

/// A server of the ensemble.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "complete by definition")]
pub struct Host {
    /// Name or address; an IPv6 address without its brackets.
    pub name: String,
    /// Client port.
    pub port: u16,
}

/// Servers of an ensemble and the chroot of a client.
///
/// ```
/// let parsed: zk_session::ConnectString = "zk1,zk2:2182,[::1]:2183/app".parse()?;
/// assert_eq!(parsed.hosts.len(), 3);
/// assert_eq!(parsed.hosts[0].port, 2181);
/// assert_eq!(parsed.hosts[2].to_string(), "[::1]:2183");
/// assert_eq!(parsed.chroot.as_str(), "/app");
/// # Ok::<(), zk_session::ConfigError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConnectString {
    /// The servers, in the order given.
    pub hosts: Vec<Host>,
    /// What the client takes for its root.
    pub chroot: Chroot,
}

impl FromStr for ConnectString {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (hosts, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        if hosts.trim().is_empty() {
            return Err(ConfigError::NoHosts);
        }
        let hosts = hosts.split(',').map(|host| host.trim().parse()).collect::<Result<_, _>>()?;
        let chroot = Chroot::new(chroot.trim_end())
            .map_err(|reason| ConfigError::Chroot { path: chroot.to_owned(), reason })?;
        Ok(Self { hosts, chroot })
    }
}

impl FromStr for Host {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::Host { host: text.to_owned(), reason };
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, behind) = rest.split_once(']').ok_or_else(|| error("] is missing"))?;
            match behind.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if behind.is_empty() => (name, None),
                None => return Err(error("only :port may stand behind ]")),
            }
        } else {
            match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(error("an IPv6 address stands in brackets"));
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        if name.is_empty() {
            return Err(error("the name is empty"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(error("the port is not between 1 and 65535")),
                Ok(port) => port,
            },
        };
        Ok(Self { name: name.to_owned(), port })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_the_entry() {
        for (text, host) in [
            ("zk1:2181,:2181", ":2181"),
            ("zk1:port", "zk1:port"),
            ("zk1:0", "zk1:0"),
            ("::1:2181", "::1:2181"),
            ("[::1", "[::1"),
            ("zk1,,zk2", ""),
        ] {
            let error = text.parse::<ConnectString>().unwrap_err();
            assert!(matches!(&error, ConfigError::Host { host: h, .. } if h == host), "{error}");
        }
        assert_eq!("/app".parse::<ConnectString>(), Err(ConfigError::NoHosts));
        assert!(matches!("zk1/a//b".parse::<ConnectString>(), Err(ConfigError::Chroot { .. })));
    }

    #[test]
    fn a_lone_slash_is_no_chroot() {
        assert_eq!("zk1/".parse::<ConnectString>().unwrap().chroot, Chroot::default());
    }
}
