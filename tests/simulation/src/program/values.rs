//! Uses of a counter and of a shared value, and operations without a recipe.

use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{Client, Counter, CreateMode, Multi, SettledClient, SharedValue};

use super::task::Task;
use crate::history::What;

/// The path of the counter.
pub const COUNTER: &str = "/values/counter";
/// The path of the shared value.
pub const VALUE: &str = "/values/shared";
/// The directory that caches follow.
pub const TREE: &str = "/tree";
/// The directory of the markers of settled operations.
pub const MARKERS: &str = "/markers";

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

/// Creates a znode whose path no other call uses.
pub async fn create(task: &mut Task) {
    let id = task.id();
    let path = format!("/plain-{id}");
    let timeout = task.timeout();
    if id.is_multiple_of(2) {
        return create_settled(task, path, timeout).await;
    }
    if task.world.plan.is_hasty
        && task.draw.chance(50)
        && let Some(session) = task.client.session_id()
    {
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

/// Changes something in the tree that caches follow.
pub async fn change_tree(task: &mut Task) {
    let timeout = task.timeout();
    let client = timeout.map_or_else(|| task.client.clone(), |it| task.client.with_timeout(it));
    let path = match task.draw.between(0, 4) {
        0 => TREE.to_owned(),
        1 => format!("{TREE}/1"),
        2 => format!("{TREE}/1/{}", task.draw.between(1, 4)),
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

/// Watches something in the tree that caches follow, sometimes with the same client.
async fn watch_tree(task: &mut Task, client: &Client, path: &str, timeout: Option<Duration>) {
    const NAME: &str = "read_and_watch";
    let watcher = match task.draw.between(0, 2) {
        0 => {
            let reading = client.get_data_and_watch(path);
            task.call(NAME, path, timeout, reading).await.done().map(|(_, watcher)| watcher)
        }
        1 => {
            let reading = client.get_children_and_watch(path);
            task.call(NAME, path, timeout, reading).await.done().map(|(_, watcher)| watcher)
        }
        _ => {
            let reading = client.exists_and_watch(path);
            task.call(NAME, path, timeout, reading).await.done().map(|(_, watcher)| watcher)
        }
    };
    let Some(mut watcher) = watcher else { return };
    tokio::select! {
        biased;
        // Whatever it is told, it has watched.
        _ = watcher.changed() => {}
        () = task.hold() => {}
    }
}
