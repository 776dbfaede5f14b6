//! A world: servers, links, clients and faults, all drawn from a seed.

mod aims;
pub mod clients;
pub mod faults;
mod forgery;
mod frames;
pub mod freeze;
pub mod kinds;
pub mod link;
mod lulls;
mod oversleep;
pub mod permissions;
pub mod plan;
pub mod registry;
mod rows;
pub mod strangers;
mod stray;
mod surprises;
pub mod trouble;
mod waylay;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::SessionId;
use tokio::io::DuplexStream;
use zk_recipes::{
    Acl, Client, ClientBuilder, Clock, ConfigError, Lease, Permissions, SessionState,
};
use zk_session::{Host, SessionTicket};
use zk_testserver::{Reception, TestServer};

use crate::draw::Draw;
use crate::history::{History, What, Who};
use crate::program::aims::aim;
use crate::program::bulk::BULK;
use crate::program::hosts::GONE;
use crate::program::identities::APP;
use crate::program::values::TREE;

use self::clients::{Clients, Life};
use self::freeze::Freezer;
use self::kinds::WorldKind;
use self::link::Network;
use self::permissions::Withdrawn;
use self::plan::Plan;
use self::registry::Registry;
use self::strangers::Strangers;
use self::surprises::Surprises;
use self::trouble::{FORBIDDEN, STRUCK, Trouble};

/// The directories of the recipes, where strangers may appear.
pub const DIRECTORIES: [&str; 12] = [
    "/locks/a",
    "/locks/b",
    "/rw",
    "/semaphore",
    "/election",
    "/exclusive",
    "/named",
    "/queue/entries",
    "/queue/taken",
    "/queue",
    "/tree",
    "/tree/1",
];

/// In how many worlds guards are asked rarely, in percent.
const SHY_PERCENT: u64 = 12;

/// How many clients with an identity have just enough time for a handshake with a distant server, in
/// percent.
const DISTANT_PERCENT: u64 = 40;

/// The session timeouts of clients, in seconds.
pub const SESSION_TIMEOUTS: [u64; 10] = [30, 30, 30, 4, 4, 6, 6, 10, 15, 40];

/// The directories that everybody may read in worlds with clients that may not read all.
const OPEN_DIRECTORIES: [&str; 7] =
    ["/locks", "/locks/a", "/locks/b", "/rw", "/election", "/exclusive", "/barriers"];

/// The number of the client of the judges, whom no fault concerns.
const OBSERVER: usize = usize::MAX;

/// Where callers watch the tree that caches follow.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "programs match it")]
pub enum Watched {
    /// Everywhere.
    All,
    /// At two paths only, so that several watches of a client often have a path in common.
    Two,
    /// At one path only, without pauses, so that they do so while a connection ends.
    One,
}

impl Watched {
    fn draw(plan: &Plan, draw: &Draw) -> Self {
        match aim(plan, draw, "watches that overlap").map(|mut aim| aim.between(0, 9)) {
            Some(0..=3) if plan.has_persistent_watches() => Self::One,
            Some(0..=5) => Self::Two,
            _ => Self::All,
        }
    }
}

/// A running world.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs and judges use its parts")]
pub struct World {
    /// What was drawn.
    pub plan: Plan,
    /// The servers, which judges may ask for what they have committed.
    pub server: TestServer,
    /// The number of clients that work at the same time.
    pub count: usize,
    /// The clients.
    pub clients: Clients,
    /// The links.
    pub network: Network,
    /// What the callers were told.
    pub history: History,
    /// The guards that callers have.
    pub registry: Registry,
    /// What strangers have done.
    pub strangers: Strangers,
    /// The permissions that everybody lacks for a while.
    pub permissions: Withdrawn,
    /// What goes wrong, and who waits.
    pub trouble: Trouble,
    /// The clients whose callers do not run.
    pub freezer: Freezer,
    /// Where callers watch the tree that caches follow.
    pub watched: Watched,
    /// The contenders whose revocation somebody has requested while they waited.
    pub asked: Mutex<BTreeSet<String>>,
    /// What goes wrong at requests of a new kind.
    surprises: Surprises,
    /// The clients that keep no lease.
    without_lease: Mutex<BTreeSet<usize>>,
    /// The clients of the sessions.
    sessions: Mutex<BTreeMap<SessionId, usize>>,
    published: Mutex<Published>,
    /// The versions of the configuration that clients follow, by their numbers and lives.
    configs: Mutex<BTreeMap<(usize, u64), i64>>,
}

/// The versions of the configuration that the ensemble has published.
#[derive(Debug, Default)]
struct Published {
    newest: i64,
    /// The newest one with servers that can be used, unless a later one may have kept clients from
    /// it.
    expected: Option<i64>,
}

impl World {
    /// Starts the servers.
    pub fn start(plan: Plan, count: usize, draw: &mut Draw) -> Self {
        let history = History::new();
        let server = TestServer::start(plan.server());
        let network = Network::new(server.clone(), history.clone(), &plan, draw.fork());
        let surprises = Surprises::new(&plan, &server);
        let registry = Registry::new(history.clone(), server.clone(), &plan);
        let watched = Watched::draw(&plan, draw);
        let shy = aim(&plan, draw, "guards that are asked rarely");
        let shy = shy.and_then(|mut aim| aim.chance(SHY_PERCENT).then(|| aim.ms(2_000, 20_000)));
        let registry = registry.asking_every(shy);
        if plan.blind.is_some() {
            // A lock needs READ on its directory, or else a contender whose create was lost is never
            // found. The znodes in it belong to their creators.
            for path in OPEN_DIRECTORIES {
                server.admin_create(path, b"", None);
            }
        }
        if let Some(narrow) = plan.kinds.narrow {
            server.admin_create(BULK, &vec![b'x'; narrow.size], None);
        }
        if plan.kinds.is_wide {
            server.admin_create(TREE, b"", None);
            for number in 0..kinds::WIDE {
                server.admin_create(&format!("{TREE}/wide-{number}"), b"", None);
            }
        }
        Self {
            plan,
            server,
            count,
            clients: Clients::default(),
            network,
            history,
            registry,
            strangers: Strangers::default(),
            permissions: Withdrawn::default(),
            trouble: Trouble::default(),
            freezer: Freezer::default(),
            watched,
            asked: Mutex::default(),
            surprises,
            without_lease: Mutex::default(),
            sessions: Mutex::default(),
            published: Mutex::default(),
            configs: Mutex::default(),
        }
    }

    /// Returns an older version of the configuration than the newest. Clients that begin now know no
    /// other.
    pub fn publish_old(&self) -> i64 {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.expected = None;
        (published.newest - 1).max(0)
    }

    /// Returns the version that all clients use in the end, if it is known.
    pub fn expected(&self) -> Option<i64> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).expected
    }

    /// Returns a new version of the configuration.
    pub fn publish(&self, has_strangers: bool) -> i64 {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.newest += 1;
        published.expected = (!has_strangers).then_some(published.newest);
        published.newest
    }

    /// Draws the options of the client of this number. With a ticket, it continues the session of
    /// another one.
    pub fn builder(
        &self,
        number: usize,
        draw: &mut Draw,
        ticket: Option<SessionTicket>,
    ) -> (ClientBuilder, Life) {
        let members = self.plan.members;
        let hosts: Vec<String> = (0..members).map(|member| format!("m{member}")).collect();
        let is_bound = draw.chance(20) && !self.plan.is_of(WorldKind::Moving);
        let hosts = if is_bound { vec![format!("m{}", members - 1)] } else { hosts };
        let timeout = Duration::from_secs(draw.pick(&SESSION_TIMEOUTS));
        let timeout = self.plan.kinds.session.unwrap_or(timeout);
        let mut aside = draw.aside();
        let (network, life) = (self.network.clone(), self.clients.begin(number));
        let (used, history) = (life.clone(), self.history.clone());
        let mut builder = Client::builder(hosts.join(","))
            .session_timeout(timeout)
            .clock(Clock::tokio())
            .seed(draw.seed())
            .transport(move |host: Host| {
                let (connected, history) = (used.clone(), history.clone());
                let connecting = connect(network.clone(), number, used.clone(), host);
                async move {
                    let connection = connecting.await;
                    connected.connect(history.now());
                    connection
                }
            });
        // All clients of a number keep a lease, or none of them does.
        let is_first = self.clients.get(number).is_none();
        if draw.chance(15) && is_first {
            self.lock().insert(number);
        }
        if !self.has_lease(number) {
            builder = builder.lease(None::<Lease>);
        } else if let Some(lease) = self.plan.lease(number) {
            builder = builder.lease(lease);
        }
        let limit = draw.chance(10).then(|| draw.size(20, 200));
        // On a narrow link, requests that have timed out wait for long.
        if let Some(limit) = limit.filter(|_| self.plan.kinds.narrow.is_none()) {
            builder = builder.outstanding_limit(limit);
        }
        if self.plan.is_protected {
            builder = with_credentials(builder, number);
        }
        if self.plan.blind.is_some() && !self.plan.is_blind(number) {
            builder = with_secrets(builder);
        }
        if self.plan.is_mortal(number) {
            builder = builder.renew_after_expiry(false);
        }
        if self.plan.is_reader(number) {
            builder = builder.read_only();
        }
        if let Some(limit) = self.plan.outstanding {
            builder = builder.outstanding_limit(limit);
        }
        if self.plan.is_followed {
            builder = builder.follow_ensemble();
        }
        if aside.chance(15) {
            let least = 4 * self.plan.round_trip_max();
            let timeout = aside.pick(&[2, 5, 10].map(Duration::from_secs)).max(least);
            builder = builder.connect_timeout(timeout);
        }
        let has_identity = self.plan.is_protected || self.plan.blind.is_some();
        if let Some(handshake) = self.plan.distant_handshake().filter(|_| has_identity)
            && aim(&self.plan, &aside, "a handshake that takes nearly all its time")
                .is_some_and(|mut aim| aim.chance(DISTANT_PERCENT))
        {
            builder = builder.connect_timeout(handshake);
        }
        if aside.chance(10) {
            builder = builder.give_up_after(aside.pick(&[timeout, Duration::MAX]));
        }
        if let Some(ticket) = ticket {
            builder = builder.resume(ticket);
        }
        (builder, life)
    }

    /// Returns whether the client of this number is connected while nothing goes wrong.
    pub fn is_prompt(&self, number: usize, client: &Client) -> bool {
        let alive = self.server.sessions();
        self.is_without_trouble(self.history.now())
            && client.state() == SessionState::Connected
            && client.session_id().is_some_and(|session| alive.contains(&session))
            && !self.network.is_isolated(number)
            && !self.freezer.is_stopped(number)
    }

    /// Records that a client has ended with its session, if it has and nobody knew it.
    pub fn note_end(&self, who: Who, client: &Client, life: &Life) {
        if client.state() == SessionState::Expired && life.expire() {
            self.history.push(who, What::Stopped { life: life.place() });
            self.registry.look();
        }
    }

    /// Returns whether the client of this number is to keep a lease.
    pub fn has_lease(&self, number: usize) -> bool {
        !self.lock().contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.without_lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a client of the judges, with all defaults.
    ///
    /// # Errors
    ///
    /// Never: the options are valid.
    pub fn observer(&self) -> Result<Client, ConfigError> {
        let builder = self.outsider();
        if self.plan.is_protected { with_credentials(builder, 0) } else { builder }.start()
    }

    /// Returns a client without credentials, which has all defaults.
    fn outsider(&self) -> ClientBuilder {
        let network = self.network.clone();
        Client::builder("m0")
            .clock(Clock::tokio())
            .seed(1)
            .transport(move |host: Host| connect(network.clone(), OBSERVER, Life::default(), host))
    }

    /// Keeps in mind which client has which session now.
    pub fn note_sessions(&self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = self.clients.all();
        let now = clients
            .iter()
            .filter_map(|(number, (client, _))| Some((client.session_id()?, *number)));
        sessions.extend(now);
        if !self.plan.resumes() {
            self.note_trust(&clients);
        }
        if !self.plan.is_followed {
            return;
        }
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        for (client, (handle, life)) in clients {
            let Some(version) = handle.health().config else { continue };
            let newest = configs.entry((client, life.place())).or_insert(version.0);
            if version.0 < *newest {
                let (found, expected) = (Some(version.0), *newest);
                self.history.note(What::Outdated { client, found, expected });
            }
            *newest = version.0;
        }
    }

    /// Records which clients have a lease on a Keeper, each of them once.
    fn note_trust(&self, clients: &BTreeMap<usize, (Client, Life)>) {
        for (client, (handle, life)) in clients {
            if handle.status().lease_deadline().is_some() && life.trust() {
                self.history.note(What::TrustedKeeper { client: *client, life: life.place() });
            }
        }
    }

    /// Returns the clients of the sessions.
    pub fn sessions(&self) -> BTreeMap<SessionId, usize> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all faults. Links and servers that are slow for ever stay so.
    pub fn heal(&self) {
        self.server.clear_faults();
        self.server.throttle_for(Duration::ZERO);
        self.server.set_reception(Reception::Open);
        for member in 0..self.plan.members {
            self.server.member(member).heal();
        }
        self.permissions.give_back(self);
        self.network.heal();
        self.history.note(What::Calm);
    }

    /// Ends all faults that have not struck yet. Those that have go on.
    fn disarm(&self) {
        self.server.clear_faults();
        let lasts = if self.plan.may_forbid() { FORBIDDEN } else { STRUCK };
        self.trouble.disarm(self.history.now() + lasts);
        self.network.disarm();
        for member in 0..self.plan.members {
            self.server.member(member).heal();
        }
    }

    /// Something goes wrong for this long from now on, perhaps by the clock of the servers.
    pub fn disturb(&self, duration: Duration) {
        let duration = duration.max(self.plan.true_time(duration));
        self.trouble.add(self.history.now() + duration);
    }

    /// Sleeps in virtual time.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub async fn sleep(&self, duration: Duration) {
        if !duration.is_zero() {
            tokio::time::sleep(duration).await;
        }
    }
}

/// Gives a client an identity, to which all belongs that it creates. Half of the clients are told so
/// by a list, and the others for each path.
fn with_credentials(builder: ClientBuilder, number: usize) -> ClientBuilder {
    let builder = builder.auth(APP.0, APP.1);
    if number.is_multiple_of(2) {
        return builder.default_acl(Acl::creator_all());
    }
    // The paths are those of the servers, whatever the root of a handle.
    builder.default_acl_by_path(|path| {
        let is_below_a_root = ["/a", "/b"].iter().any(|own| {
            path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if is_below_a_root { Acl::open() } else { Acl::creator_all() }
    })
}

/// Gives a client an identity. Others may do everything with what it creates but read it.
fn with_secrets(builder: ClientBuilder) -> ClientBuilder {
    let mut acl = Acl::open();
    acl.iter_mut().for_each(|entry| {
        entry.perms = Permissions::CREATE | Permissions::DELETE | Permissions::WRITE;
    });
    acl.extend(Acl::creator_all());
    builder.auth(APP.0, APP.1).default_acl(acl)
}

/// Returns the number of a member.
fn member(host: &Host) -> usize {
    host.name.trim_start_matches('m').parse().unwrap_or(0)
}

async fn connect(
    network: Network,
    client: usize,
    life: Life,
    host: Host,
) -> io::Result<DuplexStream> {
    if host.name.starts_with(GONE) {
        return std::future::pending().await;
    }
    let member = member(&host);
    network.note_attempt(client, member, &life);
    network.connect(client, member).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn watches_overlap_in_some_worlds_with_aims() {
        let drawn = |has_aims: bool| -> BTreeSet<Watched> {
            let plan = |seed| Plan { has_aims, ..Plan::draw(&mut Draw::new(seed)) };
            (0..100).map(|seed| Watched::draw(&plan(seed), &Draw::new(seed))).collect()
        };
        assert_eq!(drawn(true), BTreeSet::from([Watched::All, Watched::Two, Watched::One]));
        assert_eq!(drawn(false), BTreeSet::from([Watched::All]));
    }
}
