//! Asking servers with four-letter words, which they answer instead of a handshake.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_recipes::zk_session::{Attempt, Host, Transport};

use crate::connect::in_options;

/// How long a server may take to answer a word.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a reply, in bytes.
const REPLY_MAX: u64 = 64 * 1024;

/// What a server has replied to a word.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Text(String),
    /// The administrator does not allow the word.
    NotAllowed,
    /// The server has no quorum.
    NotServing,
    /// There was no reply, for this reason.
    Failed(String),
}

/// A server of the connect string, and what it says of itself.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) srvr: Answer,
    pub(super) conf: Answer,
    pub(super) mntr: Answer,
}

/// Asks all servers at the same time.
pub(super) async fn ask_all(transport: &dyn Transport, hosts: &[Host]) -> Vec<Server> {
    let mut asking: Vec<Pin<Box<dyn Future<Output = Server> + '_>>> = Vec::new();
    for host in hosts {
        asking.push(Box::pin(ask_one(transport, host)));
    }
    let mut servers = vec![None; hosts.len()];
    poll_fn(|cx| {
        for (asking, server) in asking.iter_mut().zip(&mut servers) {
            if server.is_none()
                && let Poll::Ready(ready) = asking.as_mut().poll(cx)
            {
                *server = Some(ready);
            }
        }
        if servers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    servers.into_iter().flatten().collect()
}

async fn ask_one(transport: &dyn Transport, host: &Host) -> Server {
    let name = host.to_string();
    let srvr = ask(transport, host, b"srvr").await;
    if let Answer::Failed(reason) = &srvr {
        // The other words would fail for the same reason, after the same time.
        let failed = Answer::Failed(reason.clone());
        return Server { name, conf: failed.clone(), mntr: failed, srvr };
    }
    let conf = ask(transport, host, b"conf").await;
    let mntr = ask(transport, host, b"mntr").await;
    Server { name, srvr, conf, mntr }
}

async fn ask(transport: &dyn Transport, host: &Host, word: &[u8; 4]) -> Answer {
    let asking = async {
        let mut stream = transport.connect(host.clone(), Attempt::new(0, PATIENCE)).await?;
        stream.write_all(word).await?;
        stream.flush().await?;
        let mut reply = Vec::new();
        let end = stream.take(REPLY_MAX).read_to_end(&mut reply).await;
        // Behind TLS, a connection that ends without the alert `close_notify` ends with an error.
        if reply.is_empty() {
            end?;
        }
        Ok::<_, std::io::Error>(reply)
    };
    match timeout(PATIENCE, asking).await {
        Ok(Ok(reply)) => understood(&String::from_utf8_lossy(&reply)),
        Ok(Err(error)) => Answer::Failed(in_options(error.to_string())),
        Err(_) => Answer::Failed(format!("it did not answer within {PATIENCE:?}")),
    }
}

fn understood(reply: &str) -> Answer {
    if reply.contains("not in the whitelist") {
        Answer::NotAllowed
    } else if reply.contains("not currently serving requests") {
        Answer::NotServing
    } else if reply.trim().is_empty() {
        Answer::Failed("it closed the connection without a reply".to_owned())
    } else {
        Answer::Text(reply.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_and_a_missing_quorum_are_no_texts() {
        let refused = "conf is not executed because it is not in the whitelist.\n";
        assert_eq!(understood(refused), Answer::NotAllowed);
        let alone = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(understood(alone), Answer::NotServing);
        assert!(matches!(understood("\n"), Answer::Failed(_)));
        assert_eq!(understood("imok"), Answer::Text("imok".to_owned()));
    }
}
