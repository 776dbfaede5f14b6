//! Worlds of one queue or one kind of lock, whose znodes an administrator deletes and replaces again and
//! again, at moments at which somebody relies on them.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::spread;
use crate::draw::Draw;
use crate::program::locks::LockKind;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// How many of these worlds have a queue, in percent.
const QUEUE_PERCENT: u64 = 70;
/// How long packets travel, in milliseconds: others have to come in between.
const LATENCY_MS: (u64, u64) = (10, 40);
/// How long servers work on a request, in milliseconds: what one client reads at once, others can change
/// in between.
const SERVICE_MS: [u64; 4] = [0, 2, 5, 15];
/// How often servers remove empty containers, in milliseconds: names start again then.
const REAPING_MS: [u64; 3] = [10, 30, 100];
/// More steps than a task makes before the end.
const STEPS: u64 = 1_000;

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let calm_at = draw.ms(30_000, 90_000);
    plan.calm_down(program, calm_at);
    super::calm::prompt(plan);
    plan.members = draw.pick(&[1, 1, 3]);
    plan.latency = draw.ms(LATENCY_MS.0, LATENCY_MS.1);
    plan.jitter = draw.pick(&[Duration::ZERO, plan.latency / 4]);
    plan.reap_interval = Duration::from_millis(draw.pick(&REAPING_MS));
    plan.service = Duration::from_millis(draw.pick(&SERVICE_MS));
    plan.fault_pause = draw.ms(50, 500);
    plan.outstanding = None;
    program.steps = STEPS;
    program.drops = draw.pick(&[0, 0, 5, 20]);
    let (clients, tasks) = draw.pick(&[(1, 4), (2, 2), (2, 3), (3, 1), (3, 2)]);
    let jobs = if draw.chance(QUEUE_PERCENT) { queue(plan, draw) } else { lock(plan, draw) };
    spread(program, draw, clients, tasks, &jobs);
}

fn queue(plan: &mut Plan, draw: &mut Draw) -> Vec<Job> {
    plan.version = draw.pick(&[ServerVersion::Keeper, ServerVersion::V3_5, ServerVersion::V3_9]);
    plan.faults = vec![FaultKind::Waylay, FaultKind::Waylay, FaultKind::LostReply];
    let more = [FaultKind::Cut, FaultKind::Restart, FaultKind::Stop, FaultKind::Stop];
    plan.faults.push(draw.pick(&more));
    if !plan.resumes() {
        plan.faults.extend([FaultKind::Stray, FaultKind::Stray]);
    }
    let takes = [Job::Take, Job::Take, Job::Options];
    vec![Job::Put, Job::Take, draw.pick(&takes)]
}

fn lock(plan: &mut Plan, draw: &mut Draw) -> Vec<Job> {
    plan.version = draw.pick(&[ServerVersion::V3_5, ServerVersion::V3_9]);
    let kind = draw.pick(&[
        LockKind::Exclusive,
        LockKind::Exclusive,
        LockKind::Exclusive,
        LockKind::Fair,
        LockKind::ReadWrite,
        LockKind::Semaphore,
        LockKind::Election,
    ]);
    plan.faults = match kind {
        LockKind::Exclusive => vec![FaultKind::Deletion, FaultKind::Waylay, FaultKind::LostReply],
        _ => vec![FaultKind::Forgery, FaultKind::Forgery, FaultKind::Waylay],
    };
    let more = [FaultKind::Cut, FaultKind::LateCommit, FaultKind::Restart, FaultKind::Stop];
    plan.faults.push(draw.pick(&more));
    if kind == LockKind::Fair { vec![Job::Lock(kind), Job::Guard] } else { vec![Job::Lock(kind)] }
}
