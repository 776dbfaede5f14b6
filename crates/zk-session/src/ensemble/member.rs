//! One server of the ensemble, in the text format of its configuration.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::host::Host;

/// A server of the ensemble, as its configuration describes it.
///
/// ```
/// use zk_session::{Host, Member};
///
/// let member = Member::new(4, "zk4", 2888, 3888)
///     .client(Host { name: "0.0.0.0".into(), port: 2181 })
///     .observer();
/// assert_eq!(member.to_string(), "server.4=zk4:2888:3888:observer;0.0.0.0:2181");
/// assert_eq!(member.to_string().parse(), Ok(member));
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The id of the server (`myid`).
    pub id: u64,
    /// Where the other servers reach it; at least one address.
    pub addresses: Vec<MemberAddress>,
    /// Whether it votes.
    pub role: Role,
    /// Where it listens for clients, if the configuration says so.
    pub client: Option<Host>,
    /// Where it listens for clients with TLS, if the configuration says so, which that of servers
    /// before 3.10 cannot.
    pub secure_client: Option<Host>,
}

/// An address at which the other servers reach a server.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MemberAddress {
    /// Name or IP address. An IPv6 address has no brackets here.
    pub host: String,
    /// Port on which followers connect to their leader.
    pub quorum_port: u16,
    /// Port for elections.
    pub election_port: u16,
}

/// Whether a server votes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Role {
    /// The server does not vote.
    Observer,
    /// The server votes, and may lead.
    #[default]
    Participant,
}

/// Why a text does not describe a server of the ensemble.
#[derive(Clone, Eq, Error, PartialEq)]
#[error(
    "{text:?} does not describe a server; an example is \
     \"server.1=zk1:2888:3888:participant;0.0.0.0:2181\""
)]
#[non_exhaustive]
pub struct MemberDefect {
    /// The text as given.
    pub text: String,
}

jute_codec::debug_by_message!(MemberDefect);

impl Member {
    /// Describes a server that votes and has this id, which the other servers reach at this host.
    pub fn new(id: u64, host: &str, quorum_port: u16, election_port: u16) -> Self {
        let address = MemberAddress { host: host.to_owned(), quorum_port, election_port };
        let addresses = vec![address];
        Self { id, addresses, role: Role::Participant, client: None, secure_client: None }
    }

    /// Adds another address (3.6, if the servers enable `multiAddress.enabled`).
    #[must_use]
    pub fn address(mut self, host: &str, quorum_port: u16, election_port: u16) -> Self {
        self.addresses.push(MemberAddress { host: host.to_owned(), quorum_port, election_port });
        self
    }

    /// Makes the server an observer, which does not vote.
    #[must_use]
    pub fn observer(self) -> Self {
        Self { role: Role::Observer, ..self }
    }

    /// Sets where the server listens for clients. Servers with a dynamic configuration require it.
    #[must_use]
    pub fn client(self, address: Host) -> Self {
        Self { client: Some(address), ..self }
    }

    /// Sets where the server listens for clients with TLS (3.10; older servers refuse it).
    #[must_use]
    pub fn secure_client(self, address: Host) -> Self {
        Self { secure_client: Some(address), ..self }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observer => "observer",
            Self::Participant => "participant",
        })
    }
}

impl fmt::Display for MemberAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, quorum_port, election_port } = self;
        write!(f, "{}:{election_port}", Host { name: host.clone(), port: *quorum_port })
    }
}

/// Writes the line of the configuration.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server.{}=", self.id)?;
        for (index, address) in self.addresses.iter().enumerate() {
            let separator = if index == 0 { "" } else { "|" };
            write!(f, "{separator}{address}")?;
        }
        write!(f, ":{}", self.role)?;
        match (&self.client, &self.secure_client) {
            (Some(client), None) => write!(f, ";{client}"),
            (Some(client), Some(secure)) => write!(f, ";{client};{secure}"),
            (None, Some(secure)) => write!(f, ";;{secure}"),
            (None, None) => Ok(()),
        }
    }
}

/// Reads a line of the configuration, or an element of a request to change it.
impl FromStr for Member {
    type Err = MemberDefect;

    fn from_str(text: &str) -> Result<Self, MemberDefect> {
        parse(text.trim()).ok_or_else(|| MemberDefect { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Member> {
    let (id, rest) = text.strip_prefix("server.")?.split_once('=')?;
    let mut parts = rest.split(';');
    let servers = parts.next()?;
    let mut client = || match parts.next() {
        Some(part) if !part.is_empty() => parse_client(part).map(Some),
        _ => Some(None),
    };
    let (client, secure_client) = (client()?, client()?);
    if parts.next().is_some() {
        return None;
    }
    let mut role = None;
    let mut addresses = Vec::new();
    for address in servers.split('|') {
        let (rest, last) = address.rsplit_once(':')?;
        // Servers print the role once. They read it behind any address, in any case.
        let (address, other) = match last.to_ascii_lowercase().as_str() {
            "participant" => (rest, Some(Role::Participant)),
            "observer" => (rest, Some(Role::Observer)),
            _ => (address, None),
        };
        if other.is_some() && role.is_some() && role != other {
            return None;
        }
        role = role.or(other);
        addresses.push(parse_address(address)?);
    }
    let role = role.unwrap_or_default();
    Some(Member { id: id.trim().parse().ok()?, addresses, role, client, secure_client })
}

fn parse_address(text: &str) -> Option<MemberAddress> {
    let (rest, election_port) = text.rsplit_once(':')?;
    let (host, quorum_port) = rest.rsplit_once(':')?;
    let (quorum_port, election_port) = (quorum_port.parse().ok()?, election_port.parse().ok()?);
    Some(MemberAddress { host: parse_host(host)?, quorum_port, election_port })
}

/// Reads the part for clients, in which the address may be missing.
fn parse_client(text: &str) -> Option<Host> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (parse_host(name)?, port),
        None => ("0.0.0.0".to_owned(), text),
    };
    Some(Host { name, port: port.parse().ok()? })
}

/// Reads a host, and removes the brackets of an IPv6 address.
fn parse_host(text: &str) -> Option<String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = inside.unwrap_or(text);
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_real_servers_are_read() {
        let line = "server.1=peer1:2888:3888:participant;0.0.0.0:2181";
        let member: Member = line.parse().unwrap();
        assert_eq!(
            member,
            Member::new(1, "peer1", 2888, 3888).client(Host { name: "0.0.0.0".into(), port: 2181 })
        );
        assert_eq!(member.to_string(), line);
    }

    #[test]
    fn every_form_of_the_line_is_written_as_it_is_read() {
        for line in [
            "server.2=[::1]:2888:3888:observer;[::]:2181",
            "server.3=a:1:2|b:3:4:participant",
            "server.4=h:1:2:participant",
            "server.6=h:1:2:participant;0.0.0.0:2181;[::]:2281",
            "server.7=h:1:2:participant;;h:2281",
        ] {
            assert_eq!(line.parse::<Member>().unwrap().to_string(), line);
        }
        let short: Member = "server.5=h:1:2;2181".parse().unwrap();
        assert_eq!(short.to_string(), "server.5=h:1:2:participant;0.0.0.0:2181");
        let early: Member = "server.8=a:1:2:OBSERVER|b:1:2;2181".parse().unwrap();
        assert_eq!(early.to_string(), "server.8=a:1:2|b:1:2:observer;0.0.0.0:2181");
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "",
            "version=1",
            "server.x=h:1:2",
            "server.1=h:1",
            "server.1=h:1:99999",
            "server.1=:1:2",
            "server.1=h:1:2;x",
            "server.1=h:1:2;1;2;3",
            "server.1=a:1:2:observer|b:1:2:participant",
            "server.1=a:1:2|",
        ] {
            assert!(line.parse::<Member>().is_err(), "{line}");
        }
    }
}
