//! Faults that come in bursts, and lulls after them, in which nothing goes wrong for long enough for a
//! judge to see what a burst has left. In most worlds, the next fault comes before that, and heals it.

use std::time::Duration;

use super::World;
use super::faults::{Struck, strike};
use super::plan::Plan;
use super::trouble::STRUCK;
use crate::draw::Draw;
use crate::judges::liveness::patience;

/// How many faults a burst has at most.
const BURST_MAX: usize = 4;
/// How much shorter the pauses within a burst are than those between the faults of other worlds.
const HURRY: u32 = 4;
/// How long a lull lasts after the time from which on a judge knows that something is overdue.
const REST: Duration = Duration::from_secs(10);

/// Returns how long nothing goes wrong after a burst.
pub(super) fn length(plan: &Plan) -> Duration {
    STRUCK + patience(plan) + REST
}

/// Lets things go wrong in bursts until the time has come from which nothing may. Returns what went
/// wrong.
pub(super) async fn afflict(world: &World, draw: &mut Draw) -> Vec<Struck> {
    let mut struck: Vec<Struck> = Vec::new();
    let pause = u64::try_from((world.plan.fault_pause / HURRY).as_millis()).unwrap_or(1);
    let left = || world.plan.calm_at.saturating_sub(world.history.now());
    while !left().is_zero() && !world.plan.faults.is_empty() {
        for _ in 0..draw.size(1, BURST_MAX) {
            let pause = draw.ms(1, pause.max(1)).min(left());
            world.sleep(pause).await;
            if left().is_zero() {
                return struck;
            }
            let kind = draw.pick(&world.plan.faults);
            struck.push(Struck::new(world.history.now(), kind, draw.clone()));
            strike(world, struck.len() as u64, kind, draw).await;
        }
        if let Some(last) = struck.last_mut() {
            last.end_burst();
        }
        world.disarm();
        world.sleep(length(&world.plan).min(left())).await;
    }
    struck
}

#[cfg(test)]
mod tests {
    use crate::history::What;
    use crate::sample;

    #[test]
    fn newer_worlds_have_lulls_between_their_faults() {
        let have_lulls = sample::newest().iter().filter(|report| report.plan.contains("Lulls"));
        let lulls = have_lulls.flat_map(|report| {
            let is_fault = |what: &What| matches!(what, What::Fault { .. });
            let faults = report.events.iter().filter(|event| is_fault(&event.what));
            let times: Vec<_> = faults.map(|event| event.at).collect();
            times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
        });
        let long = lulls.filter(|pause| pause.as_secs() >= 30).count();
        assert!(long > 3, "{long} lulls");
    }
}
