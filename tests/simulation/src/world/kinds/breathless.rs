//! Worlds in which nothing goes wrong, and short leases are renewed while callers write all the time:
//! a renewal that comes a moment too late ends a lease.

use std::time::Duration;

use super::calm::prompt;
use crate::draw::Draw;
use crate::program::locks::LockKind;
use crate::program::{Job, Program};
use crate::world::plan::Plan;

/// The session timeouts, in milliseconds: about the shortest ones for which there are leases.
const SESSIONS_MS: [u64; 3] = [3_500, 4_000, 5_000];
/// How long a commit takes, in milliseconds.
const COMMITS_MS: [u64; 5] = [1, 5, 20, 36, 80];
/// More steps than a task makes before the end.
const STEPS: u64 = 1_000;
/// The shortest tick of the servers.
const TICK: Duration = Duration::from_millis(500);

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let calm_at = draw.ms(15_000, 30_000);
    plan.calm_down(program, calm_at);
    prompt(plan);
    plan.members = 1;
    plan.tick = TICK;
    plan.latency = draw.ms(0, 5);
    plan.commit = Duration::from_millis(draw.pick(&COMMITS_MS));
    plan.session_timeout_max = None;
    plan.kinds.session = Some(Duration::from_millis(draw.pick(&SESSIONS_MS)));
    program.steps = STEPS;
    let jobs = [Job::Lock(LockKind::Fair), Job::Create];
    let tasks = || jobs.iter().flat_map(|job| [vec![*job], vec![*job]]).collect();
    program.clients = (0..draw.size(1, 2)).map(|_| tasks()).collect();
}
