//! Clients that end while others go on, and the clients that follow in their places.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{CloseOutcome, HandOverError, SessionState};
use zk_session::SessionTicket;

use super::aims::aim;
use super::task::{Called, Task};
use super::trees::LEAF;
use super::values::PLAIN;
use super::{Job, Program};
use crate::draw::Draw;
use crate::history::{Failure, What, Who};
use crate::run::within;
use crate::world::World;
use crate::world::plan::Plan;

/// How a client ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each kind is drawn")]
pub enum EndKind {
    /// It is closed, and its guards and calls are still there.
    Close,
    /// The same, and whoever closes it does not wait for long.
    CloseWithin,
    /// All its handles are dropped, with all guards and calls.
    Drop,
    /// Another client continues its session.
    HandOver,
}

/// How long the tasks of a client that has ended with its session may go on with it.
const HEIR_MS_MAX: u64 = 10_000;
/// How long an end waits for a call.
const CALL_AWAITED: Duration = Duration::from_secs(5);
/// In how many of the worlds with aims whose callers only change and follow a tree sessions are
/// handed over, in percent.
const HEIRS_PERCENT: u64 = 40;
/// Chosen once, so that heirs are unrelated to who has one.
const HEIR_SALT: u64 = 0x4e1f;

const END_KINDS: [EndKind; 4] =
    [EndKind::Close, EndKind::CloseWithin, EndKind::Drop, EndKind::HandOver];

/// How clients end in the middle of a run.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Ends {
    /// The kinds of ends.
    pub kinds: Vec<EndKind>,
    /// The longest time between the end of one and that of another.
    pub pause: Duration,
}

impl Ends {
    /// Draws the kinds of ends.
    pub fn draw(draw: &mut Draw) -> Self {
        let kinds = (0..draw.size(1, 3)).map(|_| draw.pick(&END_KINDS)).collect();
        Self { kinds, pause: draw.ms(3_000, 40_000) }
    }

    /// In some worlds with aims whose callers only change and watch a tree, sessions are handed over
    /// again and again. Recipes that use a session would keep it.
    pub fn hand_trees_over(plan: &mut Plan, program: &mut Program, seed: u64) {
        let is_of_tree = |job: &Job| matches!(job, Job::Tree | Job::Cache);
        let Some(mut aim) = aim(plan, &Draw::new(seed), "trees that are handed over") else {
            return;
        };
        if !program.tasks().flatten().all(is_of_tree) || !aim.chance(HEIRS_PERCENT) {
            return;
        }
        for task in program.clients.iter_mut().flatten().filter(|jobs| !jobs.is_empty()) {
            *task = vec![Job::Tree];
        }
        program.ends = Some(Self { kinds: vec![EndKind::HandOver], pause: aim.ms(1_000, 8_000) });
        plan.has_watchers = true;
    }

    /// Lets clients end, one after the other, until the faults stop.
    pub async fn happen(self, world: Arc<World>, tasks: Vec<usize>, mut draw: Draw) {
        loop {
            let longest = u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX);
            let pause = draw.ms(longest / 10, longest);
            let left = world.plan.calm_at.saturating_sub(world.history.now());
            world.sleep(pause.min(left)).await;
            if pause >= left {
                return;
            }
            let number = draw.size(0, tasks.len().saturating_sub(1));
            let draw = draw.fork();
            let ends_in_calls = world.plan.has_rows || world.plan.has_aims;
            if ends_in_calls && draw.clone().chance(60) {
                after_a_begin(&world, number, draw.clone()).await;
            }
            // A client without tasks is left out.
            let (Some((client, life)), Some(task)) = (world.clients.get(number), tasks.get(number))
            else {
                continue;
            };
            let (who, world) = (Who { client: number, task: *task }, Arc::clone(&world));
            let (drops, drops_nothing) = (0, false);
            let mut task =
                Task { world, client, life, who, draw, drops, drops_nothing, is_patient: false };
            let kind = task.draw.pick(&self.kinds);
            task.world.note_end(who, &task.client, &task.life);
            let life = task.life.place();
            task.push(What::Renewed { life });
            task.push(What::Ending { kind, life });
            if task.world.plan.has_aims && task.client.state() != SessionState::Connected {
                task.push(What::EndsEarly);
            }
            match kind {
                EndKind::Close => close(task, None).await,
                EndKind::CloseWithin => {
                    let mut limit = task.draw.ms(1, 10_000);
                    if let Some(mut aim) = task.aim("a close before a reply")
                        && aim.chance(50)
                    {
                        // What is with the servers then has no outcome.
                        limit = Duration::from_millis(aim.between(0, 2 * round_trip(&task.world)));
                    }
                    close(task, Some(limit)).await;
                }
                EndKind::Drop => drop_all(task),
                EndKind::HandOver => {
                    if task.aims("a hand-over right after an event", 50) {
                        let left = task.world.plan.calm_at.saturating_sub(task.world.history.now());
                        within(CALL_AWAITED.min(left), task.life.told()).await;
                    }
                    hand_over(task).await;
                }
            }
        }
    }
}

/// Waits for a call of the client, so that the client ends in the middle of it.
async fn after_a_begin(world: &World, client: usize, mut draw: Draw) {
    let left = world.plan.calm_at.saturating_sub(world.history.now());
    within(CALL_AWAITED.min(left), world.trouble.begun(client)).await;
    let later = draw.between(0, 3 * round_trip(world));
    world.sleep(Duration::from_millis(later)).await;
}

/// Returns how many milliseconds a write takes at most once there are no faults.
fn round_trip(world: &World) -> u64 {
    u64::try_from(world.plan.round_trip_max().as_millis()).unwrap_or(1)
}

/// Starts other clients in the places of those that have ended with their sessions.
#[derive(Debug)]
pub struct Heirs {
    draw: Draw,
    /// The number of tasks of each client. Who starts an heir has a number of its own.
    tasks: Vec<usize>,
    /// When an heir follows the client of this number.
    due: BTreeMap<usize, Duration>,
}

impl Heirs {
    /// Nobody has ended yet.
    pub fn new(world: &World, program: &Program) -> Self {
        let draw = Draw::new(world.plan.mortals.unwrap_or_default() ^ HEIR_SALT);
        let tasks = program.clients.iter().map(Vec::len).collect();
        Self { draw, tasks, due: BTreeMap::new() }
    }

    /// Looks who has ended, and lets an heir follow after a while.
    pub fn look(&mut self, world: &Arc<World>) {
        for (number, (client, life)) in world.clients.all() {
            let who = Who { client: number, task: self.tasks.get(number).copied().unwrap_or(0) };
            world.note_end(who, &client, &life);
            if !life.has_expired() {
                self.due.remove(&number);
                continue;
            }
            let now = world.history.now();
            let draw = &mut self.draw;
            let due = *self.due.entry(number).or_insert_with(|| now + draw.ms(1, HEIR_MS_MAX));
            if now < due {
                continue;
            }
            let (world, draw) = (Arc::clone(world), draw.fork());
            let (drops, drops_nothing) = (0, false);
            let mut task =
                Task { world, client, life, who, draw, drops, drops_nothing, is_patient: false };
            follow(&mut task, None);
        }
    }
}

/// Closes the client. Another one begins at once, or afterwards.
async fn close(mut task: Task, limit: Option<Duration>) {
    let (number, session) = (task.who.client, task.client.session_id());
    task.life.set_ending(true);
    let is_early = task.draw.chance(50);
    if is_early {
        follow(&mut task, None);
    }
    let client = task.client.clone();
    let closing = async {
        Ok::<_, HandOverError>(match limit {
            Some(limit) => client.close_within(limit).await,
            None => client.close().await,
        })
    };
    let called = task.call_to_end("close", &format!("client {number}"), closing).await;
    if let Called::Done(outcome) = called {
        closed(&task, session, outcome, limit.is_none());
    }
    if !is_early {
        follow(&mut task, None);
    }
}

/// Records what a client that says that it is closed has left.
fn closed(task: &Task, session: Option<SessionId>, outcome: CloseOutcome, is_over: bool) {
    if is_over || outcome == CloseOutcome::Closed {
        task.life.close();
    }
    task.world.registry.look();
    let alive = task.world.server.sessions();
    // A server that continues no session may have opened another one in its place, even while the
    // client was being closed.
    let is_replaced = !task.world.plan.resumes() && task.client.status().has_left_session();
    let is_alive = session.is_some_and(|session| alive.contains(&session)) && !is_replaced;
    // A session that began after the close is that of another client.
    let is_confirmed = outcome == CloseOutcome::Closed;
    task.push(What::HasClosed { session, is_confirmed, is_alive });
}

/// Lets all drop their handles of the client, in the middle of what they do.
fn drop_all(mut task: Task) {
    let world = Arc::clone(&task.world);
    if let Some(session) = task.client.session_id()
        && world.is_prompt(task.who.client, &task.client)
    {
        world.clients.abandon(session);
    }
    task.life.abandon();
    follow(&mut task, None);
}

/// Hands the session over to a new client, unless recipes still use it.
async fn hand_over(mut task: Task) {
    let number = task.who.client;
    task.life.set_ending(true);
    let client = task.client.clone();
    let handing = async {
        let handed = client.hand_over().await;
        if let Err(HandOverError::Unfinished { paths, .. }) = &handed {
            task.push(What::Unfinished { paths: paths.clone() });
        }
        handed
    };
    match task.call_to_end("hand_over", &format!("client {number}"), handing).await {
        Called::Done(ticket) => {
            handed_over(&task, &ticket);
            let session = ticket.session();
            follow(&mut task, Some(ticket));
            continued(&mut task, session).await;
        }
        Called::Failed(Failure::Unfinished, _) => {
            task.life.set_ending(false);
            task.push(What::GoesOn { life: task.life.place() });
        }
        Called::Failed(..) | Called::Dropped => close(task, None).await,
    }
}

/// Records what the client has left that nobody can delete any more.
fn handed_over(task: &Task, ticket: &SessionTicket) {
    task.life.close();
    task.world.registry.look();
    let ephemerals = task.world.server.ephemerals().into_iter();
    let of_recipes = ephemerals.filter(|(path, owner)| {
        // The programs create these without a recipe.
        let is_plain = path.starts_with(PLAIN) || path.contains(&format!("/{LEAF}"));
        *owner == ticket.session() && !is_plain
    });
    let left = of_recipes.map(|(path, _)| path).collect();
    task.push(What::HandedOver { session: ticket.session(), left });
}

/// Records whether the new client has the session of the old one, once it is connected.
async fn continued(task: &mut Task, session: SessionId) {
    task.renew();
    let limit = task.client.status().timeout;
    let since = task.world.history.now();
    while task.client.state() != SessionState::Connected {
        if task.world.history.now() >= since + limit {
            break;
        }
        task.world.sleep(Duration::from_millis(50)).await;
    }
    // Nobody can keep a session while no server is reached.
    if task.world.plan.faults.is_empty() && task.client.session_id() != Some(session) {
        task.push(What::NotContinued { session });
    }
}

/// Starts a client in the place of the one of this task, unless another one has followed it.
fn follow(task: &mut Task, ticket: Option<SessionTicket>) {
    if !task.life.bequeath() {
        return;
    }
    let number = task.who.client;
    let (builder, life) = task.world.builder(number, &mut task.draw, ticket);
    let Ok(client) = builder.start() else { unreachable!("the options are valid") };
    task.world.clients.put(number, client, life);
    task.push(What::Followed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run;

    #[test]
    fn trees_are_handed_over_in_some_worlds_with_aims_alone() {
        let is_drawn = |seed, has_aims, job| {
            let mut plan = Plan { has_aims, ..Plan::draw(&mut Draw::new(seed)) };
            let mut program = Program::draw(&mut Draw::new(seed));
            program.clients = vec![vec![vec![Job::Tree], vec![job]]];
            program.ends = None;
            Ends::hand_trees_over(&mut plan, &mut program, seed);
            program.ends.is_some() && program.tasks().flatten().all(|job| *job == Job::Tree)
        };
        assert!((0..100).any(|seed| is_drawn(seed, true, Job::Cache)));
        assert!((0..100).all(|seed| !is_drawn(seed, false, Job::Cache)));
        assert!((0..100).all(|seed| !is_drawn(seed, true, Job::Add)));
    }

    #[test]
    fn tasks_get_another_client_after_theirs_has_ended_with_its_session() {
        let is_stopped = |what: &What| matches!(what, What::Stopped { .. });
        let has = |events: &[crate::history::Event], of: fn(&What) -> bool| {
            events.iter().any(|event| of(&event.what))
        };
        let mut reports = (1..1_000).map(run);
        let report = reports.find(|report| has(&report.events, is_stopped)).unwrap();
        let stopped = report.events.iter().position(|event| is_stopped(&event.what)).unwrap();
        let after = report.events.get(stopped..).unwrap();
        assert!(has(after, |what| matches!(what, What::Followed)));
        assert!(has(after, |what| matches!(what, What::Renewed { .. })));
    }
}
