//! The configuration of the ensemble, as its servers publish it.

use std::fmt;
use std::str::FromStr as _;

use bytes::Bytes;

use super::member::Member;
use crate::types::Stat;

/// The version of a configuration: the transaction that made it, as a number. It is printed in
/// hexadecimal, as servers do.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConfigVersion(pub i64);

impl fmt::Display for ConfigVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The configuration of the ensemble; see [`Client::get_config`](crate::Client::get_config).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct EnsembleConfig {
    /// The servers. Empty for a server that runs alone.
    pub members: Vec<Member>,
    /// The version; `None` for a server that runs alone.
    pub version: Option<ConfigVersion>,
    /// The lines that describe neither a server nor the version, such as groups and weights.
    pub others: Vec<String>,
    /// The metadata of the znode that has the configuration.
    pub stat: Stat,
}

impl EnsembleConfig {
    /// Reads the text of a server. Lines that cannot be read are kept in
    /// [`others`](Self::others), because newer servers may write new kinds of lines.
    pub(crate) fn read(text: &Bytes, stat: Stat) -> Self {
        let mut config = Self { members: Vec::new(), version: None, others: Vec::new(), stat };
        for line in String::from_utf8_lossy(text).lines() {
            let version = line.strip_prefix("version=");
            let version = version.and_then(|hex| i64::from_str_radix(hex.trim(), 16).ok());
            if let Some(version) = version {
                config.version = Some(ConfigVersion(version));
            } else if let Ok(member) = Member::from_str(line) {
                config.members.push(member);
            } else if !line.trim().is_empty() {
                config.others.push(line.to_owned());
            }
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use jute_codec::Record as _;

    use super::*;

    fn stat() -> Stat {
        let mut zeros = jute_codec::Reader::new(Bytes::from_static(&[0; 68]));
        jute_codec::Stat::decode(&mut zeros).unwrap().into()
    }

    #[test]
    fn the_text_of_a_server_is_read() {
        let text = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                    server.2=b:2888:3888:observer\n\
                    weight.1=2\n\
                    version=1000000ff";
        let config = EnsembleConfig::read(&Bytes::from(text), stat());
        assert_eq!(config.members.iter().map(|member| member.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(config.version, Some(ConfigVersion(0x1_0000_00ff)));
        assert_eq!(config.version.unwrap().to_string(), "1000000ff");
        assert_eq!(config.others, ["weight.1=2"]);
    }

    #[test]
    fn a_server_that_runs_alone_has_no_members() {
        let config = EnsembleConfig::read(&Bytes::new(), stat());
        assert!(config.members.is_empty() && config.version.is_none() && config.others.is_empty());
    }
}
