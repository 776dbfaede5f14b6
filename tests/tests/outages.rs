//! Outages of every length, while one holds a lock and four wait for it, with every option at its
//! default.
//!
//! After each outage the same must hold: at no time two held who exclude each other; whoever was
//! next held the lock within a second after its client was connected again, or after the one ahead
//! was gone, and asked little for it; nothing is left behind.

#![expect(clippy::indexing_slicing, reason = "clients are known by their numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture as _;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use zk_recipes::kind::Kind;
use zk_recipes::{
    Client, ExclusiveLock, FairLock, Guard, LockError, LockState, LockStatus, Released,
    SessionState,
};
use zk_tests::lock::{LOCK, Reader, Side, Writer};
use zk_tests::scene::{session, spawn};
use zk_tests::sides::number;
use zk_tests::world::{World, run_within, sleep_ms};

/// By then a lease comes from writes, and no longer from the handshake.
const STEADY_MS: u64 = 40_000;
/// Time from the moment at which nothing stands in the way any more to the grant.
const GRANT_MAX: Duration = Duration::from_secs(1);
/// Requests of a session from the outage on, for each of its contenders: what it asks for after
/// the outage, its claim in a new session, its release, and for an exclusive lock a look and an
/// attempt at each hand-off.
const REQUESTS_MAX: usize = 15;
/// How often everything is looked at.
const STEP_MS: u64 = 1;
/// How long each holds it.
const HOLD: Duration = Duration::from_millis(300);
/// A client that could not connect tries again after a pause, which has a bound, as has the
/// attempt; a session whose client is gone ends after its timeout.
const PATIENCE: Duration = Duration::from_secs(75);
/// Of a whole run, with its steady state and its outage.
const RUN_MAX: Duration = Duration::from_secs(300);
/// After a short outage, before the holder shows that it still holds.
const RESUMED_MS: u64 = 3_000;

/// Below the interval of the renewing writes (1.5 s); below the time after which a silent server is
/// left (9.5 s); below the lease (19 to 21 s are left at any time), and as long as an election may
/// take; above it and below the session timeout (30 s); above that; above the time after which a
/// client gives its session up (60 s).
const SECONDS: [u64; 7] = [1, 5, 12, 16, 23, 45, 90];
/// What the lease survives, whatever it was when the outage began.
const SURVIVED_SECONDS: u64 = 16;
/// From here on every session has expired when the outage ends.
const EXPIRED_SECONDS: u64 = 45;

/// How the servers cannot be reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// Connections end, and others are refused.
    Refused,
    /// The server stands still: connections are accepted, and nothing is said on any.
    Silent,
    /// Nothing passes, and no connection comes about.
    BlackHole,
}

/// What becomes of the holder in the middle of the outage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It keeps its guard, and releases it when the outage is over.
    Keeps,
    Releases,
    /// It drops its guard.
    Drops,
    /// Its client is closed, with those who wait there.
    Closes,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    seconds: u64,
    way: Way,
    fate: Fate,
}

/// One who waits, or holds after it has waited.
struct Contender<W: Side> {
    client: usize,
    waiting: Option<JoinHandle<Result<Guard<W::Kind>, LockError>>>,
    holding: Option<(Guard<W::Kind>, Instant)>,
}

/// One run, with what has to hold at every moment.
struct Scene<W: Side> {
    case: Case,
    world: World,
    clients: Vec<Client>,
    /// Their sessions before the outage.
    sessions: Vec<i64>,
    /// The first holder, and the path of its znode.
    first: (LockStatus, String),
    contenders: Vec<Contender<W>>,
    releases: Vec<JoinHandle<Result<Released, LockError>>>,
    /// Since when somebody could go on who does not.
    due: Option<Instant>,
    worst: Worst,
}

/// The largest figures.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// From the moment at which nothing stood in the way to the grant.
    wait: Duration,
    /// Of a session, per contender.
    requests: usize,
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
fn now() -> Instant {
    Instant::now()
}

impl<W: Side> Scene<W> {
    /// Lets a moment pass, and looks at everything. Returns whether everybody has had the lock.
    async fn step(&mut self, ms: u64, is_out: bool) -> bool {
        sleep_ms(ms).await;
        self.collect().await;
        self.check_exclusion();
        self.check_turn(is_out);
        for contender in &mut self.contenders {
            if let Some((guard, _)) =
                contender.holding.take_if(|(_, since)| since.elapsed() >= HOLD)
            {
                assert!(!is_lost(&guard), "{:?}: lost again\n{}", self.case, self.world.trace());
                self.releases.push(spawn(guard.release()));
            }
        }
        self.contenders.iter().all(|one| one.waiting.is_none() && one.holding.is_none())
    }

    /// Takes the guards of those who have them.
    async fn collect(&mut self) {
        for contender in &mut self.contenders {
            let Some(waiting) = contender.waiting.take_if(|waiting| waiting.is_finished()) else {
                continue;
            };
            match waiting.await.expect("an acquire does not panic") {
                Ok(guard) => contender.holding = Some((guard, now())),
                Err(LockError::Closed)
                    if contender.client == 0 && self.case.fate == Fate::Closes => {}
                Err(error) => panic!("{:?}: {error}\n{}", self.case, self.world.trace()),
            }
        }
    }

    fn check_exclusion(&self) {
        let first = matches!(self.first.0.state(), Some(LockState::Held | LockState::AtRisk));
        let guards = self.contenders.iter().filter_map(|one| one.holding.as_ref());
        let others = guards.filter(|(guard, _)| !is_lost(guard)).count();
        let others_max = if first {
            0
        } else if W::SHARES {
            usize::MAX
        } else {
            1
        };
        assert!(
            others <= others_max,
            "{:?}: {others} beside each other, beside the first: {first}\n{}",
            self.case,
            self.world.trace()
        );
    }

    /// Nobody who could have the lock waits for it.
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
            self.case,
            self.world.trace()
        );
    }

    /// Nobody has asked more than its contenders need.
    fn check_requests(&mut self) {
        let mut sent: BTreeMap<i64, usize> = BTreeMap::new();
        for request in self.world.server.requests() {
            *sent.entry(request.session).or_default() += 1;
        }
        for (client, before) in self.sessions.iter().enumerate() {
            let now = self.clients[client].session_id().map_or(0, |session| session.0);
            let own = self.contenders.iter().filter(|one| one.client == client).count();
            // The first holder is one of the first client's.
            let places = own + usize::from(client == 0);
            for session in BTreeSet::from([*before, now]) {
                let sent = sent.get(&session).copied().unwrap_or_default();
                self.worst.requests = self.worst.requests.max(sent.div_ceil(places));
                assert!(
                    sent <= REQUESTS_MAX * places,
                    "{:?}: client {client} has sent {sent} requests for {places} contenders\n{}",
                    self.case,
                    self.world.trace()
                );
            }
        }
    }

    /// A client that could take the next step now, and which one.
    fn due(&self) -> Option<(usize, String)> {
        let owner = |path: &str| self.world.server.stat(path).map(|stat| stat.ephemeral_owner);
        let connected = |owner: i64| {
            self.clients.iter().position(|client| {
                client.state() == SessionState::Connected
                    && client.session_id().is_some_and(|session| session.0 == owner)
            })
        };
        for path in self.places() {
            let Some(owner) = owner(&path) else { continue };
            let is_held = self
                .contenders
                .iter()
                .filter_map(|one| one.holding.as_ref())
                .any(|(guard, _)| guard.path() == path && guard.session().0 == owner);
            let is_first = path == self.first.1;
            let is_over = is_first
                && !matches!(self.first.0.state(), Some(LockState::Held | LockState::AtRisk));
            if is_held && W::SHARES {
                // Those behind it share.
                continue;
            }
            if is_held || is_first && !is_over {
                return None;
            }
            // A session without a client ends at its time.
            let client = connected(owner)?;
            return Some((client, format!("{path} is next, or over: {is_over}")));
        }
        let waits = |client: usize| {
            self.contenders.iter().any(|one| one.client == client && one.waiting.is_some())
        };
        let client = (0..self.clients.len()).find(|&client| {
            waits(client) && self.clients[client].state() == SessionState::Connected
        })?;
        Some((client, "nobody is ahead".to_owned()))
    }

    /// Paths of the znodes of all contenders, in their order.
    fn places(&self) -> Vec<String> {
        if W::DIRECTORY != LOCK {
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

async fn survive<H: Side, W: Side>(case: Case) -> Worst {
    let world = World::shipped();
    let mut clients = Vec::new();
    for seed in 1..=3 {
        clients.push(world.client(seed).await);
    }
    let held = H::shipped(&clients[0]).acquiring().await.expect("nobody else wants it");
    let mut contenders: Vec<Contender<W>> = Vec::new();
    for client in [0, 1, 1, 2] {
        let waiting = spawn(W::shipped(&clients[client]).acquiring().into_future());
        contenders.push(Contender { client, waiting: Some(waiting), holding: None });
        sleep_ms(100).await;
    }
    sleep_ms(STEADY_MS).await;
    assert!(
        contenders.iter().all(|one| one.waiting.as_ref().is_some_and(|one| !one.is_finished()))
    );
    let sessions = clients.iter().map(session).collect();
    let mut scene = Scene {
        case,
        world,
        sessions,
        clients,
        first: (held.status(), held.path().to_owned()),
        contenders,
        releases: Vec::new(),
        due: None,
        worst: Worst::default(),
    };
    let outage = Duration::from_secs(case.seconds);
    scene.world.server.clear_requests();
    match case.way {
        Way::Refused => {
            scene.world.server.refuse_for(outage);
            scene.world.server.disconnect_all();
        }
        Way::Silent => scene.world.server.pause(outage),
        Way::BlackHole => scene.world.black_hole(outage),
    }
    let begun = now();
    while begun.elapsed() < outage / 2 {
        scene.step(STEP_MS, true).await;
    }
    let (mut held, mut closing) = (Some(held), None);
    match case.fate {
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
        if case.seconds > SURVIVED_SECONDS {
            let state = held.state();
            assert!(matches!(state, LockState::Lost(_)), "{case:?}: {state:?}");
            scene.serve_all().await;
        } else if case.fate == Fate::Keeps {
            for _ in 0..RESUMED_MS / STEP_MS {
                scene.step(STEP_MS, false).await;
            }
            let trace = scene.world.trace();
            assert_eq!(held.state(), LockState::Held, "{case:?}\n{trace}");
            scene.releases.push(spawn(held.release()));
        }
    }
    scene.serve_all().await;
    scene.finish(closing).await
}

impl<W: Side> Scene<W> {
    /// Until everybody has had the lock.
    async fn serve_all(&mut self) {
        let begun = now();
        while !self.step(STEP_MS, false).await {
            let is_patient = begun.elapsed() < PATIENCE;
            assert!(is_patient, "{:?}: not served\n{}", self.case, self.world.trace());
        }
    }

    /// Nothing is left, and everybody who was not closed can go on.
    async fn finish(mut self, closing: Option<JoinHandle<impl Sized>>) -> Worst {
        let case = self.case;
        self.check_requests();
        // The end of a session whose client is gone.
        sleep_ms(40_000).await;
        for release in self.releases {
            assert!(release.is_finished(), "{case:?}: not released\n{}", self.world.trace());
            let released = release.await.expect("a release does not panic");
            let is_closed = case.fate == Fate::Closes && released == Err(LockError::Closed);
            assert!(released.is_ok() || is_closed, "{case:?}: {released:?}");
        }
        if let Some(closing) = closing {
            assert!(closing.is_finished(), "{case:?}: the close hangs");
            self.clients.remove(0);
        }
        let left = self.world.server.ephemerals();
        assert_eq!(left, [], "{case:?}\n{}", self.world.trace());
        let is_new = case.seconds >= EXPIRED_SECONDS;
        let sessions = self.world.server.sessions();
        for client in &self.clients {
            assert_eq!(client.state(), SessionState::Connected, "{case:?}");
            let session = client.session_id().expect("connected").0;
            assert!(sessions.contains(&session), "{case:?}");
            assert_ne!(self.sessions.contains(&session), is_new, "{case:?}");
        }
        let clients: Vec<_> = self.clients.iter().collect();
        self.world.check_clean(&clients).await;
        self.worst
    }
}

fn survive_all<H: Side, W: Side>(name: &str) {
    for way in [Way::Refused, Way::Silent, Way::BlackHole] {
        let mut table = BTreeMap::new();
        for seconds in SECONDS {
            for fate in [Fate::Keeps, Fate::Releases, Fate::Drops, Fate::Closes] {
                let case = Case { seconds, way, fate };
                let worst: &mut Worst = table.entry(seconds).or_default();
                let new = run_within(RUN_MAX, survive::<H, W>(case));
                worst.wait = worst.wait.max(new.wait);
                worst.requests = worst.requests.max(new.requests);
            }
        }
        for (seconds, worst) in table {
            eprintln!("{name}, {way:?} for {seconds} s: {worst:?}");
        }
    }
}

#[test]
fn a_fair_lock_goes_on_after_an_outage_of_any_length() {
    survive_all::<FairLock, FairLock>("fair");
}

#[test]
fn an_exclusive_lock_goes_on_after_an_outage_of_any_length() {
    survive_all::<ExclusiveLock, ExclusiveLock>("exclusive");
}

#[test]
fn readers_behind_a_writer_go_on_after_an_outage_of_any_length() {
    survive_all::<Writer, Reader>("readers behind a writer");
}

#[test]
fn writers_behind_a_reader_go_on_after_an_outage_of_any_length() {
    survive_all::<Reader, Writer>("writers behind a reader");
}

#[test]
fn writers_behind_a_writer_go_on_after_an_outage_of_any_length() {
    survive_all::<Writer, Writer>("writers behind a writer");
}
