//! Faults in a row: each strikes the same session right after the one before.
//!
//! Many defects need such a row: a create whose reply is lost, a caller that gives up, a barrier that
//! is refused. Faults that are drawn one by one hardly ever meet in one call.

use std::collections::BTreeSet;
use std::time::Duration;

use jute_codec::{ErrorCode, SessionId};
use zk_testserver::{Action, At, CutOff, Fault, Filter, Until};

use super::World;
use super::faults::{MISREPORTS, OPS, REFUSALS, any_session, outage};
use super::plan::FaultKind;
use super::strangers::touched;
use crate::draw::Draw;
use crate::program::queue::QUEUE;

/// How often a row looks whether its next fault has struck, and for how long.
const LOOK: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(4);

/// A part of a row.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The server does this to requests and events of the session, to one after the other.
    Faults(Vec<Fault>),
    /// An administrator deletes a znode of the session.
    Deletion,
    /// The callers of the client give up.
    GiveUp,
    /// Nothing of the client arrives for so long.
    Isolation(Duration),
    /// The callers of the client do not run for so long.
    Stop(Duration),
}

/// Lets some of the kinds of faults of a world strike one session. Returns what has happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let Some(session) = any_session(world, draw) else { return "nobody".to_owned() };
    let Some(client) = world.sessions().get(&session).copied() else {
        return "a session without a client".to_owned();
    };
    let parts = draw_parts(world, draw, session);
    let until = world.history.now() + PATIENCE.min(left);
    let mut struck = 0;
    for part in &parts {
        if !happen(world, draw, part, client, session, until).await {
            break;
        }
        struck += 1;
    }
    format!("client {client}, {session}: {struck} of {parts:?}")
}

fn draw_parts(world: &World, draw: &mut Draw, session: SessionId) -> Vec<Part> {
    let mut kinds = world.plan.faults.clone();
    kinds.retain(|kind| kind.is_of_one_part());
    if kinds.is_empty() {
        return Vec::new();
    }
    let count = draw.size(2, 4);
    let mut parts = Vec::new();
    for place in 0..count {
        if place > 0 && draw.chance(25) {
            parts.push(Part::GiveUp);
            continue;
        }
        let kind = draw.pick(&kinds);
        let part = draw_part(world.plan.tick, draw, kind, session, place == 0);
        match (parts.last_mut(), part) {
            (Some(Part::Faults(before)), Some(Part::Faults(faults))) => before.extend(faults),
            (_, part) => parts.extend(part),
        }
    }
    parts
}

pub(super) fn draw_part(
    tick: Duration,
    draw: &mut Draw,
    kind: FaultKind,
    session: SessionId,
    is_first: bool,
) -> Option<Part> {
    let tick = u64::try_from(tick.as_millis()).unwrap_or(1);
    let action = match kind {
        FaultKind::Cut | FaultKind::LostReply | FaultKind::Restart => {
            let is_lost = draw.chance(30);
            Some(if is_lost { Action::CutBefore } else { Action::CutAfter })
        }
        FaultKind::LateCommit => Some(Action::LateCommit(match draw.between(0, 3) {
            0 => Until::NextWrite,
            1 | 2 => Until::Reads(draw.size(1, 3)),
            _ => Until::After(draw.ms(1, 2_000)),
        })),
        FaultKind::Refusal | FaultKind::Throttle | FaultKind::Overload => {
            // Somebody has changed permissions.
            let is_forbidden = kind == FaultKind::Refusal && draw.chance(25);
            let code = draw.pick(&REFUSALS);
            Some(Action::Error(if is_forbidden { ErrorCode::NO_AUTH } else { code }))
        }
        FaultKind::Misreport => Some(Action::ErrorAfter(draw.pick(&MISREPORTS))),
        FaultKind::Delay => Some(Action::Delay(draw.ms(10, 15_000))),
        FaultKind::Freeze => Some(Action::Freeze),
        FaultKind::Pause => Some(Action::Pause(draw.ms(10, 10_000))),
        FaultKind::CutOff => Some(Action::CutOff(CutOff {
            notices_after: Duration::from_millis(draw.between(1, 5 * tick)),
            unreported: Duration::from_millis(draw.between(0, tick / 2)),
        })),
        _ => None,
    };
    if let Some(action) = action {
        return Some(Part::Faults(vec![fault(draw, action, session, is_first)]));
    }
    match kind {
        FaultKind::Deletion => Some(Part::Deletion),
        FaultKind::Isolate | FaultKind::BlackHole | FaultKind::Expiry => {
            Some(Part::Isolation(outage(draw)))
        }
        FaultKind::Stop => Some(Part::Stop(outage(draw))),
        _ => None,
    }
}

/// The first fault waits for a request of a certain kind, and most others strike what follows it.
fn fault(draw: &mut Draw, action: Action, session: SessionId, is_first: bool) -> Fault {
    let is_of_requests = matches!(
        action,
        Action::LateCommit(_)
            | Action::Error(_)
            | Action::ErrorAfter(_)
            | Action::CutOff(_)
            | Action::Pause(_)
    );
    if !is_of_requests && draw.chance(10) {
        return Fault::new(At::event(0).of_session(session), action);
    }
    let op = if is_first || draw.chance(50) { draw.pick(&OPS) } else { None };
    let nth = draw.pick(&[0, 0, 0, 1, 1, 2, 3]);
    let filter = Filter { op, session: Some(session), path_prefix: None };
    let mut fault = Fault::new(At::Request { nth, filter }, action);
    let refuses = fault.action != Action::Freeze && draw.chance(20);
    if refuses {
        fault = fault.refuse_for(draw.ms(10, 1_000));
    }
    fault
}

/// Returns whether it has happened in time.
pub(super) async fn happen(
    world: &World,
    draw: &mut Draw,
    part: &Part,
    client: usize,
    session: SessionId,
    until: Duration,
) -> bool {
    match part {
        Part::Faults(faults) => {
            world.server.inject_in_turn(faults.clone());
            faults.iter().for_each(|_| world.trouble.arm());
            while faults.last().is_some_and(|it| world.server.pending_faults().contains(it)) {
                if world.history.now() >= until {
                    return false;
                }
                world.sleep(LOOK).await;
            }
        }
        Part::Deletion => {
            let mut own = world.server.ephemerals();
            // The markers of requests are nobody else's business.
            let touched = touched(world);
            let is_of_recipe = |path: &str| touched.iter().any(|it| path.starts_with(it));
            own.retain(|(path, owner)| *owner == session && is_of_recipe(path));
            if own.is_empty() {
                return false;
            }
            if world.plan.has_aims && draw.aside().chance(40) {
                return delete_all(world, own.into_iter().map(|(path, _)| path));
            }
            let index = draw.size(0, own.len() - 1);
            let path = own.swap_remove(index).0;
            return world.strangers.delete_path(world, &path);
        }
        Part::GiveUp => world.trouble.give_up(client),
        Part::Isolation(duration) => world.network.isolate(client, *duration),
        Part::Stop(duration) => {
            let left = world.plan.calm_at.saturating_sub(world.history.now());
            world.freezer.stop(client, (*duration).min(left));
        }
    }
    true
}

/// Deletes all these znodes, leases first, and then the items that they were below. Returns whether
/// one was there.
fn delete_all(world: &World, paths: impl Iterator<Item = String>) -> bool {
    let (leases, entries) = (format!("{QUEUE}/taken/"), format!("{QUEUE}/entries/entry-"));
    let mut paths: Vec<String> = paths.collect();
    paths.sort_by_key(|path| !path.starts_with(&leases));
    let parents = paths.iter().filter_map(|path| Some(path.rsplit_once('/')?.0.to_owned()));
    let items: BTreeSet<String> = parents.filter(|path| path.starts_with(&entries)).collect();
    paths.extend(items);
    let deleted = paths.iter().filter(|path| world.strangers.delete_path(world, path));
    deleted.count() > 0
}

#[cfg(test)]
mod tests {
    use crate::sample;
    use crate::world::plan::{FaultKind, ROWS_FROM};

    #[test]
    fn newer_seeds_have_rows_that_strike_to_their_end() {
        let mut older = ROWS_FROM - 100..ROWS_FROM;
        assert!(
            !older.any(|seed| sample::may_have(seed, FaultKind::Row)),
            "the older ones have none"
        );
        let rows = sample::strikes(FaultKind::Row);
        for part in ["Faults([", "GiveUp", "Isolation("] {
            assert!(rows.iter().any(|row| row.contains(part)), "no row has a {part}");
        }
        let are_whole = rows.iter().filter(|row| {
            let parts = |all: &str| Some(all.split(" of [").nth(1)?.matches("Fault {").count());
            parts(row).is_some_and(|faults| faults > 1) && !row.contains(": 0 of")
        });
        assert!(are_whole.count() > 3, "several faults strike one after the other");
    }
}
