//! Worlds in which nothing goes wrong, and callers queue for one lock, for about as long as a session
//! lasts: whoever comes near the front gets a lease before its turn.

use std::time::Duration;

use super::spread;
use crate::draw::Draw;
use crate::program::locks::LockKind;
use crate::program::{Job, Program};
use crate::world::plan::{CLOCK_RATE, Plan};

/// The longest session timeouts that servers grant, in seconds.
const TIMEOUTS: [u64; 2] = [6, 10];
/// How many steps a task has at least.
const STEPS_MIN: u64 = 20;

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let kind = draw.pick(&[
        LockKind::Fair,
        LockKind::ReadWrite,
        LockKind::Semaphore,
        LockKind::Election,
        LockKind::Multi,
    ]);
    let calm_at = draw.ms(60_000, 120_000);
    plan.calm_down(program, calm_at);
    prompt(plan);
    (plan.latency, plan.jitter) = (draw.ms(0, 40), draw.ms(0, 20));
    plan.session_timeout_max = Some(Duration::from_secs(draw.pick(&TIMEOUTS)));
    program.is_patient = true;
    program.steps = program.steps.max(STEPS_MIN);
    let clients = draw.size(3, 4);
    spread(program, draw, clients, 1, &[Job::Lock(kind)]);
}

/// Makes servers and links so fast that a lock that is held stays so.
pub(super) fn prompt(plan: &mut Plan) {
    (plan.lag, plan.unapplied, plan.leader_unapplied) = Default::default();
    (plan.jitter, plan.commit, plan.service) = Default::default();
    plan.clock_rate = CLOCK_RATE;
}
