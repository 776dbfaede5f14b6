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
        if let Some(entry) = text.split(',').find(|entry| entry.contains("://")) {
            let scheme = entry.split_inclusive("://").next().unwrap_or_default().trim_start();
            let right = text.replace(scheme, "");
            let reason = format!("there is no {scheme} in front of a host; write {right:?}");
            return Err(ConfigError::Host { host: entry.trim().to_owned(), reason: reason.into() });
        }
        let (hosts, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        if hosts.trim().is_empty() {
            return Err(ConfigError::NoHosts);
        }
        if chroot.contains(',') {
            return Err(chroot_in_the_middle(text, chroot));
        }
        let entries = hosts.split(',').enumerate();
        let hosts = entries.map(|(at, entry)| host(at, entry.trim())).collect::<Result<_, _>>()?;
        let chroot = chroot.trim_end();
        let chroot = Chroot::new(chroot).map_err(|reason| ConfigError::Chroot {
            path: chroot.to_owned(),
            reason: reason.into(),
        })?;
        Ok(Self { hosts, chroot })
    }
}

fn host(at: usize, entry: &str) -> Result<Host, ConfigError> {
    if entry.is_empty() {
        let reason = format!("entry {} is empty: there is a comma too many", at + 1);
        return Err(ConfigError::Host { host: String::new(), reason: reason.into() });
    }
    entry.parse()
}

/// A chroot belongs to the whole list. Behind each host it would be read as the name of a znode,
/// with the other hosts in it.
fn chroot_in_the_middle(text: &str, chroot: &str) -> ConfigError {
    let hosts: Vec<_> =
        text.split(',').map(|entry| entry.split('/').next().unwrap_or("").trim()).collect();
    let path = text.rsplit(',').find_map(|entry| entry.find('/').and_then(|at| entry.get(at..)));
    let first = text.split(',').find(|entry| entry.contains('/')).unwrap_or_default().trim();
    let right = format!("{}{}", hosts.join(","), path.unwrap_or_default().trim_end());
    let reason = format!(
        "a comma follows the chroot of {first:?}; the chroot stands once, behind the last host, \
         as in {right:?}"
    );
    ConfigError::Chroot { path: chroot.to_owned(), reason: reason.into() }
}

impl FromStr for Host {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |reason: &'static str| ConfigError::Host {
            host: text.to_owned(),
            reason: reason.into(),
        };
        if text.contains([';', '|']) || text.contains(char::is_whitespace) {
            return Err(error("hosts are separated by commas, as in \"zk1:2181,zk2:2181\""));
        }
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
                Ok(0) | Err(_) => {
                    return Err(error("behind the colon stands a port between 1 and 65535"));
                }
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
    fn a_mistake_is_shown_with_its_place_and_its_cure() {
        for (text, parts) in [
            ("h1:1/app,h2:2/app", &["h1:1/app", "\"h1:1,h2:2/app\""][..]),
            ("h1/app,h2", &["h1/app", "\"h1,h2/app\""]),
            ("h1,h2/a,b", &["h2/a", "\"h1,h2,b/a\""]),
            ("h1;h2", &["\"h1;h2\"", "commas", "\"zk1:2181,zk2:2181\""]),
            ("h1 h2", &["\"h1 h2\"", "commas"]),
            ("h1:1\th2:2", &["commas"]),
            ("zk://h1:1,h2/app", &["\"zk://h1:1\"", "zk://", "\"h1:1,h2/app\""]),
            ("h1,zk://h2", &["zk://"]),
            ("h1,h2,", &["entry 3 is empty", "comma"]),
            (",h1", &["entry 1 is empty", "comma"]),
            ("h1:", &["\"h1:\"", "port"]),
            ("h1:99999", &["\"h1:99999\"", "65535"]),
        ] {
            let error = text.parse::<ConnectString>().unwrap_err().to_string();
            let error = error.replace("\\\"", "\"");
            for part in parts {
                assert!(error.contains(part), "{text}: {error} does not say {part}");
            }
        }
        // White space around entries does no harm.
        let parsed: ConnectString = " h1:1 , h2:2/app \n".parse().unwrap();
        assert_eq!((parsed.hosts.len(), parsed.chroot.as_str()), (2, "/app"));
    }

    #[test]
    fn a_lone_slash_is_no_chroot() {
        assert_eq!("zk1/".parse::<ConnectString>().unwrap().chroot, Chroot::default());
    }
}
