//! Requests that change the members of the ensemble.

use std::str::FromStr as _;

use bytestring::ByteString;
use jute_codec::ReconfigRequest;

use super::config::{ConfigVersion, EnsembleConfig};
use super::member::Member;

/// The value of the protocol that matches every version of the configuration.
const ANY_VERSION: i64 = -1;

/// A change of the members of the ensemble; see [`Client::reconfig`](crate::Client::reconfig).
///
/// ```
/// use zk_session::{ConfigVersion, Host, Member, Reconfig};
///
/// let joining = Member::new(4, "zk4", 2888, 3888).client(Host { name: "0.0.0.0".into(), port: 2181 });
/// let change = Reconfig::incremental().join(joining).leave(1).expect_version(ConfigVersion(0x100000000));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a change does nothing until it is sent"]
pub struct Reconfig {
    change: Change,
    version: Option<ConfigVersion>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Change {
    Complete(String),
    Incremental { joining: Vec<Member>, leaving: Vec<u64> },
}

impl Reconfig {
    /// Starts a change of single servers: those that [`join`](Self::join) and those that
    /// [`leave`](Self::leave). The others stay. Servers with groups or weights (hierarchical
    /// quorums) refuse it.
    pub fn incremental() -> Self {
        let change = Change::Incremental { joining: Vec::new(), leaving: Vec::new() };
        Self { change, version: None }
    }

    /// Replaces all servers by these.
    pub fn complete(members: impl IntoIterator<Item = Member>) -> Self {
        let members = members.into_iter().map(|member| member.to_string());
        Self::complete_text(members.collect::<Vec<_>>().join(","))
    }

    /// Replaces the configuration by this text, whose lines may also be separated by commas. This is
    /// for groups and weights; prefer [`complete`](Self::complete) otherwise.
    pub fn complete_text(text: impl Into<String>) -> Self {
        Self { change: Change::Complete(text.into()), version: None }
    }

    /// Adds a server, or changes the server with this id. Has no effect on a complete change.
    pub fn join(mut self, member: Member) -> Self {
        if let Change::Incremental { joining, .. } = &mut self.change {
            joining.push(member);
        }
        self
    }

    /// Removes the server with this id. Has no effect on a complete change.
    pub fn leave(mut self, id: u64) -> Self {
        if let Change::Incremental { leaving, .. } = &mut self.change {
            leaving.push(id);
        }
        self
    }

    /// Makes the change fail with `BAD_VERSION` unless the configuration has this version.
    pub fn expect_version(mut self, version: ConfigVersion) -> Self {
        self.version = Some(version);
        self
    }

    /// Returns the version that the configuration must have, if the change
    /// [expects](Self::expect_version) one.
    pub fn expected_version(&self) -> Option<ConfigVersion> {
        self.version
    }

    /// Returns whether the servers of a configuration are as this change makes them: each server that
    /// joins is there, as it was described, and none that leaves; or, for a complete change, there are
    /// the given servers, and no others. Another change may have had the same result.
    pub fn is_in_force(&self, config: &EnsembleConfig) -> bool {
        // Servers sort the addresses of each server.
        let sorted = |member: &Member| {
            let mut member = member.clone();
            member.addresses.sort_by(|one, other| one.host.cmp(&other.host));
            member
        };
        let has =
            |member: &Member| config.members.iter().any(|other| sorted(other) == sorted(member));
        match &self.change {
            Change::Incremental { joining, leaving } => {
                let joins = |id: u64| joining.iter().any(|member| member.id == id);
                let is_gone =
                    |id: &u64| joins(*id) || config.members.iter().all(|member| member.id != *id);
                joining.iter().all(has) && leaving.iter().all(is_gone)
            }
            Change::Complete(text) => {
                let mut lines =
                    text.split([',', '\n']).map(str::trim).filter(|line| !line.is_empty());
                let mut members = 0;
                let is_there = |line: &str| match Member::from_str(line) {
                    Ok(member) => {
                        members += 1;
                        has(&member)
                    }
                    Err(_) => config.others.iter().any(|other| other == line),
                };
                lines.all(is_there) && members == config.members.len()
            }
        }
    }

    pub(crate) fn into_request(self) -> ReconfigRequest {
        let config_id = self.version.map_or(ANY_VERSION, |version| version.0);
        match self.change {
            Change::Complete(text) => ReconfigRequest {
                joining_servers: None,
                leaving_servers: None,
                new_members: Some(text.into()),
                config_id,
            },
            Change::Incremental { joining, leaving } => ReconfigRequest {
                joining_servers: list(joining),
                leaving_servers: list(leaving),
                new_members: None,
                config_id,
            },
        }
    }
}

/// Joins the elements with commas. Servers treat a list that is missing as empty.
fn list<T: ToString>(elements: Vec<T>) -> Option<ByteString> {
    if elements.is_empty() {
        return None;
    }
    let elements = elements.iter().map(ToString::to_string);
    Some(elements.collect::<Vec<_>>().join(",").into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jute_codec::Record as _;

    use super::*;

    #[test]
    fn requests_have_the_texts_of_the_servers_own_client() {
        let member = |id| Member::new(id, "h", 1, 2);
        let incremental = Reconfig::incremental().join(member(4)).join(member(5)).leave(1).leave(2);
        let request = incremental.expect_version(ConfigVersion(7)).into_request();
        let joining = "server.4=h:1:2:participant,server.5=h:1:2:participant";
        assert_eq!(request.joining_servers.as_deref(), Some(joining));
        assert_eq!(request.leaving_servers.as_deref(), Some("1,2"));
        assert_eq!((request.new_members, request.config_id), (None, 7));

        let request = Reconfig::complete([member(4)]).into_request();
        assert_eq!(request.new_members.as_deref(), Some("server.4=h:1:2:participant"));
        assert_eq!((request.joining_servers, request.leaving_servers), (None, None));
        assert_eq!(request.config_id, -1);
    }

    #[test]
    fn a_change_is_in_force_if_the_servers_are_as_it_makes_them() {
        let member = |id| Member::new(id, "h", 1, 2);
        let mut zeros = jute_codec::Reader::new(Bytes::from_static(&[0; 68]));
        let stat = jute_codec::Stat::decode(&mut zeros).unwrap();
        let text = "server.1=h:1:2:participant\nserver.2=h:1:2:participant\nweight.1=2\nversion=7";
        let config = EnsembleConfig::read(&Bytes::from(text), stat.into());
        let is_in_force = |change: Reconfig| change.is_in_force(&config);
        assert!(is_in_force(Reconfig::incremental().join(member(2)).leave(3)));
        assert!(!is_in_force(Reconfig::incremental().join(member(2)).leave(1)));
        assert!(!is_in_force(Reconfig::incremental().join(member(2).observer())));
        assert!(is_in_force(Reconfig::complete([member(2), member(1)])));
        assert!(!is_in_force(Reconfig::complete([member(1)])), "there is another server");
        assert!(!is_in_force(Reconfig::complete([member(1), member(3)])));
        let lines = "server.1=h:1:2:participant\nserver.2=h:1:2\n";
        assert!(is_in_force(Reconfig::complete_text(format!("{lines}weight.1=2"))));
        assert!(!is_in_force(Reconfig::complete_text(format!("{lines}weight.1=3"))));
    }
}
