//! A TCP transport that counts its traffic and can be cut.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use zk_session::Host;

/// The traffic of one or more clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// How often the client has polled for input.
    looks: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    requests: AtomicU64,
    connections: Mutex<Vec<std::net::TcpStream>>,
}

/// The counts at a point in time, or between two points in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) looks: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
}

impl Traffic {
    pub(crate) fn so_far(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            looks: read(&self.0.looks),
            bytes: read(&self.0.received) + read(&self.0.sent),
            requests: read(&self.0.requests),
        }
    }

    pub(crate) fn since(&self, before: Counted) -> Counted {
        let now = self.so_far();
        Counted {
            looks: now.looks - before.looks,
            bytes: now.bytes - before.bytes,
            requests: now.requests - before.requests,
        }
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) -> io::Result<()> {
        let mut connections = self.0.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.drain(..).try_for_each(|connection| connection.shutdown(Shutdown::Both))
    }

    /// Returns the transport for a client's builder.
    pub(crate) fn transport(
        &self,
    ) -> impl Fn(Host) -> Pin<Box<dyn Future<Output = io::Result<Metered>> + Send>> + Send + Sync + 'static
    {
        let counts = Arc::clone(&self.0);
        move |host| {
            let counts = Arc::clone(&counts);
            Box::pin(async move {
                let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
                stream.set_nodelay(true)?;
                let stream = stream.into_std()?;
                let connection = stream.try_clone()?;
                counts.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                let stream = TcpStream::from_std(stream)?;
                Ok(Metered { stream, counts, frames: Frames::default() })
            })
        }
    }
}

/// A connection with counters.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    counts: Arc<Counts>,
    frames: Frames,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        self.counts.looks.fetch_add(1, Ordering::Relaxed);
        self.counts.received.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            let begun = self.frames.pass(bytes.get(..count).unwrap_or_default());
            self.counts.requests.fetch_add(begun, Ordering::Relaxed);
            self.counts.sent.fetch_add(count as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Counts the frames in a stream of bytes.
#[derive(Debug, Default)]
struct Frames {
    length: [u8; 4],
    /// How many bytes of the length prefix have arrived.
    known: usize,
    /// How many bytes of the frame are missing.
    missing: usize,
}

impl Frames {
    /// Returns how many frames start in these bytes.
    fn pass(&mut self, mut bytes: &[u8]) -> u64 {
        let mut begun = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.missing > 0 {
                let (_, rest) = bytes.split_at(self.missing.min(bytes.len()));
                self.missing -= bytes.len() - rest.len();
                bytes = rest;
                continue;
            }
            if let Some(next) = self.length.get_mut(self.known) {
                *next = *first;
            }
            self.known += 1;
            if self.known == self.length.len() {
                begun += 1;
                self.known = 0;
                self.missing = usize::try_from(i32::from_be_bytes(self.length)).unwrap_or(0);
            }
            bytes = rest;
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    #[test]
    fn frames_are_counted_wherever_they_are_split() {
        let bytes = [0, 0, 0, 2, 9, 9, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut frames = Frames::default();
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                let counted: u64 = pieces.iter().map(|piece| frames.pass(piece)).sum();
                assert_eq!(counted, 3, "cut at {first} and {second}");
            }
        }
    }
}
