//! The server on tokio: in-memory pipes and loopback TCP.
//!
//! The state machine stands behind one mutex, shared by the handle, a task per connection, a
//! task per listener and one for the time. After every call into it, whatever it has to say is
//! routed to the tasks of the connections. Nobody holds the mutex across an await.
#![expect(clippy::disallowed_methods, reason = "this module is the driver: it owns the clock")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::Stat;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::config::ServerConfig;
use crate::fault::{CutOff, Fault, Reception};
use crate::journal::{CommitRecord, RequestRecord};
use crate::server::Server;

/// What a connector returns.
type Connecting = Pin<Box<dyn Future<Output = io::Result<DuplexStream>> + Send>>;

/// Bytes in flight in each direction of an in-memory connection.
const PIPE: usize = 256 * 1024;

/// How many bytes the task of a connection has that its peer does not take, before the server
/// gives it no more, and lets the requests of that connection wait.
const UNTAKEN_MAX: usize = 4 << 20;

/// How long to wait before accepting is tried again, at first and at most.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long to wait for the peer of a TCP connection after the last byte, so that what it sends
/// meanwhile does not reset the connection before it has read everything.
const LINGER: Duration = Duration::from_secs(1);

/// A running server.
///
/// Clones are handles to the same server. It stops when the last handle and the last connection
/// are gone.
#[derive(Clone, Debug)]
pub struct TestServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    start: Instant,
    runtime: Handle,
    /// When the time task has to act next.
    deadline: watch::Sender<Option<Duration>>,
    /// Told when the reception changes.
    reception: watch::Sender<()>,
    /// Gone when the server is.
    alive: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    server: Server,
    /// Dropping one ends its connection.
    routes: BTreeMap<u64, Route>,
    /// Who does not read until the server is receptive again; told by being dropped.
    waiting: BTreeMap<u64, oneshot::Sender<Infallible>>,
}

/// Where the bytes of a connection go.
#[derive(Debug)]
struct Route {
    output: mpsc::UnboundedSender<Bytes>,
    /// Bytes that were sent there, and not taken by the peer.
    untaken: Arc<AtomicUsize>,
}

impl TestServer {
    /// Starts a server that nobody can connect to but through this handle.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without a timer.
    pub fn start(config: ServerConfig) -> Self {
        let runtime = Handle::current();
        let (deadline, deadlines) = watch::channel(None);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                server: Server::new(config),
                routes: BTreeMap::new(),
                waiting: BTreeMap::new(),
            }),
            start: Instant::now(),
            runtime,
            deadline,
            reception: watch::Sender::new(()),
            alive: watch::Sender::new(()),
        });
        shared.runtime.spawn(keep_time(Arc::downgrade(&shared), shared.start, deadlines));
        Self { shared }
    }

    /// Connects in memory.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` while the server refuses connections; `TimedOut` while it is a
    /// [`Reception::BlackHole`].
    pub fn connect(&self) -> io::Result<DuplexStream> {
        if self.with(|server, now| server.reception(now)) == Reception::BlackHole {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (client, server) = tokio::io::duplex(PIPE);
        if !Shared::accept(&self.shared, server, IpAddr::from([127, 0, 0, 1]), false) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(client)
    }

    /// Connects in memory whenever it is called. This is what the client's
    /// `ClientBuilder::transport` wants; the host that it asks for does not matter. Its future
    /// waits as long as the server is a [`Reception::BlackHole`].
    ///
    /// ```text
    /// Client::builder("in-process").transport(server.connector()).clock(Clock::tokio())
    /// ```
    pub fn connector<H>(&self) -> impl Fn(H) -> Connecting + Send + Sync + use<H> {
        let server = self.clone();
        move |_| {
            let server = server.clone();
            Box::pin(async move {
                Shared::leave_black_hole(&Arc::downgrade(&server.shared)).await;
                server.connect()
            })
        }
    }

    /// Listens on a TCP address; port 0 takes any free one. Returns the address it got.
    ///
    /// The listener does not keep the server alive: hold on to a handle. While the server is a
    /// [`Reception::BlackHole`], the system still completes connects, as many as its queue takes,
    /// and nothing comes of them before the reception changes.
    ///
    /// # Errors
    ///
    /// As binding the address fails.
    pub async fn listen(&self, addr: &str) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(addr).await?;
        let bound = listener.local_addr()?;
        let alive = self.shared.alive.subscribe();
        self.shared.runtime.spawn(listen(Arc::downgrade(&self.shared), listener, alive));
        Ok(bound)
    }

    /// Arms a fault.
    ///
    /// # Panics
    ///
    /// If the action has no meaning where the fault is to fire.
    pub fn inject(&self, fault: Fault) {
        self.with(|server, _| server.inject(fault));
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.with(|server, _| server.clear_faults());
    }

    /// Faults that have not fired.
    pub fn pending_faults(&self) -> Vec<Fault> {
        self.with(|server, _| server.pending_faults())
    }

    /// Refuses new connections for that long.
    pub fn refuse_for(&self, duration: Duration) {
        self.with(|server, now| server.refuse_for(duration, now));
    }

    /// Receives clients like this from now on, until told otherwise.
    pub fn set_reception(&self, reception: Reception) {
        self.with(|server, _| server.set_reception(reception));
        self.shared.reception.send_replace(());
    }

    /// Receives clients like this for that long, and then as [`Reception::Open`].
    pub fn set_reception_for(&self, reception: Reception, duration: Duration) {
        self.with(|server, now| server.set_reception_for(reception, duration, now));
        self.shared.reception.send_replace(());
    }

    /// Ends all connections, frozen ones too. The sessions go on.
    pub fn disconnect_all(&self) {
        self.with(Server::disconnect_all);
    }

    /// Ends a session as its timeout would.
    pub fn expire(&self, session: i64) {
        self.with(|server, now| server.expire(session, now));
    }

    /// The server that this session is connected to loses its leader. Other connections are to
    /// other servers. Nothing happens if the session is not connected.
    ///
    /// # Panics
    ///
    /// If more is to be unlearned than servers can have missed, which is a tick.
    pub fn cut_off(&self, session: i64, cut_off: CutOff) {
        self.with(|server, now| server.cut_off(session, cut_off, now));
    }

    /// The server that this session is connected to stands still for that long. Requests that
    /// arrive are looked at afterwards. The leader goes on, and ends sessions of which it hears
    /// nothing. Nothing happens if the session is not connected.
    pub fn pause_connection(&self, session: i64, duration: Duration) {
        self.with(|server, now| server.pause_connection(session, duration, now));
    }

    /// Everything stands still for that long. Afterwards sessions whose time has come end first,
    /// and then requests are looked at: on real servers this is a race.
    pub fn pause(&self, duration: Duration) {
        self.with(|server, now| server.pause(duration, now));
    }

    /// Sessions that have not ended.
    pub fn sessions(&self) -> Vec<i64> {
        self.with(|server, _| server.sessions())
    }

    /// Last transaction that was applied.
    pub fn zxid(&self) -> i64 {
        self.with(|server, _| server.zxid())
    }

    /// Requests in order of arrival, without pings and handshakes.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.with(|server, _| server.requests())
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.with(|server, _| server.clear_requests());
    }

    /// Transactions in order of their zxid.
    pub fn commits(&self) -> Vec<CommitRecord> {
        self.with(|server, _| server.commits())
    }

    /// Names of the children, in order of their names.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        self.with(|server, _| server.children(path))
    }

    /// Stat of a znode.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.with(|server, _| server.stat(path))
    }

    /// Data of a znode; empty for null.
    pub fn data(&self, path: &str) -> Option<Bytes> {
        self.with(|server, _| server.data(path))
    }

    /// All ephemerals and the sessions that own them.
    pub fn ephemerals(&self) -> Vec<(String, i64)> {
        self.with(|server, _| server.ephemerals())
    }

    /// Number of watches; a persistent one counts once.
    pub fn watch_count(&self) -> usize {
        self.with(|server, _| server.watch_count())
    }

    /// Creates a znode, as an ephemeral if it has an owner.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn admin_create(&self, path: &str, data: &[u8], ephemeral_owner: Option<i64>) {
        self.with(|server, now| server.admin_create(path, data, ephemeral_owner, now));
    }

    /// Deletes a znode; false if the server refuses it.
    pub fn admin_delete(&self, path: &str) -> bool {
        self.with(|server, now| server.admin_delete(path, now))
    }

    /// Replaces the data of a znode.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn admin_set_data(&self, path: &str, data: &[u8]) {
        self.with(|server, now| server.admin_set_data(path, data, now));
    }

    /// Makes a znode believe that it had so many children in its life.
    ///
    /// # Panics
    ///
    /// If there is no such znode.
    pub fn set_create_count(&self, path: &str, creates: i32) {
        self.with(|server, now| server.set_create_count(path, creates, now));
    }

    /// Deletes containers and znodes with a time to live that are due, as happens every
    /// [`reap_interval`](ServerConfig::reap_interval).
    pub fn reap(&self) {
        self.with(Server::reap);
    }

    fn with<T>(&self, call: impl FnOnce(&mut Server, Duration) -> T) -> T {
        self.shared.with(call)
    }
}

impl Shared {
    /// Calls the server, then routes what it has to say. What is due by now happens before, so
    /// that nobody can see that the time task has not run yet.
    fn with<T>(&self, call: impl FnOnce(&mut Server, Duration) -> T) -> T {
        let mut state = self.lock();
        let now = self.start.elapsed();
        state.server.handle_timeout(now);
        let result = call(&mut state.server, now);
        self.route(&mut state, now);
        result
    }

    /// A panic under the mutex is a test's own mistake; other tests' clean-up still has to work.
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
                // A closed route means that the task is about to report the disconnect.
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

    /// Starts the task of a connection; false if the server refuses it.
    fn accept<S>(shared: &Arc<Self>, stream: S, peer: IpAddr, is_tcp: bool) -> bool
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (sender, output) = mpsc::unbounded_channel();
        let untaken = Arc::new(AtomicUsize::new(0));
        let route = Route { output: sender, untaken: Arc::clone(&untaken) };
        let mut state = shared.lock();
        let now = shared.start.elapsed();
        let accepted = state.server.handle_connect(peer, now);
        if let Some(id) = accepted {
            state.routes.insert(id, route);
            shared.runtime.spawn(serve(Arc::clone(shared), id, stream, (output, untaken), is_tcp));
        }
        shared.route(&mut state, now);
        accepted.is_some()
    }

    /// Waits until the server is no [`Reception::BlackHole`], without keeping it alive; `None` if
    /// it has gone.
    async fn leave_black_hole(shared: &Weak<Self>) -> Option<Arc<Self>> {
        loop {
            let server = shared.upgrade()?;
            // Before the look, so that no change is missed.
            let mut changes = server.reception.subscribe();
            let (reception, until) =
                server.with(|server, now| (server.reception(now), server.reception_until()));
            if reception != Reception::BlackHole {
                return Some(server);
            }
            let until = until.map(|until| server.start + until);
            drop(server);
            match until {
                None => changes.changed().await.ok()?,
                // Either way it is looked at again.
                Some(until) => drop(timeout_at(until, changes.changed()).await),
            }
        }
    }

    /// Hands over bytes that have arrived. Something to wait for before more are read, if the
    /// server has enough.
    fn receive(&self, id: u64, bytes: &[u8]) -> Option<oneshot::Receiver<Infallible>> {
        let mut state = self.lock();
        let now = self.start.elapsed();
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

/// Carries the bytes of one connection.
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
                // Nothing is ever sent: it ends.
                let _ = waiting.await;
            }
        }
        shared.disconnect(id);
    };
    let write = async {
        while let Some(bytes) = output.recv().await {
            writer.write_all(&bytes).await?;
            let before = untaken.fetch_sub(bytes.len(), Ordering::AcqRel);
            // Only what crosses the limit is told, and that always: the number grows under the
            // mutex alone.
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
            // The peer may have closed one direction only, and still read.
            let _ = write.await;
        }
    }
}

/// Where connections come from.
trait Source: Send {
    type Stream: AsyncRead + AsyncWrite + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr)>> + Send;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        // It is only slower without.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer.ip()))
    }
}

/// Accepts connections as long as the server lives. What cannot be accepted now, for want of file
/// descriptors, is tried again after a pause that grows.
async fn listen(shared: Weak<Shared>, mut source: impl Source, mut alive: watch::Receiver<()>) {
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            accepted = source.accept() => accepted,
            _ = alive.changed() => return,
        };
        let stream = match accepted {
            Ok(accepted) => {
                if !pause.is_zero() {
                    tracing::info!("connections can be accepted again");
                }
                pause = Duration::ZERO;
                accepted
            }
            Err(error) => {
                if pause.is_zero() {
                    tracing::warn!(%error, "connections cannot be accepted");
                }
                pause = (pause * 2).clamp(ACCEPT_PAUSE_MIN, ACCEPT_PAUSE_MAX);
                tokio::select! {
                    () = sleep(pause) => continue,
                    _ = alive.changed() => return,
                }
            }
        };
        let Some(shared) = Shared::leave_black_hole(&shared).await else { return };
        let (stream, peer) = stream;
        Shared::accept(&shared, stream, peer, true);
    }
}

/// Wakes the server when it has asked for it.
async fn keep_time(
    shared: Weak<Shared>,
    start: Instant,
    mut deadlines: watch::Receiver<Option<Duration>>,
) {
    loop {
        let deadline = *deadlines.borrow_and_update();
        let alarm = async {
            match deadline {
                Some(deadline) => sleep_until(start + deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
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

    /// Fails so many times, then brings one connection, and so on.
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

    /// Counts events by their level.
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
    async fn accepting_that_fails_is_tried_again_after_pauses_and_told_once() {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let server = TestServer::start(ServerConfig::default());
        let turns = Arc::new(AtomicUsize::new(0));
        let (clients, mut accepted) = mpsc::unbounded_channel();
        let source = Exhausted { failures: 100, left: 100, turns: Arc::clone(&turns), clients };
        let alive = server.shared.alive.subscribe();
        let listening = tokio::spawn(listen(Arc::downgrade(&server.shared), source, alive));

        sleep(Duration::from_secs(10)).await;
        let tried = turns.load(Ordering::Relaxed);
        assert!((15..=25).contains(&tried), "{tried} turns in 10 s");
        assert_eq!(lines.warnings.load(Ordering::Relaxed), 1);
        assert_eq!(lines.others.load(Ordering::Relaxed), 0);

        // 92 pauses of a second; the connection works, and the next failures begin anew.
        let mut client = timeout(Duration::from_secs(100), accepted.recv()).await.unwrap().unwrap();
        client.write_all(b"ruok").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"imok");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(lines.warnings.load(Ordering::Relaxed), 2);
        assert_eq!(lines.others.load(Ordering::Relaxed), 1);
        drop(server);
        timeout(Duration::from_secs(2), listening).await.expect("it ends in the pause").unwrap();
    }
}
