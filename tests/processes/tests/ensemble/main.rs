//! Sessions and locks while servers of an ensemble fail.
//!
//! This suite is not part of `cargo test --workspace`, because it needs servers that can be killed,
//! paused and cut off: `tests/ensemble/run` starts them. The tests take turns. All servers of the
//! ensemble serve clients when a test begins and when it ends.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "servers in containers live in real time; helpers fail by a panic, as tests do"
)]

mod cache;
mod chaos;
mod election;
mod follower;
mod leader;
mod queue;
mod quorum;
mod read_only;
mod reconfig;
mod touches;

use std::time::Duration;

use zk_session::{Client, CreateMode};
use zk_tests::ensemble::{Ensemble, Server};
use zk_tests::proxy::Proxy;
use zk_tests::target::Fixture;
use zk_tests::wait::PATIENCE;

const EPHEMERAL: CreateMode = CreateMode::Ephemeral;
const PERSISTENT: CreateMode = CreateMode::Persistent;

/// Session timeout of the clients. They have to leave silent servers, and notice one after a part of
/// this time.
const SESSION: Duration = Duration::from_secs(10);

async fn fixture() -> Fixture {
    Fixture::with_timeout(SESSION).await
}

/// A client that begins at one server, and has a proxy in front of each server.
struct Roamer {
    client: Client,
    /// One proxy per server, in the order of the servers.
    ways: Vec<Proxy>,
}

impl Roamer {
    async fn at(fixture: &Fixture, ensemble: &Ensemble, home: &Server) -> Self {
        Self::with_timeout(fixture, ensemble, home, SESSION).await
    }

    async fn with_timeout(
        fixture: &Fixture,
        ensemble: &Ensemble,
        home: &Server,
        session_timeout: Duration,
    ) -> Self {
        let ways = fixture.proxies().await;
        assert_eq!(ways.len(), ensemble.servers().len(), "a server does not accept connections");
        for (server, way) in ensemble.servers().iter().zip(&ways) {
            if server != home {
                way.refuse_for(2 * PATIENCE);
            }
        }
        let hosts: Vec<String> = ways.iter().map(|way| way.addr().to_string()).collect();
        let builder = fixture.builder_at(hosts.join(",")).session_timeout(session_timeout);
        let client = builder.connect().await.unwrap();
        ways.iter().for_each(Proxy::admit_all);
        Self { client, ways }
    }

    fn way(&self, server: &Server) -> &Proxy {
        &self.ways[server.number - 1]
    }

    /// Returns whether the client is connected to this server, as far as the proxies know.
    fn is_at(&self, server: &Server) -> bool {
        self.way(server).statistics().open > 0
    }
}
