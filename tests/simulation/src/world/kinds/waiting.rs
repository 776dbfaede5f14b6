//! Worlds in which callers wait for minutes while nothing happens, or while permissions change.

use zk_testserver::ServerVersion;

use super::spread;
use crate::draw::Draw;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// How many of these worlds have permissions that change, in percent.
const PERMISSIONS_PERCENT: u64 = 30;
/// How many steps a task has at least: most of them wait.
const STEPS_MIN: u64 = 20;

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let jobs = match draw.between(0, 3) {
        0 => vec![Job::Meeting],
        1 => vec![Job::Barrier],
        2 => vec![Job::Member, Job::Member, Job::Group],
        _ => vec![Job::Value, Job::Changes],
    };
    let calm_at = draw.ms(150_000, 240_000);
    plan.calm_down(program, calm_at);
    if draw.chance(PERMISSIONS_PERCENT) {
        // Only these servers discard the events of whoever may not read.
        plan.version = ServerVersion::V3_9;
        plan.faults.push(FaultKind::Permission);
        plan.fault_pause = draw.ms(5_000, 40_000);
    }
    plan.kinds.participants = Some(draw.pick(&[2, 3, 4]));
    program.steps = program.steps.max(STEPS_MIN);
    let (clients, tasks) = (draw.size(2, 4), draw.size(1, 2));
    spread(program, draw, clients, tasks, &jobs);
}
