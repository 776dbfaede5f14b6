//! Worlds with one recipe and one or two kinds of faults, again and again.
//!
//! Some faults show themselves only if three things happen in a row: a create whose reply is lost, a
//! caller that gives up, a commit that is late. In a world with many recipes and many kinds of faults,
//! such a row is too rare to be found.

use std::time::Duration;

use super::aims::aim;
use super::locks::LOCK_KINDS;
use super::{Job, LockKind, Program};
use crate::draw::Draw;
use crate::world::plan::{FaultKind, Plan};

/// The kinds of faults, and those more than once that decide what is known about a request.
const FAULTS: [FaultKind; 20] = [
    FaultKind::Cut,
    FaultKind::Cut,
    FaultKind::Cut,
    FaultKind::LateCommit,
    FaultKind::LateCommit,
    FaultKind::LateCommit,
    FaultKind::LostReply,
    FaultKind::LostReply,
    FaultKind::Delay,
    FaultKind::Isolate,
    FaultKind::CutOff,
    FaultKind::Pause,
    FaultKind::Restart,
    FaultKind::Election,
    FaultKind::Partition,
    FaultKind::Throttle,
    FaultKind::Refusal,
    FaultKind::Refusal,
    FaultKind::Deletion,
    FaultKind::Stop,
];

/// What happens in worlds of leases, beside servers that lose their leader.
const OF_LEASES: [FaultKind; 6] = [
    FaultKind::CutOff,
    FaultKind::Pause,
    FaultKind::Isolate,
    FaultKind::SlowCommits,
    FaultKind::Delay,
    FaultKind::Restart,
];

/// What happens in worlds of meetings.
const OF_MEETINGS: [FaultKind; 4] =
    [FaultKind::Expiry, FaultKind::Expiry, FaultKind::Isolate, FaultKind::Cut];

/// How many of these worlds have double barriers alone, from those on that may have an aim, in percent.
const MEETINGS_PERCENT: u64 = 8;
/// How many of the others have a semaphore with many permits alone, in percent.
const CROWDS_PERCENT: u64 = 5;
/// Chosen once, so that these are unrelated to everything else.
const AIMS_SALT: u64 = 0x3ee7;

/// How many of these worlds have jobs that were added after the others, in percent.
const NEWER_PERCENT: u64 = 45;
/// How many of those with locks alone have leases that are as long as possible, in percent.
const LEASES_PERCENT: u64 = 40;
/// How many of these worlds with aims have only callers that create znodes, some of them in one
/// session, and in how many of those sessions end, in percent.
const BOUND_PERCENT: u64 = 5;
const EXPIRY_PERCENT: u64 = 60;
/// Chosen once, so that the other worlds of this kind stay as they were.
const NEWER_SALT: u64 = 0x2e7e;

/// Leaves one recipe with all of its users, and one or two kinds of faults, which hardly pause.
pub fn narrow(plan: &mut Plan, program: &mut Program, seed: u64) {
    let mut draw = Draw::new(seed);
    let mut jobs = draw_jobs(&mut draw);
    let mut newer = Draw::new(seed ^ NEWER_SALT);
    if newer.chance(NEWER_PERCENT) {
        jobs = newer_jobs(&mut newer);
    }
    let aim = aim(plan, &Draw::new(seed), "a narrow world");
    let bound = aim.and_then(|mut aim| aim.chance(BOUND_PERCENT).then_some(aim));
    if bound.is_some() {
        jobs = vec![Job::Create];
    }
    let mut aims = Draw::new(seed ^ AIMS_SALT);
    let is_free = plan.has_aims && bound.is_none();
    let meets = is_free && aims.chance(MEETINGS_PERCENT);
    if meets {
        jobs = vec![Job::Meeting];
    } else if is_free && aims.chance(CROWDS_PERCENT) {
        jobs = vec![Job::Crowd];
    }
    while program.clients.len() < 2 {
        program.clients.push(vec![Vec::new()]);
    }
    for task in program.clients.iter_mut().flatten() {
        *task = (0..draw.size(1, 2)).map(|_| draw.pick(&jobs)).collect();
    }
    program.is_patient = draw.chance(20);
    program.is_quiet = false;
    plan.faults = (0..draw.size(1, 2)).map(|_| draw.pick(&FAULTS)).collect();
    plan.faults.retain(|kind| is_possible(plan.members, *kind));
    if let Some(mut bound) = bound
        && bound.chance(EXPIRY_PERCENT)
    {
        plan.faults.push(FaultKind::Expiry);
    }
    plan.faults.dedup();
    plan.fault_pause = draw.ms(100, 3_000);
    plan.calm_at = draw.ms(10_000, 60_000);
    plan.is_hasty |= draw.chance(50);
    // Otherwise all steps are over before anything has gone wrong.
    plan.latency = plan.latency.max(Duration::from_millis(5));
    if plan.members > 1 && draw.chance(40) {
        plan.leader_unapplied = draw.ms(100, 3_000);
    }
    plan.has_watchers |= jobs.contains(&Job::Tree);
    if newer.chance(LEASES_PERCENT) && jobs.iter().all(|job| matches!(job, Job::Lock(_))) {
        rely(plan, program, &mut newer);
    }
    if meets {
        meet(plan, program, &mut aims);
    }
    if plan.has_aims && jobs == [Job::Crowd] && aims.chance(50) {
        // All that a client asks for at one moment arrives, and is refused, at one moment.
        plan.faults = vec![FaultKind::Stampede, FaultKind::Throttle];
        (plan.jitter, plan.service) = (Duration::ZERO, Duration::ZERO);
    }
    if plan.has_rows {
        // Rows of one kind would be little else than that kind.
        let third = newer.pick(&FAULTS);
        if is_possible(plan.members, third) && !plan.faults.contains(&third) {
            plan.faults.push(third);
        }
        plan.faults.push(FaultKind::Row);
    }
}

fn is_possible(members: usize, kind: FaultKind) -> bool {
    members > 1 || kind != FaultKind::Partition
}

/// Lets each of some clients meet the others again and again, while sessions end: a round may have
/// counted a participant that has died meanwhile.
fn meet(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    program.clients = (0..draw.size(3, 4)).map(|_| vec![vec![Job::Meeting]]).collect();
    plan.faults = (0..draw.size(1, 2)).map(|_| draw.pick(&OF_MEETINGS)).collect();
    plan.faults.dedup();
    plan.mortals = None;
}

/// Lets holders rely on leases that are as long as the servers permit, while their servers lose the
/// leader, or pause.
fn rely(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    plan.leases = Some(draw.seed());
    program.is_patient = true;
    plan.faults = vec![FaultKind::CutOff, draw.pick(&OF_LEASES)];
    plan.faults.dedup();
    plan.fault_pause = draw.ms(500, 10_000);
    plan.calm_at = draw.ms(60_000, 120_000);
    plan.is_hasty = false;
}

/// Draws jobs that were added after the others.
fn newer_jobs(draw: &mut Draw) -> Vec<Job> {
    match draw.between(0, 13) {
        12 => vec![Job::Crowd],
        0 => vec![Job::Settle],
        1 => vec![Job::Downgrade, Job::Downgrade, Job::Lock(LockKind::ReadWrite)],
        2 => vec![Job::Downgrade],
        3 | 4 => vec![Job::Pipe],
        5 => vec![Job::Put, Job::Take, Job::Take],
        6 => vec![Job::Options],
        7 => vec![Job::Lock(LockKind::Multi)],
        8 => vec![Job::Tree, Job::Tree, Job::Cache],
        9 => vec![Job::Member, Job::Member, Job::Group],
        10 => vec![Job::Lock(LockKind::Fair)],
        _ => vec![Job::Lock(LockKind::Exclusive)],
    }
}

fn draw_jobs(draw: &mut Draw) -> Vec<Job> {
    match draw.between(0, 19) {
        0..=3 => vec![Job::Lock(draw.pick(&LOCK_KINDS))],
        4 | 5 => vec![Job::Lock(LockKind::Exclusive)],
        6 | 7 => vec![Job::Put, Job::Take, Job::Take],
        8 => vec![Job::Options],
        9 => vec![Job::Add],
        10 => vec![Job::Value, Job::Changes],
        11 | 12 => vec![Job::Tree, Job::Tree, Job::Cache],
        13 => vec![Job::Guard],
        14 => vec![Job::Barrier],
        15 => vec![Job::Meeting],
        16 => vec![Job::Member, Job::Member, Job::Group],
        17 => vec![Job::Forest],
        18 => vec![Job::Permits],
        _ => vec![draw.pick(&[Job::Body, Job::Create])],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sessions_end_in_some_narrow_worlds_with_aims_whose_callers_create() {
        let is_drawn = |seed: u64, has_aims: bool| {
            let mut draw = Draw::new(seed);
            let mut plan = Plan { has_aims, ..Plan::draw(&mut draw.fork()) };
            let mut program = Program::draw(&mut draw.fork());
            narrow(&mut plan, &mut program, seed);
            let creates = program.tasks().flatten().all(|job| *job == Job::Create);
            creates && plan.faults.contains(&FaultKind::Expiry)
        };
        assert!((0..200).any(|seed| is_drawn(seed, true)));
        assert!((0..200).all(|seed| !is_drawn(seed, false)), "not in older worlds");
    }

    #[test]
    fn a_narrow_world_has_several_clients_and_few_kinds_of_faults() {
        let mut kinds = BTreeSet::new();
        for seed in 0..200 {
            let mut draw = Draw::new(seed);
            let mut plan = Plan::draw(&mut draw.fork());
            let mut program = Program::draw(&mut draw.fork());
            narrow(&mut plan, &mut program, seed);
            assert!(plan.faults.len() <= 2, "{:?}", plan.faults);
            assert!(program.clients.len() >= 2 && program.tasks().count() >= 2);
            kinds.extend(plan.faults);
        }
        let mut all = BTreeSet::from(FAULTS);
        all.extend(OF_LEASES);
        assert_eq!(kinds, all, "all of them occur");
    }

    #[test]
    fn newer_narrow_worlds_have_meetings_and_crowds_that_are_refused() {
        let (mut meetings, mut crowds) = (0, 0);
        for seed in 0..200 {
            let mut draw = Draw::new(seed);
            let mut plan = Plan { has_aims: true, ..Plan::draw(&mut draw.fork()) };
            let mut program = Program::draw(&mut draw.fork());
            narrow(&mut plan, &mut program, seed);
            let is_of_meetings = plan.faults.iter().all(|kind| OF_MEETINGS.contains(kind));
            let has_only = |job| program.tasks().all(|jobs| jobs.iter().all(|it| *it == job));
            meetings += u32::from(has_only(Job::Meeting) && is_of_meetings);
            let is_refused = plan.faults == [FaultKind::Stampede, FaultKind::Throttle];
            crowds += u32::from(has_only(Job::Crowd) && is_refused && plan.jitter.is_zero());
        }
        assert!(meetings > 5 && crowds > 2, "{meetings} meetings, {crowds} crowds");
    }
}
