//! Worlds in which takers of one queue give items back while others of them wait, and little or nothing
//! else goes wrong.

use super::calm::prompt;
use super::spread;
use crate::draw::Draw;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// How many of these worlds have strangers who leave znodes below items, in percent.
const STRANGERS_PERCENT: u64 = 30;
/// The longest time that a packet takes: whoever has had an item has kept it for many round trips.
const LATENCY_MS_MAX: u64 = 5;
/// How many steps a task has at least.
const STEPS_MIN: u64 = 20;

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let calm_at = draw.ms(60_000, 120_000);
    plan.calm_down(program, calm_at);
    prompt(plan);
    // What takers say of an empty queue is judged with one server only.
    plan.members = 1;
    plan.latency = draw.ms(0, LATENCY_MS_MAX);
    if draw.chance(STRANGERS_PERCENT) {
        plan.faults.push(FaultKind::Stranger);
        plan.fault_pause = draw.ms(1_000, 10_000);
    }
    program.steps = program.steps.max(STEPS_MIN);
    let (clients, tasks) = draw.pick(&[(1, 4), (1, 6), (2, 3), (2, 5)]);
    spread(program, draw, clients, tasks, &[Job::Put, Job::Take, Job::Take, Job::Take]);
}
