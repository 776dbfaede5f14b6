//! Uses of a barrier and of a double barrier.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{Barrier, DoubleBarrier, Inside};

use super::task::{Called, Task};
use crate::history::{Round, What};
use crate::world::World;

/// The path of the barrier.
pub const BARRIER: &str = "/barriers/gate";
/// The directory of the double barrier.
pub const MEETING: &str = "/meeting";
/// How many participants meet.
pub const PARTICIPANTS: u32 = 2;

/// Closes or opens the barrier, or waits until it is open.
pub(super) async fn pass(task: &mut Task) {
    let limit = task.timeout();
    let built = Barrier::builder(&task.client, BARRIER).and_then(|barrier| match limit {
        Some(limit) => barrier.timeout(limit).build(),
        None => barrier.build(),
    });
    let Ok(barrier) = built else { unreachable!("the options are valid") };
    let from = task.world.server.zxid().0;
    if task.is_patient && task.draw.chance(40) {
        return pulse(task, &barrier, limit).await;
    }
    let (name, is_open, called) = match task.draw.between(0, 3) {
        0 => {
            let close = barrier.close();
            ("close_barrier", false, task.call("close_barrier", BARRIER, limit, close).await)
        }
        1 => {
            let open = barrier.open();
            ("open_barrier", true, task.call("open_barrier", BARRIER, limit, open).await)
        }
        _ => {
            // Perhaps nobody opens the barrier any more.
            let limit = task.long_timeout(1);
            let wait = barrier.wait().timeout(limit).into_future();
            ("wait", true, task.call("wait", BARRIER, Some(limit), wait).await)
        }
    };
    if let Called::Done(()) = called {
        let to = task.world.server.zxid().0;
        task.push(What::Passed { name, barrier: BARRIER.to_owned(), is_open, from, to });
    }
}

/// Closes the barrier for a while, and opens it for a moment, which those who wait
/// must notice.
async fn pulse(task: &mut Task, barrier: &Barrier, limit: Option<Duration>) {
    for (name, is_open) in
        [("close_barrier", false), ("open_barrier", true), ("close_barrier", false)]
    {
        let from = task.zxid();
        let called = if is_open {
            task.call(name, BARRIER, limit, barrier.open()).await
        } else {
            task.call(name, BARRIER, limit, barrier.close()).await
        };
        let Called::Done(()) = called else { return };
        let to = task.zxid();
        task.push(What::Passed { name, barrier: BARRIER.to_owned(), is_open, from, to });
        if name == "close_barrier" {
            // Long enough for a judge to know that nobody has missed the close, or the opening.
            let duration = task.draw.ms(10_000, 40_000);
            task.hold_for(duration).await;
        }
    }
}

/// Enters the double barrier, stays inside for a while, and leaves.
pub(super) async fn meet(task: &mut Task) {
    let built = DoubleBarrier::new(&task.client, MEETING, PARTICIPANTS);
    let Ok(meeting) = built else { unreachable!("the options are valid") };
    // Perhaps nobody else comes.
    let limit = task.long_timeout(100);
    let (from, before) = (task.zxid(), task.client.session_id());
    let enter = meeting.enter().timeout(limit).into_future();
    let called = task.call("enter", MEETING, Some(limit), enter).await;
    let Some(inside) = called.done() else { return };
    let round = entered(task, &inside);
    let (number, participants, to) = (inside.round().0, inside.participants(), task.zxid());
    let sessions = before.into_iter().chain(task.client.session_id()).collect();
    let round_then = round.clone();
    task.push(What::Entered { number, participants, round: round_then, from, to, sessions });
    present(task, &inside, before);
    task.hold().await;
    present(task, &inside, before);
    if task.draw.chance(10) {
        return drop(inside);
    }
    let limit = task.draw.chance(30).then(|| task.draw.ms(1, 20_000));
    let mut leave = inside.leave();
    if let Some(limit) = limit {
        leave = leave.timeout(limit);
    }
    let called = task.call("leave", MEETING, limit, leave.into_future()).await;
    if let (Called::Done(()), Some(round)) = (called, round) {
        let present = task.world.server.children(MEETING).unwrap_or_default();
        task.push(What::Departed { round, present });
    }
}

/// Records whether a participant says that it has left already, and what the servers know about it.
fn present(task: &Task, inside: &Inside, before: Option<SessionId>) {
    let Some(now) = task.client.session_id() else { return };
    let ephemerals = task.world.server.ephemerals();
    let is_own = |(path, owner): &(String, SessionId)| *owner == now && path.starts_with(MEETING);
    task.push(What::Present {
        has_left: inside.has_left(),
        is_alive: task.world.server.sessions().contains(&now),
        is_same: before == Some(now),
        has_znode: ephemerals.iter().any(is_own),
    });
}

/// Returns what the servers know about the round of this participant, unless they know only a
/// later one, or the znode of the participant is gone.
fn entered(task: &Task, inside: &Inside) -> Option<Round> {
    let (number, round) = last_round(&task.world)?;
    let is_same = number == inside.round().0 && !inside.has_left();
    is_same.then_some(round)
}

/// Returns the last round, and its number.
pub fn last_round(world: &World) -> Option<(i32, Round)> {
    let (stat, data) = (world.server.stat(MEETING)?, world.server.data(MEETING)?);
    let names = String::from_utf8_lossy(&data).lines().map(str::to_owned).collect();
    Some((stat.version.0, Round { zxid: stat.mzxid.0, names }))
}
