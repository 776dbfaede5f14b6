//! The task of a session: bytes, the timer, and commands.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite as _;
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::access::Access;
use super::clock::Clock;
use super::command::Command;
use super::connection_log::{ConnectionLog, Moment};
use super::ends::{DriverEnds, Pulse};
use super::janitor::Janitor;
use super::meter::Meter;
use super::probe::{Probe, probe};
use super::router::Router;
use super::sasl::{Prepared, Sasl, Stepping};
use super::transport::{Stream, Transport};
use crate::host::Host;
use crate::machine::{Attempt, Event, SaslInput, SessionMachine};
use crate::time::Time;

/// Maximum number of bytes per read.
const READ_CHUNK: usize = 64 * 1024;
/// Capacity of the output buffer that a session keeps while it has nothing to send.
const OUTPUT_KEPT: usize = 16 * 1024;
/// Rounds of work before other tasks get a turn, so that many long replies do not pile up before
/// their recipients take them.
const ROUNDS_MAX: usize = 4;
/// Maximum number of commands per round.
const COMMANDS_MAX: usize = 256;
/// Maximum time for which the timer is armed; it is rearmed after that. Deadlines may be further
/// ahead than a runtime's timer can represent.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

thread_local! {
    /// Receives bytes before their number is known. Most sessions are idle most of the time, and a
    /// separate buffer would account for most of the memory of each session.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection that is being opened, with its SASL exchange.
type Opening =
    Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, Option<Prepared>)>> + Send>>;

/// The state of the task.
pub(crate) struct Driver {
    machine: SessionMachine,
    clock: Clock,
    access: Arc<Access>,
    transport: Arc<dyn Transport>,
    sasl: Option<Sasl>,
    /// There are credentials, and no warning yet that others can read them.
    may_warn_of_plaintext: bool,
    commands: mpsc::UnboundedReceiver<Command>,
    are_handles_dropped: bool,

    /// Span of the session.
    session_span: Span,
    /// Span of the current connection, or of the attempt to open one.
    span: Span,
    connecting: Option<Opening>,
    /// The question to another server whether it accepts writes.
    probe: Option<Probe>,
    stream: Option<Box<dyn Stream>>,
    /// The SASL exchange of the connection, unless a step is running.
    exchange: Option<Prepared>,
    stepping: Option<Stepping>,
    input: BytesMut,
    output: BytesMut,
    /// Number of bytes of `output` that the transport has accepted.
    written: usize,
    /// The transport has accepted bytes and may still buffer them.
    needs_flush: bool,
    timer: Pin<Box<Sleep>>,
    armed: Option<Time>,
    /// When the task began to run the last time.
    running_since: Time,
    pulse: Pulse,

    router: Router,
}

impl Driver {
    pub(crate) fn new(
        machine: SessionMachine,
        clock: Clock,
        access: Arc<Access>,
        transport: Arc<dyn Transport>,
        sasl: Option<Sasl>,
        ends: DriverEnds,
    ) -> Self {
        let DriverEnds { commands, status, connection, queued, last_end, pulse, totals } = ends;
        let log = ConnectionLog::new(connection, machine.server_count());
        let may_warn_of_plaintext = sasl.is_some() || machine.has_auth();
        let running_since = machine.now();
        Self {
            machine,
            clock,
            access,
            transport,
            sasl,
            may_warn_of_plaintext,
            commands,
            are_handles_dropped: false,
            session_span: Span::none(),
            span: Span::none(),
            connecting: None,
            probe: None,
            stream: None,
            exchange: None,
            stepping: None,
            input: BytesMut::new(),
            output: BytesMut::new(),
            written: 0,
            needs_flush: false,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: None,
            running_since,
            pulse,
            router: Router::new(status, log, Meter::new(totals), queued, last_end),
        }
    }

    /// Spawns the task of the session on the current runtime, and creates its janitor.
    pub(crate) fn start(mut self, span: &Span) -> Janitor {
        self.session_span = span.clone();
        tokio::spawn(Box::new(self).run().instrument(span.clone()));
        Janitor::new(span.clone(), tokio::runtime::Handle::current())
    }

    /// Runs the task of the session until it ends.
    pub(crate) async fn run_as(mut self, span: Span) {
        self.session_span = span.clone();
        Box::new(self).run().instrument(span).await;
    }

    /// Runs until the session is closed and all events are delivered. The driver is boxed, because a
    /// future that owned it would have room for two of them: its argument, and the same value while
    /// it runs.
    async fn run(mut self: Box<Self>) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        // Commands that were sent before the channel closed still get their replies.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.handle_command(self.clock.now(), command);
        }
        self.drain();
        self.router.stop();
    }

    /// Does all work that can be done now. Returns `Ready` when the machine has stopped.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.running_since = self.clock.now();
        self.router.log.task_runs(self.pulse.stall(self.running_since));
        let is_stopped = self.work(cx);
        self.pulse.beat(self.due());
        if self.router.lanes.wake() {
            cx.waker().wake_by_ref();
        }
        is_stopped
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..ROUNDS_MAX {
            let span = self.span.clone();
            let _entered = span.enter();
            // Bytes are read first, because acknowledgements move deadlines. Bytes are written
            // last, so that all earlier steps share one write.
            let mut moved = self.poll_read(cx).is_ready();
            moved |= self.poll_connect(cx).is_ready();
            moved |= self.poll_sasl(cx).is_ready();
            moved |= self.poll_probe(cx).is_ready();
            moved |= self.poll_timer(cx).is_ready();
            moved |= self.poll_commands(cx).is_ready();
            moved |= self.poll_write(cx).is_ready();
            if self.router.status().state.is_final() && self.is_stopped() {
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
        // The server may process a request as soon as the transport has taken its last byte, so the
        // time is read before.
        let now = self.clock.now();
        let Poll::Ready(written) = Pin::new(stream).poll_write(cx, waiting) else {
            self.machine.handle_blocked();
            return Poll::Pending;
        };
        match written {
            Ok(taken) if taken > 0 => {
                self.written += taken;
                let left = self.output.get(self.written..).unwrap_or_default();
                if left.is_empty() {
                    self.clear_output();
                } else if left.len() <= self.written {
                    // If more bytes keep arriving, the buffer may never be empty, so drop the bytes
                    // that were written once they are the larger part.
                    self.output = BytesMut::from(left);
                    self.written = 0;
                }
                self.needs_flush = true;
                self.router.meter.sent(taken);
                self.machine.handle_transmitted(now, taken);
                if self.machine.events().next().is_none() {
                    // The next round counts the bytes.
                    return Poll::Ready(());
                }
            }
            Ok(_) => self.handle_transport_error(&io::ErrorKind::WriteZero.into()),
            Err(error) => self.handle_transport_error(&error),
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

    /// Flushes the transport once everything is written. This may take several polls.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.needs_flush) else {
            return Poll::Pending;
        };
        let flushed = ready!(Pin::new(stream).poll_flush(cx));
        self.needs_flush = false;
        if let Err(error) = flushed {
            self.handle_transport_error(&error);
            self.drain();
        }
        Poll::Ready(())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        // The buffer is taken out of the thread-local, in case the stream drives another session of
        // this thread.
        let mut scratch = SCRATCH.take();
        scratch.clear();
        scratch.reserve(READ_CHUNK);
        let read = tokio_util::io::poll_read_buf(Pin::new(stream), cx, &mut scratch);
        self.input.extend_from_slice(&scratch);
        self.router.meter.received(scratch.len());
        SCRATCH.set(scratch);
        match ready!(read) {
            Ok(0) => self.handle_transport_error(&io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                self.machine.handle_bytes(self.clock.now(), &mut self.input);
                if self.input.is_empty() {
                    // Replies are slices of this allocation, which is freed when the last of them
                    // is dropped.
                    self.input = BytesMut::new();
                }
            }
            Err(error) => self.handle_transport_error(&error),
        }
        self.drain();
        Poll::Ready(())
    }

    fn poll_connect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connecting) = &mut self.connecting else { return Poll::Pending };
        let result = ready!(connecting.as_mut().poll(cx));
        self.connecting = None;
        match result {
            Ok((stream, exchange)) => {
                self.stream = Some(stream);
                self.exchange = exchange;
                self.machine.handle_connected(self.clock.now());
            }
            Err(error) => self.handle_transport_error(&error),
        }
        self.drain();
        Poll::Ready(())
    }

    fn poll_sasl(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stepping) = &mut self.stepping else { return Poll::Pending };
        let (exchange, step) = ready!(stepping.as_mut().poll(cx));
        self.stepping = None;
        self.exchange = Some(exchange);
        self.machine.handle_sasl(self.clock.now(), step);
        self.drain();
        Poll::Ready(())
    }

    fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(probe) = &mut self.probe else { return Poll::Pending };
        let found = ready!(probe.as_mut().poll(cx));
        self.probe = None;
        if let Some(host) = found {
            debug!(%host, "a server accepts writes");
            self.machine.handle_read_write_server(self.clock.now(), host);
        }
        self.drain();
        Poll::Ready(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.due() else { return Poll::Pending };
        // A deadline that has passed since the task began to run makes the timer fire. So each round
        // can do without a look at the clock.
        if at > self.running_since {
            if self.armed != Some(at) {
                self.armed = Some(at);
                let now = self.clock.now();
                let pause = at.saturating_since(now).min(SLEEP_MAX);
                self.timer.as_mut().reset(tokio::time::Instant::now() + pause);
            }
            ready!(self.timer.as_mut().poll(cx));
            // The runtime's clock may differ from ours, so rearm the timer if it fired early.
            self.armed = None;
        }
        let now = self.clock.now();
        self.router.lanes.ring(now);
        self.machine.handle_timeout(now);
        self.drain();
        Poll::Ready(())
    }

    /// Returns when the task must run next, whatever else happens.
    fn due(&self) -> Option<Time> {
        let alarm = self.router.lanes.next_alarm();
        self.machine.poll_timeout().into_iter().chain(alarm).min()
    }

    fn poll_commands(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.are_handles_dropped {
            return Poll::Pending;
        }
        // Receive many commands at once, because each call uses up some of the task's cooperative
        // budget, and the write that follows needs some of it too.
        let mut commands = Vec::with_capacity(self.commands.len().min(COMMANDS_MAX));
        let taken = ready!(self.commands.poll_recv_many(cx, &mut commands, COMMANDS_MAX));
        let now = self.clock.now();
        for command in commands {
            self.handle_command(now, command);
        }
        if taken == 0 {
            debug!("the last handle was dropped");
            self.are_handles_dropped = true;
            self.machine.close(now);
        }
        self.drain();
        Poll::Ready(())
    }

    fn handle_command(&mut self, now: Time, command: Command) {
        // More flights usually follow a flight, and the error of a refused one can wait until they
        // are submitted.
        let is_submit = matches!(command, Command::Submit { .. });
        if let Command::ChangeAuth(..) = command
            && !self.machine.has_auth()
            && self.sasl.is_none()
        {
            self.may_warn_of_plaintext = true;
            if let Some(host) = self.machine.server().filter(|_| self.stream.is_some()) {
                self.warn_of_plaintext(&host);
            }
        }
        self.router.handle_command(&mut self.machine, now, command);
        if !is_submit {
            self.drain();
        }
    }

    fn handle_transport_error(&mut self, error: &io::Error) {
        let stage = self.machine.stage();
        self.close_transport();
        self.machine.handle_disconnected(self.clock.now());
        let moment = self.moment();
        self.router.log.transport_failed(error, stage, moment);
    }

    fn moment(&self) -> Moment {
        let Self { machine, clock, .. } = self;
        let (failures, next_attempt) = (machine.failures(), machine.next_attempt());
        Moment { now: clock.now(), failures, next_attempt }
    }

    fn close_transport(&mut self) {
        self.connecting = None;
        self.probe = None;
        self.stream = None;
        self.exchange = None;
        self.stepping = None;
        self.input = BytesMut::new();
        self.clear_output();
        self.needs_flush = false;
    }

    /// Opens a connection. Its first SASL message is prepared before: a KDC may be slow, and a
    /// session that waits for one on an open connection could expire.
    fn open(&self, host: Host, attempt: Attempt) -> Opening {
        let transport = Arc::clone(&self.transport);
        let sasl = self.sasl.clone();
        let clock = self.clock.clone();
        let begun = clock.now();
        let record_preparing = self.router.log.preparation();
        Box::pin(async move {
            let Some(sasl) = sasl else {
                return Ok((transport.connect(host, attempt).await?, None));
            };
            record_preparing(true);
            let exchange = sasl.prepare(host.clone(), attempt).await?;
            record_preparing(false);
            let time = attempt.time().saturating_sub(clock.now().saturating_since(begun));
            let attempt = Attempt::new(attempt.number(), time);
            Ok((transport.connect(host, attempt).await?, Some(exchange)))
        })
    }

    /// Warns, once per client, if credentials are used where others can read the connection.
    fn warn_of_plaintext(&mut self, host: &Host) {
        if self.may_warn_of_plaintext && self.transport.is_plaintext(host) {
            self.may_warn_of_plaintext = false;
            warn!(
                %host,
                "the client authenticates without TLS: everyone on the way to the server can read \
                 the session's password, the requests and their data, can change them, and can \
                 read the passwords of `auth`"
            );
        }
    }

    fn step_sasl(&mut self, input: SaslInput) {
        let exchange = self.exchange.take();
        let exchange = exchange.expect("the machine asks for one step at a time");
        self.stepping = Some(exchange.next(input));
    }

    /// Processes all events of the machine.
    fn drain(&mut self) {
        self.router.log.stage_reached(self.machine.stage());
        // Publish the counters and the status first, so that the recipient of an event sees those
        // that include it, or newer ones. The counters precede the status, because `connect`
        // returns as soon as the status says so.
        self.router.count(&mut self.machine);
        self.router.publish(self.machine.status());
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Connect(host) => {
                    // This span is a child of the session's span. If it were a child of the
                    // previous connection's span, the spans would form an ever longer chain.
                    self.span = info_span!(parent: &self.session_span, "zk_connection", %host);
                    let attempt = self.machine.attempt();
                    debug!(parent: &self.span, time = ?attempt.time(), "connecting");
                    self.router.log.attempt_started(host.clone(), self.clock.now());
                    self.warn_of_plaintext(&host);
                    self.connecting = Some(self.open(host, attempt));
                }
                Event::AuthChanged { token, result } => {
                    self.router.deliver_auth_change(token, result);
                }
                Event::CreateChroot(request) => self.access.check(&request),
                Event::HandedOver(ticket) => self.router.hand_over(ticket),
                // A slow server must not get more questions.
                Event::Probe { host, attempt } if self.probe.is_none() => {
                    self.probe = Some(probe(&*self.transport, host, attempt));
                }
                Event::Probe { .. } => {}
                Event::Disconnect(cause) => {
                    self.probe = None;
                    self.close_transport();
                    let moment = self.moment();
                    self.router.log.connection_ended(cause, moment);
                }
                Event::Change(change) => {
                    self.router.announce(change, self.machine.terms(), self.clock.now());
                }
                Event::Sasl(input) => self.step_sasl(input),
                Event::Reply { token, reply } => self.router.deliver_reply(token, reply),
                Event::Watch { id, event } => self.router.deliver_watch_event(id, event),
                Event::PersistentWatch { id, news } => self.router.deliver_news(id, news),
            }
        }
        self.router.check_outage(&self.machine);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jute_codec::{Request, SetDataRequest, Version};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::sync::oneshot;

    use super::*;
    use crate::driver::command::ReplySink;
    use crate::driver::ends::{HandleEnds, channels};
    use crate::host::Host;
    use crate::machine::{Flight, Operation, OwnerId, SessionConfig, Token};

    /// A transport that accepts few bytes at a time, like a connection slower than its client.
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

    /// A driver that the test polls itself, and the other ends of its channels.
    struct Parts {
        driver: Driver,
        handles: HandleEnds,
    }

    impl Parts {
        fn new(transport: impl Transport) -> Self {
            let config = SessionConfig {
                hosts: vec![Host { name: "zk".into(), port: 2181 }],
                seed: 1,
                session_timeout: Duration::from_secs(30),
                connect_timeout: Duration::from_secs(3),
                give_up: Duration::from_secs(60),
                sasl: false,
                auth: vec![],
                request_limit: 1 << 20,
                response_limit: 1 << 20,
                outstanding_limit: 65_536,
                renew: true,
                read_only: false,
                resume: None,
                chroot: vec![],
                lease: None,
            };
            let clock = Clock::tokio();
            let machine = SessionMachine::new(config, clock.now());
            let (handles, driver_ends) = channels(machine.status(), clock.now());
            let access = Arc::new(Access::new(None, false));
            let transport = Arc::new(transport);
            let driver = Driver::new(machine, clock, access, transport, None, driver_ends);
            Self { driver, handles }
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
        let Parts { mut driver, handles } = Parts::new(transport);
        let data = Bytes::from(vec![b'x'; 10_000]);
        let mut answers = Vec::new();
        for token in 0..FLIGHTS {
            let (sender, answer) = oneshot::channel();
            answers.push(answer);
            let request = SetDataRequest {
                path: "/a".into(),
                data: Some(data.clone()),
                version: Version::ANY,
            };
            let operation = Operation::new(Request::SetData(request));
            let flight = Flight { operations: vec![operation], session: None, deadline: None };
            let submit = Command::Submit {
                token: Token(token),
                owner: OwnerId::NONE,
                flight,
                sink: ReplySink::Once(sender),
                extras: None,
            };
            handles.queued.add(usize::MAX).expect("there is no limit");
            assert!(handles.commands.send(submit).is_ok());
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
