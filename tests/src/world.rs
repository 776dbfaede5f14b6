//! A world in virtual time: the shipped client and locks, an in-process server, pipes between
//! them, and a clock that jumps when everybody waits.
//!
//! A run is repeatable to the last step: one thread, no real I/O, seeds instead of random
//! numbers. So a schedule that breaks something is known by its number ([`Enumeration`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use tokio::io::DuplexStream;
use tokio::time::Instant;
use zk_recipes::{Client, ClientBuilder, Clock, FairLock, Lease, RwLock};
use zk_session::SESSION_TIMEOUT_DEFAULT;
use zk_testserver::{Action, At, Fault, Filter, ServerConfig, TestServer, Until};

use crate::meter::{Counted, Meter, Pace, Total};

/// Directory of the lock under test.
pub const DIRECTORY: &str = "/locks/x";
/// Session timeout of the clients, unless the world says otherwise.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// What the names of contenders have before their number.
const MARKS: [&str; 3] = ["-lock-", "-__READ__", "-__WRIT__"];
/// How long connections are refused after a cut, in the variants that do so.
pub const REFUSED: Duration = Duration::from_millis(300);
/// Virtual time within which everything has to be over, faults included.
const RUN_MAX: Duration = Duration::from_secs(120);

/// A server, and clients that reach it by pipes.
#[derive(Clone, Debug)]
pub struct World {
    /// The server.
    pub server: TestServer,
    session_timeout: Duration,
    lease: Option<Lease>,
    pace: Pace,
    traffic: Total,
    /// Until when no connection comes about.
    closed_until: Arc<Mutex<Option<Instant>>>,
}

impl World {
    /// A world with a fresh server.
    pub fn new() -> Self {
        Self::with(ServerConfig::default())
    }

    /// A world with a server like this.
    pub fn with(config: ServerConfig) -> Self {
        Self {
            server: TestServer::start(config),
            session_timeout: SESSION_TIMEOUT,
            lease: None,
            pace: Pace::CALM,
            traffic: Total::default(),
            closed_until: Arc::default(),
        }
    }

    /// A world whose clients have the session timeout and the lease of those who set neither. The
    /// clients of others have no lease, so that all their requests are those of their locks.
    pub fn shipped() -> Self {
        Self::new().session_timeout(SESSION_TIMEOUT_DEFAULT).leased()
    }

    /// The same world, whose clients have the lease of those who set none.
    #[must_use]
    pub fn leased(mut self) -> Self {
        self.lease = Some(Lease::default());
        self
    }

    /// The same world, whose clients ask for this session timeout.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// The same world, whose clients have more to do. One that sends more than its pace allows
    /// spins, and its task panics.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// What went over the connections of all clients.
    pub fn traffic(&self) -> Counted {
        self.traffic.counted()
    }

    /// Nothing passes between the server and its clients for that long, and nobody is told:
    /// connections stay open, and others do not come about. What was sent arrives afterwards, as
    /// TCP has it.
    ///
    /// # Panics
    ///
    /// If a test has panicked while it looked at the world.
    pub fn black_hole(&self, duration: Duration) {
        for session in self.server.sessions() {
            self.server.pause_connection(session, duration);
        }
        #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
        let until = Instant::now() + duration;
        *self.closed_until.lock().expect("nobody panics with it") = Some(until);
    }

    /// A connected client. The seed decides its ids.
    pub async fn client(&self, seed: u64) -> Client {
        self.client_with(seed, |builder| builder).await
    }

    /// A connected client with other options.
    pub async fn client_with(
        &self,
        seed: u64,
        options: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        let (world, meter) = (self.clone(), Meter::new(self.pace, self.traffic.clone()));
        let builder = Client::builder("in-process")
            .session_timeout(self.session_timeout)
            .lease(self.lease)
            .clock(Clock::tokio())
            .seed(seed)
            .transport(move |_host| {
                let (world, meter) = (world.clone(), meter.clone());
                async move { Ok(meter.stream(world.connect().await?)) }
            });
        options(builder).connect().await.expect("nothing goes wrong before the test begins")
    }

    /// Connects as soon as a connection comes about.
    async fn connect(&self) -> io::Result<DuplexStream> {
        let closed_until = *self.closed_until.lock().expect("nobody panics with it");
        if let Some(until) = closed_until {
            #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
            tokio::time::sleep_until(until).await;
        }
        self.server.connect()
    }

    /// The lock under test, without the safety timer that would hide a lost wake-up.
    pub fn lock(client: &Client) -> FairLock {
        FairLock::builder(client, DIRECTORY)
            .and_then(|lock| lock.safety_relist(None).build())
            .expect("the options are legal")
    }

    /// As [`lock`](Self::lock), for readers and writers.
    pub fn rw_lock(client: &Client) -> RwLock {
        RwLock::builder(client, DIRECTORY)
            .and_then(|lock| lock.safety_relist(None).build())
            .expect("the options are legal")
    }

    /// Waits, in virtual time, until a condition holds. Fails after a time that no legal run
    /// needs.
    pub async fn until(&self, what: &str, condition: impl Fn(&TestServer) -> bool) {
        for _ in 0..60_000 {
            if condition(&self.server) {
                return;
            }
            sleep_ms(1).await;
        }
        panic!("never came true: {what}\n{}", self.trace());
    }

    /// Names in the directory of the lock, but for the ephemerals of `others`.
    pub fn contenders(&self) -> Vec<String> {
        self.server.children(DIRECTORY).unwrap_or_default()
    }

    /// Lets cleanup come to its end and checks that nothing is left: no contender znode, no duty
    /// of the janitor.
    pub async fn check_clean(&self, clients: &[&Client]) {
        for _ in 0..60_000 {
            let is_busy = clients.iter().any(|client| client.janitor_slots_busy() > 0);
            if !is_busy && self.contenders().is_empty() {
                break;
            }
            sleep_ms(1).await;
        }
        // A commit that is still on its way comes to light now: with time, or with a write.
        sleep_ms(1_000).await;
        self.server.admin_create("/flush", b"", None);
        sleep_ms(1_000).await;
        assert_eq!(self.contenders(), [""; 0], "orphans\n{}", self.trace());
        for client in clients {
            assert_eq!(client.janitor_slots_busy(), 0, "unfinished duties\n{}", self.trace());
        }
        self.check_history();
    }

    /// What must hold of every history, whatever was injected.
    pub fn check_history(&self) {
        // An attempt creates again only when a barrier has shown that nothing was created. A
        // writer that becomes a reader creates once more, under the name of a reader.
        let mut creates: BTreeMap<String, usize> = BTreeMap::new();
        for commit in self.server.commits() {
            let is_create = matches!(commit.op, OpCode::CREATE | OpCode::CREATE2);
            // What the test itself creates is not an attempt.
            let is_by_client = commit.session != 0;
            if let Some(path) = commit.path
                && is_create
                && is_by_client
                && commit.error == ErrorCode::OK
                && let Some((prefix, _)) = path.split_at_checked(path.len().saturating_sub(10))
                && MARKS.iter().any(|mark| prefix.ends_with(mark))
            {
                *creates.entry(prefix.to_owned()).or_default() += 1;
            }
        }
        for (prefix, count) in creates {
            assert!(count <= 1, "{prefix} was created {count} times\n{}", self.trace());
        }
        // A reused xid could be answered with the result of an older request.
        let mut xids = BTreeSet::new();
        for request in self.server.requests() {
            let is_new = request.xid <= 0 || xids.insert((request.session, request.xid));
            assert!(is_new, "xid {} was used again\n{}", request.xid, self.trace());
        }
    }

    /// What the server has seen, one line a request.
    pub fn trace(&self) -> String {
        let mut trace = String::new();
        for request in self.server.requests() {
            let _ = writeln!(
                trace,
                "  {:>7} ms  session {:#x} connection {} xid {:>3} {:?} {} -> {:?}",
                request.at.as_millis(),
                request.session,
                request.connection,
                request.xid,
                request.op,
                request.path.as_deref().unwrap_or(""),
                request.outcome,
            );
        }
        trace
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Sleeps in virtual time.
#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Runs a future on a paused clock, to its end or to the end of virtual patience. A task that
/// panicked in the background fails the run too.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    run_within(RUN_MAX, future)
}

/// As [`run`], with more of virtual patience.
pub fn run_within<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    count_panics();
    forget_panics();
    let output = runtime().block_on(async {
        tokio::time::timeout(patience, future).await.expect("the run hangs, in virtual time")
    });
    assert_eq!(PANICS.get(), 0, "a task has panicked");
    output
}

/// A runtime of one thread with a paused clock.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O")
}

thread_local! {
    /// Panics on this thread, where all tasks of its run live.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Panics so far were wanted.
pub fn forget_panics() {
    PANICS.set(0);
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is ending has nobody to ask.
            let _ = PANICS.try_with(|panics| panics.set(panics.get() + 1));
            print(panic);
        }));
    });
}

/// Every way to lose one request, of one session or of all: before it is processed, after, or with a commit
/// that comes late; with and without a while in which no connection is accepted.
pub fn cuts_at_request(session: Option<i64>, nth: usize) -> Vec<Fault> {
    let filter = Filter { session, ..Filter::default() };
    let at = At::Request { nth, filter };
    let actions = [
        Action::CutBefore,
        Action::CutAfter,
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::Reads(1)),
        Action::LateCommit(Until::Reads(2)),
        Action::LateCommit(Until::After(REFUSED / 2)),
    ];
    with_and_without_refusal(&at, &actions)
}

/// Every way to lose the connection around one event, of one session or of all.
pub fn cuts_at_event(session: Option<i64>, nth: usize) -> Vec<Fault> {
    let filter = Filter { session, ..Filter::default() };
    let at = At::Event { nth, filter };
    with_and_without_refusal(&at, &[Action::CutBefore, Action::CutAfter])
}

fn with_and_without_refusal(at: &At, actions: &[Action]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for action in actions {
        for refuse_for in [None, Some(REFUSED)] {
            faults.push(Fault { at: at.clone(), action: action.clone(), refuse_for });
        }
    }
    faults
}

/// A scenario: it injects the faults when it is ready for them, runs to its end, and says which of
/// them have not fired and what the server has seen.
pub type Scenario<'a> = &'a dyn Fn(Vec<Fault>) -> Ran;

/// How a scenario ran.
#[derive(Debug)]
pub struct Ran {
    /// Faults that have not fired.
    pub left: usize,
    /// What the server has seen.
    pub trace: String,
}

/// All singles and pairs of cuts over one scenario.
///
/// The second of a pair is counted in the run that the first has changed, so that replay is cut
/// too. A position at which nothing fires is behind the end of the run.
#[derive(Debug)]
pub struct Enumeration {
    name: &'static str,
    session: Option<i64>,
    runs: usize,
    only: Option<usize>,
    /// Runs in which one cut has fired.
    pub singles: usize,
    /// Runs in which two cuts have fired.
    pub pairs: usize,
}

impl Enumeration {
    /// Of a scenario with this name, with cuts of this session, or of all. With
    /// `ENUMERATION_RUN=<name>:<number>` in the environment only that run is looked at closely:
    /// its trace is printed.
    pub fn new(name: &'static str, session: Option<i64>) -> Self {
        let only = std::env::var("ENUMERATION_RUN").ok().and_then(|text| {
            let (wanted, number) = text.split_once(':')?;
            (wanted == name).then(|| number.parse().expect("a number behind the colon"))
        });
        Self { name, session, runs: 0, only, singles: 0, pairs: 0 }
    }

    /// Runs the scenario with every single cut and every pair.
    pub fn run(&mut self, scenario: Scenario<'_>) {
        self.run_up_to(2, scenario);
    }

    /// Runs the scenario with every single cut.
    pub fn run_singles(&mut self, scenario: Scenario<'_>) {
        self.run_up_to(1, scenario);
    }

    fn run_up_to(&mut self, cuts_max: usize, scenario: Scenario<'_>) {
        for cuts in [cuts_at_request, cuts_at_event] {
            for nth in 0.. {
                let fired: Vec<_> = cuts(self.session, nth)
                    .into_iter()
                    .filter(|first| self.fires(vec![first.clone()], scenario))
                    .collect();
                self.singles += fired.len();
                if fired.is_empty() {
                    break;
                }
                for first in fired.iter().filter(|_| cuts_max > 1) {
                    self.run_pairs(first, scenario);
                }
            }
        }
        let Self { name, singles, pairs, .. } = self;
        eprintln!("{name}: {singles} single cuts, {pairs} pairs of cuts");
    }

    fn run_pairs(&mut self, first: &Fault, scenario: Scenario<'_>) {
        for cuts in [cuts_at_request, cuts_at_event] {
            // A pair is unordered, but for two of one kind the second comes later.
            let at_requests =
                cuts(self.session, 0).iter().all(|fault| matches!(fault.at, At::Request { .. }));
            let start = match first.at {
                At::Request { nth, .. } if at_requests => nth + 1,
                At::Event { nth, .. } if !at_requests => nth + 1,
                At::Event { .. } => continue,
                At::Request { .. } | At::Connect { .. } => 0,
            };
            for nth in start.. {
                let seconds = cuts(self.session, nth);
                let fired = seconds
                    .into_iter()
                    .filter(|second| self.fires(vec![first.clone(), second.clone()], scenario))
                    .count();
                self.pairs += fired;
                if fired == 0 {
                    break;
                }
            }
        }
    }

    fn fires(&mut self, faults: Vec<Fault>, scenario: Scenario<'_>) -> bool {
        self.runs += 1;
        let label = format!("{}:{} {faults:?}", self.name, self.runs);
        let on_failure = Label(&label);
        let ran = scenario(faults);
        std::mem::forget(on_failure);
        if self.only == Some(self.runs) {
            eprintln!("{label}\n{}", ran.trace);
        }
        ran.left == 0
    }
}

/// Says which run has failed, if it has.
struct Label<'a>(&'a str);

impl Drop for Label<'_> {
    fn drop(&mut self) {
        let (number, _) = self.0.split_once(' ').unwrap_or((self.0, ""));
        eprintln!("failed: {}\nits number: ENUMERATION_RUN={number}", self.0);
    }
}
