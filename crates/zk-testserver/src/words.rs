//! Four-letter words: questions in plain text, asked with the first four bytes of a connection.

use crate::server::Server;

/// Words that real servers know but this one does not answer.
const UNANSWERED: [&[u8; 4]; 15] = [
    b"conf", b"cons", b"crst", b"dirs", b"dump", b"envi", b"gtmk", b"hash", b"lead", b"srst",
    b"stat", b"stmk", b"wchc", b"wchp", b"wchs",
];

/// The answer, after which the connection ends; `None` if this is no word.
pub(crate) fn answer(server: &Server, word: [u8; 4]) -> Option<String> {
    Some(match &word {
        b"ruok" => "imok".to_owned(),
        b"isro" => "rw".to_owned(),
        b"srvr" => format!(
            "Zookeeper version: zk-testserver\nLatency min/avg/max: 0/0.0/0\nReceived: 0\nSent: 0\n\
             Connections: {}\nOutstanding: 0\nZxid: {:#x}\nMode: standalone\nNode count: {}\n",
            server.connection_count(),
            server.zxid(),
            node_count(server),
        ),
        b"mntr" => format!(
            "zk_version\tzk-testserver\nzk_server_state\tstandalone\nzk_num_alive_connections\t{}\n\
             zk_znode_count\t{}\nzk_watch_count\t{}\nzk_ephemerals_count\t{}\n",
            server.connection_count(),
            node_count(server),
            server.watch_count(),
            server.tree().ephemerals().count(),
        ),
        word if UNANSWERED.contains(&word) => format!(
            "{} is not executed because it is not in the whitelist.\n",
            String::from_utf8_lossy(word)
        ),
        _ => return None,
    })
}

/// Real servers count the root twice.
fn node_count(server: &Server) -> usize {
    server.tree().len() + 1
}
