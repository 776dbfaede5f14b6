//! What the holder of a lock can do with it: nested acquires, downgrades, fenced transactions.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future as _, IntoFuture as _, poll_fn};
use std::pin::pin;
use std::sync::PoisonError;

use zk_recipes::{
    Client, CreateMode, FairLock, Guard, Holder, LockState, Multi, RwLock, SettledClient,
    kind::Kind, request_revocation,
};

use super::locks::ROOT;
use super::task::Task;
use super::values::MARKERS;
use crate::history::{Id, Share, What};
use crate::judges::liveness::patience;
use crate::judges::patience::ASKED;
use crate::judges::turns::parse;
use crate::world::plan::FaultKind;
use crate::world::registry::Guarded;
use crate::world::trouble::Kept;

/// The lock that programs of other kinds use too.
const LOCK: &str = "/locks/a";
const READ_WRITE: &str = "/rw";

/// How many uses of a guard in worlds with aims request the revocation of another one, in percent.
const ASKING_PERCENT: u64 = 30;

/// Takes a lock, and does something with its guard.
pub(super) async fn use_guard(task: &mut Task) {
    if task.aims("a request to revoke", ASKING_PERCENT) {
        return ask_a_waiter(task).await;
    }
    match task.draw.between(0, 3) {
        0 => nest(task).await,
        1 => downgrade(task).await,
        _ => write_fenced(task).await,
    }
}

/// Requests the revocation of a contender that waits: it finds the request when it has the lock.
async fn ask_a_waiter(task: &mut Task) {
    let children = task.world.server.children(LOCK).unwrap_or_default();
    let paths = children.iter().map(|name| format!("{LOCK}/{name}"));
    let numbered = paths.filter_map(|path| Some((parse(&path)?.1.number, path)));
    let contenders: BTreeSet<(u32, String)> = numbered.collect();
    let waiters: Vec<&String> = contenders.iter().skip(1).map(|(_, path)| path).collect();
    if waiters.is_empty() {
        return;
    }
    let path = task.draw.pick(&waiters);
    let client = task.client.clone();
    let asking = request_revocation(&client, path);
    if task.call("request_revocation", LOCK, None, asking).await.done() == Some(true) {
        let mut asked = task.world.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(path.clone());
    }
}

/// Acquires the fair lock, with a timeout or without.
async fn acquire(task: &mut Task) -> Option<Guard> {
    let Ok(lock) = FairLock::new(&task.client, LOCK) else { unreachable!("the path is valid") };
    let limit = task.timeout();
    let mut acquire = lock.acquire();
    if let Some(limit) = limit {
        acquire = acquire.timeout(limit);
    }
    task.call("acquire", LOCK, limit, acquire.into_future()).await.done()
}

/// Takes a lock, and runs a body under it that must not run while the lock is at risk.
pub(super) async fn run_body(task: &mut Task) {
    let Some(guard) = acquire(task).await else { return };
    let _kept = granted(task, LOCK, Share::Alone, Some(guard.fencing_token().get()), &guard);
    let longest = task.draw.pick(&[3_000, 20_000]);
    let duration = task.draw.ms(1, longest);
    let ran_at_risk = Cell::new(false);
    let body = async {
        let mut working = pin!(task.hold_for(duration));
        poll_fn(|cx| {
            // Nothing else runs between the look of the library at its lock and this one.
            if guard.state() != LockState::Held {
                ran_at_risk.set(true);
            }
            working.as_mut().poll(cx)
        })
        .await;
    };
    let run = guard.run(body).stop_at_risk();
    let is_done = task.call_to_end("run_body", LOCK, run).await.done().is_some();
    if ran_at_risk.get() {
        task.push(What::RanAtRisk { lock: LOCK.to_owned() });
    }
    if is_done && guard.state() != LockState::Held {
        task.push(What::Late { lock: LOCK.to_owned() });
    }
    task.call("release", LOCK, None, guard.release()).await;
    task.world.registry.look();
}

/// Records a guard that its caller has until the value that is returned is dropped.
fn granted<K: Kind>(
    task: &Task,
    name: &str,
    share: Share,
    token: Option<i64>,
    guard: &Guard<K>,
) -> Kept {
    let (id, is_held): (Id, _) = (task.id(), guard.state() == LockState::Held);
    let (lock, path) = (name.to_owned(), Some(guard.path().to_owned()));
    let zxid = task.zxid();
    task.push(What::Granted { lock, guard: id, share, path, token, is_held, zxid });
    let leased = task.leased(guard.session());
    let znode = Some((guard.path().to_owned(), token));
    let guarded = Guarded { lock: name, guard: id, share, leased, znode, is_lost_at_risk: false };
    task.register(guarded, task.reliance(guard));
    task.world.trouble.keep(guard.path())
}

/// Takes a lock twice, as one party, and gives both levels back in any order.
async fn nest(task: &mut Task) {
    let Ok(lock) = FairLock::new(&task.client, LOCK) else { unreachable!("the path is valid") };
    let holder = Holder::new(&lock);
    let limit = task.timeout();
    let acquire = || match limit {
        Some(limit) => holder.acquire().timeout(limit),
        None => holder.acquire(),
    };
    let acquired = task.call("acquire", LOCK, limit, acquire().into_future()).await;
    let Some(outer) = acquired.done() else { return };
    let _kept = granted(task, LOCK, Share::Alone, Some(outer.fencing_token().get()), &outer);
    let token = outer.fencing_token();
    task.hold_long().await;
    let was_lost = matches!(outer.state(), LockState::Lost(_));
    let acquired = task.call("acquire", LOCK, limit, acquire().into_future()).await;
    let Some(inner) = acquired.done() else { return };
    let is_same = inner.fencing_token() == token && holder.levels() == 2;
    task.push(What::Nested { lock: LOCK.to_owned(), is_same, was_lost });
    task.hold().await;
    let (first, last) = if task.draw.chance(50) { (inner, outer) } else { (outer, inner) };
    task.call("release", LOCK, None, first.release()).await;
    let is_same = last.fencing_token() == token;
    task.push(What::Nested { lock: LOCK.to_owned(), is_same, was_lost: false });
    task.hold().await;
    task.call("release", LOCK, None, last.release()).await;
    task.world.registry.look();
}

/// Takes the write lock, and turns it into a read lock.
pub(super) async fn downgrade(task: &mut Task) {
    let Ok(lock) = RwLock::new(&task.client, READ_WRITE) else { unreachable!("the path is valid") };
    let limit = task.timeout();
    let mut write = lock.write();
    if let Some(limit) = limit {
        write = write.timeout(limit);
    }
    let acquired = task.call("acquire", READ_WRITE, limit, write.into_future()).await;
    let Some(writer) = acquired.done() else { return };
    let token = Some(writer.fencing_token().get());
    let kept = granted(task, READ_WRITE, Share::Alone, token, &writer);
    task.hold().await;
    // The guard of the writer is gone from here on.
    let reader = task.call_within("downgrade", READ_WRITE, writer.downgrade()).await.done();
    task.world.registry.look();
    let Some(reader) = reader else { return };
    drop(kept);
    let _kept = granted(task, READ_WRITE, Share::Reader, None, &reader);
    task.hold().await;
    task.call_within("release", READ_WRITE, reader.release()).await;
    task.world.registry.look();
}

/// A client whose operations settle.
struct Settled {
    client: SettledClient,
    /// Its paths are below this one.
    root: &'static str,
}

impl Settled {
    /// A handle with another root names the same lock in its own way.
    fn of(client: &Client, is_rooted: bool) -> Self {
        let root = if is_rooted { ROOT } else { "" };
        let face = if is_rooted { client.rooted_at(root) } else { Ok(client.clone()) };
        let client = face.and_then(|face| SettledClient::new(&face, MARKERS));
        let Ok(client) = client else { unreachable!("the paths are valid") };
        Self { client, root }
    }
}

/// Takes a lock, and writes in transactions that only its holder may commit.
async fn write_fenced(task: &mut Task) {
    let Some(guard) = acquire(task).await else { return };
    let _kept = granted(task, LOCK, Share::Alone, Some(guard.fencing_token().get()), &guard);
    for _ in 0..task.draw.size(1, 3) {
        task.hold().await;
        let mut aside = task.aside();
        let settled = aside.chance(40).then(|| Settled::of(&task.client, aside.chance(50)));
        let (root, own) =
            (settled.as_ref().map_or("", |it| it.root), format!("/fenced-{}", task.id()));
        let path = format!("{root}{own}");
        let multi = Multi::new().create(&own, "fenced", CreateMode::Persistent);
        let (contender, token) = (guard.path().to_owned(), guard.fencing_token().get());
        task.push(What::Fenced { path: path.clone(), contender, token });
        if task.draw.chance(20) && task.expects(FaultKind::Deletion) {
            // The holder has had no time to notice it.
            task.world.strangers.delete_path(&task.world, guard.path());
        }
        let told = match settled {
            Some(Settled { client, .. }) => {
                let committing = client.commit_under(&guard, multi);
                task.call_within("commit_under", &path, committing).await.told()
            }
            None => task.call_within("transaction", &path, guard.transaction(multi)).await.told(),
        };
        task.push(What::Wrote { path, told });
    }
    let was_asked = {
        let asked = task.world.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.contains(guard.path())
    };
    if was_asked || task.draw.chance(30) {
        let is_asked = if was_asked {
            true
        } else {
            let (client, path) = (task.client.clone(), guard.path().to_owned());
            let asking = request_revocation(&client, &path);
            task.call("request_revocation", LOCK, None, asking).await.done() == Some(true)
        };
        // The holder need not notice it at once, and the znode may be gone.
        let asked = guard.revocation_requested();
        let waiting = task.id();
        let (on, who, life) = (guard.path(), task.who.client, task.life.clone());
        let is_held = guard.state() == LockState::Held;
        if is_asked && is_held {
            task.world.trouble.begin(waiting, ASKED, on, who, life);
        }
        let world = std::sync::Arc::clone(&task.world);
        let patience = patience(&world.plan) + std::time::Duration::from_secs(2);
        tokio::select! {
            biased;
            () = asked => {}
            () = task.hold_for(patience) => {}
        }
        task.world.trouble.end(waiting);
    }
    task.call("release", LOCK, None, guard.release()).await;
    task.world.registry.look();
}
