//! An administrator who restores a znode with the data of the one before: another session owns it then.
//!
//! A recipe that has lost the reply to a create looks for a znode with its own data. It must not take
//! such a copy for its own.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_testserver::{Action, At, Fault};

use super::waylay::{self, Begun};
use super::{DIRECTORIES, World};
use crate::draw::Draw;

/// The calls that create a znode by which their session is known.
const CALLS: [&str; 3] = ["acquire", "try_acquire", "lead"];
/// For how long the client cannot connect, in which the znode is replaced.
const AWAY_MS: (u64, u64) = (50, 1_000);
/// How long the copy is there at most: others wait for its end.
const STAYS_MS: (u64, u64) = (200, 8_000);

/// Waits for a call, loses the reply to its create, and replaces its znode by a copy, which it removes
/// after a while. Returns what has happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let Begun { name, session, until, .. } = match waylay::begun(world, &CALLS, left).await {
        Ok(begun) => begun,
        Err(reason) => return reason,
    };
    let away = draw.ms(AWAY_MS.0, AWAY_MS.1);
    let at = At::op(OpCode::CREATE2).of_session(session);
    let fault = Fault::new(at, Action::CutAfter).refuse_for(away);
    if !waylay::strikes(world, &fault, until).await {
        return format!("{name} of {session} creates nothing");
    }
    let Some(path) = newest(world, session) else { return format!("{session} has no znode") };
    let data = world.server.data(&path).unwrap_or_default();
    let others: Vec<SessionId> =
        world.server.sessions().into_iter().filter(|it| *it != session).collect();
    if others.is_empty() {
        return format!("there is no session but {session}");
    }
    let owner = draw.pick(&others);
    if !world.strangers.delete_path(world, &path) {
        return format!("{path} is not there any more");
    }
    world.server.admin_create(&path, &data, Some(owner));
    let copy = world.server.stat(&path).map(|stat| stat.czxid);
    let left = world.plan.calm_at.saturating_sub(world.history.now());
    world.sleep(draw.ms(STAYS_MS.0, STAYS_MS.1).min(left)).await;
    // Others would wait for it until its session ends.
    let is_there = world.server.stat(&path).map(|stat| stat.czxid) == copy;
    let is_removed = is_there && world.strangers.delete_path(world, &path);
    format!("{path} of {name} of {session} belongs to {owner}, removed later: {is_removed}")
}

/// Returns the znode that a session has created last in a recipe.
fn newest(world: &World, session: SessionId) -> Option<String> {
    let own = world.server.ephemerals().into_iter().filter(|(path, owner)| {
        *owner == session && DIRECTORIES.iter().any(|it| path.starts_with(it))
    });
    own.map(|(path, _)| path).max_by_key(|path| world.server.stat(path).map(|stat| stat.czxid))
}

#[cfg(test)]
mod tests {
    use crate::sample;
    use crate::world::plan::{AIMS_FROM, FaultKind};

    #[test]
    fn newer_seeds_have_forgeries_and_deposed_leaders() {
        for kind in [FaultKind::Forgery, FaultKind::Deposition] {
            let has_some = |seed| sample::may_have(seed, kind);
            assert!(!(AIMS_FROM - 300..AIMS_FROM).any(has_some), "the older ones do not");
            let count = (AIMS_FROM..AIMS_FROM + 1_000).filter(|seed| has_some(*seed)).count();
            assert!((15..150).contains(&count), "{kind:?}: {count}");
        }
    }
}
