//! All histories of a coarse grid: one connection to a follower, a leader that is paused a given
//! number of times, and a cut of the link between the follower and the leader.

#![expect(clippy::indexing_slicing, reason = "the places are there by construction")]

use crate::ensemble::{Connection, Epoch, Kind, Lag, Micros, NEVER, Pauses, Plan, Route};

const TICK: Micros = 1_000_000;
const TIMEOUT: Micros = 4 * TICK;
/// A quarter of a tick, of which most times are multiples.
const STEP: Micros = TICK / 4;
/// How late the ping thread is after a pause.
const LAG: Micros = TICK / 8;

/// Returns the plans without pauses.
pub(crate) fn calm() -> Vec<Plan> {
    let mut plans = Vec::new();
    for interval in [STEP, 2 * STEP] {
        for phase in [0, STEP] {
            for offset in [1, STEP / 2] {
                plans.push(plan(interval, phase, offset));
            }
        }
    }
    plans
}

/// Calls `look` with every variant of this plan in which the leader is paused `pauses` times, for
/// up to `longest` steps each, and the link is cut afterwards.
pub(crate) fn each(plan: &Plan, pauses: usize, longest: u64, look: &mut impl FnMut(&Plan)) {
    add_pauses(plan, 2 * STEP, pauses, longest, look);
}

/// Adds pauses from this time on, and then the cut.
fn add_pauses(plan: &Plan, from: Micros, left: usize, longest: u64, look: &mut impl FnMut(&Plan)) {
    if left == 0 {
        // The link is cut just after the leader resumes and before its ping thread does, or later.
        for later in [LAG / 2, LAG * 3 / 2, 2 * STEP, 4 * STEP] {
            let mut plan = plan.clone();
            plan.connections[0].leader_cut = [from + later; 2];
            look(&plan);
        }
        return;
    }
    // Between two pauses, the leader runs for a moment or for several steps.
    for gap in [LAG / 2, STEP, 2 * STEP, 3 * STEP, 5 * STEP] {
        for length in 1..=longest {
            let mut plan = plan.clone();
            plan.epochs[0].pauses.add(from + gap, length * STEP);
            add_pauses(&plan, from + gap + length * STEP, left - 1, longest, look);
        }
    }
}

fn plan(interval: Micros, phase: Micros, offset: Micros) -> Plan {
    let end = 4 * TIMEOUT;
    let mut sends = Vec::new();
    let mut at = offset;
    while at < end {
        sends.push((at, Kind::Ping));
        sends.push((at, Kind::Write));
        at += interval;
    }
    let connection = Connection {
        at: 0,
        route: Route::Follower,
        epoch: 0,
        sends,
        eagerness: usize::MAX,
        client_cut: [NEVER; 2],
        leader_cut: [NEVER; 2],
        server_pauses: Pauses::default(),
        master_pauses: Pauses::default(),
    };
    Plan {
        timeout: TIMEOUT,
        tick: TICK,
        rate: 1000,
        epochs: vec![Epoch::new(0)],
        connections: vec![connection],
        client_pauses: Pauses::default(),
        latency: [1, 1],
        ping_phase: Some(phase),
        ping_lag: Lag::AfterPauses(LAG),
        note_lag: 1,
        seed: 0,
    }
}

/// Describes the plan to explain a counterexample.
pub(crate) fn name(plan: &Plan) -> String {
    let connection = &plan.connections[0];
    format!(
        "a write at {:?}, pings from {:?} on, {:?}, and a cut at {:?}",
        connection.sends[1].0, plan.ping_phase, plan.epochs[0].pauses, connection.leader_cut[0]
    )
}
