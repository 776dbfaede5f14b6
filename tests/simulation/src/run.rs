//! The run of a seed: the world, the program, the faults, the calm after them, and the verdict.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use std::ops::Range;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use jute_codec::SessionId;
use tokio::task::{JoinSet, LocalSet};
use zk_recipes::{Client, Counter, WorkQueue};
use zk_testserver::{CommitRecord, RequestRecord};

use crate::cuts::Cuts;
use crate::draw::Draw;
use crate::history::{Event, TraceHash, What};
use crate::judges::checks::Checks;
use crate::judges::far::Far;
use crate::judges::patience::Patience;
use crate::judges::{self, Case, Violation};
use crate::logs::Log;
use crate::program::ends::{Ends, Heirs};
use crate::program::{Program, barriers, focus, locks, queue, values};
use crate::world::World;
use crate::world::faults::{Struck, afflict, afflict_again};
use crate::world::plan::{AIMS_FROM, PERMISSIONS_FROM, Plan, ROWS_FROM, SURPRISES_FROM};

/// How often the guards are asked for their state, beside each grant.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// After how many of these looks somebody looks for what is overdue.
const LOOKS: u32 = 10;
/// How long nobody does anything before the clients close.
const QUIET: Duration = Duration::from_secs(60);
/// How many more steps tasks have if they hurry.
const HASTY_STEPS: u64 = 4;

/// How long the programs of a quiet world run at least.
const QUIET_MIN: Duration = Duration::from_secs(60);
/// How long a cache takes to check all znodes of the tree, of which there are 11: one after the other, in
/// intervals of up to 37.5 s. What it could not read it tries again within a minute, which may come first.
const CHECKS: Duration = Duration::from_millis(13 * 37_500);
/// How long a client may take to close.
const CLOSE_MAX: Duration = Duration::from_secs(120);

/// What has happened in a run.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs read it")]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What was drawn, for people.
    pub plan: String,
    /// What the callers were told.
    pub events: Vec<Event>,
    /// What the servers have received.
    pub requests: Vec<RequestRecord>,
    /// The clients of the sessions.
    pub sessions: BTreeMap<SessionId, usize>,
    /// What the servers have committed.
    pub commits: Vec<CommitRecord>,
    /// What the judges have found.
    pub violations: Vec<Violation>,
    /// The hash of the events, the requests and the commits.
    pub hash: u64,
    /// The virtual time that has passed.
    pub virtual_time: Duration,
    /// The number of calls of the library.
    pub operations: u64,
    /// What went wrong.
    pub faults: Vec<Struck>,
}

impl Report {
    /// Returns the numbers of the faults.
    pub fn fault_numbers(&self) -> Vec<u64> {
        let number = |event: &Event| match &event.what {
            What::Fault { number, .. } => Some(*number),
            _ => None,
        };
        self.events.iter().filter_map(number).collect()
    }
}

/// Runs a seed.
pub fn run(seed: u64) -> Report {
    start(seed, &Cuts::default(), None)
}

/// Runs a seed without what is left out.
pub fn run_cut(seed: u64, cuts: &Cuts) -> Report {
    if cuts.is_empty() { run(seed) } else { run_again(seed, cuts, &run(seed).faults) }
}

/// Runs a seed again without what is left out. These are the faults of the whole seed.
pub fn run_again(seed: u64, cuts: &Cuts, faults: &[Struck]) -> Report {
    start(seed, cuts, Some(faults.to_vec()))
}

fn start(seed: u64, cuts: &Cuts, faults: Option<Vec<Struck>>) -> Report {
    Log::accustom();
    catch_panics();
    drop(take_panics());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else { unreachable!("a runtime without I/O needs no resources") };
    let local = LocalSet::new();
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let run = runtime.block_on(local.run_until(run_world(seed, cuts, faults, log)));
        let memory = allocation_counter::measure(|| {
            runtime.block_on(local.run_until(run.world.sleep(QUIET)));
        });
        runtime.block_on(local.run_until(end(run, memory.count_current)))
    })
}

/// Draws the world and the program of a run, without what is left out.
pub fn drawn(seed: u64, draw: &mut Draw, cuts: &Cuts) -> (Plan, Program) {
    let mut plan = Plan::draw(&mut draw.fork());
    let mut program = Program::draw(&mut draw.fork());
    if let Some(seed) = plan.blind {
        program.look_at_secrets(seed);
    }
    if seed >= ROWS_FROM {
        plan.draw_rows(seed);
    }
    plan.has_aims = seed >= AIMS_FROM;
    plan.end_more_sessions();
    if let Some(moves) = &mut program.moves {
        moves.hurry(&plan, seed);
    }
    if let Some(seed) = plan.focus {
        focus::narrow(&mut plan, &mut program, seed);
    }
    if seed >= PERMISSIONS_FROM {
        plan.draw_permissions(seed);
    }
    if seed >= SURPRISES_FROM {
        plan.draw_surprises(seed);
    }
    Ends::hand_trees_over(&mut plan, &mut program, seed);
    if plan.has_aims {
        plan.draw_aims(&mut program, seed);
    }
    if !plan.resumes() {
        program.avoid_what_keepers_lack();
    }
    if plan.blind.is_none() {
        program.settle(draw);
    }
    if plan.has_aims {
        plan.draw_kinds(&mut program, seed);
    }
    if plan.is_hasty {
        program.steps *= HASTY_STEPS;
    }
    if program.is_quiet {
        plan.faults.clear();
        plan.calm_at = plan.calm_at.max(QUIET_MIN);
    }
    plan.draw_impatience(seed);
    cuts.apply(&mut plan, &mut program);
    plan.is_steady = plan.could_be_steady() && program.moves.is_none();
    plan.is_followed = program.moves.is_some_and(|moves| moves.is_published);
    (plan, program)
}

async fn run_world(seed: u64, cuts: &Cuts, faults: Option<Vec<Struck>>, log: Log) -> Run {
    let mut draw = Draw::new(seed);
    let (plan, program) = drawn(seed, &mut draw, cuts);
    let text = format!("{plan:#?}\n{program:#?}");
    let world = Arc::new(World::start(plan, program.clients.len(), &mut draw.fork()));
    log.write_to(&world.history, &world.server);
    let mut options = draw.fork();
    for number in 0..program.clients.len() {
        let (builder, life) = world.builder(number, &mut options, None);
        if program.uses(number) {
            let Ok(client) = builder.start() else { unreachable!("the options are valid") };
            world.clients.put(number, client, life);
        }
    }
    let mut tasks = program.start(&world, &mut draw.fork());
    let mut observers = JoinSet::new();
    let watched = Arc::clone(&world);
    let patience = judges::liveness::patience(&world.plan);
    let mut patience = Patience::new(patience, program.shared_directories());
    let (mut far, mut checks) = (Far::default(), Checks::default());
    let mut heirs = Heirs::new(&world, &program);
    observers.spawn_local(async move {
        let mut round = None;
        loop {
            for _ in 0..LOOKS {
                watched.sleep(LOOK_INTERVAL).await;
                watched.registry.look();
                watched.permissions.give_back_what_is_due(&watched);
                watched.note_sessions();
                heirs.look(&watched);
                let now = barriers::last_round(&watched).filter(|(number, _)| *number > 0);
                if now != round
                    && let Some((number, round)) = now.clone()
                {
                    watched.history.note(What::Formed { number, round });
                }
                round = now;
            }
            watched.look_for_the_overdue(&mut patience, &mut far, &mut checks);
        }
    });
    let (afflicted, draw, cuts) = (Arc::clone(&world), draw.fork(), cuts.clone());
    let mut afflicting = JoinSet::new();
    afflicting.spawn_local(async move {
        match faults {
            Some(faults) => afflict_again(&afflicted, &cuts, &faults).await,
            None => afflict(&afflicted, draw).await,
        }
    });

    let faults = afflicting.join_next().await.and_then(Result::ok).unwrap_or_default();
    let bound = judges::liveness::bound(&world.plan, &program);
    within(bound, join_all(&mut tasks.workers)).await;
    within(bound, join_all(&mut tasks.ending)).await;
    // A connection may be dead, and its client notices that after a while. Followers go on until
    // then.
    world.sleep(bound).await;
    if program.waits_for_checks(&world.plan) {
        world.sleep(CHECKS).await;
    }
    for finish in tasks.finish.drain(..) {
        // A follower that has failed does not wait.
        let _ = finish.send(());
    }
    within(bound, join_all(&mut tasks.followers)).await;
    // A call that has not ended is a violation, and its task ends here.
    tasks.workers.shutdown().await;
    tasks.ending.shutdown().await;
    tasks.followers.shutdown().await;
    observers.shutdown().await;
    // Cleanup goes on in the background, and then there is silence.
    world.sleep(bound).await;
    let quiet_from = world.history.now();
    Run { seed, text, world, program, faults, quiet_from }
}

/// A run before its quiet time.
struct Run {
    seed: u64,
    text: String,
    world: Arc<World>,
    program: Program,
    faults: Vec<Struck>,
    quiet_from: Duration,
}

/// Ends a run after its quiet time, in which this many allocations were made that are still live.
async fn end(run: Run, grown: i64) -> Report {
    let quiet = run.quiet_from..run.world.history.now();
    inspect(&run.world, &run.program).await;
    close(&run.world).await;
    judge(run, quiet, grown)
}

/// Reads what the recipes have stored, with a client of its own.
async fn inspect(world: &World, program: &Program) {
    use crate::program::Job;
    let Ok(client) = world.observer() else { unreachable!("the options are valid") };
    let has = |job: Job| program.has(job);
    let reading = async {
        if has(Job::Put) || has(Job::Take) || has(Job::Options) {
            drain(world, &client).await;
        }
        let stored = world.server.data(locks::RESIZED);
        if let Some(stored) = stored.and_then(|data| std::str::from_utf8(&data).ok()?.parse().ok())
        {
            world.history.note(What::Permits { stored });
        }
        if has(Job::Add)
            && let Ok(counter) = Counter::new(&client, values::COUNTER)
            && let Ok(sum) = counter.get().await
        {
            world.history.note(What::Total { counter: values::COUNTER.to_owned(), sum });
        }
    };
    within(CLOSE_MAX, reading).await;
    client.close().await;
}

/// Takes all that is left in the queue, as a caller would.
async fn drain(world: &World, client: &Client) {
    let Ok(all) = WorkQueue::new(client, queue::QUEUE) else { unreachable!("the path is valid") };
    let queue = queue::QUEUE.to_owned();
    loop {
        match all.try_take().await {
            Ok(Some(leased)) => {
                let item = String::from_utf8_lossy(leased.data()).into_owned();
                world.history.note(What::Remaining { queue: queue.clone(), item });
                if leased.ack().await.is_err() {
                    return;
                }
            }
            Ok(None) => return world.history.note(What::Drained { queue }),
            Err(_) => return,
        }
    }
}

/// Closes the clients, and records what they leave behind.
async fn close(world: &World) {
    for (number, (client, _)) in world.clients.all() {
        // A session that is ending has its last words elsewhere.
        if let Some(expected) = world.expected().filter(|_| world.is_prompt(number, &client)) {
            let found = client.health().config.map(|version| version.0);
            if found != Some(expected) {
                world.history.note(What::Outdated { client: number, found, expected });
            }
        }
    }
    // All calls have ended long ago, and all handles are dropped, so nothing settles any more. But a client
    // that has handed its session over has left its markers to the next one, which does not know them.
    let events = world.history.events();
    let handed_over = events.iter().filter_map(|event| match &event.what {
        What::HandedOver { left, .. } => Some(left),
        _ => None,
    });
    let handed_over: BTreeSet<&String> = handed_over.flatten().collect();
    for (path, owner) in world.server.ephemerals() {
        if is_of_call(&path) && !handed_over.contains(&path) {
            world.history.note(What::Left { path: format!("{path} of {owner}") });
        }
    }
    world.history.note(What::Closing);
    for (client, _) in world.clients.all().into_values() {
        within(CLOSE_MAX, client.close()).await;
    }
    world.clients.clear();
    // Sessions that have ended without a close leave with their timeout.
    world.sleep(CLOSE_MAX).await;
    for (path, owner) in world.server.ephemerals() {
        world.history.note(What::Left { path: format!("{path} of {owner}") });
    }
}

/// Returns whether an ephemeral znode exists only for a call, a guard or a lease: it is a marker, a
/// contender or the lease of an item.
fn is_of_call(path: &str) -> bool {
    let is_below =
        |directory: &str| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    is_below(values::MARKERS)
        || is_below(&format!("{}/taken", queue::QUEUE))
        || path == locks::EXCLUSIVE
        || judges::turns::parse(path).is_some()
}

fn judge(run: Run, quiet: Range<Duration>, grown: i64) -> Report {
    let Run { seed, text: plan, world, program, faults, .. } = run;
    for message in take_panics() {
        world.history.note(What::Panicked(message));
    }
    let (events, mut requests) = (world.history.events(), world.server.requests());
    for request in &mut requests {
        request.at = world.plan.true_time(request.at);
    }
    let commits = world.server.commits();
    let mut hash = TraceHash::new();
    events.iter().for_each(|event| hash.add(event));
    requests.iter().for_each(|request| hash.add(request));
    commits.iter().for_each(|commit| hash.add(commit));
    let (deleted, traffic) = (world.strangers.deleted(), world.network.traffic());
    let arrivals = world.network.arrivals();
    let sessions = world.sessions();
    let case = Case {
        plan: &world.plan,
        program: &program,
        events: &events,
        requests: &requests,
        commits: &commits,
        sessions: &sessions,
        traffic: &traffic,
        arrivals: &arrivals,
        deleted: &deleted,
        quiet,
        grown,
    };
    let violations = judges::judge(&case);
    let is_call = |event: &&Event| matches!(event.what, What::Begun { .. });
    let operations = events.iter().filter(is_call).count() as u64;
    let virtual_time = world.history.now();
    let hash = hash.get();
    Report {
        seed,
        plan,
        events,
        requests,
        sessions,
        commits,
        violations,
        hash,
        virtual_time,
        operations,
        faults,
    }
}

async fn join_all(tasks: &mut JoinSet<()>) {
    // A panic was recorded by the hook.
    while tasks.join_next().await.is_some() {}
}

pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

thread_local! {
    /// The panics of this thread, which runs everything of a seed, since they were taken last.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the messages of panics, which are violations, and prints nothing.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_simulated = tokio::runtime::Handle::try_current().is_ok();
            if !is_simulated {
                return usual(info);
            }
            let message = message_of(info.payload());
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            PANICS.with_borrow_mut(|panics| panics.push(format!("{place}: {message}")));
        }));
    });
}

fn take_panics() -> Vec<String> {
    PANICS.take()
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn znodes_of_calls_are_told_from_others() {
        let of_calls = [
            "/markers/marker-1",
            "/queue/taken/entry-100-0000000001",
            "/exclusive/lock",
            "/locks/a/0123-lock-0000000001",
        ];
        assert!(of_calls.iter().all(|path| is_of_call(path)));
        let others = ["/plain-7", "/settled/own-7-0000000001", "/tree/1", "/group/a", "/markers"];
        assert!(!others.iter().any(|path| is_of_call(path)));
    }
}
