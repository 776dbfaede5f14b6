//! Worlds in which clients that read a tree move to servers that have not applied yet what their
//! clients know.

use std::time::Duration;

use zk_testserver::ServerVersion;

use super::spread;
use crate::draw::Draw;
use crate::program::{Job, Program};
use crate::world::plan::{FaultKind, Plan};

/// The longest way of a packet. A longer one would give servers the time to catch up.
const LATENCY_MAX: Duration = Duration::from_millis(50);

pub(super) fn draw(plan: &mut Plan, program: &mut Program, draw: &mut Draw) {
    let calm_at = draw.ms(20_000, 60_000);
    plan.calm_down(program, calm_at);
    if !plan.resumes() {
        plan.version = ServerVersion::V3_8;
    }
    if plan.members == 1 {
        plan.members = 3;
    }
    plan.faults = vec![FaultKind::LostReply, FaultKind::Restart];
    plan.fault_pause = draw.ms(500, 5_000);
    plan.lag = draw.ms(0, 50);
    let (slow, prompt) = (draw.ms(1_500, 4_000), Duration::ZERO);
    (plan.unapplied, plan.leader_unapplied) =
        if draw.chance(50) { (slow, prompt) } else { (prompt, slow) };
    plan.latency = plan.latency.min(LATENCY_MAX);
    plan.has_watchers = true;
    let (clients, tasks) = (draw.size(2, 3), draw.size(1, 3));
    spread(program, draw, clients, tasks, &[Job::Tree, Job::Tree, Job::Cache]);
}
