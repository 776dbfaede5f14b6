//! Outages of every length, while one contender holds a lock and four wait for it, with every
//! option at its default.
//!
//! In each run, the following must be true: no two contenders that exclude each other hold the lock
//! together; the next contender is granted the lock within a second after its client has
//! reconnected or its predecessor is gone, and sends few requests for that; nothing is left behind.

#![expect(clippy::indexing_slicing, reason = "clients are known by their numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockError, LockState, LockStatus, Released, SessionState};
use zk_session::SessionId;
use zk_tests::case::{Case, LOCK, number};
use zk_tests::for_each_lock;
use zk_tests::outage::{EXPIRED_SECONDS, LEASE_SECONDS, SECONDS, Way};
use zk_tests::scene::{session, spawn};
use zk_tests::world::{World, run_within, sleep_ms};

for_each_lock! {
    #[test] pairs: [a_lock_goes_on_after_an_outage_of_any_length]
}

/// Time after which writes renew the lease, and it no longer depends on the handshake.
const STEADY_MS: u64 = 40_000;
/// Maximum time between the moment when a grant becomes possible and the grant.
const GRANT_MAX: Duration = Duration::from_secs(1);
/// Maximum number of requests of a session since the beginning of the outage, for each of its
/// contenders: the requests after the outage, the claim in a new session, the release, and for an
/// exclusive lock a read and a create at each hand-off.
const REQUESTS_MAX: usize = 15;
/// Time between two checks.
const STEP_MS: u64 = 1;
/// How long each contender holds the lock.
const HOLD: Duration = Duration::from_millis(300);
/// A time longer than a run needs after its outage: attempts to connect and the pauses between them
/// have limits, and the session of a closed client expires.
const PATIENCE: Duration = Duration::from_secs(75);
/// Virtual time of a whole run, with its steady state and its outage.
const RUN_MAX: Duration = Duration::from_secs(300);
/// Time after a short outage within which the guard of the holder must be `Held` again.
const RESUMED_MS: u64 = 3_000;

/// What the holder does in the middle of the outage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// The holder keeps its guard, and releases it when the outage is over.
    Keeps,
    Releases,
    /// The holder drops its guard.
    Drops,
    /// The test closes the holder's client, which also ends the waiters of that client.
    Closes,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    seconds: u64,
    way: Way,
    fate: Fate,
}

/// A contender that waits for the lock, or holds it after the wait.
struct Contender<W: Case> {
    client: usize,
    waiting: Option<JoinHandle<Result<Guard<W::Kind>, LockError>>>,
    holding: Option<(Guard<W::Kind>, Instant)>,
}

/// One run, and the checks at every moment.
struct Scene<W: Case> {
    plan: Plan,
    world: World,
    clients: Vec<Client>,
    /// Sessions of the clients before the outage.
    sessions: Vec<SessionId>,
    /// The first holder, and the path of its znode.
    first: (LockStatus, String),
    contenders: Vec<Contender<W>>,
    releases: Vec<JoinHandle<Result<Released, LockError>>>,
    /// The time since which a contender could be granted the lock but is not.
    due: Option<Instant>,
    worst: Worst,
}

/// The worst figures of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// Time between the moment when a grant became possible and the grant.
    wait: Duration,
    /// Requests of a session, per contender.
    requests: usize,
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
fn now() -> Instant {
    Instant::now()
}

impl<W: Case> Scene<W> {
    /// Lets a moment pass, and checks everything. Returns true if all contenders have held the
    /// lock.
    async fn step(&mut self, ms: u64, is_out: bool) -> bool {
        sleep_ms(ms).await;
        self.collect().await;
        self.check_exclusion();
        self.check_turn(is_out);
        for contender in &mut self.contenders {
            if let Some((guard, _)) =
                contender.holding.take_if(|(_, since)| since.elapsed() >= HOLD)
            {
                assert!(!is_lost(&guard), "{:?}: lost again\n{}", self.plan, self.world.trace());
                self.releases.push(spawn(guard.release()));
            }
        }
        self.contenders.iter().all(|one| one.waiting.is_none() && one.holding.is_none())
    }

    /// Takes the guards of the contenders that were granted the lock.
    async fn collect(&mut self) {
        for contender in &mut self.contenders {
            let Some(waiting) = contender.waiting.take_if(|waiting| waiting.is_finished()) else {
                continue;
            };
            match waiting.await.expect("an acquire does not panic") {
                Ok(guard) => contender.holding = Some((guard, now())),
                Err(LockError::Closed)
                    if contender.client == 0 && self.plan.fate == Fate::Closes => {}
                Err(error) => panic!("{:?}: {error}\n{}", self.plan, self.world.trace()),
            }
        }
    }

    fn check_exclusion(&self) {
        let first = matches!(self.first.0.state(), Some(LockState::Held | LockState::AtRisk));
        let guards = self.contenders.iter().filter_map(|one| one.holding.as_ref());
        let others = guards.filter(|(guard, _)| !is_lost(guard)).count();
        let others_max = if first {
            0
        } else if W::IS_SHARED {
            usize::MAX
        } else {
            1
        };
        assert!(
            others <= others_max,
            "{:?}: {others} beside each other, beside the first: {first}\n{}",
            self.plan,
            self.world.trace()
        );
    }

    /// Checks that no contender that could hold the lock waits for too long.
    fn check_turn(&mut self, is_out: bool) {
        let due = if is_out { None } else { self.due() };
        let Some((client, why)) = due else {
            self.due = None;
            return;
        };
        let wait = self.due.get_or_insert_with(now).elapsed();
        self.worst.wait = self.worst.wait.max(wait);
        assert!(
            wait <= GRANT_MAX,
            "{:?}: for {wait:?} client {client} could have gone on: {why}\n{}",
            self.plan,
            self.world.trace()
        );
    }

    /// Checks that no client has sent more requests than its contenders need.
    fn check_requests(&mut self) {
        let mut sent: BTreeMap<SessionId, usize> = BTreeMap::new();
        for request in self.world.server.requests() {
            *sent.entry(request.session).or_default() += 1;
        }
        for (client, before) in self.sessions.iter().enumerate() {
            let now = self.clients[client].session_id().unwrap_or(SessionId::NONE);
            let own = self.contenders.iter().filter(|one| one.client == client).count();
            // The first holder belongs to the first client.
            let places = own + usize::from(client == 0);
            for session in BTreeSet::from([*before, now]) {
                let sent = sent.get(&session).copied().unwrap_or_default();
                self.worst.requests = self.worst.requests.max(sent.div_ceil(places));
                assert!(
                    sent <= REQUESTS_MAX * places,
                    "{:?}: client {client} has sent {sent} requests for {places} contenders\n{}",
                    self.plan,
                    self.world.trace()
                );
            }
        }
    }

    /// Returns a client that could take the next step now, and the reason.
    fn due(&self) -> Option<(usize, String)> {
        let owner = |path: &str| self.world.server.stat(path).map(|stat| stat.ephemeral_owner);
        let connected = |owner: SessionId| {
            self.clients.iter().position(|client| {
                client.state() == SessionState::Connected
                    && client.session_id().is_some_and(|session| session == owner)
            })
        };
        for path in self.places() {
            let Some(owner) = owner(&path) else { continue };
            let is_held = self
                .contenders
                .iter()
                .filter_map(|one| one.holding.as_ref())
                .any(|(guard, _)| guard.path() == path && guard.session() == owner);
            let is_first = path == self.first.1;
            let is_over = is_first
                && !matches!(self.first.0.state(), Some(LockState::Held | LockState::AtRisk));
            if is_held && W::IS_SHARED {
                // The contenders behind it share the lock.
                continue;
            }
            if is_held || is_first && !is_over {
                return None;
            }
            // If no connected client has this session, the session must expire first.
            let client = connected(owner)?;
            return Some((client, format!("{path} is next, or over: {is_over}")));
        }
        let waits = |client: usize| {
            self.contenders.iter().any(|one| one.client == client && one.waiting.is_some())
        };
        let client = (0..self.clients.len()).find(|&client| {
            waits(client) && self.clients[client].state() == SessionState::Connected
        })?;
        Some((client, "no contender is ahead".to_owned()))
    }

    /// Returns the paths of the znodes of all contenders, in their order.
    fn places(&self) -> Vec<String> {
        if W::MARK.is_none() {
            return vec![LOCK.to_owned()];
        }
        let mut names = self.world.server.children(LOCK).unwrap_or_default();
        names.sort_by_key(|name| number(name));
        names.iter().map(|name| format!("{LOCK}/{name}")).collect()
    }
}

fn is_lost<K: Kind>(guard: &Guard<K>) -> bool {
    matches!(guard.state(), LockState::Lost(_))
}

async fn survive<H: Case, W: Case>(plan: Plan) -> Worst {
    let world = World::shipped();
    let mut clients = Vec::new();
    for seed in 1..=3 {
        clients.push(world.client(seed).await);
    }
    let held = H::shipped(&clients[0]).acquire().await.expect("the lock is free");
    let mut contenders: Vec<Contender<W>> = Vec::new();
    for client in [0, 1, 1, 2] {
        let waiting = spawn(W::shipped(&clients[client]).acquire().into_future());
        contenders.push(Contender { client, waiting: Some(waiting), holding: None });
        sleep_ms(100).await;
    }
    sleep_ms(STEADY_MS).await;
    assert!(
        contenders.iter().all(|one| one.waiting.as_ref().is_some_and(|one| !one.is_finished()))
    );
    let sessions = clients.iter().map(session).collect();
    let mut scene = Scene {
        plan,
        world,
        sessions,
        clients,
        first: (held.status(), held.path().to_owned()),
        contenders,
        releases: Vec::new(),
        due: None,
        worst: Worst::default(),
    };
    let outage = Duration::from_secs(plan.seconds);
    scene.world.server.clear_requests();
    plan.way.begin(&scene.world, outage);
    let begun = now();
    while begun.elapsed() < outage / 2 {
        scene.step(STEP_MS, true).await;
    }
    let (mut held, mut closing) = (Some(held), None);
    match plan.fate {
        Fate::Keeps => {}
        Fate::Releases => scene.releases.extend(held.take().map(|held| spawn(held.release()))),
        Fate::Drops => drop(held.take()),
        Fate::Closes => {
            let client = scene.clients[0].clone();
            closing = Some(spawn(async move { client.close().await }));
        }
    }
    while begun.elapsed() < outage {
        scene.step(STEP_MS, true).await;
    }
    if let Some(held) = held {
        if plan.seconds > LEASE_SECONDS {
            let state = held.state();
            assert!(matches!(state, LockState::Lost(_)), "{plan:?}: {state:?}");
            scene.serve_all().await;
        } else if plan.fate == Fate::Keeps {
            for _ in 0..RESUMED_MS / STEP_MS {
                scene.step(STEP_MS, false).await;
            }
            let trace = scene.world.trace();
            assert_eq!(held.state(), LockState::Held, "{plan:?}\n{trace}");
            scene.releases.push(spawn(held.release()));
        }
    }
    scene.serve_all().await;
    scene.finish(closing).await
}

impl<W: Case> Scene<W> {
    /// Continues until all contenders have held the lock.
    async fn serve_all(&mut self) {
        let begun = now();
        while !self.step(STEP_MS, false).await {
            let is_patient = begun.elapsed() < PATIENCE;
            assert!(is_patient, "{:?}: not served\n{}", self.plan, self.world.trace());
        }
    }

    /// Checks that nothing is left, and that all clients that were not closed still work.
    async fn finish(mut self, closing: Option<JoinHandle<impl Sized>>) -> Worst {
        let plan = self.plan;
        self.check_requests();
        // After this time, the session of a closed client has expired.
        sleep_ms(40_000).await;
        for release in self.releases {
            assert!(release.is_finished(), "{plan:?}: not released\n{}", self.world.trace());
            let released = release.await.expect("a release does not panic");
            let is_closed = plan.fate == Fate::Closes && released == Err(LockError::Closed);
            assert!(released.is_ok() || is_closed, "{plan:?}: {released:?}");
        }
        if let Some(closing) = closing {
            assert!(closing.is_finished(), "{plan:?}: the close hangs");
            self.clients.remove(0);
        }
        let left = self.world.server.ephemerals();
        assert_eq!(left, [], "{plan:?}\n{}", self.world.trace());
        let is_new = plan.seconds >= EXPIRED_SECONDS;
        let sessions = self.world.server.sessions();
        for client in &self.clients {
            assert_eq!(client.state(), SessionState::Connected, "{plan:?}");
            let session = client.session_id().expect("connected");
            assert!(sessions.contains(&session), "{plan:?}");
            assert_ne!(self.sessions.contains(&session), is_new, "{plan:?}");
        }
        let clients: Vec<_> = self.clients.iter().collect();
        self.world.check_clean(&clients).await;
        self.worst
    }
}

fn a_lock_goes_on_after_an_outage_of_any_length<H: Case, W: Case>() {
    for way in Way::ALL {
        let mut table = BTreeMap::new();
        for seconds in SECONDS {
            for fate in [Fate::Keeps, Fate::Releases, Fate::Drops, Fate::Closes] {
                let plan = Plan { seconds, way, fate };
                let worst: &mut Worst = table.entry(seconds).or_default();
                let new = run_within(RUN_MAX, survive::<H, W>(plan));
                worst.wait = worst.wait.max(new.wait);
                worst.requests = worst.requests.max(new.requests);
            }
        }
        for (seconds, worst) in table {
            eprintln!("{} behind {}, {way:?} for {seconds} s: {worst:?}", W::NAME, H::NAME);
        }
    }
}
