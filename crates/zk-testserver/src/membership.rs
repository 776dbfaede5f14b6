//! The dynamic configuration of an ensemble: its servers, and how a request changes them.
//!
//! It is only text, which is in the znode `/zookeeper/config`. Changing it neither starts nor stops
//! a server. The servers of the first configuration count as running, and all others do not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use bytestring::ByteString;
use jute_codec::{ErrorCode, ReconfigRequest};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Membership {
    /// The zxid of the change that made it; 0 at first.
    version: i64,
    servers: BTreeMap<i64, Server>,
    running: BTreeSet<i64>,
    /// Servers may have several addresses (`multiAddress.enabled`).
    has_multi_address: bool,
}

/// What a line such as `server.1=host:2888:3888:participant;0.0.0.0:2181` says. A server may have
/// several addresses, as in `server.1=a:2888:3888|b:2888:3888;2181`. Source: versions 3.6 to 3.9 of
/// `QuorumPeer.QuorumServer.initializeWithAddressString`.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Server {
    /// In the order of the hosts' names, in which servers print them.
    addresses: Vec<Address>,
    /// It was given several addresses, even if they are the same.
    has_several: bool,
    is_observer: bool,
    client: Option<(String, u16)>,
}

/// An address at which the other servers reach a server.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Address {
    host: String,
    port: u16,
    election_port: u16,
}

impl Membership {
    /// Parses the first configuration, with one server per line. Returns `None` if it is malformed.
    /// If a server has several addresses, those of later configurations may have several too: real
    /// servers would not start with such a configuration otherwise.
    pub(crate) fn first(text: &str) -> Option<Self> {
        let servers = parse_all(text).ok().filter(|servers| voters(servers) > 0)?;
        let running = servers.keys().copied().collect();
        let has_multi_address = servers.values().any(|server| server.has_several);
        Some(Self { version: 0, servers, running, has_multi_address })
    }

    /// Allows servers to have several addresses.
    pub(crate) fn enable_multi_address(&mut self) {
        self.has_multi_address = true;
    }

    /// Returns the configuration after a request, if the request is legal. `zxid` becomes its
    /// version.
    pub(crate) fn change(&self, request: &ReconfigRequest, zxid: i64) -> Result<Self, ErrorCode> {
        if request.config_id != -1 && request.config_id != self.version {
            return Err(ErrorCode::BAD_VERSION);
        }
        let servers = match &request.new_members {
            Some(all) => parse_all(&all.replace(',', "\n"))?,
            None => {
                let text =
                    |list: &Option<ByteString>| list.as_deref().unwrap_or_default().to_owned();
                self.join_and_leave(
                    &text(&request.joining_servers),
                    &text(&request.leaving_servers),
                )?
            }
        };
        if !self.has_multi_address && servers.values().any(|server| server.has_several) {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        // Servers only allow a single voter if they were told so.
        if voters(&servers) < 2 {
            return Err(ErrorCode::BAD_ARGUMENTS);
        }
        let is_voter = |id: &&i64| servers.get(id).is_some_and(|server| !server.is_observer);
        let synced = self.running.iter().filter(is_voter).count();
        if synced * 2 <= voters(&servers) {
            return Err(ErrorCode::NEW_CONFIG_NO_QUORUM);
        }
        Ok(Self { version: zxid, servers, ..self.clone() })
    }

    /// Applies an incremental change.
    fn join_and_leave(
        &self,
        joining: &str,
        leaving: &str,
    ) -> Result<BTreeMap<i64, Server>, ErrorCode> {
        let mut servers = self.servers.clone();
        for leaver in split(leaving, ',') {
            servers.remove(&number(leaver)?);
        }
        for joiner in split(joining, ',') {
            let [name, spec] = split(joiner, '=').collect::<Vec<_>>()[..] else {
                return Err(ErrorCode::BAD_ARGUMENTS);
            };
            let id = number(name.rsplit('.').next().unwrap_or_default())?;
            let server = Server::parse(spec)?;
            let collides = |(other, known): (&i64, &Server)| *other != id && server.collides(known);
            if server.client.is_none() || servers.iter().any(collides) {
                return Err(ErrorCode::BAD_ARGUMENTS);
            }
            servers.insert(id, server);
        }
        Ok(servers)
    }

    /// Formats the configuration as the data of its znode.
    pub(crate) fn text(&self) -> String {
        let lines =
            self.servers.iter().map(|(id, server)| format!("server.{id}={}\n", server.text()));
        format!("{}version={:x}", lines.collect::<String>(), self.version)
    }
}

impl Server {
    fn parse(spec: &str) -> Result<Self, ErrorCode> {
        // Java's `split` drops the empty parts at the end.
        let spec = spec.trim_end_matches(';');
        let (servers, client) = match spec.split_once(';') {
            Some((servers, client)) => (servers, Some(client)),
            None => (spec, None),
        };
        let mut role = None;
        let mut addresses = Vec::new();
        for server in servers.trim_end_matches('|').split('|') {
            let (address, is_observer) = Address::parse(server)?;
            addresses.push(address);
            // The role may follow any of the addresses, and must be the same after all of them.
            if is_observer.is_some() && role.is_some() && role != is_observer {
                return Err(ErrorCode::BAD_ARGUMENTS);
            }
            role = role.or(is_observer);
        }
        let has_several = addresses.len() > 1;
        addresses.sort();
        addresses.dedup();
        let client = match client {
            None => None,
            Some(client) if client.contains(';') => return Err(ErrorCode::BAD_ARGUMENTS),
            Some(client) => Some(match client.rsplit_once(':') {
                None => ("0.0.0.0".to_owned(), port(client)?),
                Some((host, number)) => (host.trim_matches(['[', ']']).to_owned(), port(number)?),
            }),
        };
        Ok(Self { addresses, has_several, is_observer: role == Some(true), client })
    }

    fn text(&self) -> String {
        let role = if self.is_observer { "observer" } else { "participant" };
        let addresses: Vec<_> = self.addresses.iter().map(Address::text).collect();
        let client =
            self.client.as_ref().map(|(host, port)| format!(";{}:{port}", bracketed(host)));
        format!("{}:{role}{}", addresses.join("|"), client.unwrap_or_default())
    }

    /// Returns whether the two servers have an address in common. Addresses that differ between
    /// machines do not count.
    fn collides(&self, other: &Self) -> bool {
        let theirs = other.all_addresses();
        self.all_addresses().iter().any(|address| theirs.contains(address))
    }

    fn all_addresses(&self) -> Vec<(IpAddr, u16)> {
        let client = self.client.iter().map(|(host, port)| (host, *port));
        let ports = |it: &Address| [it.port, it.election_port];
        let peer = self.addresses.iter().flat_map(|it| ports(it).map(|port| (&it.host, port)));
        peer.chain(client)
            .filter_map(|(host, port)| Some((host.parse().ok()?, port)))
            .filter(|(host, _): &(IpAddr, u16)| !host.is_loopback() && !host.is_unspecified())
            .collect()
    }
}

impl Address {
    /// Parses an address, and the role behind it, if there is one: whether it is an observer.
    fn parse(text: &str) -> Result<(Self, Option<bool>), ErrorCode> {
        let malformed = ErrorCode::BAD_ARGUMENTS;
        let parts = match text.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once("]:"),
            None => text.split_once(':'),
        };
        let (host, rest) = parts.ok_or(malformed)?;
        let mut parts = rest.split(':');
        let mut number = || port(parts.next().ok_or(malformed)?);
        let (port, election_port) = (number()?, number()?);
        let is_observer = match parts.next().map(str::to_lowercase).as_deref() {
            None => None,
            Some("participant") => Some(false),
            Some("observer") => Some(true),
            Some(_) => return Err(malformed),
        };
        // Servers refuse a server whose two ports are the same.
        if parts.next().is_some() || port == election_port || host.is_empty() {
            return Err(malformed);
        }
        Ok((Self { host: host.to_owned(), port, election_port }, is_observer))
    }

    fn text(&self) -> String {
        let Self { host, port, election_port } = self;
        format!("{}:{port}:{election_port}", bracketed(host))
    }
}

/// Parses a complete configuration, with one server per line.
fn parse_all(text: &str) -> Result<BTreeMap<i64, Server>, ErrorCode> {
    let mut servers = BTreeMap::new();
    for line in split(text, '\n') {
        let (name, spec) = line.split_once('=').ok_or(ErrorCode::BAD_ARGUMENTS)?;
        if name.trim() == "version" {
            continue;
        }
        let id = name.trim().strip_prefix("server.").ok_or(ErrorCode::BAD_ARGUMENTS)?;
        let server = Server::parse(spec.trim())?;
        servers.insert(number(id)?, server);
    }
    Ok(servers)
}

/// Splits as ZooKeeper does: without spaces around the parts, and without empty parts.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    text.split(separator).map(str::trim).filter(|part| !part.is_empty())
}

/// Parses the id of a server. Servers fail in an unusual way if it is not a number.
fn number(text: &str) -> Result<i64, ErrorCode> {
    text.parse().map_err(|_| ErrorCode::MARSHALLING_ERROR)
}

/// Parses a port. Servers fail in an unusual way if the number is out of range.
fn port(text: &str) -> Result<u16, ErrorCode> {
    let number = text.parse::<i32>().map_err(|_| ErrorCode::BAD_ARGUMENTS)?;
    u16::try_from(number).map_err(|_| ErrorCode::MARSHALLING_ERROR)
}

fn voters(servers: &BTreeMap<i64, Server>) -> usize {
    servers.values().filter(|server| !server.is_observer).count()
}

/// Returns a host as servers print it: an IPv6 address in brackets, with all of its groups.
fn bracketed(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{}]", address.segments().map(|it| format!("{it:x}")).join(":")),
        Err(_) => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_printed_completely() {
        for (spec, text) in [
            ("a:1:2", Some("a:1:2:participant")),
            ("a:1:2;2181", Some("a:1:2:participant;0.0.0.0:2181")),
            ("a:1:2:observer;b:2181", Some("a:1:2:observer;b:2181")),
            (
                "[::1]:1:2:PARTICIPANT;[::]:2181",
                Some("[0:0:0:0:0:0:0:1]:1:2:participant;[0:0:0:0:0:0:0:0]:2181"),
            ),
            ("b:3:4|a:1:2;2181", Some("a:1:2|b:3:4:participant;0.0.0.0:2181")),
            ("b:3:4:observer|a:1:2", Some("a:1:2|b:3:4:observer")),
            ("a:1:2|a:1:2", Some("a:1:2:participant")),
            ("a:1:2:observer|b:1:2:participant", None),
            ("a:1:2|", Some("a:1:2:participant")),
            ("a:1:2;", Some("a:1:2:participant")),
            // Only servers since 3.10 have addresses for clients with TLS here.
            ("a:1:2;2181;2281", None),
            ("a:1:2;;s:2281", None),
            ("|a:1:2", None),
            ("a:1:1", None),
            ("a:1:2|b:3:3", None),
            ("a", None),
            ("a:1", None),
            ("a:1:x", None),
            ("a:1:70000", None),
            ("a:1:2:leader", None),
            ("a:1:2:observer:3", None),
            ("a:1:2;x", None),
            ("a:1:2;b:x", None),
        ] {
            let parsed = Server::parse(spec).ok().map(|server| server.text());
            assert_eq!(parsed.as_deref(), text, "{spec}");
        }
    }

    #[test]
    fn a_port_that_is_no_port_is_told_from_one_that_is_no_number() {
        let error = |spec| Server::parse(spec).unwrap_err();
        for spec in ["a:1:70000", "a:-1:2", "a:1:2;70000"] {
            assert_eq!(error(spec), ErrorCode::MARSHALLING_ERROR, "{spec}");
        }
        for spec in ["a:1:x", "a:1:", "a:1:2;x", "a:1:2;2181;2281"] {
            assert_eq!(error(spec), ErrorCode::BAD_ARGUMENTS, "{spec}");
        }
    }

    #[test]
    fn only_addresses_that_mean_the_same_on_every_machine_collide() {
        let collide = |left: &str, right: &str| {
            Server::parse(left).unwrap().collides(&Server::parse(right).unwrap())
        };
        assert!(collide("10.0.0.1:1:2;3", "10.0.0.1:4:1;5"));
        assert!(collide("10.0.0.1:1:2;3", "10.0.0.2:4:1;10.0.0.1:2"));
        assert!(collide("10.0.0.1:1:2;3", "10.0.0.2:1:2|10.0.0.1:4:1;3"));
        assert!(!collide("10.0.0.1:1:2;3", "10.0.0.2:1:2;3"));
        assert!(!collide("127.0.0.1:1:2;3", "127.0.0.1:1:2;3"));
        assert!(!collide("a:1:2;3", "a:1:2;3"));
    }
}
