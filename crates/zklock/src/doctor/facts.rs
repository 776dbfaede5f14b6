//! What the replies of a server say: numbers and words, each of which may be missing.

use std::fmt;
use std::time::Duration;

use super::words::{Answer, Server};

/// The number of a release.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Release(pub(super) u32, pub(super) u32, pub(super) u32);

/// What one server says of itself. `None` means that it has not said so.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Facts {
    pub(super) release: Option<Release>,
    /// `leader`, `follower`, `observer`, `standalone` or `read-only`.
    pub(super) mode: Option<String>,
    pub(super) outstanding: Option<u64>,
    pub(super) tick: Option<Duration>,
    pub(super) timeout_min: Option<Duration>,
    pub(super) timeout_max: Option<Duration>,
    /// Connections from one address; zero if they are not limited.
    pub(super) connections_per_host: Option<u64>,
    pub(super) descriptors: Option<(u64, u64)>,
    /// How often the server has found that its data differ from those of the leader.
    pub(super) digest_mismatches: Option<u64>,
    /// Followers that have joined the leader, and those that the ensemble should have.
    pub(super) followers: Option<(u64, u64)>,
}

impl Facts {
    pub(super) fn of(server: &Server) -> Self {
        let srvr = |key: &str| field(&server.srvr, key);
        let conf = |key: &str| field(&server.conf, key).and_then(|it| it.parse::<u64>().ok());
        let mntr = |key: &str| field(&server.mntr, key).and_then(|it| it.parse::<u64>().ok());
        let size = mntr("zk_quorum_size\t").filter(|size| *size > 0);
        Self {
            release: srvr("Zookeeper version: ").and_then(Release::parse),
            mode: srvr("Mode: ").map(str::to_owned),
            outstanding: srvr("Outstanding: ").and_then(|it| it.parse().ok()),
            tick: conf("tickTime=").map(Duration::from_millis),
            timeout_min: conf("minSessionTimeout=").map(Duration::from_millis),
            timeout_max: conf("maxSessionTimeout=").map(Duration::from_millis),
            connections_per_host: conf("maxClientCnxns="),
            descriptors: mntr("zk_open_file_descriptor_count\t")
                .zip(mntr("zk_max_file_descriptor_count\t")),
            digest_mismatches: mntr("zk_digest_mismatches_count\t"),
            followers: mntr("zk_synced_followers\t").zip(size.map(|size| size - 1)),
        }
    }
}

/// Returns the rest of the line that begins with a key.
fn field<'a>(answer: &'a Answer, key: &str) -> Option<&'a str> {
    let Answer::Text(text) = answer else { return None };
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

impl Release {
    /// Parses the number at the beginning, as in `3.8.0-5a02a05, built on …`.
    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text.get(..end)?.split('.').map(|it| it.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}.{}", self.0, self.1, self.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_real_servers_are_understood() {
        let text = |text: &str| Answer::Text(text.to_owned());
        let facts = Facts::of(&Server {
            name: "zk1:2181".to_owned(),
            srvr: text(
                "Zookeeper version: 3.9.3-c26634f34490bb0ea7a09cc51e05ede3b4e320ee, built on \
                 2024-10-17 23:21 UTC\nLatency min/avg/max: 0/0.5/3\nReceived: 6\nSent: 5\n\
                 Connections: 1\nOutstanding: 7\nZxid: 0x100000003\nMode: leader\nNode count: 5\n",
            ),
            conf: text(
                "clientPort=2181\nsecureClientPort=-1\ndataDir=/data/version-2\ntickTime=2000\n\
                 maxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\nserverId=1\n",
            ),
            mntr: text(
                "zk_version\t3.9.3\nzk_quorum_size\t3\nzk_synced_followers\t1\n\
                 zk_open_file_descriptor_count\t60\nzk_max_file_descriptor_count\t1024\n\
                 zk_digest_mismatches_count\t0\n",
            ),
        });
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let expected = Facts {
            release: Some(Release(3, 9, 3)),
            mode: Some("leader".to_owned()),
            outstanding: Some(7),
            tick: seconds(2),
            timeout_min: seconds(4),
            timeout_max: seconds(40),
            connections_per_host: Some(60),
            descriptors: Some((60, 1024)),
            digest_mismatches: Some(0),
            followers: Some((1, 2)),
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_missing_or_no_number_is_not_known() {
        let server = Server {
            name: String::new(),
            srvr: Answer::Text("Mode: leader\nZookeeper version: unknown\n".to_owned()),
            conf: Answer::NotAllowed,
            mntr: Answer::Text("zk_quorum_size\t-1\nzk_synced_followers\t0\n".to_owned()),
        };
        let mode = Some("leader".to_owned());
        assert_eq!(Facts::of(&server), Facts { mode, ..Facts::default() });
    }
}
