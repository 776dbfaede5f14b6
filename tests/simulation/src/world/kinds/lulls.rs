//! Worlds whose faults come in bursts, with lulls in between.

use std::time::Duration;

use crate::program::Program;
use crate::world::lulls::length;
use crate::world::plan::{FaultKind, Plan};

/// How many bursts with their lulls a world has at most, and how long all of them may take.
const BURSTS_MAX: u32 = 4;
const CALM_AT_MAX: Duration = Duration::from_secs(200);
/// How many more steps tasks have, so that somebody still does something after the last burst.
const STEPS: u64 = 2;

pub(super) fn draw(plan: &mut Plan, program: &mut Program) {
    // Nobody knows when these have consequences, so there is no lull after them.
    plan.faults.retain(|kind| !matches!(kind, FaultKind::Freeze | FaultKind::Delay));
    plan.calm_at = plan.calm_at.max(BURSTS_MAX * length(plan)).min(CALM_AT_MAX);
    program.steps *= STEPS;
    // Callers in a hurry would make thousands of calls in the lulls, and the run would take seconds.
    plan.is_hasty = false;
    program.is_quiet = false;
}
