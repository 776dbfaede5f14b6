//! Kinds of worlds that have on purpose what some known faults need, and chance alone hardly ever
//! brings about. Each has a module of its own, and a world is of one kind at most.

mod breathless;
mod calm;
mod crowded;
mod lulls;
mod moving;
pub mod narrow;
mod returning;
mod waiting;
mod waylaid;

use std::time::Duration;

use clap::ValueEnum;

use self::narrow::Narrow;
use super::plan::{FaultKind, Plan};
use crate::draw::Draw;
use crate::program::barriers::PARTICIPANTS;
use crate::program::{Job, Program, settled};

/// Chosen once, so that the kinds are unrelated to everything else.
const SALT: u64 = 0x61_4b1d;

/// A kind of worlds.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[allow(clippy::exhaustive_enums, reason = "each kind is drawn")]
pub enum WorldKind {
    /// Callers wait for minutes while nothing happens.
    Waiting,
    /// Callers queue for one lock, and nothing goes wrong.
    Calm,
    /// Leases are short, and callers write all the time.
    Breathless,
    /// Holders of many permits give them back one by one.
    Crowded,
    /// Readers move to servers that know less than they do.
    Moving,
    /// Faults come in bursts, with lulls in between.
    Lulls,
    /// Takers of a queue give items back while others wait.
    Returning,
    /// Links carry few bytes at a time, and callers read and write many.
    Narrow,
    /// An administrator deletes and replaces what callers rely on.
    Waylaid,
}

/// How many worlds are of each kind, in percent.
const KINDS: [(WorldKind, u64); 7] = [
    (WorldKind::Waiting, 6),
    (WorldKind::Calm, 8),
    (WorldKind::Breathless, 4),
    (WorldKind::Crowded, 2),
    (WorldKind::Moving, 8),
    (WorldKind::Lulls, 15),
    (WorldKind::Returning, 5),
];

/// The kinds that were added later, with a salt, and how many worlds that are of no kind before are of
/// this one, in percent. Each salt was chosen so that no seed that was in `tests/corpus.txt` at that time
/// is of the kind.
const LATER_KINDS: [(WorldKind, u64, u64); 2] =
    [(WorldKind::Narrow, 0x6e61, 5), (WorldKind::Waylaid, 0x3a2e, 20)];

/// How many worlds have clients whose ways to the servers have different lengths, in percent, and the
/// shortest way of the farthest client there.
const DISTANCES_PERCENT: u64 = 30;
const DISTANT_MIN: Duration = Duration::from_millis(5);
/// How long packets of a client travel, in eighths of the time in that world. No client is farther, so
/// that what judges know of that time stays true.
const DISTANCES: [u32; 4] = [0, 1, 4, 8];

/// How many worlds have few kinds of operations that settle, all on one path, in percent: otherwise two
/// tasks hardly ever do the same to the same znode.
const FEW_STEPS_PERCENT: u64 = 50;

/// How many worlds have callers that begin right after others have ended a call, in percent.
const RELAY_PERCENT: u64 = 20;

/// How many worlds with a tree have many znodes in it from the beginning, in percent.
const WIDE_PERCENT: u64 = 10;
/// How many znodes these are.
pub const WIDE: usize = 60;

/// How many worlds have servers that remove empty containers at once, in percent; how often these look
/// for them; and how long packets travel at least, so that somebody may be on the way.
const REAPING_PERCENT: u64 = 15;
const REAPING_MS: [u64; 3] = [10, 30, 100];
const REAPING_LATENCY_MIN: Duration = Duration::from_millis(20);

/// How many worlds in which something goes wrong have servers that execute a request and report an error,
/// in percent. The salt was chosen so that no seed that was in `tests/corpus.txt` at that time has any.
const MISREPORT_PERCENT: u64 = 10;
const MISREPORT_SALT: u64 = 0x3a16;

/// What is different in a world of one of these kinds.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Kinds {
    /// The kind, if the world is of any.
    pub kind: Option<WorldKind>,
    /// How many participants meet at the double barrier, if it is not the usual number.
    pub participants: Option<u32>,
    /// The session timeout that all clients request, if it is the same for all.
    pub session: Option<Duration>,
    /// The seed of the tasks that wait for others until the end, if there may be such ones.
    pub patience: Option<u64>,
    /// The steps that operations that settle consist of, if there are few kinds of them.
    pub settled: Option<Vec<u64>>,
    /// Whether callers begin as soon as others have ended a call of something that they share.
    pub is_relay: bool,
    /// Whether the tree that caches follow has many znodes from the beginning.
    pub is_wide: bool,
    /// The seed of the distances of the clients, if they differ.
    pub distances: Option<u64>,
    /// How narrow links are, and how large some znodes, if they are.
    pub narrow: Option<Narrow>,
}

impl Plan {
    /// Draws the kind of a world, and what else only some of the newer worlds have.
    pub fn draw_kinds(&mut self, program: &mut Program, seed: u64) {
        let mut draw = Draw::new(seed ^ SALT);
        self.draw_traits(&mut draw.fork());
        let number = draw.between(0, 99);
        let is_special = [self.blind, self.mortals, self.readers, self.leases];
        // These have a purpose of their own.
        if is_special.iter().all(Option::is_none) {
            self.draw_kind(program, number, &mut draw.fork());
            self.draw_later_kind(program, seed);
        }
        if Draw::new(seed ^ MISREPORT_SALT).chance(MISREPORT_PERCENT) && !self.faults.is_empty() {
            self.faults.push(FaultKind::Misreport);
        }
        let is_wide = draw.chance(WIDE_PERCENT);
        self.kinds.is_wide = is_wide && self.can_be_wide() && program.has(Job::Tree);
    }

    /// Draws what worlds of any kind may have.
    fn draw_traits(&mut self, draw: &mut Draw) {
        if draw.chance(REAPING_PERCENT) && self.resumes() {
            self.reap_interval = Duration::from_millis(draw.pick(&REAPING_MS));
            self.latency = self.latency.max(REAPING_LATENCY_MIN);
        }
        let distances = draw.seed();
        if draw.chance(DISTANCES_PERCENT) && self.latency >= DISTANT_MIN {
            self.kinds.distances = Some(distances);
        }
        self.kinds.patience = Some(draw.seed());
        if draw.chance(FEW_STEPS_PERCENT) {
            let steps = (0..draw.size(2, 4)).map(|_| draw.between(0, settled::STEPS - 1));
            self.kinds.settled = Some(steps.chain([settled::CREATE]).collect());
        }
        self.kinds.is_relay = draw.chance(RELAY_PERCENT);
    }

    /// Lets the world be of the kind of this number, if there is one.
    fn draw_kind(&mut self, program: &mut Program, mut number: u64, draw: &mut Draw) {
        let found = KINDS.iter().find(|(_, percent)| {
            let is_it = number < *percent;
            number = number.saturating_sub(*percent);
            is_it
        });
        if let Some((kind, _)) = found {
            self.become_one(*kind, program, draw);
        }
    }

    fn become_one(&mut self, kind: WorldKind, program: &mut Program, draw: &mut Draw) {
        self.kinds.kind = Some(kind);
        match kind {
            WorldKind::Waiting => waiting::draw(self, program, draw),
            WorldKind::Calm => calm::draw(self, program, draw),
            WorldKind::Breathless => breathless::draw(self, program, draw),
            WorldKind::Crowded => crowded::draw(self, program, draw),
            WorldKind::Moving => moving::draw(self, program, draw),
            WorldKind::Lulls => lulls::draw(self, program),
            WorldKind::Returning => returning::draw(self, program, draw),
            WorldKind::Narrow => narrow::draw(self, program, draw),
            WorldKind::Waylaid => waylaid::draw(self, program, draw),
        }
    }

    /// Lets some worlds that are of no other kind be of a later one.
    fn draw_later_kind(&mut self, program: &mut Program, seed: u64) {
        for (kind, salt, percent) in LATER_KINDS {
            let mut draw = Draw::new(seed ^ salt);
            // The programs for Keepers lack some jobs.
            if self.kinds.kind.is_none() && self.resumes() && draw.chance(percent) {
                self.become_one(kind, program, &mut draw);
            }
        }
    }

    /// Returns whether caches may read many znodes with one request, and nothing makes them read one
    /// by itself.
    fn can_be_wide(&self) -> bool {
        let refuse = [
            FaultKind::Misreport,
            FaultKind::Overload,
            FaultKind::Permission,
            FaultKind::Refusal,
            FaultKind::Throttle,
        ];
        let is_refused = self.faults.iter().any(|it| refuse.contains(it));
        self.has_persistent_watches() && !is_refused && self.blind.is_none() && !self.is_protected
    }

    /// Returns whether the world is of this kind.
    pub fn is_of(&self, kind: WorldKind) -> bool {
        self.kinds.kind == Some(kind)
    }

    /// Returns how many participants meet at the double barrier.
    pub fn participants(&self) -> u32 {
        self.kinds.participants.unwrap_or(PARTICIPANTS)
    }

    /// Returns how long a packet of this client travels, beside the jitter.
    pub fn latency_of(&self, client: usize) -> Duration {
        let (Some(seed), Ok(client)) = (self.kinds.distances, u64::try_from(client)) else {
            return self.latency;
        };
        self.latency * Draw::new(seed ^ client).pick(&DISTANCES) / 8
    }

    /// Leaves out what belongs to other worlds: faults, and callers and clients in a hurry.
    fn calm_down(&mut self, program: &mut Program, calm_at: Duration) {
        self.faults.clear();
        self.calm_at = calm_at;
        (self.is_hasty, self.is_nervous, self.has_rows) = (false, false, false);
        // It would give the narrow worlds more traffic than these need.
        self.focus = None;
        (program.ends, program.moves, program.is_quiet) = (None, None, false);
        program.drops = 0;
    }
}

/// Gives each of some clients as many tasks, each of which draws one of the jobs.
fn spread(program: &mut Program, draw: &mut Draw, clients: usize, tasks: usize, jobs: &[Job]) {
    program.clients =
        (0..clients).map(|_| (0..tasks).map(|_| vec![draw.pick(jobs)]).collect()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuts::Cuts;
    use crate::run::drawn;
    use crate::world::plan::{AIMS_FROM, FIRST_SEED};

    fn plan(seed: u64) -> Plan {
        drawn(seed, &mut Draw::new(seed), &Cuts::default()).0
    }

    #[test]
    fn newer_worlds_are_of_all_kinds_and_older_ones_of_none() {
        assert!((AIMS_FROM - 200..AIMS_FROM).all(|seed| plan(seed).kinds.kind.is_none()));
        let plans: Vec<Plan> = (FIRST_SEED..FIRST_SEED + 1_000).map(plan).collect();
        for (wanted, percent) in KINDS {
            let count = plans.iter().filter(|plan| plan.is_of(wanted)).count();
            // Many worlds have a purpose of their own, so fewer are of a kind.
            let least = usize::try_from(percent * 10 / 5).unwrap();
            assert!(count >= least, "{count} worlds of kind {wanted:?}");
        }
        for (wanted, ..) in LATER_KINDS {
            let count = plans.iter().filter(|plan| plan.is_of(wanted)).count();
            assert!(count >= 10, "{count} worlds of kind {wanted:?}");
        }
    }

    #[test]
    fn worlds_of_any_kind_differ_in_other_ways() {
        let kinds: Vec<Kinds> =
            (FIRST_SEED..FIRST_SEED + 1_000).map(|seed| plan(seed).kinds).collect();
        let count = |has: fn(&Kinds) -> bool| kinds.iter().filter(|it| has(it)).count();
        assert!(count(|it| it.distances.is_some()) > 100);
        assert!(count(|it| it.settled.is_some()) > 400);
        assert!(count(|it| it.is_relay) > 140);
        assert!(count(|it| it.is_wide) > 1);
        let misreport = |seed: &u64| plan(*seed).faults.contains(&FaultKind::Misreport);
        let misreports = (FIRST_SEED..FIRST_SEED + 1_000).filter(misreport).count();
        assert!((30..200).contains(&misreports), "{misreports}");
    }

    #[test]
    fn no_client_is_farther_than_its_world_says() {
        let distances = Some(7);
        let plan = plan(FIRST_SEED);
        let plan = Plan {
            latency: Duration::from_millis(80),
            kinds: Kinds { distances, ..plan.kinds.clone() },
            ..plan
        };
        let mut all: Vec<u128> =
            (0..20).map(|client| plan.latency_of(client).as_millis()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, [0, 10, 40, 80]);
    }
}
