//! Outages: log lines remain short and rare, and say what has happened and why.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::DuplexStream;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};
use zk_recipes::{
    Acl, Client, Clock, FairLock, Lease, LockState, LostReason, WorkQueue, WorkQueueError,
};
use zk_session::{Host, SessionState, Time};
use zk_tests::page;
use zk_tests::scene::spawn;
use zk_tests::world::{runtime, sleep_ms};
use zk_testserver::{Reception, ServerConfig, TestServer};

/// Collects the lines.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    pub(crate) fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(bytes).expect("lines are text").lines().map(str::to_owned).collect()
    }
}

/// The deepest nesting of spans.
#[derive(Clone, Default)]
struct Depth(Arc<AtomicUsize>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Depth {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let depth = context.span_scope(id).map_or(0, Iterator::count);
        self.0.fetch_max(depth, Relaxed);
    }
}

/// Runs a test with a client whose servers can be switched off, and a subscriber at INFO.
pub(crate) fn with_outage<F: Future<Output = ()>>(
    test: impl FnOnce(Client, TestServer, Arc<AtomicBool>, Arc<AtomicUsize>, Lines) -> F,
) -> usize {
    let (lines, depth) = (Lines::default(), Depth::default());
    let fmt = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(lines.clone());
    let at_info = tracing_subscriber::filter::LevelFilter::from_level(Level::INFO);
    let subscriber = Registry::default().with(at_info).with(depth.clone()).with(fmt);
    tracing::subscriber::with_default(subscriber, || {
        runtime().block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let (is_off, attempts) = (Arc::new(AtomicBool::new(false)), Arc::default());
            let (connector, off, count) =
                (server.connector(), Arc::clone(&is_off), Arc::<AtomicUsize>::clone(&attempts));
            let transport = move |host| {
                count.fetch_add(1, Relaxed);
                let (stream, is_off) = (connector(host), off.load(Relaxed));
                async move {
                    if is_off {
                        return Err::<DuplexStream, _>(io::ErrorKind::ConnectionRefused.into());
                    }
                    stream.await
                }
            };
            let client = Client::builder("a,b,c")
                .transport(transport)
                .clock(Clock::tokio())
                .seed(1)
                .connect()
                .await
                .expect("the servers are there");
            test(client, server, is_off, attempts, lines).await;
        });
    });
    depth.0.load(Relaxed)
}

#[test]
fn spans_do_not_nest_and_lines_do_not_grow_however_many_attempts_fail() {
    const ATTEMPTS: usize = 5_000;
    const MINUTES_MAX: usize = 1_000;
    let depth = with_outage(|client, server, is_off, attempts, lines| async move {
        is_off.store(true, Relaxed);
        server.disconnect_all();
        for _ in 0..MINUTES_MAX {
            if attempts.load(Relaxed) >= ATTEMPTS {
                break;
            }
            sleep_ms(60_000).await;
        }
        let attempts = attempts.load(Relaxed);
        assert!(attempts >= ATTEMPTS, "{attempts} attempts in {MINUTES_MAX} minutes");
        let lines = lines.take();
        assert!(!lines.is_empty(), "an outage is logged");
        let longest = lines.iter().map(String::len).max().unwrap_or_default();
        assert!(longest < 400, "{longest} characters");
        assert!(lines.iter().all(|line| line.matches("zk_connection").count() <= 1));
        // Deeply nested spans would overflow the stack here.
        client.close().await;
    });
    assert_eq!(depth, 2, "session and connection");
}

#[test]
fn an_outage_is_told_once_a_minute_with_its_cause_and_so_is_its_end() {
    with_outage(|client, server, is_off, attempts, lines| async move {
        sleep_ms(15_000).await;
        lines.take();
        is_off.store(true, Relaxed);
        server.disconnect_all();
        sleep_ms(5_000).await;
        let first = lines.take();
        let lost = first.iter().filter(|line| line.contains("connection lost")).collect::<Vec<_>>();
        assert_eq!(lost.len(), 1, "{first:#?}");
        assert!(lost[0].contains("cause=the server closed the connection"), "{first:#?}");
        let before = attempts.load(Relaxed);
        sleep_ms(595_000).await;
        let count = attempts.load(Relaxed) - before;
        let lines_of_outage = lines.take();
        let warnings: Vec<_> = lines_of_outage
            .iter()
            .chain(&first)
            .filter(|line| line.contains("still not connected"))
            .collect();
        assert!((9..=11).contains(&warnings.len()), "{} in 10 minutes", warnings.len());
        for warning in &warnings {
            assert!(warning.contains("attempts="), "{warning}");
            assert!(warning.contains(":2181: cannot connect: connection refused"), "{warning}");
        }
        assert!(lines_of_outage.len() < warnings.len() + 5, "{lines_of_outage:#?}");
        assert!(count > 100);
        // The outage ends.
        is_off.store(false, Relaxed);
        sleep_ms(30_000).await;
        let end = lines.take();
        let connected = end.iter().filter(|line| line.contains("connected")).collect::<Vec<_>>();
        let [connected] = connected.as_slice() else { panic!("{end:#?}") };
        for field in ["resumed=", "server=", "timeout=30s", "requested=30s", "lease=", "outage=60"]
        {
            assert!(connected.contains(field), "{connected}");
        }
        assert_eq!(client.state(), SessionState::Connected);
    });
}

#[test]
fn servers_that_end_every_connection_do_not_fill_the_log() {
    with_outage(|client, server, _, attempts, lines| async move {
        sleep_ms(15_000).await;
        lines.take();
        let before = attempts.load(Relaxed);
        for _ in 0..6_000 {
            server.disconnect_all();
            sleep_ms(100).await;
        }
        let count = attempts.load(Relaxed) - before;
        assert!(count > 100, "{count}");
        let lines = lines.take();
        assert!(lines.len() < 25, "{} lines in 10 minutes: {lines:#?}", lines.len());
        assert!(
            client.last_failure().is_some_and(|failure| failure.to_string().contains("closed"))
        );
    });
}

#[test]
fn sessions_without_a_lease_are_told_once_with_the_numbers() {
    let lines = Lines::default();
    let fmt = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(fmt, || {
        runtime().block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let client = Client::builder("in-process")
                .transport(server.connector())
                .clock(Clock::tokio())
                .session_timeout(Duration::from_secs(10))
                .lease(Lease::pings(5, Duration::from_secs(2)))
                .connect()
                .await
                .expect("the server is there");
            for _ in 0..3 {
                server.disconnect_all();
                sleep_ms(5_000).await;
            }
            let warnings = |lines: &Lines| {
                let lines = lines.take();
                lines.into_iter().filter(|line| line.contains("no lease")).collect::<Vec<_>>()
            };
            let first = warnings(&lines);
            assert_eq!(first.len(), 1, "{first:#?}");
            for number in
                ["granted=10s", "requested=10s", "needed=18.106s", "syncLimit 5", "tickTime 2s"]
            {
                assert!(first[0].contains(number), "{first:#?}");
            }
            for _ in 0..100 {
                server.expire(client.session_id().expect("there is one"));
                sleep_ms(6_000).await;
            }
            assert_eq!(warnings(&lines), [""; 0], "the numbers are the same");
        });
    });
}

#[test]
fn changes_of_the_list_are_told_and_so_is_the_first_of_several_failures() {
    let lines = Lines::default();
    let fmt = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(fmt, || {
        runtime().block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let port = Arc::new(AtomicUsize::new(1));
            let current = Arc::clone(&port);
            let source = move || {
                let port = current.load(Relaxed);
                async move {
                    match u16::try_from(port).expect("it is a port") {
                        0 => Err(io::Error::other("the registry is down")),
                        port => Ok(vec![Host { name: "zk".to_owned(), port }]),
                    }
                }
            };
            let builder = Client::builder("zk:1").transport(server.connector());
            let builder = builder.clock(Clock::tokio()).host_source(source);
            let _client = builder.connect().await.expect("the server is there");
            for (now, expected) in [
                (1, &[][..]),
                (0, &["WARN", "cannot be looked up", "error=the registry is down"]),
                (1, &[]),
                (0, &["WARN", "the last one is kept"]),
                (2, &["INFO", "the list of servers has changed", "hosts=zk:2"]),
            ] {
                lines.take();
                port.store(now, Relaxed);
                sleep_ms(300_000).await;
                let told: Vec<_> = lines
                    .take()
                    .into_iter()
                    .filter(|line| line.contains("host_source: "))
                    .collect();
                assert_eq!(told.len(), usize::from(!expected.is_empty()), "{told:#?}");
                for part in expected {
                    assert!(told[0].contains(part), "{told:#?}");
                }
            }
        });
    });
}

/// Formats an event for the page: the virtual time, the level, the message, and the fields below it,
/// in lines that fit on a page. Subscribers also print the spans and the target in one long line.
struct ForPage {
    clock: Clock,
    began: Time,
}

impl<S, N> FormatEvent<S, N> for ForPage
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let elapsed = self.clock.now().saturating_since(self.began).as_secs_f64();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        write!(writer, "{elapsed:>7.3} {level:>5} {}", fields.message)?;
        let mut width = WIDTH;
        for field in fields.others {
            if width + field.len() > WIDTH {
                write!(writer, "\n{:INDENT$}", "")?;
                width = INDENT;
            }
            write!(writer, " {field}")?;
            width += 1 + field.len();
        }
        writeln!(writer)
    }
}

/// Number of characters that fit into a line of the page.
const WIDTH: usize = 84;
/// Number of characters in front of a message.
const INDENT: usize = 13;

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push(format!("{name}={value:?}")),
        }
    }
}

/// Records what a service at INFO logs while its server is killed, while there is then no quorum for
/// 20 s, and while there is none for longer than the session lives.
fn recorded_outage() -> Vec<String> {
    let lines = Lines::default();
    let runtime = runtime();
    // The clock of the runtime is virtual, so the times are those of the recording.
    let clock = runtime.block_on(async { Clock::tokio() });
    let for_page = ForPage { began: clock.now(), clock };
    let fmt = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(for_page)
        .with_writer(lines.clone());
    let at_info = tracing_subscriber::filter::LevelFilter::from_level(Level::INFO);
    let subscriber = Registry::default().with(at_info).with(fmt);
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let client = Client::builder("zk1,zk2,zk3")
                .transport(server.connector())
                .clock(Clock::tokio())
                .seed(1)
                .connect()
                .await
                .expect("the servers are there");
            let lock = FairLock::new(&client, "/locks/billing").expect("the path is valid");
            let guard = lock.acquire().await.expect("nobody else wants it");
            sleep_ms(20_000).await;
            // The server of the client is killed; another one takes the session over.
            server.disconnect_all();
            sleep_ms(20_000).await;
            // Servers without a quorum close connections.
            for silence in [20_000, 60_000] {
                let session = client.session_id().expect("it is renewed");
                server.set_reception(Reception::Refused);
                server.disconnect_all();
                sleep_ms(silence).await;
                if silence > 30_000 {
                    server.expire(session);
                }
                server.set_reception(Reception::Open);
                sleep_ms(60_000).await;
            }
            drop(guard);
            let guard = lock.acquire().await.expect("nobody else wants it");
            guard.release().await.expect("the server is there");
            client.close().await;
        });
    });
    lines.take()
}

#[test]
fn the_page_about_logs_shows_the_lines_of_a_recorded_outage() {
    let recorded = recorded_outage();
    let events = recorded.iter().filter(|line| !line.starts_with(&" ".repeat(INDENT))).count();
    assert!((10..=20).contains(&events), "{events} events: {recorded:#?}");
    page::check("logs.md", "an outage", &(recorded.join("\n") + "\n"));
}

#[test]
fn of_many_locks_only_the_first_are_logged() {
    const LOCKS: usize = 200;
    with_outage(|client, server, is_off, _, lines| async move {
        let mut guards = Vec::new();
        for number in 0..LOCKS {
            let lock = FairLock::new(&client, &format!("/locks/{number}"));
            let guard = lock.expect("the path is valid").acquire().await;
            guards.push(guard.expect("nobody else wants it"));
        }
        sleep_ms(20_000).await;
        lines.take();
        is_off.store(true, Relaxed);
        server.disconnect_all();
        sleep_ms(5_000).await;
        let count =
            |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
        let lost = lines.take();
        assert_eq!(count(&lost, "the lock is at risk"), 10, "{lost:#?}");
        assert_eq!(count(&lost, "more locks are at risk"), 1, "{lost:#?}");
        is_off.store(false, Relaxed);
        sleep_ms(20_000).await;
        let again = lines.take();
        assert_eq!(count(&again, "the lock is held again"), 10, "{again:#?}");
        server.expire(client.session_id().expect("it is alive"));
        sleep_ms(5_000).await;
        let lost = lines.take();
        assert_eq!(count(&lost, "the lock is lost"), 10, "{lost:#?}");
        assert!(lost.len() < 20, "{lost:#?}");
        assert!(guards.iter().all(|guard| matches!(guard.state(), LockState::Lost(_))));
        sleep_ms(60_000).await;
        let lock = FairLock::new(&client, "/locks/next").expect("the path is valid");
        let _guard = lock.acquire().await.expect("nobody else wants it");
        sleep_ms(20_000).await;
        server.disconnect_all();
        sleep_ms(5_000).await;
        let lines = lines.take();
        assert_eq!(count(&lines, "the lock is at risk"), 1, "{lines:#?}");
    });
}

#[test]
fn of_many_refused_removals_only_the_first_are_logged() {
    const LOCKS: usize = 30;
    with_outage(|client, server, _, _, lines| async move {
        let mut guards = Vec::new();
        for number in 0..LOCKS {
            let directory = format!("/locks/{number}");
            let lock = FairLock::new(&client, &directory).expect("the path is valid");
            guards.push(lock.acquire().await.expect("nobody else wants it"));
            assert!(server.admin_set_acl(&directory, Acl::read()), "{directory} is there");
        }
        lines.take();
        for guard in guards {
            guard.release().await.unwrap_err();
        }
        let count =
            |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
        let refused = lines.take();
        assert_eq!(count(&refused, "a server refuses to remove"), 10, "{refused:#?}");
        assert_eq!(count(&refused, "more removals are refused"), 1, "{refused:#?}");
    });
}

#[test]
fn of_many_items_that_cannot_be_delivered_only_the_first_are_logged() {
    const ITEMS: usize = 30;
    with_outage(|client, server, _, _, lines| async move {
        let queue = WorkQueue::new(&client, "/queue").expect("the path is valid");
        for number in 0..ITEMS {
            queue.put(number.to_string()).await.expect("the queue has room");
        }
        let items = server.children("/queue/entries").expect("they were put");
        for item in items {
            server.admin_create(&format!("/queue/entries/{item}/note"), b"", None);
        }
        lines.take();
        let blocked = queue.try_take().await.map(|item| item.is_some()).unwrap_err();
        assert!(matches!(blocked, WorkQueueError::Blocked { .. }), "{blocked}");
        assert_eq!(queue.blocked().len(), ITEMS);
        let count =
            |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
        let passed = lines.take();
        assert_eq!(count(&passed, "an item of a work queue is passed over"), 10, "{passed:#?}");
        assert_eq!(count(&passed, "more items of work queues are passed over"), 1, "{passed:#?}");
    });
}

#[test]
fn a_host_source_that_panics_is_told() {
    let lines = Lines::default();
    let fmt = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(fmt, || {
        runtime().block_on(async {
            let server = TestServer::start(ServerConfig::default());
            let client = Client::builder("in-process")
                .transport(server.connector())
                .clock(Clock::tokio())
                .host_source(|| async { panic!("the program has a mistake") })
                .connect()
                .await
                .expect("the server is there");
            sleep_ms(1_000).await;
            let lines = lines.take();
            let told = |line: &&String| line.contains("the host source has panicked");
            assert_eq!(lines.iter().filter(told).count(), 1, "{lines:#?}");
            client.exists("/").await.expect("the client goes on");
        });
    });
}

#[test]
fn a_waiter_without_a_lock_is_not_told_that_locks_are_lost() {
    with_outage(|client, server, is_off, _, lines| async move {
        let lock = FairLock::new(&client, "/locks/x").expect("the path is valid");
        server.admin_create("/locks", b"", None);
        server.admin_create("/locks/x", b"", None);
        let ahead = format!("/locks/x/{:032x}-lock-0000000000", 1);
        server.admin_create(&ahead, b"", None);
        let waiting = spawn(async move { lock.acquire().await });
        // It is next in line, so the session keeps a lease for it.
        sleep_ms(20_000).await;
        assert!(client.status().lease_deadline().is_some());
        // The guard deadline passes, and then the session is given up.
        for silence in [25_000, 70_000] {
            is_off.store(true, Relaxed);
            server.disconnect_all();
            sleep_ms(silence).await;
            is_off.store(false, Relaxed);
            sleep_ms(20_000).await;
        }
        assert!(!waiting.is_finished());
        let lines = lines.take();
        let about_locks = |line: &&String| line.contains("locks") || line.contains("the lock is");
        assert_eq!(lines.iter().filter(about_locks).count(), 0, "{lines:#?}");
        let lost = |line: &&String| line.contains("session lost, with its ephemeral znodes");
        assert_eq!(lines.iter().filter(lost).count(), 1, "{lines:#?}");
    });
}

/// Those who close the client know that its locks are lost.
#[test]
fn a_client_that_is_closed_warns_of_nothing() {
    with_outage(|client, _, _, _, lines| async move {
        let lock = FairLock::new(&client, "/locks/x").expect("the path is valid");
        let guard = lock.acquire().await.expect("nobody else wants it");
        client.close().await;
        assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
        let lines = lines.take();
        assert!(lines.iter().all(|line| line.contains("INFO")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("session closed")), "{lines:#?}");
    });
}
