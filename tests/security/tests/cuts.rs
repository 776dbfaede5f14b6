//! Cuts the connection at every step of connecting: TLS, the handshake, SASL, auth, and the first
//! requests; once for a new session, and once for a session that is resumed.

#[path = "support/network.rs"]
mod network;

use std::time::Duration;

use network::Network;
use zk_session::{Client, ClientBuilder, Clock, CreateMode, Sasl, SessionState};
use zk_tests::world::{run, sleep_ms};
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

/// Cuts the first connection after each number of chunks. Returns how many cuts there were.
fn cut_the_first_connection(way: Way) -> usize {
    for chunks in 0..CHUNKS_MAX {
        let has_cut = run(async move {
            let (server, network) = (server(), Network::default());
            network.cut(0, chunks);
            let client = way.client(&network, &server).connect().await;
            let client = client.unwrap_or_else(|error| panic!("{way:?}, cut {chunks}: {error}"));
            // The connection may be cut during the create, which then may or may not be applied.
            let created = client.create("/a", "1", CreateMode::Ephemeral).await;
            if let Err(error) = created {
                assert!(error.is_connection_loss(), "{way:?}, cut {chunks}: {error}");
            }
            client.sync("/").await.ok();
            sleep_ms(3_000).await;
            let has_cut = network.stop_cutting();
            client.get_data("/").await.expect("the client is connected again");
            assert_eq!(client.state(), SessionState::Connected);
            client.close().await;
            has_cut
        });
        if !has_cut {
            return chunks;
        }
    }
    panic!("there are more than {CHUNKS_MAX} chunks");
}

/// Cuts the second connection, which resumes a session with a watch and with waiting requests.
fn cut_the_second_connection(way: Way) -> usize {
    for chunks in 0..CHUNKS_MAX {
        let has_cut = run(async move {
            let (server, network) = (server(), Network::default());
            let client = way.client(&network, &server).connect().await.expect("a connection");
            client.create("/a", "1", CreateMode::Ephemeral).await.expect("it is free");
            let (_, mut watcher) = client.exists_and_watch("/b").await.expect("a watch");
            let session = client.session_id();
            network.cut(1, chunks);
            server.disconnect_all();
            sleep_ms(1).await;
            // Requests wait for a connection, and either succeed in their order or fail.
            let waiting: Vec<_> = (0..10).map(|_| client.set_data("/a", "2", None)).collect();
            let mut applied = 0;
            for operation in waiting {
                match operation.await {
                    Ok(stat) => {
                        applied += 1;
                        assert!(stat.version.0 >= applied, "{way:?}, cut {chunks}");
                    }
                    Err(error) => {
                        assert!(error.is_connection_loss(), "{way:?}, cut {chunks}: {error}");
                    }
                }
            }
            sleep_ms(3_000).await;
            let has_cut = network.stop_cutting();
            client.create("/b", "", CreateMode::Ephemeral).await.expect("it is connected again");
            let event = watcher.changed().await.expect("the watch survives");
            assert_eq!(event.path, "/b");
            assert_eq!(client.session_id(), session, "{way:?}, cut {chunks}: the session survives");
            client.close().await;
            has_cut
        });
        if !has_cut {
            return chunks;
        }
    }
    panic!("there are more than {CHUNKS_MAX} chunks");
}

#[test]
fn a_cut_at_any_step_of_the_first_connection_is_survived() {
    // ConnectRequest, two SASL messages, auth and their replies, and a request.
    let plain = cut_the_first_connection(Way::Plain);
    assert!(plain >= 8, "only {plain} cuts");
    let tls = cut_the_first_connection(Way::Tls);
    assert!(tls > plain + 2, "only {tls} cuts, and {plain} without TLS");
}

#[test]
fn a_cut_at_any_step_of_a_reconnect_costs_no_session_and_no_watch() {
    let plain = cut_the_second_connection(Way::Plain);
    assert!(plain >= 10, "only {plain} cuts");
    let tls = cut_the_second_connection(Way::Tls);
    assert!(tls > plain + 2, "only {tls} cuts, and {plain} without TLS");
}
