//! An outage, and the calls that it interrupts.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use zk_recipes::{Client, SessionId, SessionState};
use zk_tests::outage::{EXPIRED_SECONDS, LEASE_SECONDS, SECONDS, Way};
use zk_tests::scene::{session, spawn};
use zk_tests::world::{World, run_within, sleep_ms};

/// Maximum time between the moment at which a call can complete and its completion.
const LATE_MAX: Duration = Duration::from_secs(1);
/// A time longer than a call takes. Only failures wait for so long.
const PATIENCE: Duration = Duration::from_secs(75);
/// Maximum time between the end of the outage and the reconnection of a client: the longest pause
/// between two attempts to connect.
const RECONNECTED_MAX: Duration = Duration::from_secs(5);
/// Virtual time of a whole run.
const RUN_MAX: Duration = Duration::from_secs(400);
/// Time after which clients need nothing but heartbeats, or renewing writes if they have a lease.
const STEADY_MS: u64 = 40_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: u64,
    pub(crate) way: Way,
}

impl Plan {
    /// Returns whether sessions may expire, and leases may be lost, during the outage. A session may
    /// expire before its timeout: a client without a lease sends a ping only every 10 s, and may need
    /// a few seconds to reconnect.
    pub(crate) fn may_expire(self) -> bool {
        self.seconds > LEASE_SECONDS
    }
}

/// The worst figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    /// Time between the moment at which a call could complete and its completion.
    late: Duration,
    /// Time between the end of the outage and the last reconnection.
    reconnected: Duration,
    /// Requests of all clients since the beginning of the outage.
    requests: u64,
}

/// Runs a scenario with each outage. It may send this many requests after the beginning of the
/// outage.
pub(crate) fn for_each_outage<F: Future<Output = Worst>>(
    name: &str,
    requests_max: u64,
    scenario: impl Fn(Plan) -> F,
) {
    for way in Way::ALL {
        let mut table: BTreeMap<u64, Worst> = BTreeMap::new();
        for seconds in SECONDS {
            let plan = Plan { seconds, way };
            let new = run_within(RUN_MAX, scenario(plan));
            let requests = new.requests;
            assert!(requests <= requests_max, "{name}, {plan:?}: {requests} requests");
            table.insert(seconds, new);
        }
        for (seconds, worst) in table {
            eprintln!("{name}, {way:?} for {seconds} s: {worst:?}");
        }
    }
}

/// A world whose servers become unavailable, and its clients.
pub(crate) struct Outage {
    pub(crate) plan: Plan,
    pub(crate) world: World,
    pub(crate) clients: Vec<Client>,
    /// When each client has connected for the last time.
    connected: Vec<Arc<Mutex<Instant>>>,
    /// Sessions of the clients before the outage.
    sessions: Vec<SessionId>,
    begun: Instant,
    /// Requests before the outage.
    sent_before: u64,
    worst: Worst,
}

/// A call that runs while the servers are unavailable.
pub(crate) struct Call<T> {
    what: &'static str,
    client: usize,
    task: JoinHandle<(T, Instant)>,
}

impl<T> Call<T> {
    /// Returns the client that has made the call.
    pub(crate) fn client(&self) -> usize {
        self.client
    }

    /// Returns whether the call has not completed.
    pub(crate) fn is_pending(&self) -> bool {
        !self.task.is_finished()
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

impl Outage {
    /// Creates a world with this many clients.
    pub(crate) async fn prepare(plan: Plan, clients: u64) -> Self {
        let world = World::shipped();
        let mut connected = Vec::new();
        let mut all = Vec::new();
        for seed in 1..=clients {
            let client = world.client(seed).await;
            let since = Arc::new(Mutex::new(now()));
            let mut states = client.states();
            connected.push(Arc::clone(&since));
            all.push(client);
            spawn(async move {
                while let Some(status) = states.next().await {
                    if status.state == SessionState::Connected {
                        *since.lock().unwrap_or_else(PoisonError::into_inner) = now();
                    }
                }
            });
        }
        let (sessions, begun) = (all.iter().map(session).collect(), now());
        let worst = Worst::default();
        Self { plan, world, clients: all, connected, sessions, begun, sent_before: 0, worst }
    }

    /// Starts a call of a client.
    #[expect(clippy::unused_self, reason = "the call belongs to this world")]
    pub(crate) fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        client: usize,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Call<T> {
        let task = spawn(async move {
            let output = future.await;
            (output, now())
        });
        Call { what, client, task }
    }

    /// Waits until the world is steady, so that the time since the last lease does not matter.
    pub(crate) async fn settle(&self) {
        sleep_ms(STEADY_MS).await;
    }

    /// Begins the outage.
    pub(crate) fn begin(&mut self) {
        self.world.server.clear_requests();
        self.sent_before = self.world.traffic().requests;
        self.begun = now();
        let length = self.length();
        self.plan.way.begin(&self.world, length);
    }

    /// Waits for the middle of the outage.
    pub(crate) async fn middle(&self) {
        self.pass_until(self.begun + self.length() / 2).await;
    }

    /// Waits for the end of the outage, and until all clients have reconnected.
    pub(crate) async fn end(&mut self) {
        self.pass_until(self.over()).await;
        let is_back = |client: &Client| client.state() == SessionState::Connected;
        while !self.clients.iter().all(is_back) {
            let waited = self.over().elapsed();
            assert!(waited < PATIENCE, "{:?}: not connected\n{}", self.plan, self.world.trace());
            sleep_ms(1).await;
        }
        // A connection that was silent seems to work until its client looks at the clock. This time
        // is shorter than the time that a call may take.
        sleep_ms(1).await;
    }

    /// Waits for a call that can complete when its client has connected, but not before `cause`.
    /// Returns its output and the time of its completion.
    pub(crate) async fn done<T>(&mut self, call: Call<T>, cause: Instant) -> (T, Instant) {
        let Call { what, client, task } = call;
        let waited = tokio::time::timeout(PATIENCE, task).await;
        let Ok(done) = waited else {
            panic!("{:?}: {what} hangs\n{}", self.plan, self.world.trace());
        };
        let (output, at) = done.expect("a call does not panic");
        let late = at.saturating_duration_since(cause.max(self.ready(client)));
        self.worst.late = self.worst.late.max(late);
        let plan = self.plan;
        assert!(late <= LATE_MAX, "{plan:?}: {what}, {late:?} late\n{}", self.world.trace());
        (output, at)
    }

    /// Returns whether the session of a client has expired during the outage.
    pub(crate) fn has_expired(&self, client: usize) -> bool {
        session(&self.clients[client]) != self.sessions[client]
    }

    /// Returns when all clients could go on.
    pub(crate) fn all_ready(&self) -> Instant {
        let readies = (0..self.clients.len()).map(|client| self.ready(client));
        readies.max().expect("there are clients")
    }

    /// Checks that nothing is left behind, and returns the figures.
    pub(crate) async fn finish(mut self) -> Worst {
        let plan = self.plan;
        self.worst.requests = self.world.traffic().requests - self.sent_before;
        self.worst.reconnected = self.all_ready().saturating_duration_since(self.over());
        let reconnected = self.worst.reconnected;
        assert!(reconnected <= RECONNECTED_MAX, "{plan:?}: connected after {reconnected:?}");
        for (client, before) in self.clients.iter().zip(&self.sessions) {
            let is_new = session(client) != *before;
            assert!(is_new || plan.seconds < EXPIRED_SECONDS, "{plan:?}: the session has expired");
            assert!(!is_new || plan.may_expire(), "{plan:?}: the session has not expired");
        }
        let clients: Vec<_> = self.clients.iter().collect();
        self.world.check_clean(&clients).await;
        assert_eq!(self.world.server.ephemerals(), [], "{plan:?}\n{}", self.world.trace());
        self.worst
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.plan.seconds)
    }

    fn over(&self) -> Instant {
        self.begun + self.length()
    }

    /// Returns when a client could send requests after the outage.
    fn ready(&self, client: usize) -> Instant {
        let connected = *self.connected[client].lock().unwrap_or_else(PoisonError::into_inner);
        connected.max(self.over())
    }

    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    async fn pass_until(&self, at: Instant) {
        tokio::time::sleep_until(at).await;
    }
}
