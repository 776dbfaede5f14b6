//! The connect string: `host:port,host:port/chroot`.

use std::str::FromStr;

use crate::error::{ChrootDefect, ConfigError, HostDefect};
use crate::host::{DEFAULT_PORT, Host};
use crate::path::Chroot;

/// The servers of an ensemble, and the chroot of a client.
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
    /// The servers in the given order.
    pub hosts: Vec<Host>,
    /// The znode that the client uses as its root.
    pub chroot: Chroot,
}

impl FromStr for ConnectString {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(entry) = text.split(',').find(|entry| entry.contains("://")) {
            let scheme = entry.split_inclusive("://").next().unwrap_or_default().trim_start();
            let suggestion = text.replace(scheme, "");
            let defect = HostDefect::Scheme { scheme: scheme.to_owned(), suggestion };
            return Err(ConfigError::Host { host: entry.trim().to_owned(), defect });
        }
        let (hosts, chroot) = match text.find('/') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        if hosts.trim().is_empty() {
            return Err(ConfigError::NoHosts);
        }
        if chroot.contains(',') {
            return Err(chroot_before_hosts(text, chroot));
        }
        let entries = hosts.split(',').enumerate();
        let hosts = entries.map(|(at, entry)| host(at, entry.trim())).collect::<Result<_, _>>()?;
        let chroot = chroot.trim_end();
        let chroot = Chroot::new(chroot).map_err(|defect| ConfigError::Chroot {
            path: chroot.to_owned(),
            defect: ChrootDefect::Path(defect),
        })?;
        Ok(Self { hosts, chroot })
    }
}

fn host(at: usize, entry: &str) -> Result<Host, ConfigError> {
    if entry.is_empty() {
        let defect = HostDefect::Empty { number: at + 1 };
        return Err(ConfigError::Host { host: String::new(), defect });
    }
    entry.parse()
}

/// Returns the error for a chroot that more hosts follow. The chroot applies to the whole list, so
/// the other hosts would be read as part of it.
fn chroot_before_hosts(text: &str, chroot: &str) -> ConfigError {
    let hosts: Vec<_> =
        text.split(',').map(|entry| entry.split('/').next().unwrap_or("").trim()).collect();
    let path = text.rsplit(',').find_map(|entry| entry.find('/').and_then(|at| entry.get(at..)));
    let first = text.split(',').find(|entry| entry.contains('/')).unwrap_or_default().trim();
    let suggestion = format!("{}{}", hosts.join(","), path.unwrap_or_default().trim_end());
    let defect = ChrootDefect::BeforeHosts { host: first.to_owned(), suggestion };
    ConfigError::Chroot { path: chroot.to_owned(), defect }
}

impl FromStr for Host {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let error = |defect| ConfigError::Host { host: text.to_owned(), defect };
        if text.contains([';', '|']) || text.contains(char::is_whitespace) {
            return Err(error(HostDefect::Separator));
        }
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, after) =
                rest.split_once(']').ok_or_else(|| error(HostDefect::MissingBracket))?;
            match after.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if after.is_empty() => (name, None),
                None => return Err(error(HostDefect::AfterBracket)),
            }
        } else {
            match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(error(HostDefect::Ipv6WithoutBrackets));
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        if name.is_empty() {
            return Err(error(HostDefect::NoName));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(error(HostDefect::Port)),
                Ok(port) => port,
            },
        };
        Ok(Self { name: name.to_owned(), port })
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
        // Whitespace around entries is ignored.
        let parsed: ConnectString = " h1:1 , h2:2/app \n".parse().unwrap();
        assert_eq!((parsed.hosts.len(), parsed.chroot.as_str()), (2, "/app"));
    }

    #[test]
    fn a_lone_slash_is_no_chroot() {
        assert_eq!("zk1/".parse::<ConnectString>().unwrap().chroot, Chroot::default());
    }
}
