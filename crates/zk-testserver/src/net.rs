//! Runs the server on tokio: on in-memory pipes and loopback TCP.
//!
//! One mutex protects the state machine. The handle, one task per connection, one task per listener
//! and one task for timeouts share it. After every call into the state machine, its output is
//! routed to the tasks of the connections. No task holds the mutex across an await.
#![expect(clippy::disallowed_methods, reason = "this module is the driver: it owns the clock")]

mod clock;
mod control;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

use self::clock::ServerClock;
use crate::config::ServerConfig;
use crate::fault::Reception;
use crate::server::Server;

/// The future that a connector returns.
type Connecting = Pin<Box<dyn Future<Output = io::Result<DuplexStream>> + Send>>;

/// Capacity in bytes of each direction of an in-memory connection.
const PIPE: usize = 256 * 1024;

/// If the task of a connection holds more bytes than this because its peer does not read, the
/// server sends no more bytes to the task and processes no requests of that connection.
const UNTAKEN_MAX: usize = 4 << 20;

/// The first and the longest pause before the listener retries accepting.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long to keep reading from a TCP connection after the last byte was written. Closing a socket
/// with unread input would reset the connection before the peer has read everything.
const LINGER: Duration = Duration::from_secs(1);

/// A running server.
///
/// Clones are handles to the same server. The server stops when the last handle is dropped and the
/// last connection is closed.
#[derive(Clone)]
pub struct TestServer {
    shared: Arc<Shared>,
    /// The member of the ensemble to which this handle connects.
    member: usize,
}

struct Shared {
    state: Mutex<State>,
    clock: ServerClock,
    runtime: Handle,
    /// When the task for timeouts has to act next.
    deadline: watch::Sender<Option<Duration>>,
    /// Notified when the reception changes. Unlike a watch channel, it wakes its waiters in the order
    /// in which they came, so that runs can be repeated.
    reception: Arc<Notify>,
    /// Closed when the server stops, which ends the listeners.
    alive: watch::Sender<()>,
}

struct State {
    server: Server,
    /// Routes to the tasks of connections. Dropping one closes its connection.
    routes: BTreeMap<u64, Route>,
    /// Tasks that do not read until the server is receptive again. Dropping the sender wakes them.
    waiting: BTreeMap<u64, oneshot::Sender<Infallible>>,
}

/// Sends bytes to the task of a connection.
struct Route {
    output: mpsc::UnboundedSender<Bytes>,
    /// How many of these bytes the peer has not read.
    untaken: Arc<AtomicUsize>,
}

impl TestServer {
    /// Starts a server in this tokio runtime. It listens on no address until
    /// [`listen`](Self::listen) is called.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, and in a runtime without a timer.
    pub fn start(config: ServerConfig) -> Self {
        let runtime = Handle::current();
        let (deadline, deadlines) = watch::channel(None);
        let clock = ServerClock::start(config.clock_rate);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                server: Server::new(config),
                routes: BTreeMap::new(),
                waiting: BTreeMap::new(),
            }),
            clock,
            runtime,
            deadline,
            reception: Arc::default(),
            alive: watch::Sender::new(()),
        });
        shared.runtime.spawn(keep_time(Arc::downgrade(&shared), clock, deadlines));
        Self { shared, member: 0 }
    }

    /// Returns a handle to the same ensemble that connects to this
    /// [member](ServerConfig::members). The number of [`start`](Self::start) is 0, the leader.
    ///
    /// # Panics
    ///
    /// Panics if there is no such member.
    #[must_use]
    pub fn member(&self, number: usize) -> Self {
        let members = self.with(|server, _| server.members());
        assert!(number < members, "{number} is not a member of {members}");
        Self { shared: Arc::clone(&self.shared), member: number }
    }

    /// Connects in memory, and returns the client's end, a `tokio::io::DuplexStream`.
    ///
    /// # Errors
    ///
    /// Returns `ConnectionRefused` while the server refuses connections, and `TimedOut` while its
    /// reception is a [`BlackHole`](Reception::BlackHole).
    pub fn connect(&self) -> io::Result<DuplexStream> {
        if self.with(|server, now| server.reception(now)) == Reception::BlackHole {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (client, server) = tokio::io::duplex(PIPE);
        if !Shared::accept(&self.shared, self.member, server, IpAddr::from([127, 0, 0, 1]), false) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(client)
    }

    /// Returns a function that connects in memory, in the form that the client's
    /// `ClientBuilder::transport` needs. The function ignores the requested host. The future that
    /// it returns waits while the reception is a [`BlackHole`](Reception::BlackHole).
    ///
    /// ```text
    /// Client::builder("in-process").transport(server.connector()).clock(Clock::tokio())
    /// ```
    pub fn connector<H>(&self) -> impl Fn(H) -> Connecting + Send + Sync + use<H> {
        let member = self.member;
        self.connector_by(move |_| member)
    }

    /// Does the same as [`connector`](Self::connector), but the requested host decides which
    /// [member](ServerConfig::members) to connect to. A number without a member is refused.
    pub fn connector_by<H, F>(
        &self,
        choose: F,
    ) -> impl Fn(H) -> Connecting + Send + Sync + use<H, F>
    where
        F: Fn(H) -> usize + Send + Sync,
    {
        let server = self.clone();
        let members = self.with(|server, _| server.members());
        move |host| {
            let member = choose(host);
            let mut server = server.clone();
            server.member = member;
            Box::pin(async move {
                if member >= members {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Shared::leave_black_hole(&Arc::downgrade(&server.shared)).await;
                server.connect()
            })
        }
    }

    /// Listens on a TCP address and returns the address with the actual port. Port 0 selects a free
    /// one.
    ///
    /// The listener does not keep the server alive, so keep a handle. While the reception is a
    /// [`BlackHole`](Reception::BlackHole), the operating system still completes connects, up to
    /// the length of its queue. The server serves them when the reception changes.
    ///
    /// # Errors
    ///
    /// Returns the error of binding the address.
    pub async fn listen(&self, addr: &str) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(addr).await?;
        let bound = listener.local_addr()?;
        let drawn = RandomState::new().hash_one(bound);
        self.with(|server, _| server.draw_session_ids(drawn));
        let alive = self.shared.alive.subscribe();
        let shared = Arc::downgrade(&self.shared);
        self.shared.runtime.spawn(listen(shared, self.member, listener, alive));
        Ok(bound)
    }

    fn with<T>(&self, call: impl FnOnce(&mut Server, Duration) -> T) -> T {
        self.shared.with(call)
    }
}

// Printing the state would lock the mutex.
impl fmt::Debug for TestServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestServer").finish_non_exhaustive()
    }
}

impl Shared {
    /// Calls the server and routes its output. Everything that is due happens before the call, so
    /// that it makes no difference whether the task for timeouts has already run.
    fn with<T>(&self, call: impl FnOnce(&mut Server, Duration) -> T) -> T {
        let mut state = self.lock();
        let now = self.clock.now();
        state.server.handle_timeout(now);
        let result = call(&mut state.server, now);
        self.route(&mut state, now);
        result
    }

    /// Ignores poisoning: a call with illegal arguments panics, and the test's cleanup must still
    /// work.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn route(&self, state: &mut State, now: Duration) {
        while let Some(transmit) = state.server.poll_transmit(now) {
            if let Some(route) = state.routes.get(&transmit.connection)
                && !transmit.bytes.is_empty()
            {
                let length = transmit.bytes.len();
                let untaken = route.untaken.fetch_add(length, Ordering::AcqRel) + length;
                // If the channel is closed, the task is about to report the disconnect.
                let _ = route.output.send(transmit.bytes);
                if untaken >= UNTAKEN_MAX && !transmit.is_last {
                    state.server.set_writable(transmit.connection, false, now);
                }
            }
            if transmit.is_last {
                state.routes.remove(&transmit.connection);
            }
        }
        let server = &state.server;
        state.waiting.retain(|id, _| !server.is_receptive(*id));
        let deadline = state.server.poll_timeout();
        self.deadline.send_if_modified(|current| {
            let is_modified = *current != deadline;
            *current = deadline;
            is_modified
        });
    }

    /// Starts the task of a connection. Returns false if the server refuses the connection.
    fn accept<S>(shared: &Arc<Self>, member: usize, stream: S, peer: IpAddr, is_tcp: bool) -> bool
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (sender, output) = mpsc::unbounded_channel();
        let untaken = Arc::new(AtomicUsize::new(0));
        let route = Route { output: sender, untaken: Arc::clone(&untaken) };
        let mut state = shared.lock();
        let now = shared.clock.now();
        let accepted = state.server.handle_connect_to(member, peer, now);
        if let Some(id) = accepted {
            state.routes.insert(id, route);
            shared.runtime.spawn(serve(Arc::clone(shared), id, stream, (output, untaken), is_tcp));
        }
        shared.route(&mut state, now);
        accepted.is_some()
    }

    /// Waits until the reception is not a [`Reception::BlackHole`], without keeping the server
    /// alive. Returns `None` if the server has stopped.
    async fn leave_black_hole(shared: &Weak<Self>) -> Option<Arc<Self>> {
        loop {
            let server = shared.upgrade()?;
            // Wait before reading the reception, so that no change is missed.
            let changes = Arc::clone(&server.reception);
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let (reception, until) =
                server.with(|server, now| (server.reception(now), server.reception_until()));
            if reception != Reception::BlackHole {
                return Some(server);
            }
            let until = until.and_then(|until| server.clock.instant(until));
            drop(server);
            match until {
                None => changed.await,
                // Check again, no matter whether the time has passed or the reception has changed.
                Some(until) => drop(timeout_at(until, changed).await),
            }
        }
    }

    /// Passes bytes to the server. If the server accepts no more bytes, returns a receiver to await
    /// before reading more.
    fn receive(&self, id: u64, bytes: &[u8]) -> Option<oneshot::Receiver<Infallible>> {
        let mut state = self.lock();
        let now = self.clock.now();
        state.server.handle_bytes(id, bytes, now);
        self.route(&mut state, now);
        if state.server.is_receptive(id) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.insert(id, sender);
        Some(receiver)
    }

    fn disconnect(&self, id: u64) {
        self.with(|server, now| server.handle_disconnect(id, now));
        self.lock().routes.remove(&id);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reception.notify_waiters();
    }
}

/// Copies bytes between the server and one connection.
async fn serve<S>(
    shared: Arc<Shared>,
    id: u64,
    stream: S,
    (mut output, untaken): (mpsc::UnboundedReceiver<Bytes>, Arc<AtomicUsize>),
    is_tcp: bool,
) where
    S: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let read = async {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        while let Ok(1..) = reader.read_buf(&mut buffer).await {
            let waiting = shared.receive(id, &buffer);
            buffer.clear();
            if let Some(waiting) = waiting {
                // Nothing is ever sent. The receiver returns when the sender is dropped.
                let _ = waiting.await;
            }
        }
        shared.disconnect(id);
    };
    let write = async {
        while let Some(bytes) = output.recv().await {
            writer.write_all(&bytes).await?;
            let before = untaken.fetch_sub(bytes.len(), Ordering::AcqRel);
            // Report only the transition to a value below the limit. This transition cannot be
            // missed, because the number grows only while the mutex is held.
            if before >= UNTAKEN_MAX && before - bytes.len() < UNTAKEN_MAX {
                shared.with(|server, now| server.set_writable(id, true, now));
            }
        }
        writer.shutdown().await
    };
    tokio::pin!(read, write);
    tokio::select! {
        biased;
        written = &mut write => {
            if written.is_err() {
                shared.disconnect(id);
            } else if is_tcp {
                let _ = timeout(LINGER, read).await;
            }
        }
        () = &mut read => {
            // The peer may have closed only its sending direction, and may still be reading.
            let _ = write.await;
        }
    }
}

/// A source of connections.
trait Source: Send {
    type Stream: AsyncRead + AsyncWrite + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr)>> + Send;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        // If this fails, the connection works, but is slower.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer.ip()))
    }
}

/// Accepts connections until the server stops. If accepting fails, for example for lack of file
/// descriptors, it retries after a growing pause.
async fn listen(
    shared: Weak<Shared>,
    member: usize,
    mut source: impl Source,
    mut alive: watch::Receiver<()>,
) {
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = source.accept() => accepted,
            _ = alive.changed() => return,
        };
        let stream = match accepted {
            Ok(accepted) => {
                if !pause.is_zero() {
                    tracing::info!("accepting connections works again");
                }
                pause = Duration::ZERO;
                accepted
            }
            Err(error) => {
                if pause.is_zero() {
                    tracing::warn!(%error, "accepting a connection failed; retrying");
                }
                pause = (pause * 2).clamp(ACCEPT_PAUSE_MIN, ACCEPT_PAUSE_MAX);
                tokio::select! {
                    biased;
                    () = sleep(pause) => continue,
                    _ = alive.changed() => return,
                }
            }
        };
        let Some(shared) = Shared::leave_black_hole(&shared).await else { return };
        let (stream, peer) = stream;
        Shared::accept(&shared, member, stream, peer, true);
    }
}

/// Calls the server at its deadlines.
async fn keep_time(
    shared: Weak<Shared>,
    clock: ServerClock,
    mut deadlines: watch::Receiver<Option<Duration>>,
) {
    loop {
        let deadline = *deadlines.borrow_and_update();
        let alarm = async {
            match deadline.and_then(|deadline| clock.instant(deadline)) {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = deadlines.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = alarm => {
                let Some(shared) = shared.upgrade() else { return };
                shared.with(Server::handle_timeout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// A source that fails a number of times, then returns one connection, and then starts over.
    struct Exhausted {
        failures: usize,
        left: usize,
        turns: Arc<AtomicUsize>,
        clients: mpsc::UnboundedSender<DuplexStream>,
    }

    impl Source for Exhausted {
        type Stream = DuplexStream;

        async fn accept(&mut self) -> io::Result<(DuplexStream, IpAddr)> {
            self.turns.fetch_add(1, Ordering::Relaxed);
            if self.left > 0 {
                self.left -= 1;
                return Err(io::Error::from_raw_os_error(24));
            }
            self.left = self.failures;
            let (client, server) = tokio::io::duplex(64);
            self.clients.send(client).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok((server, IpAddr::from([127, 0, 0, 1])))
        }
    }

    /// Counts log events by level.
    #[derive(Clone, Default)]
    struct Lines {
        warnings: Arc<AtomicU64>,
        others: Arc<AtomicU64>,
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let is_warning = *event.metadata().level() == tracing::Level::WARN;
            let lines = if is_warning { &self.warnings } else { &self.others };
            lines.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn failed_accepts_are_retried_after_pauses_and_logged_once() {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let server = TestServer::start(ServerConfig::default());
        let turns = Arc::new(AtomicUsize::new(0));
        let (clients, mut accepted) = mpsc::unbounded_channel();
        let source = Exhausted { failures: 100, left: 100, turns: Arc::clone(&turns), clients };
        let alive = server.shared.alive.subscribe();
        let listening = tokio::spawn(listen(Arc::downgrade(&server.shared), 0, source, alive));

        sleep(Duration::from_secs(10)).await;
        let tried = turns.load(Ordering::Relaxed);
        assert!((15..=25).contains(&tried), "{tried} turns in 10 s");
        assert_eq!(lines.warnings.load(Ordering::Relaxed), 1);
        assert_eq!(lines.others.load(Ordering::Relaxed), 0);

        // After 92 pauses of a second the connection works, and the next series of failures starts.
        let mut client = timeout(Duration::from_secs(100), accepted.recv()).await.unwrap().unwrap();
        client.write_all(b"ruok").await.unwrap();
        let mut reply = Vec::new();
        client.read_to_end(&mut reply).await.unwrap();
        assert_eq!(reply, b"imok");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(lines.warnings.load(Ordering::Relaxed), 2);
        assert_eq!(lines.others.load(Ordering::Relaxed), 1);
        drop(server);
        timeout(Duration::from_secs(2), listening)
            .await
            .expect("the listener ends during the pause")
            .unwrap();
    }
}
