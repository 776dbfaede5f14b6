//! Four-letter words: questions in plain text, asked with the first four bytes of a connection.

use crate::config::Version;
use crate::server::Server;

/// Words that real servers know but this one does not answer.
const UNANSWERED: [&[u8; 4]; 13] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"gtmk", b"hash", b"lead", b"srst", b"stmk",
    b"wchc", b"wchp", b"wchs",
];

/// The answer, after which the connection ends; `None` if this is no word.
pub(crate) fn answer(server: &Server, word: [u8; 4]) -> Option<String> {
    Some(match &word {
        b"ruok" => "imok".to_owned(),
        b"isro" => "rw".to_owned(),
        b"envi" => format!("Environment:\nzookeeper.version={}\n", version(server)),
        b"srvr" => format!("Zookeeper version: {}\n{}", version(server), figures(server)),
        b"stat" => {
            format!("Zookeeper version: {}\nClients:\n\n{}", version(server), figures(server))
        }
        b"mntr" => monitor(server),
        word if UNANSWERED.contains(&word) => format!(
            "{} is not executed because it is not in the whitelist.\n",
            String::from_utf8_lossy(word)
        ),
        _ => return None,
    })
}

/// In the form of real servers, since clients and tools read numbers out of it.
fn version(server: &Server) -> String {
    let number = match server.version() {
        Version::V3_8 => "3.8.0",
        Version::V3_9 => "3.9.3",
    };
    format!("{number}-zk-testserver, built on 1970-01-01 00:00 UTC")
}

fn figures(server: &Server) -> String {
    format!(
        "Latency min/avg/max: 0/0.0/0\nReceived: 0\nSent: 0\nConnections: {}\nOutstanding: 0\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {}\n",
        server.connection_count(),
        server.zxid(),
        node_count(server),
    )
}

/// What common monitors ask for. They add up packets and latencies, which are not measured here.
fn monitor(server: &Server) -> String {
    let tree = server.tree();
    let lines = [
        ("version", version(server)),
        ("server_state", "standalone".to_owned()),
        ("ephemerals_count", tree.ephemerals().count().to_string()),
        ("num_alive_connections", server.connection_count().to_string()),
        ("avg_latency", "0.0".to_owned()),
        ("min_latency", "0".to_owned()),
        ("max_latency", "0".to_owned()),
        ("outstanding_requests", "0".to_owned()),
        ("packets_received", "0".to_owned()),
        ("packets_sent", "0".to_owned()),
        ("znode_count", node_count(server).to_string()),
        ("watch_count", server.watch_count().to_string()),
        ("approximate_data_size", tree.data_size().to_string()),
        ("global_sessions", server.sessions().len().to_string()),
        ("local_sessions", "0".to_owned()),
    ];
    lines.into_iter().map(|(key, value)| format!("zk_{key}\t{value}\n")).collect()
}

/// Real servers count the root twice.
fn node_count(server: &Server) -> usize {
    server.tree().len() + 1
}
