//! Uses of all kinds of locks.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zk_recipes::kind::{Fenced, Kind};
use zk_recipes::{
    Acquire, AtRiskPolicy, Election, ExclusiveLock, FairLock, Guard, LockError, LockState,
    MultiLock, NamedLocks, RwLock, Semaphore, TryAcquire,
};

use super::task::Task;
use crate::history::{Share, What};

/// The number of permits of the semaphore.
pub const PERMITS: u32 = 2;

/// The semaphore whose number of permits changes.
pub const RESIZED: &str = "/permits";
/// The number of permits that it has until somebody changes it, and the most that it ever has.
pub const RESIZED_MAX: u32 = 3;

/// The path of the exclusive lock.
pub const EXCLUSIVE: &str = "/exclusive/lock";

/// The kinds of locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each kind is used")]
pub enum LockKind {
    /// A fair lock.
    Fair,
    /// An exclusive lock.
    Exclusive,
    /// A read/write lock.
    ReadWrite,
    /// A semaphore.
    Semaphore,
    /// An election.
    Election,
    /// Two fair locks at once.
    Multi,
    /// A named lock.
    Named,
}

/// All kinds of locks.
pub(super) const LOCK_KINDS: [LockKind; 7] = [
    LockKind::Fair,
    LockKind::Exclusive,
    LockKind::ReadWrite,
    LockKind::Semaphore,
    LockKind::Election,
    LockKind::Multi,
    LockKind::Named,
];

/// An acquire that may give up at once if the lock is not free.
type Acquiring<K> = Pin<Box<dyn Future<Output = Result<Option<Guard<K>>, LockError>>>>;

/// Builds a lock of this kind, takes it, keeps it for a while and gives it back.
pub(super) async fn use_lock(task: &mut Task, kind: LockKind) {
    let client = task.client.clone();
    let check = task.draw.pick(&[Some(Duration::from_secs(30)), None]);
    let policy =
        task.draw.pick(&[AtRiskPolicy::GoOn, AtRiskPolicy::GoOn, AtRiskPolicy::TreatAsLost]);
    let path = task.draw.pick(&["/locks/a", "/locks/b"]);
    match kind {
        LockKind::Fair => {
            let built = FairLock::builder(&client, path)
                .and_then(|lock| lock.watch_check(check).at_risk(policy).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            take(task, path, Share::Alone, || lock.acquire(), || lock.try_acquire()).await;
        }
        LockKind::Exclusive => {
            let path = EXCLUSIVE;
            let built = ExclusiveLock::builder(&client, path)
                .and_then(|lock| lock.watch_check(check).at_risk(policy).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            take(task, path, Share::Alone, || lock.acquire(), || lock.try_acquire()).await;
        }
        LockKind::ReadWrite => {
            let path = "/rw";
            let built = RwLock::builder(&client, path)
                .and_then(|lock| lock.watch_check(check).at_risk(policy).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            if task.draw.chance(60) {
                let (acquire, attempt) = (|| lock.read(), || lock.try_read());
                take_unfenced(task, path, Share::Reader, acquire, attempt).await;
            } else {
                take(task, path, Share::Alone, || lock.write(), || lock.try_write()).await;
            }
        }
        LockKind::Semaphore => {
            let path = "/semaphore";
            let built = Semaphore::builder(&client, path)
                .and_then(|lock| lock.permits(PERMITS).watch_check(check).at_risk(policy).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            let share = Share::Permit(usize::try_from(PERMITS).unwrap_or(1));
            take_unfenced(task, path, share, || lock.acquire(), || lock.try_acquire()).await;
        }
        LockKind::Election => {
            let path = "/election";
            let built = Election::builder(&client, path)
                .and_then(|lock| lock.watch_check(check).at_risk(policy).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            if task.world.plan.is_mortal(task.who.client) && task.draw.chance(40) {
                return lead(task, path, &lock).await;
            }
            take(task, path, Share::Alone, || lock.campaign(), || lock.try_campaign()).await;
        }
        LockKind::Named => {
            let Ok(locks) = NamedLocks::new(&client, "/named") else {
                unreachable!("the path is valid")
            };
            let name = task.draw.pick(&["order/1", "order/2"]);
            let Ok(lock) = locks.lock(name) else { unreachable!("the name is valid") };
            let path = format!("/named/{name}");
            take(task, &path, Share::Alone, || lock.acquire(), || lock.try_acquire()).await;
        }
        LockKind::Multi => use_both(task).await,
    }
}

/// Leads again and again, until a body has come to its end.
async fn lead(task: &mut Task, name: &str, lock: &Election) {
    let longest = task.draw.pick(&[3_000, 40_000]);
    let duration = task.draw.ms(1, longest);
    let body_of = &*task;
    let leading = lock.run_while_leader(async |leadership| {
        let _kept = body_of.world.trouble.keep(leadership.path());
        let id = body_of.id();
        let is_held = leadership.state() == LockState::Held;
        let (path, token) = (leadership.path().to_owned(), leadership.fencing_token().get());
        let (lock, zxid) = (name.to_owned(), body_of.zxid());
        let (path, token, share) = (Some(path), Some(token), Share::Alone);
        body_of.push(What::Granted { lock, guard: id, share, path, token, is_held, zxid });
        let (session, is_held) =
            (body_of.leased(leadership.session()), body_of.reliance(leadership));
        body_of.register(name, id, share, session, is_held);
        body_of.hold_for(duration).await;
    });
    body_of.call_to_end("lead", name, leading).await;
    task.world.registry.look();
}

/// Takes a permit of the semaphore whose number changes, or changes the number.
pub(super) async fn use_permits(task: &mut Task) {
    let check = task.draw.pick(&[Some(Duration::from_secs(30)), None]);
    let built = Semaphore::builder(&task.client, RESIZED).and_then(|lock| {
        lock.permits(RESIZED_MAX).accept_stored_permits().watch_check(check).build()
    });
    let Ok(mut lock) = built else { unreachable!("the options are valid") };
    if task.draw.chance(75) {
        let share = Share::Permit(usize::try_from(RESIZED_MAX).unwrap_or(1));
        return take_unfenced(task, RESIZED, share, || lock.acquire(), || lock.try_acquire()).await;
    }
    let permits = task.draw.pick(&[1, 1, 2, RESIZED_MAX]);
    let (change, from) = (task.id(), task.zxid());
    task.push(What::Resizing { change, permits, from });
    let called = task.call("set_permits", RESIZED, None, lock.set_permits(permits)).await;
    if called.done().is_some() {
        task.push(What::Resized { change, to: task.zxid() });
    }
}

async fn take<K: Kind + Fenced>(
    task: &mut Task,
    name: &str,
    share: Share,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    let token = |guard: &Guard<K>| Some(guard.fencing_token().get());
    take_with(task, name, share, token, acquire, attempt).await;
}

async fn take_unfenced<K: Kind>(
    task: &mut Task,
    name: &str,
    share: Share,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    take_with(task, name, share, |_| None, acquire, attempt).await;
}

async fn take_with<K: Kind>(
    task: &mut Task,
    name: &str,
    share: Share,
    token: impl Fn(&Guard<K>) -> Option<i64>,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    let timeout = task.timeout();
    let (what, acquiring): (_, Acquiring<K>) = if task.draw.chance(20) {
        let mut attempt = attempt();
        if let Some(timeout) = timeout {
            attempt = attempt.timeout(timeout);
        }
        ("try_acquire", Box::pin(attempt.into_future()))
    } else {
        let mut acquire = acquire();
        if let Some(timeout) = timeout {
            acquire = acquire.timeout(timeout);
        }
        let acquiring = acquire.into_future();
        ("acquire", Box::pin(async move { acquiring.await.map(Some) }))
    };
    let Some(Some(guard)) = task.call(what, name, timeout, acquiring).await.done() else { return };
    let _kept = task.world.trouble.keep(guard.path());
    let id = task.id();
    let is_held = guard.state() == LockState::Held;
    let (lock, path) = (name.to_owned(), Some(guard.path().to_owned()));
    let (token, zxid) = (token(&guard), task.zxid());
    task.push(What::Granted { lock, guard: id, share, path, token, is_held, zxid });
    let (session, is_held) = (task.leased(guard.session()), task.reliance(&guard));
    task.register(name, id, share, session, is_held);
    keep(task, name, &guard).await;
    if task.draw.chance(80) {
        task.call("release", name, None, guard.release()).await;
    } else {
        drop(guard);
    }
    task.world.registry.look();
}

async fn keep<K: Kind>(task: &mut Task, name: &str, guard: &Guard<K>) {
    match task.draw.between(0, 3) {
        0 => {
            task.call("validate", name, None, guard.validate()).await;
            task.hold().await;
        }
        1 => {
            // The body ends early if the lock is lost.
            let is_done = guard.run(task.hold_by_clock()).await.is_ok();
            // No time has passed since then.
            if is_done && matches!(guard.state(), LockState::Lost(_)) {
                task.push(What::Late { lock: name.to_owned() });
            }
        }
        _ => task.hold().await,
    }
}

/// Takes both fair locks at once.
async fn use_both(task: &mut Task) {
    let paths = ["/locks/a", "/locks/b"];
    let [Ok(a), Ok(b)] = paths.map(|path| FairLock::new(&task.client, path)) else {
        unreachable!("the paths are valid")
    };
    let Ok(both) = MultiLock::builder().with(&b).with(&a).build() else {
        unreachable!("the locks are different")
    };
    let timeout = task.timeout();
    let acquire = match timeout {
        Some(timeout) => both.acquire().timeout(timeout),
        None => both.acquire(),
    };
    let called = task.call("acquire", "both", timeout, acquire.into_future()).await;
    let Some(guard) = called.done() else { return };
    // No time has passed since then.
    if matches!(guard.state(), LockState::Lost(_)) {
        task.push(What::GrantedLost { locks: paths });
    }
    let kept = Arc::new(Mutex::new(Some(guard)));
    let take =
        move |kept: &Mutex<Option<_>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    for path in paths {
        let id = task.id();
        let asked = Arc::clone(&kept);
        let is_held = move || {
            let guard = asked.lock().unwrap_or_else(PoisonError::into_inner);
            guard.as_ref().map(|guard: &zk_recipes::MultiGuard| guard.state() == LockState::Held)
        };
        let (lock, share, is_held_now) = (path.to_owned(), Share::Alone, is_held() == Some(true));
        task.push(What::Granted {
            lock,
            guard: id,
            share,
            path: None,
            token: None,
            is_held: is_held_now,
            zxid: task.zxid(),
        });
        task.register(path, id, share, None, is_held);
    }
    task.hold().await;
    let Some(guard) = take(&kept) else { return };
    if task.draw.chance(80) {
        task.call("release", "both", None, guard.release()).await;
    } else {
        drop(guard);
    }
    task.world.registry.look();
}
