//! How connections are made: TCP, or whatever a test provides.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tracing::debug;

use crate::connect_string::Host;

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens connections to servers.
///
/// Closures that return a future of a stream are transports:
///
/// ```
/// use tokio::io::DuplexStream;
/// # async fn pipe() -> std::io::Result<DuplexStream> { Ok(tokio::io::duplex(64).0) }
/// let client = zk_session::Client::builder("in-memory").transport(|_host| pipe());
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Starts to open a connection to `host`, within `timeout`.
    fn connect(&self, host: Host, timeout: Duration) -> Connecting;
}

impl<F, Fut, S> Transport for F
where
    F: Fn(Host) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<S>> + Send + 'static,
    S: Stream + 'static,
{
    fn connect(&self, host: Host, _: Duration) -> Connecting {
        let connecting = self(host);
        Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
    }
}

/// Plain TCP, the default. The name is resolved for each attempt, and every address is tried,
/// each with its share of the time that is left.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Tcp;

impl Transport for Tcp {
    fn connect(&self, host: Host, timeout: Duration) -> Connecting {
        Box::pin(async move {
            let deadline = tokio::time::Instant::now() + timeout;
            let addresses: Vec<_> =
                tokio::net::lookup_host((host.name.as_str(), host.port)).await?.collect();
            let mut failure =
                io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
            for (tried, address) in addresses.iter().enumerate() {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
                match tokio::time::timeout(share, TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => {
                        stream.set_nodelay(true)?;
                        return Ok(Box::new(stream) as Box<dyn Stream>);
                    }
                    Ok(Err(error)) => failure = error,
                    Err(_) => failure = io::ErrorKind::TimedOut.into(),
                }
                debug!(%address, error = %failure, "cannot connect");
            }
            Err(failure)
        })
    }
}
