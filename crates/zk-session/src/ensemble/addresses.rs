//! The addresses at which a client can reach the servers of a configuration.

use std::fmt;

use super::config::EnsembleConfig;
use super::member::Member;
use crate::connect_string::ConnectString;
use crate::host::Host;

/// Maximum number of addresses that are used. Ids of servers are usually below 256, and a server that
/// publishes more is not to be trusted with the memory and the log of each client.
const HOSTS_MAX: usize = 256;
/// Maximum length of a name, which is that of DNS.
const NAME_MAX: usize = 253;
/// Maximum length of what a line calls its server, in the log.
const SERVER_MAX: usize = 32;
/// Maximum number of servers that are named as unusable.
const NAMED_MAX: usize = 8;

/// What a client knows about its own connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Vantage {
    /// It uses the servers' port for TLS.
    is_secure: bool,
    /// The port of all servers of the connect string, if they have the same.
    port: Option<u16>,
    /// Servers of the connect string are on the client's machine, so others may be there too.
    has_loopback: bool,
}

/// The servers of a configuration that a client can use, and why it cannot use the others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Addresses {
    pub(crate) hosts: Vec<Host>,
    /// The first of those that it cannot use.
    unusable: Vec<Unusable>,
    unusable_total: usize,
}

/// A server that a client cannot use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Unusable {
    /// The server as its line calls it.
    server: String,
    why: Why,
}

/// Why a client cannot use a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    Loopback,
    Malformed,
    NoClientAddress,
    NoSecureAddress,
    TooMany,
    Wildcard,
}

impl Vantage {
    /// Returns that of a client whose connect string has these servers.
    pub(crate) fn new(given: &[Host], is_secure: bool) -> Self {
        let port = given.first().map(|host| host.port);
        Self {
            is_secure,
            port: port.filter(|port| given.iter().all(|host| host.port == *port)),
            has_loopback: given.iter().any(Host::is_loopback),
        }
    }
}

impl Addresses {
    /// Returns the addresses for clients of the servers of a configuration, each once.
    pub(crate) fn of(config: &EnsembleConfig, vantage: &Vantage) -> Self {
        let mut this = Self::default();
        for member in &config.members {
            match usable(member, vantage) {
                Ok(hosts) => this.add(member.id, hosts),
                Err(why) => this.refuse(format!("server.{}", member.id), why),
            }
        }
        for line in config.others.iter().filter(|line| line.trim_start().starts_with("server.")) {
            let name = line.split('=').next().unwrap_or_default().trim();
            let is_name = name.len() <= SERVER_MAX && name.bytes().all(|it| it.is_ascii_graphic());
            this.refuse(if is_name { name } else { "a server" }.to_owned(), Why::Malformed);
        }
        this
    }

    fn add(&mut self, id: u64, hosts: Vec<Host>) {
        for host in hosts {
            if self.hosts.contains(&host) {
                continue;
            }
            if self.hosts.len() == HOSTS_MAX {
                return self.refuse(format!("server.{id}"), Why::TooMany);
            }
            self.hosts.push(host);
        }
    }

    fn refuse(&mut self, server: String, why: Why) {
        self.unusable_total += 1;
        if self.unusable.len() < NAMED_MAX {
            self.unusable.push(Unusable { server, why });
        }
    }

    /// Returns which servers the client cannot use, and why; empty if it can use all of them.
    pub(crate) fn reasons(&self) -> String {
        let mut reasons: Vec<_> = self.unusable.iter().map(ToString::to_string).collect();
        let others = self.unusable_total - reasons.len();
        if others > 0 {
            reasons.push(format!("and {others} more"));
        }
        reasons.join("; ")
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.server,
            match self.why {
                Why::Loopback => "listens for clients of its own machine only",
                Why::Malformed => "has a line that cannot be read",
                Why::NoClientAddress => "has no address for clients",
                Why::NoSecureAddress => {
                    "has no address for clients with TLS, and the servers of the connect string have \
                 different ports"
                }
                Why::TooMany => "is one too many",
                Why::Wildcard => "has only addresses such as 0.0.0.0",
            }
        )
    }
}

/// Returns where a client can reach a server. If the server listens for clients on all of its
/// addresses, these are the ones at which other servers reach it.
fn usable(member: &Member, vantage: &Vantage) -> Result<Vec<Host>, Why> {
    let address = if vantage.is_secure {
        // Before 3.10, configurations cannot name the port for TLS, and it is usually the same
        // everywhere.
        let usual = |client: &Host| Some(Host { port: vantage.port?, ..client.clone() });
        let secure = member.secure_client.clone();
        secure.or_else(|| usual(member.client.as_ref()?)).ok_or(Why::NoSecureAddress)?
    } else {
        member.client.clone().ok_or(Why::NoClientAddress)?
    };
    let mut hosts = vec![address];
    if hosts.iter().any(Host::is_wildcard) {
        let port = hosts.iter().map(|host| host.port).next().unwrap_or_default();
        let peers = member.addresses.iter();
        hosts = peers.map(|peer| Host { name: peer.host.clone(), port }).collect();
        hosts.retain(|host| !host.is_wildcard());
        if hosts.is_empty() {
            return Err(Why::Wildcard);
        }
    }
    if !vantage.has_loopback {
        hosts.retain(|host| !host.is_loopback());
        if hosts.is_empty() {
            return Err(Why::Loopback);
        }
    }
    if hosts.iter().all(is_valid) { Ok(hosts) } else { Err(Why::Malformed) }
}

/// Returns whether a connect string could name this server.
fn is_valid(host: &Host) -> bool {
    if host.name.len() > NAME_MAX || host.name.contains(char::is_control) {
        return false;
    }
    let parsed = host.to_string().parse::<ConnectString>();
    parsed.is_ok_and(|parsed| parsed.hosts == [host.clone()] && parsed.chroot.as_str().is_empty())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jute_codec::Record as _;
    use proptest::prelude::*;

    use super::*;

    fn config(text: &str) -> EnsembleConfig {
        let mut zeros = jute_codec::Reader::new(Bytes::from_static(&[0; 68]));
        let stat = jute_codec::Stat::decode(&mut zeros).unwrap().into();
        EnsembleConfig::read(&Bytes::from(text.to_owned()), stat)
    }

    fn vantage(given: &str, is_secure: bool) -> Vantage {
        Vantage::new(&given.parse::<ConnectString>().unwrap().hosts, is_secure)
    }

    /// Returns the usable servers, and the reasons why others are not.
    fn addresses(text: &str, vantage: &Vantage) -> (String, String) {
        let found = Addresses::of(&config(text), vantage);
        let hosts: Vec<_> = found.hosts.iter().map(ToString::to_string).collect();
        (hosts.join(","), found.reasons())
    }

    #[test]
    fn each_form_of_an_address_for_clients_is_used_or_refused_with_a_reason() {
        let plain = vantage("zk1,zk2", false);
        for (text, expected) in [
            ("server.1=a:1:2:participant;c:2181", "c:2181"),
            ("server.1=a:1:2:observer;0.0.0.0:2181", "a:2181"),
            ("server.1=a:1:2;2182", "a:2182"),
            ("server.1=[fd00::1]:1:2:participant;[::]:2181", "[fd00::1]:2181"),
            ("server.1=a:1:2|b:1:2:participant;0.0.0.0:2181", "a:2181,b:2181"),
            ("server.1=0.0.0.0:1:2|b:1:2:participant;0.0.0.0:2181", "b:2181"),
            ("server.1=127.0.0.1:1:2|b:1:2:participant;0.0.0.0:2181", "b:2181"),
            ("server.1=a:1:2;2181\nserver.2=a:3:4;2181\nserver.3=b:1:2;2181", "a:2181,b:2181"),
            ("server.1=a:1:2|a:3:4;2181", "a:2181"),
            ("server.1=a:1:2:participant;c:2181;d:2281", "c:2181"),
            ("group.1=1:2\nweight.1=1\nserver.1=a:1:2;2181", "a:2181"),
        ] {
            assert_eq!(addresses(text, &plain), (expected.to_owned(), String::new()), "{text}");
        }
        for (line, reason) in [
            ("server.1=a:1:2:participant", "server.1 has no address for clients"),
            ("server.1=a:1:2:participant;;s:2281", "server.1 has no address for clients"),
            ("server.1=0.0.0.0:1:2;2181", "server.1 has only addresses such as 0.0.0.0"),
            (
                "server.1=a:1:2;127.0.0.1:2181",
                "server.1 listens for clients of its own machine only",
            ),
            ("server.1=localhost:1:2;2181", "server.1 listens for clients of its own machine only"),
            ("server.1=a:1:2;c:0", "server.1 has a line that cannot be read"),
            ("server.1=a:1:2;c/d:1", "server.1 has a line that cannot be read"),
            ("server.1=a,b:1:2;2181", "server.1 has a line that cannot be read"),
            ("server.1=a:1", "server.1 has a line that cannot be read"),
            ("server.x=a:1:2;2181", "server.x has a line that cannot be read"),
        ] {
            assert_eq!(addresses(line, &plain), (String::new(), reason.to_owned()), "{line}");
            let more = format!("{line}\nserver.7=g:1:2;2181");
            assert_eq!(addresses(&more, &plain), ("g:2181".to_owned(), reason.to_owned()));
        }
    }

    #[test]
    fn what_is_used_and_logged_of_a_configuration_is_bounded() {
        let plain = vantage("zk1,zk2", false);
        let name = |length| "a".repeat(length);
        let long = format!("server.1={}:1:2;2181\nserver.2={}:1:2;2181", name(253), name(254));
        let reason = "server.2 has a line that cannot be read";
        assert_eq!(addresses(&long, &plain), (format!("{}:2181", name(253)), reason.to_owned()));
        for line in [format!("server.{}=", name(1_000_000)), "server.\u{1b}[31m".to_owned()] {
            let reason = "a server has a line that cannot be read";
            assert_eq!(addresses(&line, &plain), (String::new(), reason.to_owned()));
        }
        let unprintable = addresses("server.1=a\u{1b}[31m:1:2;2181", &plain);
        assert_eq!(unprintable.0, "");

        let many: Vec<_> = (0..50_000).map(|id| format!("server.{id}=a{id}:1:2;2181")).collect();
        let found = Addresses::of(&config(&many.join("\n")), &plain);
        assert_eq!(found.hosts.len(), HOSTS_MAX);
        let (first, rest) =
            found.reasons().split_once("; ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(first, "server.256 is one too many");
        assert!(rest.ends_with("; and 49736 more") && rest.len() < 500, "{rest}");
    }

    #[test]
    fn loopback_is_for_clients_that_have_found_a_server_there() {
        let text = "server.1=localhost:1:2;127.0.0.1:2181\nserver.2=[::1]:1:2;[::]:2182";
        for given in ["localhost", "127.0.0.1:2181,zk2", "[::1]"] {
            let found = addresses(text, &vantage(given, false));
            assert_eq!(found, ("127.0.0.1:2181,[::1]:2182".to_owned(), String::new()));
        }
    }

    #[test]
    fn clients_with_tls_use_the_secure_port_or_that_of_the_connect_string() {
        let text = "server.1=a:1:2:participant;0.0.0.0:2181\nserver.2=b:1:2;2181;0.0.0.0:2999\n\
                    server.3=c:1:2:participant;;d:2888";
        let found = addresses(text, &vantage("zk1:2281,zk2:2281", true));
        assert_eq!(found, ("a:2281,b:2999,d:2888".to_owned(), String::new()));
        let (hosts, unusable) = addresses(text, &vantage("zk1:2281,zk2:2282", true));
        assert_eq!(hosts, "b:2999,d:2888");
        assert!(unusable.starts_with("server.1 has no address for clients with TLS"), "{unusable}");
    }

    proptest! {
        #[test]
        fn no_text_of_a_server_gives_an_address_that_a_connect_string_could_not_have(
            text in "((server\\.[0-9]{1,2}=)?[a-c0-9\\[\\]:;|., /=\u{e9}-]{0,30}(participant|observer)?(;[a-c0-9.:]{0,9}){0,3}\n){0,4}(version=[0-9a-fx]{0,17})?",
            is_secure: bool,
        ) {
            let found = Addresses::of(&config(&text), &vantage("zk1,zk2", is_secure));
            for (at, host) in found.hosts.iter().enumerate() {
                prop_assert!(is_valid(host) && !host.is_wildcard() && !host.is_loopback());
                prop_assert!(!found.hosts[..at].contains(host), "{host} twice");
            }
        }

        #[test]
        fn what_a_member_writes_is_read_as_the_same_member(
            id: u64,
            hosts in prop::collection::vec(("[a-z0-9.-]{1,9}|fd00::[1-9]", 1_u16.., 1_u16..), 1..4),
            is_observer: bool,
            client in prop::option::of(("[a-z0-9.-]{1,9}|::", 1_u16..)),
            secure in prop::option::of(("[a-z0-9.-]{1,9}|::", 1_u16..)),
        ) {
            let host = |(name, port): (String, u16)| Host { name, port };
            let [(first, quorum, election), others @ ..] = &hosts[..] else { unreachable!() };
            let mut member = Member::new(id, first, *quorum, *election);
            for (name, quorum, election) in others {
                member = member.address(name, *quorum, *election);
            }
            member = if is_observer { member.observer() } else { member };
            member = client.into_iter().fold(member, |member, it| member.client(host(it)));
            member = secure.into_iter().fold(member, |member, it| member.secure_client(host(it)));
            prop_assert_eq!(member.to_string().parse(), Ok(member));
        }
    }
}
