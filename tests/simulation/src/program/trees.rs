//! Paths that are created with their ancestors, and subtrees that are deleted while others create
//! in them.

use std::time::Duration;

use zk_recipes::{CreateMode, Multi, Tree};

use super::task::{Called, Task};
use crate::history::{Failure, TreeCall, TreeEnd, What};

/// The znode above all that these programs create and delete.
pub const FOREST: &str = "/forest";
/// Two names of which one begins with the other.
const NAMES: [&str; 3] = ["a", "ab", "b"];
/// The beginning of the names of znodes that a plain create makes, once each.
pub const LEAF: &str = "leaf-";
/// The beginning of the names of subtrees that one caller creates, and deletes again.
pub const WIDE: &str = "wide-";
/// The number of directories in such a subtree.
pub const DIRECTORIES: usize = 24;
/// How long a caller does nothing after it has deleted many znodes.
const REST: Duration = Duration::from_secs(1);

/// Creates a path, a leaf or a wide subtree, or deletes a subtree.
pub(super) async fn use_tree(task: &mut Task) {
    match task.draw.between(0, 9) {
        0..=3 => ensure(task).await,
        4 | 5 => plant_leaf(task).await,
        6..=8 => {
            let path = draw_path(task);
            let limit = task.timeout();
            delete(task, path, limit).await;
        }
        _ => delete_wide(task).await,
    }
}

/// Draws a path of the forest. Most are not far below its root, where all meet.
fn draw_path(task: &mut Task) -> String {
    let mut path = FOREST.to_owned();
    for _ in 0..task.draw.pick(&[0, 1, 1, 2, 2, 3, 4]) {
        path = format!("{path}/{}", task.draw.pick(&NAMES));
    }
    path
}

async fn ensure(task: &mut Task) {
    let (path, limit) = (draw_path(task), task.timeout());
    let mut tree = Tree::of(&task.client);
    if task.draw.chance(30) {
        tree = tree.containers();
    }
    if let Some(limit) = limit {
        tree = tree.timeout(limit);
    }
    let id = begin(task, TreeCall::Ensure, &path);
    let called = task.call("ensure", &path, limit, tree.ensure(&path)).await;
    end(task, id, called, |()| 0);
}

async fn plant_leaf(task: &mut Task) {
    let path = format!("{}/{LEAF}{}", draw_path(task), task.id());
    let limit = task.timeout();
    let mode = task.draw.pick(&[CreateMode::Persistent, CreateMode::Ephemeral]);
    let mut create = task.client.create(&path, "leaf", mode);
    if let Some(limit) = limit {
        create = create.timeout(limit);
    }
    let told = task.call("create", &path, limit, create).await.told();
    task.push(What::Wrote { path, told });
}

async fn delete(task: &mut Task, path: String, limit: Option<Duration>) {
    let mut tree = Tree::of(&task.client);
    if let Some(limit) = limit {
        tree = tree.timeout(limit);
    }
    let id = begin(task, TreeCall::Delete, &path);
    let mut most = 0;
    let mut is_monotonic = true;
    let deleting = tree.delete_with_progress(&path, |deleted| {
        is_monotonic &= deleted >= most;
        most = deleted;
    });
    let called = task.call("delete_tree", &path, limit, deleting).await;
    // The last number of the progress is the result.
    end(task, id, called, |count| if is_monotonic && most == count { count } else { u64::MAX });
}

/// Creates a subtree of many small directories, which nobody else uses, and deletes it.
async fn delete_wide(task: &mut Task) {
    let path = format!("{FOREST}/{WIDE}{}", task.id());
    if !has_forest(task).await {
        return;
    }
    let mut multi = Multi::new().create(&path, "", CreateMode::Persistent);
    for directory in 0..DIRECTORIES {
        let directory = format!("{path}/{directory}");
        multi = multi.create(&directory, "", CreateMode::Persistent);
        multi = multi.create(&format!("{directory}/x"), "", CreateMode::Persistent);
    }
    let creating = task.client.commit(multi);
    if let Called::Done(_) = task.call("create", &path, None, creating).await {
        delete(task, path, None).await;
        task.rest(REST).await;
    }
}

/// Makes sure that the root of the forest exists. Returns whether it does.
async fn has_forest(task: &mut Task) -> bool {
    let id = begin(task, TreeCall::Ensure, FOREST);
    let tree = Tree::of(&task.client);
    let called = task.call("ensure", FOREST, None, tree.ensure(FOREST)).await;
    let is_done = matches!(called, Called::Done(()));
    end(task, id, called, |()| 0);
    is_done
}

fn begin(task: &Task, call: TreeCall, path: &str) -> u64 {
    let (tree, from) = (task.id(), task.zxid());
    task.push(What::TreeBegun { tree, call, path: path.to_owned(), from });
    tree
}

fn end<T>(task: &Task, tree: u64, called: Called<T>, count: impl FnOnce(T) -> u64) {
    let end = match called {
        Called::Done(value) => TreeEnd::Done(count(value)),
        Called::Failed(Failure::Refused(code), _) => TreeEnd::Refused(code),
        // Requests that were sent may still be applied.
        Called::Failed(..) | Called::Dropped => return,
    };
    task.push(What::TreeEnded { tree, end, to: task.zxid() });
}
