//! Uses of a barrier and of a double barrier.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{Barrier, DoubleBarrier, Inside};

use super::task::{Called, TIMEOUT_MAX, Task};
use crate::draw::Draw;
use crate::history::{Round, What, Who};
use crate::world::World;
use crate::world::kinds::WorldKind;

/// The path of the barrier.
pub const BARRIER: &str = "/barriers/gate";
/// The directory of the double barrier.
pub const MEETING: &str = "/meeting";
/// How many participants meet, unless the world has another number.
pub const PARTICIPANTS: u32 = 2;
/// How many tasks wait for others until the end, in percent of those of newer worlds.
const PERSEVERING_PERCENT: u64 = 60;
/// How many stay inside for long in worlds in which callers wait, in percent, and for how long: those
/// who wait for a watch look after up to 37.5 s.
const LONG_STAY_PERCENT: u64 = 40;
const LONG_STAY_MS: (u64, u64) = (50_000, 90_000);

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
    let built = DoubleBarrier::new(&task.client, MEETING, task.world.plan.participants());
    let Ok(meeting) = built else { unreachable!("the options are valid") };
    // Perhaps nobody else comes.
    let limit = task.long_timeout(100);
    // After an enter that has failed, the judge cannot tell for a while whose participant appears.
    let limit = if perseveres(task) { task.left() + TIMEOUT_MAX } else { limit };
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
    stay(task).await;
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

/// Returns whether this task waits for others until the end.
fn perseveres(task: &Task) -> bool {
    let Who { client, task: number } = task.who;
    let plan = &task.world.plan;
    let [client, number] = [client, number].map(|it| u64::try_from(it).unwrap_or(0));
    let Some(seed) = plan.kinds.patience.filter(|_| !plan.is_of(WorldKind::Waiting)) else {
        return false;
    };
    Draw::new(seed ^ (client << 8 | number)).chance(PERSEVERING_PERCENT)
}

/// Stays inside, in some worlds so long that the others look whether they have missed something.
async fn stay(task: &mut Task) {
    let mut aside = task.aside();
    if task.world.plan.is_of(WorldKind::Waiting) && aside.chance(LONG_STAY_PERCENT) {
        let duration = Duration::from_millis(aside.between(LONG_STAY_MS.0, LONG_STAY_MS.1));
        return task.hold_for(duration).await;
    }
    task.hold().await;
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
