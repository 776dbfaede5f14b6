//! Links between a client and the server that carry a limited number of bytes per millisecond.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use zk_recipes::{Client, Clock};
use zk_session::SESSION_TIMEOUT_DEFAULT;
use zk_tests::scene::spawn;
use zk_tests::world::{World, sleep_ms};

/// Bytes per millisecond in a direction that is not slow.
const FAST: usize = 64 * 1024;

/// The links of one client.
#[derive(Clone, Debug)]
pub(super) struct Link {
    up: usize,
    down: usize,
    timeout: Duration,
    is_stopped: Arc<AtomicBool>,
}

impl Link {
    /// Creates links that carry this many bytes per millisecond from the server to the client.
    pub(super) fn down(bytes: usize) -> Self {
        let is_stopped = Arc::default();
        Self { up: FAST, down: bytes, timeout: SESSION_TIMEOUT_DEFAULT, is_stopped }
    }

    /// Creates links that carry this many bytes per millisecond from the client to the server.
    pub(super) fn up(bytes: usize) -> Self {
        Self { up: bytes, down: FAST, ..Self::down(FAST) }
    }

    /// Sets the session timeout that the client requests.
    pub(super) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Connects a client with the default lease.
    pub(super) async fn client(&self, world: &World) -> Client {
        let (link, server) = (self.clone(), world.server.clone());
        Client::builder("in-process")
            .clock(Clock::tokio())
            .seed(1)
            .session_timeout(self.timeout)
            .transport(move |_host| {
                let (link, stream) = (link.clone(), server.connect());
                async move {
                    let (ours, theirs) = tokio::io::duplex(64 * 1024);
                    spawn(link.forward(stream?, theirs));
                    Ok(ours)
                }
            })
            .connect()
            .await
            .expect("nothing goes wrong before the test begins")
    }

    /// Stops all links, as a cable that is cut: nobody gets an error, and the client can fill the
    /// buffers on its side.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    async fn forward(self, server: DuplexStream, client: DuplexStream) {
        let (from_server, to_server) = tokio::io::split(server);
        let (from_client, to_client) = tokio::io::split(client);
        tokio::join!(
            self.carry(from_client, to_server, self.up),
            self.carry(from_server, to_client, self.down)
        );
    }

    async fn carry(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        bytes: usize,
    ) {
        let mut buffer = vec![0; bytes];
        while let Ok(taken @ 1..) = from.read(&mut buffer).await {
            if self.is_stopped.load(Relaxed) {
                pending().await
            }
            let arrived = buffer.get(..taken).expect("no more than there is room for");
            if to.write_all(arrived).await.is_err() {
                return;
            }
            // A short chunk is forwarded without a delay, together with the next bytes.
            if taken > bytes / 10 {
                sleep_ms(1).await;
            }
        }
    }
}
