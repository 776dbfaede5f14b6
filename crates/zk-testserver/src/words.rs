//! Four-letter words: plain-text commands that a client sends as the first four bytes of a
//! connection.

use jute_codec::Zxid;

use crate::version::ServerVersion;

/// The figures of a server that the replies report.
pub(crate) struct Figures {
    pub(crate) version: ServerVersion,
    /// The role in the ensemble, as the replies name it.
    pub(crate) mode: &'static str,
    pub(crate) zxid: Zxid,
    /// Number of open connections, with or without a session.
    pub(crate) connections: usize,
    pub(crate) sessions: usize,
    pub(crate) watches: usize,
    pub(crate) nodes: usize,
    pub(crate) ephemerals: usize,
    /// Number of bytes in all paths and data.
    pub(crate) data_size: usize,
}

/// The mode of a partitioned server.
pub(crate) const READ_ONLY: &str = "read-only";

/// Words that real servers know but this one refuses.
const REFUSED: [&[u8; 4]; 13] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"gtmk", b"hash", b"lead", b"srst", b"stmk",
    b"wchc", b"wchp", b"wchs",
];

/// Returns the reply to a word, after which the connection is closed, or `None` if the bytes are
/// not such a word.
pub(crate) fn reply(word: [u8; 4], figures: impl Fn() -> Figures) -> Option<String> {
    Some(match &word {
        b"ruok" => "imok".to_owned(),
        b"isro" if figures().mode == READ_ONLY => "ro".to_owned(),
        b"isro" => "rw".to_owned(),
        b"envi" => format!("Environment:\nzookeeper.version={}\n", version(&figures())),
        b"srvr" => summary("", &figures()),
        b"stat" => summary("Clients:\n\n", &figures()),
        b"mntr" => monitor(&figures()),
        word if REFUSED.contains(&word) => format!(
            "{} is not executed because it is not in the whitelist.\n",
            String::from_utf8_lossy(word)
        ),
        _ => return None,
    })
}

/// Formats the version as real servers do, because clients and tools parse numbers from it.
fn version(figures: &Figures) -> String {
    let number = figures.version.number();
    if figures.version.is_keeper() {
        return format!("{number}-zk-testserver");
    }
    format!("{number}-zk-testserver, built on 1970-01-01 00:00 UTC")
}

fn summary(clients: &str, figures: &Figures) -> String {
    format!(
        "{} version: {}\n{clients}Latency min/avg/max: 0/0.0/0\nReceived: 0\nSent: 0\n\
         Connections: {}\nOutstanding: 0\nZxid: {}\nMode: {}\nNode count: {}\n",
        if figures.version.is_keeper() { "ClickHouse Keeper" } else { "Zookeeper" },
        version(figures),
        figures.connections,
        figures.zxid,
        figures.mode,
        figures.nodes,
    )
}

/// Formats the figures that common monitoring tools read. Latencies and packets are not measured.
/// They are included because monitoring tools add them up.
fn monitor(figures: &Figures) -> String {
    let lines = [
        ("version", version(figures)),
        ("server_state", figures.mode.to_owned()),
        ("ephemerals_count", figures.ephemerals.to_string()),
        ("num_alive_connections", figures.connections.to_string()),
        ("avg_latency", "0.0".to_owned()),
        ("min_latency", "0".to_owned()),
        ("max_latency", "0".to_owned()),
        ("outstanding_requests", "0".to_owned()),
        ("packets_received", "0".to_owned()),
        ("packets_sent", "0".to_owned()),
        ("znode_count", figures.nodes.to_string()),
        ("watch_count", figures.watches.to_string()),
        ("approximate_data_size", figures.data_size.to_string()),
        ("global_sessions", figures.sessions.to_string()),
        ("local_sessions", "0".to_owned()),
    ];
    lines.into_iter().map(|(key, value)| format!("zk_{key}\t{value}\n")).collect()
}
