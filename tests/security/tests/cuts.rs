//! Cuts the connection at every step of connecting: TLS, the handshake, SASL, auth, setting watches
//! again, and the first requests; once for a new session, and once for a session that is resumed.

#[path = "support/network.rs"]
mod network;
#[path = "support/survival.rs"]
mod survival;

use std::time::Duration;

use network::{Cut, Network};
use survival::{begin, resume};
use zk_session::{Client, ClientBuilder, Clock, Sasl};
use zk_tests::world::run;
use zk_testserver::{ServerConfig, TestServer};

/// More chunks than any exchange has.
const CHUNKS_MAX: usize = 200;

fn server() -> TestServer {
    let config = ServerConfig::default().sasl_user("alice", "alice-secret").sasl_required(true);
    TestServer::start(config)
}

fn client() -> ClientBuilder {
    Client::builder("in-process")
        .clock(Clock::tokio())
        .seed(1)
        .sasl(Sasl::digest_md5("alice", "alice-secret"))
        .auth("digest", "user:password")
        .session_timeout(Duration::from_secs(20))
        .connect_within(Duration::from_secs(60))
}

/// How to connect.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Tls,
}

impl Way {
    fn client(self, network: &Network, server: &TestServer) -> ClientBuilder {
        match self {
            Self::Plain => client().transport(network.plain(server)),
            Self::Tls => client().transport(network.tls(server)),
        }
    }
}

/// Runs a scene with cuts before and within each chunk, until it is over before it is cut. Returns
/// how many cuts there were.
fn at_each_chunk(scene: impl Fn(Cut) -> bool) -> usize {
    for chunks in 0..CHUNKS_MAX {
        let were_cut = Cut::at(chunks).map(&scene);
        if were_cut.contains(&false) {
            return 2 * chunks;
        }
    }
    panic!("there are more than {CHUNKS_MAX} chunks");
}

/// Cuts a connection of a client that connects in this way, in this scene.
macro_rules! cuts {
    ($way:expr, $scene:path) => {
        at_each_chunk(|cut| {
            run(async move {
                let (server, network) = (server(), Network::default());
                let observer = $way.client(&Network::default(), &server).connect().await;
                let observer = observer.expect("it is not cut");
                let client = $way.client(&network, &server);
                $scene(client, network, cut, observer, "/a".to_owned()).await
            })
        })
    };
}

#[test]
fn a_cut_at_any_step_of_the_first_connection_is_survived() {
    // ConnectRequest, two SASL messages, auth and their replies, and a request.
    let plain = cuts!(Way::Plain, begin);
    assert!(plain >= 16, "only {plain} cuts");
    let tls = cuts!(Way::Tls, begin);
    eprintln!("{plain} cuts, and {tls} with TLS");
    assert!(tls > plain + 4, "only {tls} cuts, and {plain} without TLS");
}

#[test]
fn a_cut_at_any_step_of_a_reconnect_costs_no_session_no_watch_and_no_request() {
    // The same, and the watches with their events.
    let plain = cuts!(Way::Plain, resume);
    assert!(plain >= 20, "only {plain} cuts");
    let tls = cuts!(Way::Tls, resume);
    eprintln!("{plain} cuts, and {tls} with TLS");
    assert!(tls > plain + 4, "only {tls} cuts, and {plain} without TLS");
}
