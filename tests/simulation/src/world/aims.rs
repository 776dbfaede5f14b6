//! What newer worlds bring about on purpose, because known faults need it and chance hardly ever does
//! it: the parts that concern what goes wrong.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::plan::{CLOCK_RATE, FaultKind, Plan};
use crate::draw::Draw;
use crate::program::locks::LockKind;
use crate::program::{Job, Program};

/// Chosen once, so that what is drawn here is unrelated to the rest.
const AIMS_SALT: u64 = 0xa1_35;
/// How many of the worlds in which nothing but permissions changes have one recipe whose users wait
/// for events, in percent. In the others, most tasks do something that needs none.
const WAITING_PERCENT: u64 = 50;
/// How many worlds with permissions that change also take them on the znodes of contenders and
/// members, in percent.
const CONTENDERS_PERCENT: u64 = 50;
/// How many of the other worlds get Keepers as servers, in percent, so that 8 % of all have them.
const KEEPER_PERCENT: u64 = 3;
/// How many worlds of Keepers have pauses, in percent. A Keeper opens another session in the place of
/// one that was silent, while requests of the old one are still on their way.
const KEEPER_PAUSES_PERCENT: u64 = 60;
/// How many of these have writes that arrive late, in percent.
const KEEPER_STRAYS_PERCENT: u64 = 75;
/// How many of the worlds of Keepers with pauses have nothing but a queue, in percent.
const KEEPER_QUEUE_PERCENT: u64 = 50;
/// How many worlds have an administrator who waylays calls, in percent, and how many of those with
/// nothing but a queue, whose acknowledgements rely on most.
const WAYLAY_PERCENT: u64 = 8;
const NARROW_WAYLAY_PERCENT: u64 = 40;
/// How many worlds with several members have leaders that do not know that they were deposed, in
/// percent, and how many of those in which leases matter.
const DEPOSITION_PERCENT: u64 = 5;
const LEASES_DEPOSITION_PERCENT: u64 = 40;
/// How many worlds with locks have copies of znodes, in percent.
const FORGERY_PERCENT: u64 = 8;
/// Chosen like the first one, when these were added.
const DEPOSITION_SALT: u64 = 0xde_90;
const FORGERY_SALT: u64 = 0xf0_46;
/// In how many worlds holders keep what they have for long, in percent, and when the faults stop there
/// in milliseconds: there is time for one or two of them.
const STEADFAST_PERCENT: u64 = 15;
const STEADFAST_MS: (u64, u64) = (150_000, 240_000);
/// How many of these worlds have nothing but connections that end and refusals, in percent.
const STEADFAST_REFUSALS_PERCENT: u64 = 40;
/// In how many worlds strangers touch the group, in percent, and in how many of these nothing else
/// happens, so that it is known how soon a presence comes back.
const GROUPS_PERCENT: u64 = 30;
const MEMBERS_PERCENT: u64 = 15;
/// The longest time that a packet takes in these worlds: a presence that comes back at once has to differ
/// from one that pauses for 200 ms.
const MEMBERS_LATENCY_MAX: Duration = Duration::from_millis(15);
/// The least time until the faults stop in a world in which nothing but permissions changes: checks of
/// watches that were missed happen every 30 s.
const SILENT_MIN: Duration = Duration::from_secs(90);

/// What a world brings about on purpose. Older ones have nothing of it.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Aims {
    /// Permissions are often taken on the znodes of contenders and members, which may leave meanwhile.
    pub takes_contenders: bool,
    /// Strangers also touch the members of the group.
    pub touches_groups: bool,
    /// Whoever has something often keeps it for longer than checks of watches and proofs take.
    pub is_steadfast: bool,
}

impl Plan {
    /// Draws what only seeds from [`AIMS_FROM`](super::plan::AIMS_FROM) on have.
    pub fn draw_aims(&mut self, program: &mut Program, seed: u64) {
        let mut draw = Draw::new(seed ^ AIMS_SALT);
        let (mut silent, mut permissions) = (draw.fork(), draw.fork());
        let mut keepers = draw.fork();
        let may_forbid = self.faults.contains(&FaultKind::Permission);
        self.aims.takes_contenders = may_forbid && permissions.chance(CONTENDERS_PERCENT);
        if self.is_silent() && silent.chance(WAITING_PERCENT) {
            self.wait_for_events(program, &mut silent);
        }
        let mut groups = draw.fork();
        self.aims.touches_groups = groups.chance(GROUPS_PERCENT);
        if self.aims.touches_groups {
            self.delete_members(program, &mut groups);
        }
        self.draw_steadfastness(program, &mut draw.fork());
        self.draw_keepers(program, &mut keepers);
        self.draw_waylaying(program, &mut draw.fork());
        self.draw_deposition(&mut Draw::new(seed ^ DEPOSITION_SALT));
        self.draw_forgery(program, &mut Draw::new(seed ^ FORGERY_SALT));
    }

    /// Lets leaders go on without knowing that they do not lead any more.
    fn draw_deposition(&mut self, draw: &mut Draw) {
        let relies = self.leases.is_some() || self.faults.contains(&FaultKind::CutOff);
        let percent = if relies { LEASES_DEPOSITION_PERCENT } else { DEPOSITION_PERCENT };
        let is_possible = self.members > 1 && self.resumes() && !self.is_silent();
        if draw.chance(percent) && is_possible {
            self.faults.push(FaultKind::Deposition);
        }
    }

    /// Lets an administrator replace znodes of contenders by copies.
    fn draw_forgery(&mut self, program: &Program, draw: &mut Draw) {
        let has_locks = program.tasks().flatten().any(|job| matches!(job, Job::Lock(_)));
        // Deletions would hide what clients may not read.
        if draw.chance(FORGERY_PERCENT) && has_locks && self.blind.is_none() && !self.is_silent() {
            self.faults.push(FaultKind::Forgery);
        }
    }

    fn draw_waylaying(&mut self, program: &Program, draw: &mut Draw) {
        let is_of_queues = |job: &Job| matches!(job, Job::Put | Job::Take | Job::Options);
        let is_narrow = self.focus.is_some() && program.tasks().flatten().any(is_of_queues);
        let percent = if is_narrow { NARROW_WAYLAY_PERCENT } else { WAYLAY_PERCENT };
        // Deletions would hide what clients may not read.
        if draw.chance(percent) && self.blind.is_none() && !self.is_silent() {
            self.faults.push(FaultKind::Waylay);
            // Otherwise nothing can happen between a request and what follows it.
            self.latency = self.latency.max(Duration::from_millis(2));
        }
    }

    /// Returns whether nothing goes wrong but that permissions change.
    pub fn is_silent(&self) -> bool {
        self.faults == [FaultKind::Permission]
    }

    /// Gives all tasks one recipe whose users wait for events.
    fn wait_for_events(&mut self, program: &mut Program, draw: &mut Draw) {
        let jobs = draw.pick(&[
            [Job::Value, Job::Value, Job::Changes],
            [Job::Member, Job::Member, Job::Group],
            [Job::Tree, Job::Tree, Job::Cache],
            [Job::Lock(LockKind::Election), Job::Lock(LockKind::Election), Job::Observe],
        ]);
        program.only(&jobs, draw);
        program.is_patient = draw.chance(50);
        self.calm_at = self.calm_at.max(SILENT_MIN);
        self.has_watchers |= jobs.contains(&Job::Tree);
    }

    /// Lets nothing happen in some worlds but that members of the group are deleted.
    fn delete_members(&mut self, program: &mut Program, draw: &mut Draw) {
        let is_special = [self.blind, self.mortals, self.readers, self.leases, self.focus];
        if !draw.chance(MEMBERS_PERCENT) || is_special.iter().any(Option::is_some) {
            return;
        }
        program.only(&[Job::Member, Job::Member, Job::Group], draw);
        (program.moves, program.ends) = (None, None);
        self.faults = vec![FaultKind::Deletion];
        self.fault_pause = draw.ms(500, 10_000);
        self.latency = self.latency.min(MEMBERS_LATENCY_MAX);
        self.jitter = self.jitter.min(MEMBERS_LATENCY_MAX);
        self.commit = self.commit.min(MEMBERS_LATENCY_MAX);
    }

    fn draw_steadfastness(&mut self, program: &Program, draw: &mut Draw) {
        let is_lock = |job: &Job| matches!(job, Job::Lock(_));
        let is_blind = self.blind.is_some() && program.is_quiet;
        let always = is_blind && program.tasks().flatten().all(is_lock);
        if self.leases.is_some() || self.is_hasty || !(draw.chance(STEADFAST_PERCENT) || always) {
            return;
        }
        self.aims.is_steadfast = true;
        self.calm_at = draw.ms(STEADFAST_MS.0, STEADFAST_MS.1);
        self.fault_pause = draw.ms(5_000, 40_000);
        let is_narrow = draw.chance(STEADFAST_REFUSALS_PERCENT) && self.blind.is_none();
        if is_narrow && !self.is_silent() && !self.faults.is_empty() {
            self.faults = vec![FaultKind::Cut, FaultKind::Refusal];
        }
    }

    /// Returns whether nothing goes wrong that keeps a connected client from proving that it has its
    /// locks, but refusals.
    pub fn only_refuses(&self) -> bool {
        let harmless = [
            FaultKind::Cut,
            FaultKind::Deletion,
            FaultKind::Permission,
            FaultKind::Refusal,
            FaultKind::Stranger,
            FaultKind::Throttle,
        ];
        self.clock_rate == CLOCK_RATE && self.faults.iter().all(|kind| harmless.contains(kind))
    }

    fn draw_keepers(&mut self, program: &mut Program, draw: &mut Draw) {
        let is_more = draw.chance(KEEPER_PERCENT) && self.leases.is_none() && !self.is_silent();
        if is_more {
            self.version = ServerVersion::Keeper;
            self.faults.retain(|kind| *kind != FaultKind::SequenceEnd);
        }
        if self.resumes() || !draw.chance(KEEPER_PAUSES_PERCENT) {
            return;
        }
        if !self.faults.contains(&FaultKind::Pause) {
            self.faults.push(FaultKind::Pause);
        }
        if draw.aside().chance(KEEPER_STRAYS_PERCENT) {
            self.faults.push(FaultKind::Stray);
            // There has to be time between a request and what follows it.
            self.latency = self.latency.max(Duration::from_millis(2));
        }
        if draw.chance(KEEPER_QUEUE_PERCENT) && self.blind.is_none() {
            program.only(&[Job::Put, Job::Take, Job::Take], draw);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cuts::Cuts;
    use crate::draw::Draw;
    use crate::program::{Job, Program};
    use crate::run::drawn;
    use crate::world::kinds::WorldKind;
    use crate::world::plan::{AIMS_FROM, FaultKind, Plan};

    type World = (Plan, Program);

    /// Returns the worlds of the first seeds, and of the last ones without aims.
    fn worlds() -> (Vec<World>, Vec<World>) {
        let draw = |seed| drawn(seed, &mut Draw::new(seed), &Cuts::default());
        let newer = (AIMS_FROM..AIMS_FROM + 3_000).map(draw).collect();
        (newer, (AIMS_FROM - 1_000..AIMS_FROM).map(draw).collect())
    }

    #[test]
    fn newer_seeds_have_aims_and_older_ones_have_none() {
        let (newer, older) = worlds();
        let count = |is: fn(&World) -> bool| {
            assert!(!older.iter().any(is), "older seeds stay as they were");
            newer.iter().filter(|world| is(world)).count()
        };
        let contenders = count(|(plan, _)| plan.aims.takes_contenders);
        assert!((150..500).contains(&contenders), "{contenders}");
        let steadfast = count(|(plan, _)| plan.aims.is_steadfast);
        assert!((150..450).contains(&steadfast), "{steadfast}");
        let waiting = newer.iter().filter(|(plan, program)| {
            let follows = |job: &Job| matches!(job, Job::Changes | Job::Group | Job::Observe);
            plan.is_silent() && program.tasks().flatten().any(follows)
        });
        assert!(waiting.count() > 20);
        let keepers: Vec<&Plan> = newer
            .iter()
            .map(|(plan, _)| plan)
            .filter(|plan| !plan.resumes() && !plan.is_of(WorldKind::Waylaid))
            .collect();
        assert!((100..300).contains(&keepers.len()), "{}", keepers.len());
        let pausing = keepers.iter().filter(|plan| plan.faults.contains(&FaultKind::Pause));
        assert!(pausing.count() * 2 > keepers.len());
    }
}
