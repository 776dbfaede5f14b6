//! Callers stop in the middle of a call, and go on when their client has lost what the call is about and, in
//! most cases, another client has it.
//!
//! Whatever a caller does then may harm the other client. A pause of a drawn length hardly ever ends at that
//! moment.

use std::time::Duration;

use super::World;
use super::waylay::{self, Begun, LOOK};
use crate::draw::Draw;

/// The calls that are about a znode of their session.
const CALLS: [&str; 5] = ["ack", "release", "give_back", "validate", "commit_under"];
/// How often nothing of the client arrives meanwhile, in percent: only the end of its session takes most
/// znodes away.
const ISOLATED_PERCENT: u64 = 40;
/// How often another client has to come, in percent, and for how long it is waited for.
const NEXT_PERCENT: u64 = 70;
const NEXT_MAX: Duration = Duration::from_secs(2);
/// For how long a caller does not run at most.
const LONGEST: Duration = Duration::from_secs(15);
/// How many round trips pass in the call before, and after the loss, at most.
const ROUND_TRIPS: u64 = 3;

/// Waits for a call, and stops the callers of its client until it has lost a znode. Returns what has
/// happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let Begun { name, client, session, .. } = match waylay::begun(world, &CALLS, left).await {
        Ok(begun) => begun,
        Err(reason) => return reason,
    };
    let Some(path) = waylay::target(world, draw, name, session) else {
        return format!("{session} has no znode");
    };
    world.sleep(draw.ms(0, ROUND_TRIPS * waylay::round_trip(world))).await;
    let owned = world.server.stat(&path).map(|stat| stat.czxid);
    let longest = LONGEST.min(world.plan.calm_at.saturating_sub(world.history.now()));
    let until = world.history.now() + longest;
    if draw.chance(ISOLATED_PERCENT) {
        world.network.isolate(client, longest);
    }
    let other = || world.server.stat(&path).map(|stat| stat.czxid);
    let is_lost = stop_until(world, client, until, || other() != owned).await;
    if is_lost && draw.chance(NEXT_PERCENT) {
        let until = until.min(world.history.now() + NEXT_MAX);
        stop_until(world, client, until, || other().is_some()).await;
    }
    let late = world.history.now() + draw.ms(0, ROUND_TRIPS * waylay::round_trip(world));
    stop_until(world, client, late, || false).await;
    format!("client {client} during {name} until {path} was lost: {is_lost}")
}

/// Lets no caller of a client run until something has happened, or until then. Returns whether it has.
async fn stop_until(
    world: &World,
    client: usize,
    until: Duration,
    has_happened: impl Fn() -> bool,
) -> bool {
    while !has_happened() {
        if world.history.now() >= until {
            return false;
        }
        world.freezer.stop(client, 2 * LOOK);
        world.sleep(LOOK).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use crate::cuts::Cuts;
    use crate::draw::Draw;
    use crate::history::What;
    use crate::run::{drawn, run};
    use crate::world::kinds::WorldKind;
    use crate::world::plan::{FIRST_SEED, FaultKind};

    #[test]
    fn callers_of_waylaid_worlds_run_again_when_somebody_else_has_what_they_had() {
        let may_oversleep = |seed: &u64| {
            let plan = drawn(*seed, &mut Draw::new(*seed), &Cuts::default()).0;
            plan.is_of(WorldKind::Waylaid) && plan.faults.contains(&FaultKind::Stop)
        };
        let oversleeps = |seed| {
            run(seed).events.iter().any(|event| match &event.what {
                What::Fault { text, .. } => {
                    text.starts_with("Stop: ") && text.ends_with("was lost: true")
                }
                _ => false,
            })
        };
        assert!((FIRST_SEED..).filter(may_oversleep).take(8).any(oversleeps));
    }
}
