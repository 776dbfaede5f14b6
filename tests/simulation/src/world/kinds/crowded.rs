//! Worlds in which many contend for a semaphore with many permits, and holders give them back one by
//! one: a waiter that counts the changes of the directory must know when its permit is free.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::spread;
use crate::draw::Draw;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// When the faults stop: long enough for some rounds of holders.
const CALM_AT: Duration = Duration::from_secs(120);
/// How many of these worlds have a client that is cut off, in percent.
const ISOLATED_PERCENT: u64 = 50;

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    plan.calm_down(program, CALM_AT);
    // Only these have persistent watches, whose changes a waiter counts.
    plan.version = draw.pick(&[ServerVersion::V3_6, ServerVersion::V3_8, ServerVersion::V3_9]);
    if draw.chance(ISOLATED_PERCENT) {
        plan.faults.push(FaultKind::Isolate);
        plan.fault_pause = draw.ms(10_000, 30_000);
    }
    program.is_patient = true;
    let (clients, tasks) = draw.pick(&[(2, 3), (3, 2), (5, 1), (6, 1)]);
    spread(program, draw, clients, tasks, &[Job::Crowd]);
}
