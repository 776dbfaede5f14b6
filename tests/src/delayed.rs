//! Connections with a latency, in virtual time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::scene::spawn;

/// Returns the near end of a connection to `far` on which bytes take this long in each direction.
pub fn delayed(far: DuplexStream, delay: Duration) -> DuplexStream {
    let (near, relay) = tokio::io::duplex(1 << 20);
    let (far, relay) = (tokio::io::split(far), tokio::io::split(relay));
    forward(far.0, relay.1, delay);
    forward(relay.0, far.1, delay);
    near
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual, and the latency is the point")]
fn forward(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, delay: Duration) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut bytes).await
            && count > 0
            && let Some(read) = bytes.get(..count)
            && sender.send((Instant::now() + delay, read.to_vec())).is_ok()
        {}
    });
    spawn(async move {
        while let Some((at, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}
