//! The plan of a world: everything about servers, links and faults that is drawn from the seed.
//!
//! Each seed leaves out a random part of the features ("swarm testing"). A world with everything at
//! once would spend most of its time on the loudest fault.

use std::time::Duration;

use zk_recipes::Lease;
use zk_testserver::{SequenceOverflow, ServerConfig, ServerVersion};

use super::aims::Aims;
use super::kinds::Kinds;
use crate::draw::Draw;

/// The kinds of faults that may happen in a world.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "each kind is drawn and executed")]
pub enum FaultKind {
    /// A connection ends before, within or after a frame.
    Cut,
    /// A write takes effect later than the connection ends.
    LateCommit,
    /// A reply is delayed.
    Delay,
    /// A connection stays open, and nothing happens on it any more.
    Freeze,
    /// Packets of one direction, or of both, arrive after a while.
    BlackHole,
    /// Nothing of one client arrives for a while.
    Isolate,
    /// Nothing of one client arrives for a while, from the moment at which a write of it has.
    LostReply,
    /// All links are slow for a while.
    SlowLinks,
    /// Commits are slow for a while.
    SlowCommits,
    /// A server is paused.
    Pause,
    /// All connections of a member end, and clients move.
    Restart,
    /// There is no leader for a while.
    Election,
    /// The server of a session loses its leader and does not know it yet.
    CutOff,
    /// A member is cut off from the others.
    Partition,
    /// Servers refuse all requests because they are busy.
    Throttle,
    /// A server refuses one request.
    Refusal,
    /// A server executes a request, and reports an error.
    Misreport,
    /// An administrator deletes a znode of a recipe.
    Deletion,
    /// A stranger creates a znode in a directory of a recipe.
    Stranger,
    /// All clients are suspended for a while, and the servers go on.
    Suspension,
    /// The callers of one client do not run for a while, and perhaps its links are silent.
    Stop,
    /// The sequence numbers of a directory come to their end.
    SequenceEnd,
    /// Servers refuse all requests, or all connections, for up to a minute.
    Overload,
    /// Somebody without credentials deletes and changes what belongs to clients that have some.
    Intruder,
    /// An administrator deletes a contender right after it has come, and the only one ahead of it.
    Ambush,
    /// Nothing of a client that opens no other session arrives for longer than its session lasts.
    Expiry,
    /// Several of the other kinds strike one session, one right after the other.
    Row,
    /// Something goes wrong at requests of a kind that the world has not had yet.
    Surprise,
    /// An administrator takes permissions on a znode of a recipe from everybody, for a while.
    Permission,
    /// An administrator deletes what a call relies on, while its multi is held up.
    Waylay,
    /// A write arrives after its connection has ended, between two requests of somebody else.
    Stray,
    /// All connections end, and the servers are too busy for the requests that wait meanwhile.
    Stampede,
    /// A member that led does not know that the others have elected another leader.
    Deposition,
    /// An administrator replaces a znode of a recipe, whose reply was lost, by a copy.
    Forgery,
}

impl FaultKind {
    /// Returns whether it may be a part of others.
    pub(super) fn is_of_one_part(&self) -> bool {
        !matches!(
            self,
            Self::Deposition
                | Self::Forgery
                | Self::Row
                | Self::Stray
                | Self::Surprise
                | Self::Waylay
        )
    }
}

/// The kinds of faults that all worlds have in common. The others are drawn after everything else.
pub const FAULT_KINDS: [FaultKind; 18] = [
    FaultKind::Cut,
    FaultKind::LateCommit,
    FaultKind::Delay,
    FaultKind::Freeze,
    FaultKind::BlackHole,
    FaultKind::Isolate,
    FaultKind::LostReply,
    FaultKind::SlowLinks,
    FaultKind::SlowCommits,
    FaultKind::Pause,
    FaultKind::Restart,
    FaultKind::Election,
    FaultKind::CutOff,
    FaultKind::Partition,
    FaultKind::Throttle,
    FaultKind::Refusal,
    FaultKind::Deletion,
    FaultKind::Stranger,
];

/// The kinds of faults that are drawn last.
pub const MORE_FAULT_KINDS: [FaultKind; 16] = [
    FaultKind::Suspension,
    FaultKind::Stop,
    FaultKind::SequenceEnd,
    FaultKind::Overload,
    FaultKind::Intruder,
    FaultKind::Ambush,
    FaultKind::Expiry,
    FaultKind::Row,
    FaultKind::Permission,
    FaultKind::Surprise,
    FaultKind::Waylay,
    FaultKind::Stray,
    FaultKind::Stampede,
    FaultKind::Deposition,
    FaultKind::Forgery,
    FaultKind::Misreport,
];

/// The first seed of the worlds of today. Those below draw the worlds that they drew before there was
/// more, so that the seeds in `tests/corpus.txt` keep their meaning.
pub const FIRST_SEED: u64 = AIMS_FROM;
/// The first seed whose world may bring about, on purpose, what known faults need and chance alone hardly
/// ever does.
pub const AIMS_FROM: u64 = 1 << 36;
/// The first seed whose world may have faults at requests of a new kind.
pub const SURPRISES_FROM: u64 = 1 << 35;
/// How many of these have them, in percent.
const SURPRISES_PERCENT: u64 = 40;
/// How many of those with permissions that change have no other faults, and servers that discard
/// events, in percent.
const SILENT_PERCENT: u64 = 40;
/// Chosen once.
const SURPRISES_SALT: u64 = 0x5e1d;
/// The first seed whose world may have permissions that change.
pub const PERMISSIONS_FROM: u64 = 1 << 34;
/// How many of these have them, in percent.
const PERMISSIONS_PERCENT: u64 = 20;
/// How many of those with aims and with permissions that change have impatient callers, in percent.
const IMPATIENT_PERCENT: u64 = 25;
/// Chosen once.
const IMPATIENT_SALT: u64 = 0x1a7e;
/// Chosen once.
const PERMISSIONS_SALT: u64 = 0xac1;
/// The first seed whose world may have rows of faults.
pub const ROWS_FROM: u64 = 1 << 32;
/// How many of these seeds have rows, in percent, and how many of those without anything special have
/// one recipe, beside those that have one anyway.
const ROWS_PERCENT: u64 = 40;
const MORE_FOCUS_PERCENT: u64 = 40;
/// How many have servers that are ClickHouse Keepers, in percent.
const KEEPER_PERCENT: u64 = 5;
/// Chosen once.
const ROWS_SALT: u64 = 0x2075;

/// How many requests a client sends at once, apart from rare flights.
const FLIGHT_MAX: u32 = 10;
/// Chosen once, so that what is drawn last is unrelated to the rest.
const SALT: u64 = 0x1d_2c45;

/// How many seeds have clients that may not read, in percent.
const BLIND_PERCENT: u64 = 8;
/// Chosen like `MORTAL_SALT`, when these clients were added.
const BLIND_SALT: u64 = 2;

/// How many seeds have clients that open no other session, in percent.
const MORTAL_PERCENT: u64 = 12;
/// Chosen so that the worlds of the seeds in `tests/corpus.txt` did not change when these clients were
/// added.
const MORTAL_SALT: u64 = 1;

/// How many seeds have callers and faults that hardly pause, in percent.
const HASTY_PERCENT: u64 = 15;
/// Chosen like `MORTAL_SALT`, when these worlds were added.
const HASTY_SALT: u64 = 300;

/// How many seeds have clients that also use servers without a quorum, in percent.
const READERS_PERCENT: u64 = 10;
/// Chosen like `MORTAL_SALT`, when these clients were added.
const READERS_SALT: u64 = 4;

/// How many seeds have one recipe and one or two kinds of faults, again and again, in percent.
const FOCUS_PERCENT: u64 = 20;
/// Chosen like `MORTAL_SALT`, when these worlds were added.
const FOCUS_SALT: u64 = 1_197;

/// How many seeds have callers that give up when their client loses its connection, in percent.
const NERVOUS_PERCENT: u64 = 12;
/// Chosen like `MORTAL_SALT`, when these callers were added.
const NERVOUS_SALT: u64 = 8;

/// How many seeds have callers with watches in the tree that caches follow, in percent.
const WATCHERS_PERCENT: u64 = 25;
/// Chosen like `MORTAL_SALT`, when these callers were added.
const WATCHERS_SALT: u64 = 6_818;

/// How many seeds have timeouts for calls that only give something up, or prove something, in percent.
const DEADLINES_PERCENT: u64 = 30;
/// Chosen like `MORTAL_SALT`, when these timeouts were added.
const DEADLINES_SALT: u64 = 5;

/// The longest round trip of a world in which a lock that is held stays so while nothing goes wrong.
const STEADY_ROUND_TRIP_MAX: Duration = Duration::from_millis(200);
/// The same, if round trips differ. With the shortest session timeout, of 4 s, a lease needs commits of
/// at most 125 ms: 3.8 s (a slow clock) less 2.1 s (a tick), five intervals of 200 ms and four commits
/// leave a twentieth of the timeout. With others that are longer, a lease that begins after a few short
/// ones ends after a long one.
const UNEVEN_ROUND_TRIP_MAX: Duration = Duration::from_millis(125);

/// After how many ticks a follower notices that it is cut off.
pub const SYNC_LIMIT: u32 = 5;

/// The speed of the servers' clock if it is right, in thousandths.
pub const CLOCK_RATE: u32 = 1_000;

/// The speeds of the servers' clock, in thousandths: a client whose clock is 5 % fast or slow sees it
/// run at the first and at the last of them.
const CLOCK_RATES: [u32; 6] = [953, 953, 980, 1_020, 1_052, 1_052];

/// What a seed says about a world.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Plan {
    /// The number of servers.
    pub members: usize,
    /// How long followers lag behind.
    pub lag: Duration,
    /// How long followers take to apply what they have learned.
    pub unapplied: Duration,
    /// How long the leader takes to apply what it has committed.
    pub leader_unapplied: Duration,
    /// How long a server takes for each request that a client sends with others. Meanwhile, it
    /// executes the requests of other clients.
    pub service: Duration,
    /// The version of all servers.
    pub version: ServerVersion,
    /// The servers' tick.
    pub tick: Duration,
    /// The longest session timeout that they grant, if it is not the usual one.
    pub session_timeout_max: Option<Duration>,
    /// How often they remove empty containers.
    pub reap_interval: Duration,
    /// When they remove containers that never had a child.
    pub container_max_never_used: Option<Duration>,
    /// How long a packet travels.
    pub latency: Duration,
    /// How much longer it may travel.
    pub jitter: Duration,
    /// How long a write takes, beside the way of its packets.
    pub commit: Duration,
    /// The kinds of faults.
    pub faults: Vec<FaultKind>,
    /// The mean time between two faults.
    pub fault_pause: Duration,
    /// When the faults stop.
    pub calm_at: Duration,
    /// The speed of the servers' clock, in thousandths of that of the clients.
    pub clock_rate: u32,
    /// How many requests of callers may wait in each client, if they are few.
    pub outstanding: Option<usize>,
    /// Whether everything that clients create is theirs alone.
    pub is_protected: bool,
    /// The seed of the clients that also use servers without a quorum, if there are such ones.
    pub readers: Option<u64>,
    /// Whether callers and faults hardly pause, so that much more happens at the same time.
    pub is_hasty: bool,
    /// The seed of leases that are longer than those by default, if clients have such ones.
    pub leases: Option<u64>,
    /// The seed of the clients that end when their session expires, if there are such ones.
    pub mortals: Option<u64>,
    /// The seed of the clients that may not read what the others create, if there are such ones.
    pub blind: Option<u64>,
    /// The seed of the one recipe and the few kinds of faults that the world has, if it has no more.
    pub focus: Option<u64>,
    /// Whether callers give up when their client loses its connection.
    pub is_nervous: bool,
    /// Whether several faults strike one session, one right after the other.
    pub has_rows: bool,
    /// Whether callers watch the tree that caches follow.
    pub has_watchers: bool,
    /// Whether a lock that is held stays so: nothing goes wrong, nothing is slow, and nobody moves.
    pub is_steady: bool,
    /// Whether clients use the servers that the ensemble publishes.
    pub is_followed: bool,
    /// Whether calls have timeouts that only give something up, or prove something.
    pub has_deadlines: bool,
    /// Whether all timeouts are so short that callers give up again and again.
    pub is_impatient: bool,
    /// Whether the seed is one from [`AIMS_FROM`] on.
    pub has_aims: bool,
    /// What the world has if it is of one of the kinds that have a module of their own.
    pub kinds: Kinds,
    /// What such a world brings about on purpose.
    pub aims: Aims,
}

impl Plan {
    /// Draws the plan of a world.
    pub fn draw(draw: &mut Draw) -> Self {
        let members = draw.pick(&[1, 1, 3, 3, 3, 5]);
        let is_lagging = members > 1 && draw.chance(60);
        let lag = if is_lagging { draw.ms(1, 3_000) } else { Duration::ZERO };
        let is_slow_to_apply = members > 1 && draw.chance(40);
        let unapplied = if is_slow_to_apply { draw.ms(1, 3_000) } else { Duration::ZERO };
        let version = draw.pick(&[
            ServerVersion::V3_5,
            ServerVersion::V3_6,
            ServerVersion::V3_7,
            ServerVersion::V3_8,
            ServerVersion::V3_8,
            ServerVersion::V3_9,
        ]);
        let tick = Duration::from_millis(draw.pick(&[500, 1_000, 2_000, 2_000, 2_000]));
        let seconds = draw.pick(&[0, 0, 0, 6, 10]);
        let session_timeout_max = (seconds > 0).then_some(Duration::from_secs(seconds));
        let reap_interval = Duration::from_secs(draw.pick(&[1, 1, 5, 60]));
        let never_used = draw.pick(&[0, 0, 2, 10]);
        let container_max_never_used = (never_used > 0).then_some(Duration::from_secs(never_used));
        let latency = if draw.chance(30) { Duration::ZERO } else { draw.ms(1, 150) };
        let jitter = if draw.chance(50) { Duration::ZERO } else { draw.ms(1, 100) };
        let commit = if draw.chance(60) { Duration::ZERO } else { draw.ms(1, 400) };
        let faults = Self::draw_faults(draw, members);
        let fault_pause = draw.ms(500, 20_000);
        let calm_at = draw.ms(5_000, 90_000);
        let plan = Self {
            members,
            lag,
            unapplied,
            leader_unapplied: Duration::ZERO,
            service: Duration::ZERO,
            version,
            tick,
            session_timeout_max,
            reap_interval,
            container_max_never_used,
            latency,
            jitter,
            commit,
            faults,
            fault_pause,
            calm_at,
            clock_rate: CLOCK_RATE,
            leases: None,
            mortals: None,
            blind: None,
            is_protected: false,
            is_hasty: false,
            readers: None,
            outstanding: None,
            focus: None,
            is_nervous: false,
            has_rows: false,
            has_watchers: false,
            is_steady: false,
            is_followed: false,
            has_deadlines: false,
            is_impatient: false,
            has_aims: false,
            kinds: Kinds::default(),
            aims: Aims::default(),
        };
        plan.draw_more(&mut Draw::new(draw.seed() ^ SALT))
    }

    /// Draws what was added last, from numbers of its own, so that most seeds still mean the same.
    fn draw_more(mut self, draw: &mut Draw) -> Self {
        let mut clocks = draw.fork();
        if clocks.chance(20) {
            self.clock_rate = clocks.pick(&CLOCK_RATES);
            if clocks.chance(50) {
                // With the usual longest timeout, 5 % of a session are no more than a tick, by which
                // the servers end it later anyway.
                self.tick = Duration::from_millis(500);
                self.session_timeout_max = Some(Duration::from_secs(60));
            }
        }
        let seed = clocks.seed();
        if clocks.chance(if self.clock_rate == CLOCK_RATE { 5 } else { 70 }) {
            self.leases = Some(seed);
            // Only a client that is cut off for longer than a session relies on its clock.
            self.calm_at = self.calm_at.max(Duration::from_secs(75));
            if !self.faults.contains(&FaultKind::Isolate) {
                self.faults.push(FaultKind::Isolate);
            }
        }
        for kind in [FaultKind::Suspension, FaultKind::Stop] {
            if clocks.chance(12) {
                self.faults.push(kind);
            }
        }
        let mut limits = draw.fork();
        for kind in [FaultKind::SequenceEnd, FaultKind::Overload] {
            if limits.chance(8) {
                self.faults.push(kind);
            }
        }
        let outstanding = limits.size(1, 4);
        let mut access = draw.fork();
        if access.chance(10) {
            self.is_protected = true;
            self.faults.push(FaultKind::Intruder);
        }
        self.outstanding = limits.chance(8).then_some(outstanding);
        let mut leader = draw.fork();
        if self.members > 1 && leader.chance(25) {
            self.leader_unapplied = leader.ms(1, 3_000);
        }
        let mut ambush = draw.fork();
        if ambush.chance(4) {
            self.faults.push(FaultKind::Ambush);
            // There must be a time between a list and the read that follows it.
            self.latency = self.latency.max(Duration::from_millis(10));
        }
        let seed = draw.seed();
        let mut service = Draw::new(seed);
        if service.chance(20) {
            self.service = service.ms(1, 15);
        }
        let mut mortals = Draw::new(seed ^ MORTAL_SALT);
        if mortals.chance(MORTAL_PERCENT) {
            self.mortals = Some(mortals.seed());
            self.faults.push(FaultKind::Expiry);
            // Long enough for the end of a session, and of the next one.
            self.calm_at = self.calm_at.max(Duration::from_secs(45));
        }
        let mut blind = Draw::new(draw.seed() ^ BLIND_SALT);
        if blind.chance(BLIND_PERCENT) {
            self.blind = Some(blind.seed());
            self.mortals = None;
            self.is_protected = false;
            let hide = [
                FaultKind::Ambush,
                FaultKind::Deletion,
                FaultKind::Expiry,
                FaultKind::Intruder,
                FaultKind::Refusal,
                FaultKind::SequenceEnd,
                FaultKind::Stranger,
            ];
            // These would hide who is refused, and why.
            self.faults.retain(|kind| !hide.contains(kind));
        }
        let mut hasty = Draw::new(draw.seed() ^ HASTY_SALT);
        if hasty.chance(HASTY_PERCENT) {
            self.is_hasty = true;
            self.fault_pause = hasty.ms(50, 1_000);
            // Otherwise all steps are over before anything has gone wrong.
            self.latency = self.latency.max(Duration::from_millis(5));
        }
        let mut readers = Draw::new(draw.seed() ^ READERS_SALT);
        if self.members > 1 && readers.chance(READERS_PERCENT) {
            self.readers = Some(readers.seed());
            if !self.faults.contains(&FaultKind::Partition) {
                self.faults.push(FaultKind::Partition);
            }
        }
        let mut focus = Draw::new(draw.seed() ^ FOCUS_SALT);
        let is_special = [self.blind, self.mortals, self.readers, self.leases];
        if focus.chance(FOCUS_PERCENT) && is_special.iter().all(Option::is_none) {
            self.focus = Some(focus.seed());
        }
        let mut nervous = Draw::new(draw.seed() ^ NERVOUS_SALT);
        self.is_nervous = nervous.chance(NERVOUS_PERCENT);
        let mut watchers = Draw::new(draw.seed() ^ WATCHERS_SALT);
        self.has_watchers = watchers.chance(WATCHERS_PERCENT);
        let mut deadlines = Draw::new(draw.seed() ^ DEADLINES_SALT);
        self.has_deadlines = deadlines.chance(DEADLINES_PERCENT);
        self
    }

    /// Draws what only seeds from [`PERMISSIONS_FROM`] on have.
    pub fn draw_permissions(&mut self, seed: u64) {
        // With clients that may not read everything, it would be hidden who may read what.
        if Draw::new(seed ^ PERMISSIONS_SALT).chance(PERMISSIONS_PERCENT) && self.blind.is_none() {
            self.faults.push(FaultKind::Permission);
        }
    }

    /// Draws whether callers give up all the time while they may lack permissions, so that there is much
    /// to remove that servers refuse to.
    pub fn draw_impatience(&mut self, seed: u64) {
        let is_possible = self.has_aims && self.faults.contains(&FaultKind::Permission);
        self.is_impatient =
            is_possible && Draw::new(seed ^ IMPATIENT_SALT).chance(IMPATIENT_PERCENT);
    }

    /// Draws what only seeds from [`SURPRISES_FROM`] on have.
    pub fn draw_surprises(&mut self, seed: u64) {
        let mut draw = Draw::new(seed ^ SURPRISES_SALT);
        let is_surprising = draw.chance(SURPRISES_PERCENT);
        let has_permissions = self.faults.contains(&FaultKind::Permission);
        if draw.chance(SILENT_PERCENT) && has_permissions && self.resumes() {
            // Only these servers discard the events of whoever may not read, and each reconnect would
            // restore the watches.
            self.version = ServerVersion::V3_9;
            self.faults.retain(|kind| *kind == FaultKind::Permission);
        }
        if is_surprising && self.faults.iter().any(|kind| *kind != FaultKind::Permission) {
            self.faults.push(FaultKind::Surprise);
            // Otherwise nothing can happen between a request and what follows it.
            self.latency = self.latency.max(Duration::from_millis(2));
        }
    }

    /// Draws what only seeds from [`ROWS_FROM`] on have.
    pub fn draw_rows(&mut self, seed: u64) {
        let mut draw = Draw::new(seed ^ ROWS_SALT);
        let is_special = [self.blind, self.mortals, self.readers, self.leases];
        let is_narrow = draw.chance(MORE_FOCUS_PERCENT) && is_special.iter().all(Option::is_none);
        if is_narrow {
            let seed = draw.seed();
            self.focus.get_or_insert(seed);
        }
        self.has_rows = draw.chance(ROWS_PERCENT);
        if draw.chance(KEEPER_PERCENT) && self.leases.is_none() {
            self.version = ServerVersion::Keeper;
            self.faults.retain(|kind| *kind != FaultKind::SequenceEnd);
        }
        if self.has_rows && !self.faults.is_empty() {
            self.faults.push(FaultKind::Row);
            // Otherwise nothing can happen between a request and what follows it.
            self.latency = self.latency.max(Duration::from_millis(2));
        }
    }

    fn draw_faults(draw: &mut Draw, members: usize) -> Vec<FaultKind> {
        let percent = draw.pick(&[0, 15, 30, 50]);
        let mut faults = Vec::new();
        for kind in FAULT_KINDS {
            let is_possible = members > 1 || kind != FaultKind::Partition;
            // These two hide what the judges would see, so they are rare.
            let is_rare = matches!(kind, FaultKind::Deletion | FaultKind::Stranger);
            let is_drawn = draw.chance(if is_rare { percent / 3 } else { percent });
            if is_possible && is_drawn {
                faults.push(kind);
            }
        }
        faults
    }

    /// Returns whether requests may be refused with NO_AUTH that are permitted otherwise.
    pub fn may_forbid(&self) -> bool {
        self.faults.contains(&FaultKind::Permission)
            || (self.has_rows && self.faults.contains(&FaultKind::Refusal))
    }

    /// Returns whether connections end although nothing goes wrong: servers close one on which a client
    /// asks for a persistent watch, because they do not know that request.
    pub fn closes_connections(&self) -> bool {
        self.version < ServerVersion::V3_6
    }

    /// Returns whether servers continue a session on another connection. A Keeper opens another one.
    pub fn resumes(&self) -> bool {
        self.version != ServerVersion::Keeper
    }

    /// Returns whether a watch goes on after its first event.
    pub fn has_persistent_watches(&self) -> bool {
        self.version >= ServerVersion::V3_6 && self.version != ServerVersion::Keeper
    }

    /// Returns whether each read sees all that was committed before: no server lags, and none is cut
    /// off without knowing it.
    pub fn reads_are_current(&self) -> bool {
        self.members == 1 && !self.cuts_off()
    }

    /// Returns whether servers may lose the others without knowing it.
    pub fn cuts_off(&self) -> bool {
        let kinds = [FaultKind::CutOff, FaultKind::Deposition];
        self.faults.iter().any(|kind| kinds.contains(kind))
    }

    /// Returns whether nothing in this world keeps a client from renewing its lease in time.
    pub fn could_be_steady(&self) -> bool {
        let is_even = self.jitter.is_zero() && self.service.is_zero();
        let longest = if is_even { STEADY_ROUND_TRIP_MAX } else { UNEVEN_ROUND_TRIP_MAX };
        self.faults.is_empty()
            && self.unapplied_max().is_zero()
            && self.round_trip_max() <= longest
            && self.leases.is_none()
            && self.kinds.narrow.is_none()
            && self.clock_rate == CLOCK_RATE
    }

    /// Returns how long a request may wait for the bytes of this many tasks that travel before it.
    pub fn transfer_max(&self, tasks: usize) -> Duration {
        self.kinds.narrow.map_or(Duration::ZERO, |narrow| narrow.longest(tasks))
    }

    /// Returns how long a server may take at most to apply what has been committed. It counts that time by
    /// its own clock.
    pub fn unapplied_max(&self) -> Duration {
        let longest = (self.lag + self.unapplied).max(self.leader_unapplied);
        longest.max(self.true_time(longest))
    }

    /// Returns the configuration of the servers.
    pub fn server(&self) -> ServerConfig {
        let mut config = ServerConfig::default()
            .members(self.members)
            .lag(self.lag)
            .unapplied(self.unapplied)
            .leader_unapplied(self.leader_unapplied)
            .version(self.version)
            .tick(self.tick)
            .reap_interval(self.reap_interval)
            .clock_rate(self.clock_rate)
            .sequence_overflow(match self.version {
                ServerVersion::V3_5 => SequenceOverflow::Wrapping,
                _ => SequenceOverflow::Sticky,
            })
            .log_capacity(1_000_000);
        if let Some(longest) = self.session_timeout_max {
            config = config.max_session_timeout(longest);
        }
        if let Some(age) = self.container_max_never_used {
            config = config.container_max_never_used(age);
        }
        config
    }

    /// Returns how often a client writes while it has a lock, if it is more often than usual.
    pub fn renewals(&self, client: usize) -> Option<Duration> {
        let mut draw = Draw::new(self.leases? ^ u64::try_from(client).ok()?);
        let is_frequent = draw.between(0, 9) <= self.frequent();
        is_frequent.then(|| Duration::from_millis(draw.pick(&[50, 100, 250])))
    }

    /// Returns the lease of a client, if it is not the usual one. That one is so much shorter than a
    /// session that no error of a clock can show; frequent writes, and the tick that the servers
    /// really have, make it almost as long.
    pub fn lease(&self, client: usize) -> Option<Lease> {
        if let Some(interval) = self.renewals(client) {
            return Some(Lease::writes(interval).tick(self.tick));
        }
        let mut draw = Draw::new(self.leases? ^ u64::try_from(client).ok()?);
        match draw.between(0, 9) {
            number if number <= 7 => Some(Lease::pings(SYNC_LIMIT, self.tick)),
            _ => None,
        }
    }

    /// Returns how many of ten clients write often, without the first one. A deposed leader commits
    /// nothing, so that only leases of pings rely on what it says.
    fn frequent(&self) -> u64 {
        if self.faults.contains(&FaultKind::Deposition) { 3 } else { 6 }
    }

    /// Returns whether the client of this number ends when its session expires, instead of opening
    /// another one.
    pub fn is_mortal(&self, client: usize) -> bool {
        let (Some(seed), Ok(client)) = (self.mortals, u64::try_from(client)) else { return false };
        Draw::new(seed ^ client).chance(60)
    }

    /// Returns whether the client of this number also uses servers without a quorum.
    pub fn is_reader(&self, client: usize) -> bool {
        let (Some(seed), Ok(client)) = (self.readers, u64::try_from(client)) else { return false };
        Draw::new(seed ^ client).chance(70)
    }

    /// Returns whether the client of this number may not read what those create that have
    /// credentials.
    pub fn is_blind(&self, client: usize) -> bool {
        let (Some(seed), Ok(client)) = (self.blind, u64::try_from(client)) else { return false };
        Draw::new(seed ^ client).chance(50)
    }

    /// Returns how long it really takes until the clock of the servers has counted a time.
    pub fn true_time(&self, time: Duration) -> Duration {
        time * 1_000 / self.clock_rate
    }

    /// Returns how long a write takes once there are no faults, from the call to the reply.
    pub fn round_trip_max(&self) -> Duration {
        2 * (self.latency + self.jitter) + self.commit + FLIGHT_MAX * self.service
    }
}
