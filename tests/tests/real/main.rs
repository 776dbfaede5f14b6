//! Outages and crowds on a real server with its usual tick, and with every option of the client at
//! its default.
//!
//! This suite is not part of `cargo test --workspace`, because it stops the server: `.ci/outages`
//! starts one for it, and names it in `ZK_CONNECT` and `ZK_PID`. It takes minutes, because a lease
//! reaches its steady state half a minute after the last commit of its session.

#![expect(
    clippy::disallowed_methods,
    reason = "a real server lives in real time; helpers fail by a panic, as tests do"
)]

mod crowd;
mod outages;

use std::net::SocketAddr;
use std::sync::RwLock;

use tokio::net::TcpStream;
use zk_recipes::Client;
use zk_session::recipe::Session;
use zk_session::{ClientBuilder, Host};
use zk_tests::meter::{Meter, Pace, Total};
use zk_tests::target::remove;

/// A test that stops the server runs alone. Tests that do not stop the server may run at the same
/// time.
static SERVER: RwLock<()> = RwLock::new(());

/// Returns the value of an environment variable.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run .ci/outages"))
}

/// Returns the address of the server.
fn address() -> SocketAddr {
    variable("ZK_CONNECT").parse().expect("ZK_CONNECT is an address")
}

/// A subtree for one test.
struct Part {
    observer: Client,
    chroot: String,
}

impl Part {
    async fn start(name: &str) -> Self {
        let observer = Client::connect(address().to_string()).await.expect("the server runs");
        let chroot = format!("/real-{:016x}-{name}", Session::of(&observer).unique_id() as u64);
        Self { observer, chroot }
    }

    /// Connects a client whose root is a directory of this subtree, and returns the client and its
    /// meter.
    async fn client(&self, way: SocketAddr, directory: &str, pace: Pace) -> (Client, Meter) {
        let meter = Meter::new(pace, Total::default());
        let client = self.builder(way, directory, &meter).connect().await;
        (client.expect("the server runs"), meter)
    }

    fn builder(&self, way: SocketAddr, directory: &str, meter: &Meter) -> ClientBuilder {
        let meter = meter.clone();
        Client::builder(format!("{way}{}/{directory}", self.chroot)).transport(move |_: Host| {
            let meter = meter.clone();
            async move {
                let stream = TcpStream::connect(way).await?;
                stream.set_nodelay(true)?;
                Ok(meter.stream(stream))
            }
        })
    }

    async fn end(self) {
        remove(&self.observer, &self.chroot).await.expect("nothing is left that is in use");
        self.observer.close().await;
    }
}
