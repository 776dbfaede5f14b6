//! A client holds a lock while servers fail, one after the other. At least one server is healthy,
//! so the lock is not lost.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use zk_recipes::{Client, Clock, LockState};
use zk_tests::world::{World, run, sleep_ms};

/// Length of a connect response in bytes.
const HANDSHAKE: usize = 41;

/// Behaviour of the next server that the client tries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// The server does not accept connections.
    BlackHole,
    /// The server accepts the connection, but sends only this many bytes.
    SilentAfter(usize),
}

const SILENT: Next = Next::SilentAfter(0);
const RESUMES_ONLY: Next = Next::SilentAfter(HANDSHAKE);

/// A connection that falls silent after a number of bytes, or when the test mutes it.
struct Muted {
    stream: DuplexStream,
    left: usize,
    is_mute: Arc<AtomicBool>,
}

impl AsyncRead for Muted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 || self.is_mute.load(Relaxed) {
            return Poll::Pending;
        }
        let mut scratch = [0; 4096];
        let room = scratch.len().min(buffer.remaining()).min(self.left);
        let mut some = ReadBuf::new(scratch.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut some))?;
        buffer.put_slice(some.filled());
        self.left -= some.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Muted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    zk_tests::flush_and_shut_down_through!(stream);
}

/// How the first connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Cut,
    Silence,
}

/// Holds a lock with default options. After a minute and `later_ms` of a ping interval, the
/// connection ends as `end` says, and the next servers behave as `next` says. All other servers are
/// healthy.
fn holds(hosts: &'static str, end: End, next: &[Next], later_ms: u64) {
    let label = format!("{hosts} {end:?} {next:?} {later_ms} ms");
    let next: Arc<Mutex<VecDeque<Next>>> = Arc::new(Mutex::new(next.iter().copied().collect()));
    run(async move {
        let world = World::new();
        let of_world = world.server.clone();
        let is_bad = Arc::new(AtomicBool::new(false));
        let is_mute = Arc::new(AtomicBool::new(false));
        let (bad, mute, bad_ones) = (Arc::clone(&is_bad), Arc::clone(&is_mute), Arc::clone(&next));
        let transport = move |_host| {
            let is_first = !bad.load(Relaxed);
            let behaviour = if is_first {
                None
            } else {
                bad_ones.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
            };
            let stream = of_world.connect();
            let is_mute = if is_first { Arc::clone(&mute) } else { Arc::default() };
            async move {
                let left = match behaviour {
                    Some(Next::BlackHole) => pending().await,
                    Some(Next::SilentAfter(bytes)) => bytes,
                    None => usize::MAX,
                };
                Ok(Muted { stream: stream?, left, is_mute })
            }
        };
        let client = Client::builder(hosts)
            .transport(transport)
            .clock(Clock::tokio())
            .seed(later_ms)
            .connect()
            .await
            .expect("all servers are healthy");
        let guard = World::lock(&client).acquire().await.expect("the lock is free");
        sleep_ms(60_000 + later_ms).await;
        is_bad.store(true, Relaxed);
        match end {
            End::Cut => world.server.disconnect_all(),
            End::Silence => is_mute.store(true, Relaxed),
        }
        sleep_ms(40_000).await;
        assert!(next.lock().unwrap_or_else(PoisonError::into_inner).is_empty(), "{label}");
        assert_eq!(guard.state(), LockState::Held, "{label}: {:?}", client.last_failure());
        assert!(guard.remaining().is_some_and(|left| !left.is_zero()), "{label}");
        assert_eq!(client.session_id(), Some(guard.session()), "{label}");
    });
}

/// Moments of the ping interval.
const MOMENTS: [u64; 5] = [0, 450, 900, 1350, 1800];

#[test]
fn one_bad_server_of_three_does_not_lose_a_lock() {
    for next in [Next::BlackHole, SILENT, RESUMES_ONLY] {
        for later in MOMENTS {
            holds("a,b,c", End::Cut, &[next], later);
        }
    }
}

#[test]
fn two_bad_servers_of_five_do_not_lose_a_lock() {
    for next in [Next::BlackHole, SILENT, RESUMES_ONLY] {
        for later in MOMENTS {
            holds("a,b,c,d,e", End::Cut, &[next, next], later);
        }
    }
}

#[test]
fn two_bad_servers_of_one_name_do_not_lose_a_lock() {
    for next in [Next::BlackHole, SILENT, RESUMES_ONLY] {
        holds("a", End::Cut, &[next, next], 0);
    }
}

#[test]
fn a_bad_server_after_one_that_has_fallen_silent_does_not_lose_a_lock() {
    for next in [Next::BlackHole, SILENT, RESUMES_ONLY] {
        for later in MOMENTS {
            holds("a,b,c", End::Silence, &[next], later);
        }
    }
}
