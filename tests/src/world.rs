//! A world in virtual time: the shipped client and locks, an in-process server, pipes between
//! them, and a clock that jumps to the next timer when all tasks wait.
//!
//! A run is repeatable to the last step, because it uses one thread, no real I/O, and seeds instead
//! of random numbers. So the number of a failing run is enough to repeat it ([`Enumeration`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId, Zxid};
use tokio::io::DuplexStream;
use tokio::time::Instant;
use zk_recipes::{Client, ClientBuilder, Clock, FairLock, Guard, Lease, RwLock};
use zk_session::recipe::Session;
use zk_session::{Host, SESSION_TIMEOUT_DEFAULT};
use zk_testserver::{
    Action, At, Fault, Filter, Outcome, ServerConfig, ServerVersion, TestServer, Until,
};

use crate::case::{Case, LOCK, marks, number};
use crate::delayed::delayed;
use crate::meter::{Counted, Meter, Pace, Total};

/// Session timeout of the clients, unless a test sets another one.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connections are refused after a cut, in the variants that refuse connections.
pub const REFUSED: Duration = Duration::from_millis(300);
/// How often the servers of the worlds remove empty containers.
pub const REAP_INTERVAL: Duration = Duration::from_secs(1);
/// The versions and moves to try in a world with a [slow member](World::slow_member): from a member,
/// to one that is slow.
pub const MOVES: [(ServerVersion, usize, usize); 4] = [
    (ServerVersion::V3_8, 0, 1),
    (ServerVersion::V3_8, 1, 0),
    (ServerVersion::V3_9, 0, 1),
    (ServerVersion::V3_9, 1, 0),
];
/// Virtual time within which a run must end, including its faults.
const RUN_MAX: Duration = Duration::from_secs(120);

/// A server, and clients that reach it through in-memory pipes.
#[derive(Clone, Debug)]
pub struct World {
    /// The server.
    pub server: TestServer,
    session_timeout: Duration,
    lease: Option<Lease>,
    pace: Pace,
    traffic: Total,
    /// When pending attempts to connect may continue.
    closed_until: Arc<Mutex<Option<Instant>>>,
}

impl World {
    /// Creates a world with a fresh server, which removes empty containers each second. Real servers
    /// do so each minute, so that a test would hardly ever meet a directory that is gone, and whose
    /// sequence numbers start again.
    pub fn new() -> Self {
        Self::with(ServerConfig::default().reap_interval(REAP_INTERVAL))
    }

    /// Creates a world with a server of this configuration.
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

    /// Creates a world whose server removes empty containers each minute, for tests that count the
    /// requests of contenders in a directory that stays.
    pub fn reaped_each_minute() -> Self {
        Self::with(ServerConfig::default())
    }

    /// Creates a world with two members. One of them, the leader or the follower, applies a commit
    /// five seconds after it has learned of it.
    pub fn slow_member(version: ServerVersion, slow: usize) -> Self {
        let config = ServerConfig::default().version(version).members(2);
        let time = Duration::from_secs(5);
        Self::with(if slow == 0 { config.leader_unapplied(time) } else { config.unapplied(time) })
    }

    /// Creates a world with three members that lag, in one of the ways that the seed chooses.
    pub fn lagging(seed: u64) -> Self {
        let (lag, unapplied) = match seed % 4 {
            0 => (0, 700),
            1 => (300, 300),
            2 => (700, 50),
            _ => (10, 3_000),
        };
        let at_leader = if seed.is_multiple_of(3) { 500 } else { 0 };
        let config = ServerConfig::default().members(3).lag(Duration::from_millis(lag));
        let config = config.leader_unapplied(Duration::from_millis(at_leader));
        Self::with(config.unapplied(Duration::from_millis(unapplied)))
    }

    /// Creates a world whose clients have the default session timeout and the default lease. The
    /// clients of other worlds have no lease, so that all their requests belong to their locks.
    pub fn shipped() -> Self {
        Self::new().session_timeout(SESSION_TIMEOUT_DEFAULT).leased()
    }

    /// Gives the clients of the world the default lease.
    #[must_use]
    pub fn leased(mut self) -> Self {
        self.lease = Some(Lease::default());
        self
    }

    /// Sets the session timeout that the clients of the world request.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets how many requests the clients of the world may send. The task of a client that exceeds
    /// its pace panics.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Returns the traffic of all clients.
    pub fn traffic(&self) -> Counted {
        self.traffic.counted()
    }

    /// Drops all packets between the server and its clients for this time. Connections stay open,
    /// attempts to connect are pending, and neither side gets an error. Afterwards everything that
    /// was sent arrives, as with TCP.
    ///
    /// # Panics
    ///
    /// If another thread panicked while it used the world.
    pub fn black_hole(&self, duration: Duration) {
        for session in self.server.sessions() {
            self.server.pause_connection(session, duration);
        }
        #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
        let until = Instant::now() + duration;
        *self.closed_until.lock().expect("no thread panics while it has the lock") = Some(until);
    }

    /// Connects a client. The seed determines its ids.
    pub async fn client(&self, seed: u64) -> Client {
        self.client_with(seed, |builder| builder).await
    }

    /// Connects a client whose connections go to the member that this number names at that time.
    /// Its requests are not counted.
    pub async fn moving_client(&self, seed: u64, member: &Arc<AtomicUsize>) -> Client {
        let member = Arc::clone(member);
        let connector = self.server.connector_by(move |_| member.load(Ordering::SeqCst));
        self.client_with(seed, |builder| builder.transport(connector)).await
    }

    /// Connects a client with other options.
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

    /// Connects a client whose requests and replies take this long. They are not counted.
    pub async fn far_client(&self, seed: u64, delay: Duration) -> Client {
        let connector = self.server.connector();
        let transport = move |host: Host| {
            let connecting = connector(host);
            async move { Ok(delayed(connecting.await?, delay)) }
        };
        self.client_with(seed, |builder| builder.transport(transport)).await
    }

    /// Connects to the server. A [`black_hole`](Self::black_hole) must end first.
    async fn connect(&self) -> io::Result<DuplexStream> {
        let closed_until =
            *self.closed_until.lock().expect("no thread panics while it has the lock");
        if let Some(until) = closed_until {
            #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
            tokio::time::sleep_until(until).await;
        }
        self.server.connect()
    }

    /// Returns the fair lock under test, without its safety timer, which would hide a lost wake-up.
    pub fn lock(client: &Client) -> FairLock {
        FairLock::of(client)
    }

    /// Returns the read/write lock under test, without its safety timer.
    pub fn rw_lock(client: &Client) -> RwLock {
        RwLock::builder(client, LOCK)
            .and_then(|lock| lock.watch_check(None).build())
            .expect("the options are legal")
    }

    /// Injects faults into the server.
    pub fn inject(&self, faults: Vec<Fault>) {
        for fault in faults {
            self.server.inject(fault);
        }
    }

    /// Returns what an [`Enumeration`] has to know of a run that has ended.
    pub fn ran(&self) -> Ran {
        let requests = self.server.requests();
        Ran {
            left: self.server.pending_faults().len(),
            held: requests.iter().filter(|request| request.outcome == Outcome::Held).count(),
            trace: std::env::var_os(ENUMERATION_RUN).map(|_| self.trace()),
        }
    }

    /// Waits, in virtual time, until a condition holds.
    ///
    /// # Panics
    ///
    /// If the condition does not hold within a minute of virtual time, which is more than any
    /// correct run needs.
    pub async fn until(&self, what: &str, condition: impl Fn(&TestServer) -> bool) {
        for _ in 0..60_000 {
            if condition(&self.server) {
                return;
            }
            sleep_ms(1).await;
        }
        panic!("never came true: {what}\n{}", self.trace());
    }

    /// Returns the names in the directory of the lock.
    pub fn contenders(&self) -> Vec<String> {
        let mut names = self.server.children(LOCK).unwrap_or_default();
        // A semaphore whose number was set keeps this znode.
        names.retain(|name| name != "permits-set");
        names
    }

    /// Returns the paths and the owners of the lock's contender znodes, whether the lock has a
    /// queue or is a single znode.
    pub fn znodes(&self) -> Vec<(String, SessionId)> {
        let mut znodes = self.server.ephemerals();
        znodes.retain(|(path, _)| path == LOCK || path.starts_with(&format!("{LOCK}/")));
        znodes
    }

    /// Returns the owner of the one znode of a lock without a queue. The result is `None` if there
    /// is no znode, and [`SessionId::NONE`] if the znode is not ephemeral.
    pub fn owner(&self) -> Option<SessionId> {
        self.server.stat(LOCK).map(|stat| stat.ephemeral_owner)
    }

    /// Checks the leader's state at the moment of a grant: the guard's znode exists, its session
    /// owns the znode, and the guard waits for no contender ahead of it.
    ///
    /// # Panics
    ///
    /// If the check fails.
    pub fn check_granted<C: Case>(&self, guard: &Guard<C::Kind>) {
        let (znodes, own) = (self.znodes(), guard.path());
        let is_owned = znodes.iter().any(|(path, owner)| path == own && *owner == guard.session());
        assert!(is_owned, "held without a znode\n{}", self.trace());
        if let Some(token) = C::token(guard) {
            let czxid = self.server.stat(own).map(|stat| stat.czxid.0);
            assert_eq!(Some(token.get()), czxid, "\n{}", self.trace());
        }
        if !C::IS_FAIR {
            return;
        }
        for (other, _) in &znodes {
            let is_beside = number(other) < number(own) && C::waits_for(other);
            assert!(!is_beside, "{own} beside {other}\n{}", self.trace());
        }
    }

    /// Waits for the end of all cleanup, and checks that nothing is left: no contender znode and
    /// no duty of the janitor.
    ///
    /// # Panics
    ///
    /// If something is left, or the history breaks a rule.
    pub async fn check_clean(&self, clients: &[&Client]) {
        let is_free = || self.contenders().is_empty() && self.znodes().is_empty();
        for _ in 0..60_000 {
            let is_busy = clients.iter().any(|client| Session::of(client).janitor_slots_busy() > 0);
            if !is_busy && is_free() {
                break;
            }
            sleep_ms(1).await;
        }
        // A late commit becomes visible now: with time, or with the next write.
        sleep_ms(1_000).await;
        self.server.admin_create("/flush", b"", None);
        sleep_ms(1_000).await;
        assert!(is_free(), "orphans: {:?}\n{}", self.contenders(), self.trace());
        for client in clients {
            assert_eq!(
                Session::of(client).janitor_slots_busy(),
                0,
                "unfinished duties\n{}",
                self.trace()
            );
        }
        self.check_history();
    }

    /// Checks the rules that every history must follow, whatever faults were injected.
    ///
    /// # Panics
    ///
    /// If the history breaks a rule.
    pub fn check_history(&self) {
        self.check_creates();
        self.check_deletes();
        self.check_xids();
    }

    /// Checks that an attempt repeats its create only when a barrier has shown that nothing was
    /// created. A writer that becomes a reader creates one more znode, with the name of a reader.
    fn check_creates(&self) {
        let marks = marks();
        let mut creates: BTreeMap<String, usize> = BTreeMap::new();
        for commit in self.server.commits() {
            let is_create = matches!(commit.op, OpCode::CREATE | OpCode::CREATE2);
            // A znode that the test itself creates does not belong to an attempt.
            let is_by_client = commit.session != SessionId::NONE;
            if let Some(path) = commit.path
                && is_create
                && is_by_client
                && commit.error == ErrorCode::OK
                && let Some((prefix, _)) = path.split_at_checked(path.len().saturating_sub(10))
                && marks.iter().any(|mark| prefix.ends_with(mark))
            {
                *creates.entry(prefix.to_owned()).or_default() += 1;
            }
        }
        for (prefix, count) in creates {
            assert!(count <= 1, "{prefix} was created {count} times\n{}", self.trace());
        }
    }

    /// Checks that only its owner deletes the one znode of a lock without a queue, which has the
    /// same name for all contenders.
    fn check_deletes(&self) {
        let mut owner = None;
        let mut newest = Zxid(0);
        let commits = self.server.commits().into_iter();
        for commit in commits.filter(|commit| commit.path.as_deref() == Some(LOCK)) {
            if commit.error != ErrorCode::OK {
                continue;
            }
            assert!(commit.zxid > newest, "{commit:?}\n{}", self.trace());
            newest = commit.zxid;
            match commit.op {
                OpCode::CREATE | OpCode::CREATE2 => owner = Some(commit.session),
                // A directory belongs to nobody, and the last contender may remove it.
                OpCode::CREATE_CONTAINER => owner = Some(SessionId::NONE),
                // Any session may delete a znode that the test itself has created.
                OpCode::DELETE
                    if commit.session != SessionId::NONE && owner != Some(SessionId::NONE) =>
                {
                    let by = Some(commit.session);
                    assert_eq!(by, owner, "deleted by another session\n{}", self.trace());
                    owner = None;
                }
                OpCode::DELETE | OpCode::CLOSE_SESSION => owner = None,
                _ => {}
            }
        }
    }

    fn check_xids(&self) {
        let mut xids = BTreeSet::new();
        // If an xid were reused, the reply to the older request could be mistaken for the reply to
        // the newer one.
        for request in self.server.requests() {
            let is_new = request.xid <= 0 || xids.insert((request.session, request.xid));
            assert!(is_new, "xid {} was used again\n{}", request.xid, self.trace());
        }
    }

    /// Returns the requests that the server has received, one per line.
    pub fn trace(&self) -> String {
        let mut trace = String::new();
        for request in self.server.requests() {
            let _ = writeln!(
                trace,
                "  {:>7} ms  session {} connection {} xid {:>3} {:?} {} -> {:?}",
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

/// Runs a future on a paused clock. A panic of a background task fails the run too. A test that
/// panics on purpose calls `resume_unwind`, which is not counted and prints nothing.
///
/// # Panics
///
/// If the run takes more than two minutes of virtual time, or a task has panicked.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    run_within(RUN_MAX, future)
}

/// Runs a future like [`run`], with another limit of virtual time.
///
/// # Panics
///
/// If the run takes more than `patience`, or a task has panicked.
pub fn run_within<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut output = None;
    let finished = poll_fn(|cx| future.as_mut().poll(cx).map(|done| output = Some(done)));
    drive(patience, pin!(finished));
    output.expect("the future has ended")
}

/// This is not generic, because a copy of the runtime for each test would take half the time in which a
/// suite is built.
fn drive(patience: Duration, future: Pin<&mut dyn Future<Output = ()>>) {
    count_panics();
    PANICS.set(0);
    runtime().block_on(async {
        tokio::time::timeout(patience, future).await.expect("the run hangs, in virtual time");
    });
    assert_eq!(PANICS.get(), 0, "a task has panicked");
}

/// Creates a runtime of one thread with a paused clock.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O")
}

thread_local! {
    /// The number of panics on this thread, which runs all tasks of its run.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is ending no longer has a counter.
            let _ = PANICS.try_with(|panics| panics.set(panics.get() + 1));
            print(panic);
        }));
    });
}

/// Returns the session of the client with this seed, if it is the first client of its world. It is the
/// same in every world.
///
/// # Panics
///
/// If the client does not connect.
pub fn session_of_first(seed: u64) -> SessionId {
    run(async { World::new().client(seed).await.session_id() }).expect("connected")
}

/// Returns every way to lose the connection at one request, of one session or of any session:
/// before the request is processed, after it, or with a late commit. In half of them, connections
/// are refused for a while afterwards.
pub fn cuts_at_request(session: Option<SessionId>, nth: usize) -> Vec<Fault> {
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

/// Returns every way to lose the connection around one event, of one session or of any session.
pub fn cuts_at_event(session: Option<SessionId>, nth: usize) -> Vec<Fault> {
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

/// The variable of the environment that chooses the run to print.
const ENUMERATION_RUN: &str = "ENUMERATION_RUN";

/// A scenario. It injects the faults when it is ready for them, runs to its end, and returns the
/// number of faults that have not fired, and a trace.
pub type Scenario<'a> = &'a dyn Fn(Vec<Fault>) -> Ran;

/// Result of a scenario.
#[derive(Debug)]
pub struct Ran {
    /// Number of faults that have not fired.
    pub left: usize,
    /// Number of writes whose commit a fault has delayed.
    held: usize,
    /// The requests that the server has received, if `ENUMERATION_RUN` chooses a run.
    trace: Option<String>,
}

/// All single cuts and all pairs of cuts of one scenario.
///
/// The position of the second cut of a pair is counted in the run that the first cut has changed,
/// so replays are cut too. If no cut fires at a position, the position is beyond the end of the
/// run. A late commit of a request that commits nothing is a cut after it, so it is run only once
/// at a position, which shows this, and does not count.
#[derive(Debug)]
pub struct Enumeration {
    name: String,
    session: Option<SessionId>,
    runs: usize,
    only: Option<usize>,
    cuts_max: usize,
    pairs_refuse: bool,
    /// Runs in which one cut has fired.
    pub singles: usize,
    /// Runs in which two cuts have fired.
    pub pairs: usize,
}

impl Enumeration {
    /// Creates an enumeration of the scenario with this name, with cuts of this session, or of any
    /// session. `ENUMERATION_RUN=<name>:<number>` in the environment prints the trace of that run.
    ///
    /// # Panics
    ///
    /// If `ENUMERATION_RUN` has no number.
    pub fn new(name: impl Into<String>, session: Option<SessionId>) -> Self {
        let name = name.into();
        let only = std::env::var(ENUMERATION_RUN).ok().and_then(|text| {
            let (wanted, number) = text.split_once(':')?;
            (wanted == name).then(|| number.parse().expect("a number behind the colon"))
        });
        Self { name, session, runs: 0, only, cuts_max: 2, pairs_refuse: true, singles: 0, pairs: 0 }
    }

    /// Skips the pairs of cuts if they would only repeat the pairs of another scenario.
    #[must_use]
    pub fn without_pairs_if(mut self, is_repeat: bool) -> Self {
        self.cuts_max = if is_repeat { 1 } else { 2 };
        self
    }

    /// Skips the pairs in which connections are refused after a cut, which are three quarters of all
    /// pairs. Single cuts still include the refusals.
    #[must_use]
    pub fn without_refusals_in_pairs(mut self) -> Self {
        self.pairs_refuse = false;
        self
    }

    /// Runs the scenario with every single cut.
    pub fn run_singles(&mut self, scenario: Scenario<'_>) {
        self.cuts_max = 1;
        self.run(scenario);
    }

    /// Returns whether enough cuts have fired. Otherwise a scenario that does nothing would pass.
    pub fn is_complete(&self, singles_min: usize, pairs_min: usize) -> bool {
        self.singles >= singles_min && (self.cuts_max == 1 || self.pairs >= pairs_min)
    }

    /// Runs the scenario with every single cut and every pair.
    pub fn run(&mut self, scenario: Scenario<'_>) {
        for cuts in [cuts_at_request, cuts_at_event] {
            for nth in 0.. {
                let fired = self.fired(None, cuts(self.session, nth), scenario);
                self.singles += fired.len();
                if fired.is_empty() {
                    break;
                }
                if self.cuts_max > 1 {
                    let is_wanted =
                        |first: &&Fault| self.pairs_refuse || first.refuse_for.is_none();
                    for first in fired.iter().filter(is_wanted).cloned().collect::<Vec<_>>() {
                        self.run_pairs(&first, scenario);
                    }
                }
            }
        }
        let Self { name, singles, pairs, .. } = self;
        eprintln!("{name}: {singles} single cuts, {pairs} pairs of cuts");
    }

    fn run_pairs(&mut self, first: &Fault, scenario: Scenario<'_>) {
        for cuts in [cuts_at_request, cuts_at_event] {
            // The order of a pair does not matter, but of two cuts of the same kind, the second one
            // is later.
            let at_requests =
                cuts(self.session, 0).iter().all(|fault| matches!(fault.at, At::Request { .. }));
            let start = match first.at {
                At::Request { nth, .. } if at_requests => nth + 1,
                At::Event { nth, .. } if !at_requests => nth + 1,
                At::Event { .. } => continue,
                At::Request { .. } | At::Connect { .. } => 0,
            };
            for nth in start.. {
                let mut seconds = cuts(self.session, nth);
                seconds.retain(|second| self.pairs_refuse || second.refuse_for.is_none());
                let fired = self.fired(Some(first), seconds, scenario).len();
                self.pairs += fired;
                if fired == 0 {
                    break;
                }
            }
        }
    }

    /// Runs the scenario with each of these cuts at the same position, behind the first cut if there
    /// is one. Returns those that have fired and differ from each other.
    fn fired(
        &mut self,
        first: Option<&Fault>,
        cuts: Vec<Fault>,
        scenario: Scenario<'_>,
    ) -> Vec<Fault> {
        let is_late = |cut: &Fault| matches!(cut.action, Action::LateCommit(_));
        let late_first = usize::from(first.is_some_and(is_late));
        let mut fired = Vec::new();
        let mut commits_nothing = false;
        for cut in cuts {
            if is_late(&cut) && commits_nothing {
                continue;
            }
            let ran = self.ran(first.into_iter().chain([&cut]).cloned().collect(), scenario);
            if ran.left > 0 {
                continue;
            }
            if is_late(&cut) && ran.held == late_first {
                commits_nothing = true;
                continue;
            }
            fired.push(cut);
        }
        fired
    }

    fn ran(&mut self, faults: Vec<Fault>, scenario: Scenario<'_>) -> Ran {
        self.runs += 1;
        let on_failure = Label { name: &self.name, number: self.runs, faults: faults.clone() };
        let ran = scenario(faults);
        if self.only == Some(self.runs)
            && let Some(trace) = &ran.trace
        {
            eprintln!("{}\n{trace}", on_failure.text());
        }
        on_failure.forget();
        ran
    }
}

/// Prints the run when it is dropped, which happens if the run has failed.
struct Label<'a> {
    name: &'a str,
    number: usize,
    faults: Vec<Fault>,
}

impl Label<'_> {
    fn text(&self) -> String {
        format!("{}:{} {:?}", self.name, self.number, self.faults)
    }

    /// The run has not failed.
    fn forget(mut self) {
        self.faults = Vec::new();
        std::mem::forget(self);
    }
}

impl Drop for Label<'_> {
    fn drop(&mut self) {
        // The name may contain spaces.
        let number = format!("{}:{}", self.name, self.number);
        eprintln!("failed: {}\nits number: ENUMERATION_RUN='{number}'", self.text());
    }
}
