//! An administrator who waits for a call that relies on a znode, holds its multi up, and deletes that
//! znode meanwhile.
//!
//! Where empty directories go at once, all items of a queue may be deleted, so that another one gets the
//! same name.
//!
//! What such a call does after a lost reply, or after it was told that the znode is gone, needs both at
//! one moment. Faults and deletions that are drawn one by one hardly ever meet there.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_testserver::{Action, At, Fault, Filter};

use super::{DIRECTORIES, World};
use crate::draw::Draw;
use crate::program::queue::QUEUE;

/// For how long a call is waited for, including its request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often somebody looks whether the fault has struck.
pub(super) const LOOK: Duration = Duration::from_millis(2);
/// How many round trips a multi is held up at most, in most cases.
const ROUND_TRIPS: u64 = 8;
/// The calls that rely on a znode of their session.
const CALLS: [&str; 6] = ["ack", "transaction", "commit_under", "downgrade", "release", "validate"];
/// How often only acknowledgements are waited for in a world with a queue, in percent.
const ACKS_PERCENT: u64 = 80;

/// In how many worlds that remove empty directories soon the queue is emptied, so that its numbers start
/// again, in percent.
const EMPTY_PERCENT: u64 = 60;
/// How soon that is.
const SOON: Duration = Duration::from_millis(100);
/// For how long a request is held up there: others have to put an item meanwhile.
const EMPTY_MS: (u64, u64) = (200, 3_000);

/// Waits for a call, holds up its multi, and deletes a znode of its session. Returns what has happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let has_queue = world.server.stat(&format!("{QUEUE}/entries")).is_some();
    if has_queue && world.plan.reap_interval <= SOON && draw.chance(EMPTY_PERCENT) {
        return empty(world, draw, left).await;
    }
    let count = if has_queue && draw.chance(ACKS_PERCENT) { 1 } else { CALLS.len() };
    let names = CALLS.get(..count).unwrap_or(&CALLS);
    let Begun { name, session, until, .. } = match begun(world, names, left).await {
        Ok(begun) => begun,
        Err(reason) => return reason,
    };
    let fault = hold_up(world, draw, session);
    if !strikes(world, &fault, until).await {
        return format!("{name} of {session} sends no multi");
    }
    world.sleep(draw.ms(0, round_trip(world))).await;
    let path = target(world, draw, name, session);
    let path = path.filter(|path| world.strangers.delete_path(world, path));
    format!("{path:?} deleted during {name} of {session} with {:?}", fault.action)
}

/// Waits for a call of the queue, holds up a request of it, and deletes all items meanwhile: the next one
/// may get the name of the one that the call is about.
async fn empty(world: &World, draw: &mut Draw, left: Duration) -> String {
    let entries = format!("{QUEUE}/entries");
    let is_ack = draw.chance(50);
    let (name, op) = if is_ack { ("ack", OpCode::MULTI) } else { ("take", OpCode::GET_DATA) };
    let Begun { session, until, .. } = match begun(world, &[name], left).await {
        Ok(begun) => begun,
        Err(reason) => return reason,
    };
    let pause = draw.ms(EMPTY_MS.0, EMPTY_MS.1);
    let path_prefix = (!is_ack).then(|| format!("{entries}/"));
    let filter = Filter { op: Some(op), session: Some(session), path_prefix };
    let fault = Fault::new(At::Request { nth: 0, filter }, Action::Pause(pause));
    if !strikes(world, &fault, until).await {
        return format!("{name} of {session} sends no {op:?}");
    }
    let names = world.server.children(&entries).unwrap_or_default();
    let mut paths: Vec<String> = names.iter().map(|name| format!("{entries}/{name}")).collect();
    paths.retain(|path| world.strangers.delete_path(world, path));
    format!("{paths:?} deleted during {op:?} of {name} of {session}, for {pause:?}")
}

/// A call that was waited for.
pub(super) struct Begun {
    pub(super) name: &'static str,
    pub(super) client: usize,
    pub(super) session: SessionId,
    /// Until when its request is waited for.
    pub(super) until: Duration,
}

/// Waits until a client begins one of these calls. Fails with the reason if that does not happen.
pub(super) async fn begun(
    world: &World,
    names: &[&'static str],
    left: Duration,
) -> Result<Begun, String> {
    let patience = PATIENCE.min(left);
    let until = world.history.now() + patience;
    let (name, client) = tokio::select! {
        biased;
        begun = world.trouble.begun_one_of(names) => begun,
        () = world.sleep(patience) => return Err(format!("nobody calls one of {names:?}")),
    };
    let session = world.clients.get(client).and_then(|(client, _)| client.session_id());
    let Some(session) = session else { return Err(format!("client {client} has no session")) };
    Ok(Begun { name, client, session, until })
}

/// Injects a fault. Returns whether it strikes until then.
pub(super) async fn strikes(world: &World, fault: &Fault, until: Duration) -> bool {
    world.server.inject(fault.clone());
    world.trouble.arm();
    while world.server.pending_faults().contains(fault) {
        if world.history.now() >= until {
            return false;
        }
        world.sleep(LOOK).await;
    }
    true
}

pub(super) fn round_trip(world: &World) -> u64 {
    u64::try_from(world.plan.round_trip_max().as_millis()).unwrap_or(1).max(1)
}

fn hold_up(world: &World, draw: &mut Draw, session: SessionId) -> Fault {
    let at = At::op(OpCode::MULTI).of_session(session);
    match draw.between(0, 9) {
        0..=5 => Fault::new(at, Action::Pause(draw.ms(1, ROUND_TRIPS * round_trip(world)))),
        6 => Fault::new(at, Action::Pause(draw.ms(1, 3_000))),
        _ => Fault::new(at, Action::CutBefore).refuse_for(draw.ms(50, 1_000)),
    }
}

/// Returns the path of a lease of the session, or of another znode that it has in a recipe.
pub(super) fn target(
    world: &World,
    draw: &mut Draw,
    name: &str,
    session: SessionId,
) -> Option<String> {
    let leases = format!("{QUEUE}/taken/");
    let mut own = world.server.ephemerals();
    own.retain(|(path, owner)| {
        let is_relied_on = match name {
            "ack" => path.starts_with(&leases),
            _ => DIRECTORIES.iter().any(|it| path.starts_with(it)),
        };
        *owner == session && is_relied_on
    });
    let index = own.len().checked_sub(1).map(|last| draw.size(0, last))?;
    Some(own.swap_remove(index).0)
}

#[cfg(test)]
mod tests {
    use crate::sample;
    use crate::world::plan::{AIMS_FROM, FaultKind};

    #[test]
    fn newer_seeds_waylay_calls() {
        let has_some = |seed| sample::may_have(seed, FaultKind::Waylay);
        assert!(!(AIMS_FROM - 300..AIMS_FROM).any(has_some), "the older ones do not");
        let count = (AIMS_FROM..AIMS_FROM + 1_000).filter(|seed| has_some(*seed)).count();
        assert!((50..200).contains(&count), "{count}");
    }
}
