//! The task that runs a session: it moves bytes between the machine and the transport, arms one
//! timer, and hands out what the machine says.
//!
//! One session is one task. It never runs code of the user's, so nothing a user does with an
//! answer can delay a heartbeat, short of blocking the runtime's threads.

#![expect(clippy::disallowed_methods, reason = "this is the driver: it owns clock and tasks")]

pub(crate) mod clock;
pub(crate) mod inbox;
pub(crate) mod janitor;
mod lanes;
pub(crate) mod shared;
pub(crate) mod transport;
pub(crate) mod trouble;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Sleep;
use tracing::{Instrument as _, Span, debug, info_span};

use self::clock::Clock;
use self::janitor::Janitor;
use self::lanes::Lanes;
use self::shared::{Command, LaneEvent, Sink, WatchSender};
use self::transport::{Connecting, Stream, Transport};
use self::trouble::{Seen, Trouble};
use crate::machine::{Change, EndCause, Event, Session, SessionState, Status, Token};
use crate::time::Time;
use crate::types::WatchedEvent;
use crate::watcher::WatchEnded;

/// Bytes read at a time.
const READ_CHUNK: usize = 64 * 1024;
/// Room for bytes to send that a session keeps when there are none.
const OUTPUT_KEPT: usize = 16 * 1024;
/// Rounds of work before other tasks get their turn: so that many long answers do not pile up
/// before anybody takes them.
const ROUNDS_MAX: usize = 4;
/// Commands taken in one round.
const COMMANDS_MAX: usize = 256;
/// The timer is armed for at most this long, and then armed again: deadlines may lie further ahead
/// than a runtime can count.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

thread_local! {
    /// Where bytes are read to before it is known how many there are. Sessions are idle most of
    /// the time, and a buffer of its own would be most of what each of them needs.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// State of the task.
pub(crate) struct Driver {
    machine: Session,
    clock: Clock,
    transport: Arc<dyn Transport>,
    commands: mpsc::UnboundedReceiver<Command>,
    queued: Arc<AtomicUsize>,
    handles_gone: bool,

    /// Span of the session, and of the current connection or the attempt to get one.
    session_span: Span,
    span: Span,
    connecting: Option<Connecting>,
    stream: Option<Box<dyn Stream>>,
    input: BytesMut,
    output: BytesMut,
    /// Of `output`, how much the transport has taken.
    written: usize,
    /// The transport has taken bytes and may still hold them back.
    needs_flush: bool,
    timer: Pin<Box<Sleep>>,
    armed: Option<Time>,

    /// What was published last.
    published: Status,
    status: watch::Sender<Status>,
    trouble: Trouble,
    sinks: BTreeMap<Token, Sink>,
    lanes: Lanes,
    watchers: BTreeMap<u64, WatchSender>,
    closers: Vec<oneshot::Sender<EndCause>>,
    end: Arc<Mutex<EndCause>>,
}

/// Channels between the task and its handles.
pub(crate) struct Ends {
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) seen: watch::Sender<Seen>,
    pub(crate) end: Arc<Mutex<EndCause>>,
}

impl Driver {
    pub(crate) fn new(
        machine: Session,
        clock: Clock,
        transport: Arc<dyn Transport>,
        ends: Ends,
    ) -> Self {
        let published = *ends.status.borrow();
        let trouble = Trouble::new(ends.seen, machine.servers());
        Self {
            machine,
            clock,
            transport,
            commands: ends.commands,
            queued: ends.queued,
            handles_gone: false,
            session_span: Span::none(),
            span: Span::none(),
            connecting: None,
            stream: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            written: 0,
            needs_flush: false,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            published,
            status: ends.status,
            trouble,
            sinks: BTreeMap::new(),
            lanes: Lanes::default(),
            watchers: BTreeMap::new(),
            closers: Vec::new(),
            end: ends.end,
        }
    }

    /// Spawns the task of the session, and its janitor, on the current runtime.
    pub(crate) fn start(mut self, span: &Span) -> Janitor {
        self.session_span = span.clone();
        tokio::spawn(self.run().instrument(span.clone()));
        Janitor::new(span.clone())
    }

    /// Runs until the session is closed and everybody was told.
    async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.handle_command(self.clock.now(), command);
        }
        self.drain();
        self.lanes.stop();
        for closer in self.closers.drain(..) {
            let _ = closer.send(*self.end.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Does all that can be done now. Ready when the machine has stopped.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_stopped = self.work(cx);
        if self.lanes.wake() {
            cx.waker().wake_by_ref();
        }
        is_stopped
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            let span = self.span.clone();
            let _entered = span.enter();
            // Bytes first: acknowledgements move deadlines. Last one write for all that came of
            // the rest.
            let mut moved = self.poll_read(cx).is_ready();
            moved |= self.poll_connect(cx).is_ready();
            moved |= self.poll_timer(cx).is_ready();
            moved |= self.poll_commands(cx).is_ready();
            moved |= self.poll_write(cx).is_ready();
            if is_final(self.published.state) && self.is_stopped() {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_stopped(&self) -> bool {
        self.stream.is_none() && self.connecting.is_none() && self.machine.poll_timeout().is_none()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.machine.poll_transmit(&mut self.output);
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        let waiting = self.output.get(self.written..).unwrap_or_default();
        if waiting.is_empty() {
            return self.poll_flush(cx);
        }
        match ready!(Pin::new(stream).poll_write(cx, waiting)) {
            Ok(taken) if taken > 0 => {
                self.written += taken;
                let left = self.output.get(self.written..).unwrap_or_default();
                if left.is_empty() {
                    self.clear_output();
                } else if left.len() <= self.written {
                    // More may come for ever before all of it has left.
                    self.output = BytesMut::from(left);
                    self.written = 0;
                }
                self.needs_flush = true;
                self.machine.handle_transmitted(self.clock.now(), taken);
            }
            Ok(_) => self.disconnected(&io::ErrorKind::WriteZero.into()),
            Err(error) => self.disconnected(&error),
        }
        self.drain();
        Poll::Ready(())
    }

    fn clear_output(&mut self) {
        self.written = 0;
        self.output.clear();
        if self.output.capacity() > OUTPUT_KEPT {
            self.output = BytesMut::new();
        }
    }

    /// Flushes once everything is written. It may take several polls.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.needs_flush) else {
            return Poll::Pending;
        };
        let flushed = ready!(Pin::new(stream).poll_flush(cx));
        self.needs_flush = false;
        if let Err(error) = flushed {
            self.disconnected(&error);
            self.drain();
        }
        Poll::Ready(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        // Taken out, should the stream do something with another session of this thread.
        let mut scratch = SCRATCH.take();
        scratch.clear();
        scratch.reserve(READ_CHUNK);
        let read = tokio_util::io::poll_read_buf(Pin::new(stream), cx, &mut scratch);
        self.input.extend_from_slice(&scratch);
        SCRATCH.set(scratch);
        match ready!(read) {
            Ok(0) => self.disconnected(&io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                self.machine.handle_bytes(self.clock.now(), &mut self.input);
                if self.input.is_empty() {
                    // What it has room for belongs to the answers now, and goes with them.
                    self.input = BytesMut::new();
                }
            }
            Err(error) => self.disconnected(&error),
        }
        self.drain();
        Poll::Ready(())
    }

    fn poll_connect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connecting) = &mut self.connecting else { return Poll::Pending };
        let result = ready!(connecting.as_mut().poll(cx));
        self.connecting = None;
        match result {
            Ok(stream) => {
                self.stream = Some(stream);
                self.machine.handle_connected(self.clock.now());
            }
            Err(error) => self.disconnected(&error),
        }
        self.drain();
        Poll::Ready(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.machine.poll_timeout();
        let alarm = self.lanes.next_alarm();
        let Some(at) = deadline.into_iter().chain(alarm).min() else { return Poll::Pending };
        let mut now = self.clock.now();
        if at > now {
            if self.armed != Some(at) {
                self.armed = Some(at);
                let pause = at.saturating_since(now).min(SLEEP_MAX);
                self.timer.as_mut().reset(tokio::time::Instant::now() + pause);
            }
            ready!(self.timer.as_mut().poll(cx));
            // The clocks may differ; arm it again if the time has not come.
            self.armed = None;
            now = self.clock.now();
        }
        self.lanes.ring(now);
        self.machine.handle_timeout(now);
        self.drain();
        Poll::Ready(())
    }

    fn poll_commands(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.handles_gone {
            return Poll::Pending;
        }
        // All at once: each call takes some of the task's budget, and the write that follows needs
        // some of it, however many there are.
        let mut commands = Vec::new();
        let taken = ready!(self.commands.poll_recv_many(cx, &mut commands, COMMANDS_MAX));
        let now = self.clock.now();
        for command in commands {
            self.handle_command(now, command);
        }
        if taken == 0 {
            debug!("the last handle is gone");
            self.handles_gone = true;
            self.machine.close(now);
        }
        self.drain();
        Poll::Ready(())
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Cancel(token) => {
                self.sinks.remove(&token);
                self.machine.cancel(now, token);
            }
            Command::Close(closer) => {
                self.closers.push(closer);
                self.machine.close(now);
            }
            Command::ForgetOwner(owner) => {
                let was_lane = self.lanes.close(owner);
                self.watchers.remove(&owner);
                self.machine.forget_owner(owner);
                self.machine.set_lease_needed(now, self.lanes.is_lease_needed());
                if was_lane && self.lanes.is_empty() {
                    self.machine.set_relied_on(now, false);
                }
            }
            Command::OpenLane(id, teller) => {
                if self.lanes.is_empty() {
                    self.machine.set_relied_on(now, true);
                }
                self.lanes.open(id, teller);
            }
            Command::NeedLease(id, needs_lease) => {
                self.lanes.need_lease(id, needs_lease);
                self.machine.set_lease_needed(now, self.lanes.is_lease_needed());
            }
            Command::WakeLane(id, at) => self.lanes.set_alarm(id, at),
            Command::Recall(token) => self.machine.recall(now, token),
            Command::Submit { token, flight, sink, watcher } => {
                self.watchers.extend(watcher);
                if sink.is_counted() {
                    self.queued.fetch_sub(1, Ordering::Relaxed);
                    self.machine.submit(now, token, flight);
                } else {
                    self.machine.submit_uncounted(now, token, flight);
                }
                self.sinks.insert(token, sink);
                // Others follow, and a refusal can wait for them.
                return;
            }
        }
        self.drain();
    }

    fn disconnected(&mut self, error: &io::Error) {
        let (stage, now) = (self.machine.stage(), self.clock.now());
        self.close_transport();
        self.machine.handle_disconnected(now);
        self.trouble.broke(error, stage, self.machine.failures(), now);
    }

    fn close_transport(&mut self) {
        self.connecting = None;
        self.stream = None;
        self.input = BytesMut::new();
        self.clear_output();
        self.needs_flush = false;
    }

    /// Takes everything out of the machine but the bytes to send.
    fn drain(&mut self) {
        self.trouble.reached(self.machine.stage());
        // Before the events: whoever gets one sees a status that is at least as new.
        self.publish();
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Change(change) => self.announce(change),
                Event::Connect(host) => {
                    // Not a child of the current one, which would make a chain without an end.
                    self.span = info_span!(parent: &self.session_span, "zk_connection", %host);
                    let attempt = self.machine.attempt();
                    debug!(parent: &self.span, time = ?attempt.time(), "connecting");
                    self.trouble.trying(host.clone(), self.clock.now());
                    self.connecting = Some(self.transport.connect(host, attempt));
                }
                Event::Disconnect(cause) => {
                    self.close_transport();
                    self.trouble.ended(&cause, self.machine.failures(), self.clock.now());
                }
                Event::Reply { token, reply } => match self.sinks.remove(&token) {
                    Some(Sink::Lane(id)) => {
                        self.lanes.tell(id, LaneEvent::Reply { token, reply });
                    }
                    Some(Sink::Once(sender)) => drop(sender.send(reply)),
                    None => {}
                },
                Event::Watch { id, event } => self.fire(id.owner, id.local, event),
            }
        }
        let is_connected = self.published.state == SessionState::Connected;
        self.trouble.look(self.machine.failures(), is_connected);
    }

    fn publish(&mut self) {
        let new = self.machine.status();
        if new == self.published {
            return;
        }
        self.published = new;
        self.status.send_if_modified(|status| {
            // Acknowledgements are read when needed; nobody is woken for them, nor for what they
            // prove, unless it is the first lease.
            let Status { acknowledged, guard_deadline, lease_deadline, beat, .. } = *status;
            let same = Status { acknowledged, guard_deadline, lease_deadline, beat, ..new };
            let is_news =
                same != *status || lease_deadline.is_none() != new.lease_deadline.is_none();
            *status = new;
            is_news
        });
    }

    fn announce(&mut self, change: Change) {
        self.trouble.tell(change);
        if let Change::Ended { cause, .. } = change {
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = cause;
            let ended = match cause {
                EndCause::Closed | EndCause::Abandoned => WatchEnded::Closed,
                EndCause::Expired | EndCause::GaveUp | EndCause::Swapped => {
                    WatchEnded::SessionExpired
                }
            };
            for (_, watcher) in std::mem::take(&mut self.watchers) {
                let _ = watcher.send(Err(ended));
            }
        }
        self.lanes.tell_all(change);
    }

    fn fire(&mut self, owner: u64, local: u64, event: WatchedEvent) {
        if let Some(watcher) = self.watchers.remove(&owner) {
            let _ = watcher.send(Ok(event));
        } else {
            self.lanes.tell(owner, LaneEvent::Watch { local, event });
        }
    }
}

/// The runtime drops the task when it shuts down. Nobody keeps the session alive any more, so its
/// handles must not go on as if it were connected. Lanes are told by the end of their queue.
impl Drop for Driver {
    fn drop(&mut self) {
        if !is_final(self.published.state) {
            self.status.send_modify(|status| status.state = SessionState::Closed);
        }
    }
}

fn is_final(state: SessionState) -> bool {
    match state {
        SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => true,
        SessionState::Connected | SessionState::Connecting | SessionState::Suspended => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use bytes::Bytes;
    use jute_codec::{Request, SetDataRequest};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;
    use crate::connect_string::Host;
    use crate::machine::{Flight, Operation, SessionConfig};

    /// Takes a little at a time, as a connection does that is slower than its client.
    struct Slow<S>(S);

    impl<S: AsyncRead + Unpin> AsyncRead for Slow<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, buffer)
        }
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Slow<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let some = bytes.get(..bytes.len().min(16 * 1024)).unwrap_or_default();
            Pin::new(&mut self.0).poll_write(cx, some)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// A driver that is polled by hand, and what its handles hold.
    struct Parts {
        driver: Driver,
        commands: mpsc::UnboundedSender<Command>,
        _status: watch::Receiver<Status>,
        _seen: watch::Receiver<Seen>,
    }

    impl Parts {
        fn new(transport: impl Transport, queued: usize) -> Self {
            let config = SessionConfig {
                hosts: vec![Host { name: "zk".into(), port: 2181 }],
                seed: 1,
                session_timeout: Duration::from_secs(30),
                connect_timeout: Duration::from_secs(3),
                give_up: Duration::from_secs(60),
                auth: vec![],
                request_limit: 1 << 20,
                response_limit: 1 << 20,
                outstanding_limit: 65_536,
                renew: true,
                lease: None,
            };
            let clock = Clock::tokio();
            let machine = Session::new(config, clock.now());
            let (commands, command_queue) = mpsc::unbounded_channel();
            let (status, _status) = watch::channel(machine.status());
            let (seen, _seen) = watch::channel(Seen::default());
            let ends = Ends {
                commands: command_queue,
                queued: Arc::new(AtomicUsize::new(queued)),
                status,
                seen,
                end: Arc::new(Mutex::new(EndCause::Abandoned)),
            };
            let driver = Driver::new(machine, clock, Arc::new(transport), ends);
            Self { driver, commands, _status, _seen }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_is_not_kept_while_there_is_more_to_write() {
        const FLIGHTS: u64 = 2000;
        let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
        server.admin_create("/a", b"", None);
        let connector = server.connector();
        let transport = move |host| {
            let pipe = connector(host);
            async move { pipe.await.map(Slow) }
        };
        let Parts { mut driver, commands, .. } = Parts::new(transport, FLIGHTS as usize);
        let data = Bytes::from(vec![b'x'; 10_000]);
        let mut answers = Vec::new();
        for token in 0..FLIGHTS {
            let (sender, answer) = oneshot::channel();
            answers.push(answer);
            let request =
                SetDataRequest { path: "/a".into(), data: Some(data.clone()), version: -1 };
            let operation = Operation::new(Request::SetData(request));
            let flight = Flight { operations: vec![operation], session: None, deadline: None };
            let (token, sink) = (Token(token), Sink::Once(sender));
            let submit = Command::Submit { token, flight, sink, watcher: None };
            assert!(commands.send(submit).is_ok());
        }
        let mut most = 0;
        let mut last = answers.pop().expect("there are some");
        std::future::poll_fn(|cx| {
            let _ = driver.poll(cx);
            most = most.max(driver.output.len());
            Pin::new(&mut last).poll(cx).map(|reply| {
                let reply = reply.expect("the driver lives");
                assert!(reply.results.iter().all(Result::is_ok), "{reply:?}");
            })
        })
        .await;
        assert!(most < 1 << 20, "up to {most} bytes were kept");
    }
}
