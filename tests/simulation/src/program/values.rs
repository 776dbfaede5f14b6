//! Uses of a counter and of a shared value, and operations without a recipe.

use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{
    Cache, Client, Counter, CreateMode, Multi, SessionState, SettledClient, SharedValue,
};

use zk_session::Limits;

use super::bulk::CREATES_MAX;
use super::newer;
use super::task::{Called, Task, together};
use crate::history::{Failure, Piped, Told, What};
use crate::world::Watched;
use crate::world::trouble::{ViewOf, znode_text};

/// The path of the counter.
pub const COUNTER: &str = "/values/counter";
/// The path of the shared value.
pub const VALUE: &str = "/values/shared";
/// The directory that caches follow.
pub const TREE: &str = "/tree";
/// The beginning of the paths of znodes that no other call uses.
pub const PLAIN: &str = "/plain-";
/// The directory of the markers of settled operations.
pub const MARKERS: &str = "/markers";

/// How many creates that could be sent in any session are bound to one, in percent. Between the call
/// and the choice of its session, there is a pause in which the session may end.
const BOUND_PERCENT: u64 = 40;

/// In how many steps callers that create znodes ask what old servers do not know instead, in percent.
const NEWER_PERCENT: u64 = 25;
/// A znode of the tree that often has children.
const PARENT: &str = "/tree/1";
/// How many changes of one path follow each other at most, where all watches are at that path.
const CHANGES_MAX: usize = 6;
/// How many watches are kept for long where they overlap, in percent, and for how many milliseconds.
/// That is longer than it takes until a missing event is noticed.
const LONG_PERCENT: u64 = 40;
const LONG_MS: (u64, u64) = (20_000, 40_000);

/// Adds a number to the counter.
pub async fn add(task: &mut Task) {
    let timeout = task.timeout();
    let built = Counter::builder(&task.client, COUNTER).and_then(|counter| match timeout {
        Some(timeout) => counter.timeout(timeout).build(),
        None => counter.build(),
    });
    let Ok(counter) = built else { unreachable!("the options are valid") };
    let delta = i64::try_from(task.draw.between(1, 1_000)).unwrap_or(1);
    let told = task.call("add", COUNTER, timeout, counter.add(delta)).await.told();
    task.push(What::Added { counter: COUNTER.to_owned(), delta, told });
}

/// Reads, sets or updates the shared value.
pub async fn share(task: &mut Task) {
    let timeout = task.timeout();
    let built = SharedValue::builder(&task.client, VALUE).and_then(|value| match timeout {
        Some(timeout) => value.timeout(timeout).build(),
        None => value.build(),
    });
    let Ok(value) = built else { unreachable!("the options are valid") };
    match task.draw.between(0, 2) {
        0 => drop(task.call("get", VALUE, timeout, value.get()).await),
        1 => drop(task.call("set", VALUE, timeout, value.set("set")).await),
        _ => {
            let update = value.update(|bytes| [&**bytes, b"+"].concat().into());
            drop(task.call("update", VALUE, timeout, update).await);
        }
    }
}

/// Creates a znode whose path no other call uses, or asks what old servers do not know.
pub async fn create(task: &mut Task) {
    if task.world.plan.resumes() && task.aims("newer operations", NEWER_PERCENT) {
        return newer::ask(task).await;
    }
    let id = task.id();
    let path = format!("{PLAIN}{id}");
    let timeout = task.timeout();
    if id.is_multiple_of(2) {
        return create_settled(task, path, timeout).await;
    }
    let is_bound = (task.world.plan.is_hasty && task.draw.chance(50))
        || task.aims("a create in one session", BOUND_PERCENT);
    if is_bound && let Some(session) = task.client.session_id() {
        return create_in(task, path, session).await;
    }
    let mode = task.draw.pick(&[CreateMode::Persistent, CreateMode::Ephemeral]);
    let mut create = task.client.create(&path, "created", mode);
    if let Some(timeout) = timeout {
        create = create.timeout(timeout);
    }
    let told = task.call("create", &path, timeout, create).await.told();
    task.push(What::Wrote { path, told });
}

/// Creates a znode by a call that repeats its request.
async fn create_settled(task: &mut Task, path: String, timeout: Option<Duration>) {
    let Ok(settled) = SettledClient::new(&task.client, MARKERS) else {
        unreachable!("the path is valid")
    };
    let mode = task.draw.pick(&[CreateMode::Persistent, CreateMode::Ephemeral]);
    let session = task.client.session_id();
    if let Some(session) = session.filter(|_| mode == CreateMode::Ephemeral)
        && task.client.state() == SessionState::Connected
    {
        // It is created in this session or not at all.
        task.push(What::Bound { path: path.clone(), session });
    }
    let create = settled.create(&path, "created", mode);
    let create = if let Some(timeout) = timeout { create.timeout(timeout) } else { create };
    let told = task.call("create_settled", &path, timeout, create).await.told();
    task.push(What::Wrote { path, told });
}

/// Creates a znode in this session only, which may end before the request is sent.
async fn create_in(task: &mut Task, path: String, session: SessionId) {
    task.idle().await;
    task.push(What::Bound { path: path.clone(), session });
    let multi = Multi::new().create(&path, "created", CreateMode::Ephemeral);
    let commit = task.client.commit_in(session, multi);
    let told = task.call("commit_in", &path, None, commit).await.told();
    task.push(What::Wrote { path, told });
}

/// Hands over several creates at once, perhaps with a handle that sends one at a time.
pub async fn pipe(task: &mut Task) {
    let is_single = task.draw.chance(50);
    let client = if is_single {
        task.client.with_limits(Limits::new().in_flight(1))
    } else {
        task.client.clone()
    };
    let paths: Vec<String> =
        (0..task.draw.size(2, CREATES_MAX)).map(|_| format!("{PLAIN}{}", task.id())).collect();
    let narrow = task.world.plan.kinds.narrow;
    let data = narrow.map_or_else(|| b"created".to_vec(), |narrow| vec![b'x'; narrow.size]);
    let timeouts: Vec<Option<Duration>> =
        paths.iter().map(|_| task.draw.chance(20).then(|| task.draw.ms(1, 2_000))).collect();
    let mut creates = Vec::new();
    for (path, timeout) in paths.iter().zip(timeouts) {
        let create = client.create(path, data.clone(), CreateMode::Persistent);
        let create = if let Some(timeout) = timeout { create.timeout(timeout) } else { create };
        creates.push(task.call_beside("create", path, timeout, create));
    }
    let ends = together(creates).await;
    for (path, called) in paths.iter().zip(&ends) {
        task.push(What::Wrote { path: path.clone(), told: called.told() });
    }
    let piped = ends.iter().map(|called| match called {
        Called::Failed(Failure::ConnectionLoss, Told::Unknown) => Piped::Lost,
        _ => Piped::Other,
    });
    let creates = paths.iter().cloned().zip(piped).collect();
    task.push(What::Piped { creates, is_single });
}

/// Changes something in the tree that caches follow, or watches it.
pub async fn change_tree(task: &mut Task) {
    if !task.world.plan.has_watchers || task.world.watched != Watched::One {
        return change_once(task).await;
    }
    for _ in 0..task.draw.size(1, CHANGES_MAX) {
        change_once(task).await;
        let pause = short_pause(task);
        task.rest(pause).await;
    }
}

/// Draws a pause that is about as long as a few round trips.
fn short_pause(task: &mut Task) -> Duration {
    let longest = 3 * task.world.plan.round_trip_max();
    task.draw.ms(0, u64::try_from(longest.as_millis()).unwrap_or(1).max(1))
}

async fn change_once(task: &mut Task) {
    let timeout = task.timeout();
    let client = timeout.map_or_else(|| task.client.clone(), |it| task.client.with_timeout(it));
    let path = match (task.draw.between(0, 4), task.world.watched) {
        (0 | 1, Watched::Two) if task.world.plan.has_watchers => TREE.to_owned(),
        (_, Watched::Two | Watched::One) if task.world.plan.has_watchers => format!("{TREE}/1"),
        (0, _) => TREE.to_owned(),
        (1, _) => format!("{TREE}/1"),
        (2, _) => format!("{TREE}/1/{}", task.draw.between(1, 4)),
        _ => format!("{TREE}/{}", task.draw.between(2, 6)),
    };
    if task.world.plan.has_watchers && task.draw.chance(40) {
        return watch_tree(task, &client, &path, timeout).await;
    }
    match task.draw.between(0, 3) {
        0 => {
            let deletion = client.delete(&path, None);
            task.call("delete", &path, timeout, deletion).await;
        }
        1 => {
            let write = client.set_data(&path, "written", None);
            task.call("set_data", &path, timeout, write).await;
        }
        _ => {
            let create = client.create(&path, "created", CreateMode::Persistent);
            task.call("create", &path, timeout, create).await;
        }
    }
}

/// Follows a part of the tree with a cache that is soon dropped.
async fn follow_briefly(task: &mut Task, path: &str) {
    let path = if task.world.watched == Watched::All { PARENT } else { path };
    let built = Cache::children(&task.client, path).build();
    let Ok(mut cache) = built else { unreachable!("the path is valid") };
    tokio::select! {
        biased;
        // Other caches are judged by what they show.
        _ = cache.complete() => {}
        () = keep_watch(task) => return,
    }
    keep_watch(task).await;
}

/// Keeps a watch for a drawn time. Some callers do so for long, and then it is known whether they
/// should have been told of something.
async fn keep_watch(task: &mut Task) {
    if task.world.watched == Watched::One {
        let pause = short_pause(task);
        return task.hold_for(pause).await;
    }
    if task.world.watched == Watched::Two && task.draw.chance(LONG_PERCENT) {
        let duration = task.draw.ms(LONG_MS.0, LONG_MS.1);
        return task.hold_for(duration).await;
    }
    task.hold().await;
}

/// Watches something in the tree that caches follow, sometimes with the same client.
async fn watch_tree(task: &mut Task, client: &Client, path: &str, timeout: Option<Duration>) {
    const NAME: &str = "read_and_watch";
    if task.aside().chance(25) {
        return follow_briefly(task, path).await;
    }
    let (of, watched) = match task.draw.between(0, 2) {
        0 => {
            let reading = client.get_data_and_watch(path);
            let read = task.call(NAME, path, timeout, reading).await.done();
            (ViewOf::Znode, read.map(|((_, stat), watcher)| (Some(stat), watcher)))
        }
        1 => {
            let reading = client.get_children_with_stat_and_watch(path);
            let read = task.call(NAME, path, timeout, reading).await.done();
            (ViewOf::Children, read.map(|((_, stat), watcher)| (Some(stat), watcher)))
        }
        _ => {
            let reading = client.exists_and_watch(path);
            (ViewOf::Znode, task.call(NAME, path, timeout, reading).await.done())
        }
    };
    let Some((stat, mut watcher)) = watched else { return };
    let shows = task.world.trouble.view(task.id(), of, task.who.client, &task.life);
    let (session, before) =
        (task.client.session_id(), stat.map(|stat| (stat.czxid.0, stat.mzxid.0)));
    let seen = stat.map(|stat| match of {
        ViewOf::Children => znode_text((stat.czxid.0, stat.pzxid.0)),
        _ => znode_text((stat.czxid.0, stat.mzxid.0)),
    });
    shows.show(path, Some(seen.unwrap_or_else(|| "nothing".to_owned())));
    // Servers do not tell this client of a znode that it may not read.
    shows.leave_alone(task.world.plan.is_blind(task.who.client));
    let is_told = tokio::select! {
        biased;
        // Whatever it is told, it has watched.
        event = watcher.changed() => event.is_ok(),
        () = keep_watch(task) => false,
    };
    drop(shows);
    if is_told {
        task.life.tell();
    }
    if is_told && of == ViewOf::Znode {
        let called = task.call_beside(NAME, path, timeout, client.exists(path)).await;
        let is_closed = matches!(called, Called::Failed(Failure::Closed, _));
        let mut read = called.done();
        if is_closed && task.world.plan.has_aims && task.renew() {
            // Another client goes on with the session.
            let client = task.client.clone();
            let client = timeout.map_or_else(|| client.clone(), |it| client.with_timeout(it));
            read = task.call_beside(NAME, path, timeout, client.exists(path)).await.done();
        }
        // A server may show an older state in the next session.
        if let Some(stat) = read
            && task.client.session_id() == session
        {
            let after = stat.map(|stat| (stat.czxid.0, stat.mzxid.0));
            task.push(What::ReadAgain { path: path.to_owned(), before, after });
        }
    }
}
