//! Caches that follow a tree until the end of the run.

use std::future::Future;
use std::pin::Pin;

use zk_recipes::{Cache, CacheEvent, CachedNode, SessionState};

use super::streams;
use super::task::{Called, Task};
use super::values::TREE;
use crate::history::{Copied, Id, News, What};
use crate::world::World;
use crate::world::plan::FaultKind;
use crate::world::trouble::{Shows, ViewOf, znode_text};

/// Follows a tree, records everything that the cache shows, and in the end, when nothing changes
/// any more, all of it. Returns whether the cache has ended before.
pub(super) async fn follow<F: Future<Output = ()>>(
    task: &mut Task,
    finished: &mut Pin<&mut F>,
) -> bool {
    let mut aside = task.aside();
    let (root, mut depth, mut builder) = if task.draw.chance(70) {
        (TREE, usize::MAX, Cache::tree(&task.client, TREE))
    } else {
        ("/tree/1", 1, Cache::children(&task.client, "/tree/1"))
    };
    if aside.chance(20) {
        depth = aside.size(0, 3);
        builder = builder.max_depth(depth);
    }
    if aside.chance(20) {
        builder = builder.reads_in_flight(aside.pick(&[1, 2, 200]));
    }
    let Ok(mut cache) = builder.build() else { unreachable!("the options are valid") };
    let (id, from) = (task.id(), task.zxid());
    let of = ViewOf::Tree(root, depth);
    let shows = task.world.trouble.view(id, of, task.who.client, &task.life);
    // Whoever may not read something, or is told so, reads it again later.
    let plan = &task.world.plan;
    let refuse = [FaultKind::Misreport, FaultKind::Refusal];
    let are_refused = plan.may_forbid() || plan.faults.iter().any(|it| refuse.contains(it));
    let reads_later = plan.blind.is_some() || are_refused;
    shows.leave_alone(reads_later);
    let is_polled = streams::is_polled(task);
    loop {
        // A task that is busy with something else leaves the cache alone for a while.
        if task.draw.chance(5) && !task.is_calm() {
            shows.leave_alone(true);
            task.hold().await;
            tell(task, id, News::Left);
            shows.leave_alone(reads_later);
        }
        let event = tokio::select! {
            biased;
            () = &mut *finished => break,
            () = task.life.abandoned() => return true,
            event = async {
                if is_polled { streams::next(&mut cache).await } else { cache.next().await }
            } => event,
        };
        match event {
            Ok(event) => show(task, id, &shows, event),
            Err(error) => {
                let called = task.call_to_end("next", root, async { Err::<(), _>(error) }).await;
                if is_polled {
                    streams::poll_after(task, "next", &called, &mut cache);
                } else if task.life.has_expired() {
                    // It has ended, and says so again.
                    task.call_to_end("next", root, cache.next()).await;
                    task.call_to_end("complete", root, cache.complete()).await;
                }
                return true;
            }
        }
    }
    // What the last changes have caused arrives within this time.
    let plan = &task.world.plan;
    let settled = plan.unapplied_max() + 4 * plan.round_trip_max() + plan.tick;
    let last = async {
        while let Ok(event) = tokio::time::timeout(settled, cache.next()).await {
            show(task, id, &shows, event?);
        }
        cache.complete().await
    };
    if let Called::Done(()) = task.call_to_end("complete", root, last).await {
        let shown: Vec<Copied> = cache.iter().map(|(path, node)| copied(path, node)).collect();
        let mut real = Vec::new();
        collect(&task.world, root, depth, &mut real);
        real.sort();
        if task.world.plan.is_blind(task.who.client) {
            // Servers do not tell this client of a znode that it may not read. It knows of one only
            // if the znode was there before, and then the cache is not complete.
            let is_shown = |path: &String| shown.iter().any(|(other, ..)| other == path);
            real.retain(|(path, czxid, _)| *czxid <= from || is_shown(path));
        }
        task.push(What::Copied { cache: id, root: root.to_owned(), shown, real });
    }
    false
}

fn show(task: &Task, cache: Id, shows: &Shows, event: CacheEvent) {
    let (path, node) = match event {
        CacheEvent::Added { path, node } | CacheEvent::Changed { path, node, .. } => {
            (path, Some(node))
        }
        CacheEvent::Removed { path, .. } => (path, None),
        CacheEvent::Gap => return tell(task, cache, News::Gap),
        CacheEvent::Complete => return tell(task, cache, News::Complete),
        CacheEvent::Unreadable { .. } => return tell(task, cache, News::Unreadable),
        _ => return,
    };
    let path = path.to_string();
    let state = node.map(|node| (node.stat.czxid.0, node.stat.mzxid.0));
    shows.show(&path, state.map(znode_text));
    task.push(What::Shown { cache, path, state });
}

/// Records what a cache tells about itself.
fn tell(task: &Task, cache: Id, news: News) {
    let status = task.client.status();
    // Some gaps are told when a connection ends, and concern the next one. A cache that is complete was so
    // on the last one, although its caller may learn of it later.
    let is_ahead = news == News::Gap && status.state != SessionState::Connected;
    let connection = status.connection + u64::from(is_ahead);
    task.push(What::CacheNews { cache, news, connection });
}

fn copied(path: &str, node: &CachedNode) -> Copied {
    (path.to_owned(), node.stat.czxid.0, node.stat.mzxid.0)
}

/// Collects what the leader has at this path, and below it.
pub fn collect(world: &World, path: &str, depth: usize, found: &mut Vec<Copied>) {
    let Some(stat) = world.server.stat(path) else { return };
    found.push((path.to_owned(), stat.czxid.0, stat.mzxid.0));
    if depth > 0 {
        for name in world.server.children(path).unwrap_or_default() {
            collect(world, &format!("{path}/{name}"), depth - 1, found);
        }
    }
}
