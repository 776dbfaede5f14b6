//! Asking a server whether it accepts writes.

use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tracing::debug;

use super::transport::Transport;
use crate::host::Host;
use crate::machine::Attempt;

/// The question, one of the four-letter words that servers answer instead of a handshake.
const QUESTION: &[u8; 4] = b"isro";
/// The reply of a server that accepts writes.
const READ_WRITE: &[u8] = b"rw";
/// A server that does not answer this question replies with a sentence that has this word. It may
/// accept writes.
const NOT_ALLOWED: &[u8] = b"whitelist";
/// Maximum length of a reply, in bytes.
const REPLY_MAX: u64 = 256;

/// The answer of a server: the server itself if it accepts writes, or may do so.
pub(super) type Probe = Pin<Box<dyn Future<Output = Option<Host>> + Send>>;

/// Asks a server. Gives up after the time of the attempt.
pub(super) fn probe(transport: &dyn Transport, host: Host, attempt: Attempt) -> Probe {
    let connecting = transport.connect(host.clone(), attempt);
    Box::pin(async move {
        let asking = async {
            let mut stream = connecting.await?;
            stream.write_all(QUESTION).await?;
            stream.flush().await?;
            let mut reply = Vec::new();
            let end = stream.take(REPLY_MAX).read_to_end(&mut reply).await;
            // Behind TLS, a connection that ends without the alert `close_notify` ends with an error.
            if reply.is_empty() {
                end?;
            }
            Ok::<_, std::io::Error>(reply)
        };
        match timeout(attempt.time(), asking).await {
            Ok(Ok(reply)) => accepts_writes(&reply).then_some(host),
            Ok(Err(error)) => {
                debug!(%host, %error, "the server cannot be asked whether it accepts writes");
                None
            }
            Err(_) => None,
        }
    })
}

fn accepts_writes(reply: &[u8]) -> bool {
    reply == READ_WRITE || reply.windows(NOT_ALLOWED.len()).any(|part| part == NOT_ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_may_accept_writes_is_tried() {
        for (reply, expected) in [
            ("rw", true),
            ("isro is not executed because it is not in the whitelist.\n", true),
            ("ro", false),
            ("null", false),
            ("", false),
            ("This ZooKeeper instance is not currently serving requests\n", false),
        ] {
            assert_eq!(accepts_writes(reply.as_bytes()), expected, "{reply}");
        }
    }
}
