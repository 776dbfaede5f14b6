//! The run of a seed: the world, the program, the faults, the calm after them, and the verdict.

use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::task::{JoinSet, LocalSet};
use zk_recipes::{Client, Counter, WorkQueue};
use zk_testserver::{CommitRecord, RequestRecord};

use crate::draw::Draw;
use crate::history::{Event, TraceHash, What};
use crate::judges::patience::Patience;
use crate::judges::{self, Case, Violation};
use crate::program::{Program, barriers, queue, values};
use crate::world::World;
use crate::world::faults::afflict;
use crate::world::plan::Plan;

/// How often the guards are asked for their state, beside each grant.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// After how many of these looks somebody looks for what is overdue.
const LOOKS: u32 = 10;
/// How long nobody does anything before the clients close.
const QUIET: Duration = Duration::from_secs(60);
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
    /// The number of faults.
    pub faults: u64,
}

/// Runs a seed.
pub fn run(seed: u64) -> Report {
    catch_panics();
    drop(take_panics());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let Ok(runtime) = runtime else { unreachable!("a runtime without I/O needs no resources") };
    let local = LocalSet::new();
    runtime.block_on(local.run_until(run_world(seed)))
}

async fn run_world(seed: u64) -> Report {
    let mut draw = Draw::new(seed);
    let plan = Plan::draw(&mut draw.fork());
    let program = Program::draw(&mut draw.fork());
    let text = format!("{plan:#?}\n{program:#?}");
    let world = Arc::new(World::start(plan, program.clients.len(), &mut draw.fork()));
    let mut options = draw.fork();
    let clients: Vec<Client> =
        (0..program.clients.len()).filter_map(|it| world.client(it, &mut options).ok()).collect();

    let mut tasks = program.start(&world, &clients, &mut draw.fork());
    let mut observers = JoinSet::new();
    let (watched, asked) = (Arc::clone(&world), clients.clone());
    let patience = judges::liveness::patience(&world.plan);
    let mut patience = Patience::new(patience, program.shared_directories());
    observers.spawn_local(async move {
        let mut round = None;
        loop {
            for _ in 0..LOOKS {
                watched.sleep(LOOK_INTERVAL).await;
                watched.registry.look();
                let now = barriers::last_round(&watched).filter(|(number, _)| *number > 0);
                if now != round
                    && let Some((number, round)) = now.clone()
                {
                    watched.history.note(What::Formed { number, round });
                }
                round = now;
            }
            watched.look_for_the_overdue(&asked, &mut patience);
        }
    });
    let (afflicted, faults) = (Arc::clone(&world), draw.fork());
    let mut afflicting = JoinSet::new();
    afflicting.spawn_local(async move { afflict(&afflicted, faults).await });

    let count = afflicting.join_next().await.and_then(Result::ok).unwrap_or_default();
    let bound = judges::liveness::bound(&world.plan, &program);
    within(bound, join_all(&mut tasks.workers)).await;
    // A connection may be dead, and its client notices that after a while. Followers go on until
    // then.
    world.sleep(bound).await;
    for finish in tasks.finish.drain(..) {
        // A follower that has failed does not wait.
        let _ = finish.send(());
    }
    within(bound, join_all(&mut tasks.followers)).await;
    // A call that has not ended is a violation, and its task ends here.
    tasks.workers.shutdown().await;
    tasks.followers.shutdown().await;
    observers.shutdown().await;
    // Cleanup goes on in the background, and then there is silence.
    world.sleep(bound).await;
    let quiet_from = world.history.now();
    world.sleep(QUIET).await;
    let quiet = quiet_from..world.history.now();
    inspect(&world, &program).await;
    close(&world, clients).await;
    judge(seed, text, &world, &program, count, quiet)
}

/// Reads what the recipes have stored, with a client of its own.
async fn inspect(world: &World, program: &Program) {
    use crate::program::Job;
    let Ok(client) = world.observer() else { unreachable!("the options are valid") };
    let has = |job: Job| program.clients.iter().flatten().flatten().any(|other| *other == job);
    let reading = async {
        if has(Job::Put) || has(Job::Take) {
            drain(world, &client).await;
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
async fn close(world: &World, clients: Vec<Client>) {
    world.history.note(What::Closing);
    for client in clients {
        within(CLOSE_MAX, client.close()).await;
    }
    // Sessions that have ended without a close leave with their timeout.
    world.sleep(CLOSE_MAX).await;
    for (path, owner) in world.server.ephemerals() {
        world.history.note(What::Left { path: format!("{path} of {owner}") });
    }
}

fn judge(
    seed: u64,
    plan: String,
    world: &World,
    program: &Program,
    faults: u64,
    quiet: Range<Duration>,
) -> Report {
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
    let deleted = world.strangers.deleted();
    let case = Case {
        plan: &world.plan,
        program,
        events: &events,
        requests: &requests,
        commits: &commits,
        deleted: &deleted,
        quiet,
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

async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
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
