//! Uses of all kinds of locks.

use std::cell::Cell;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use zk_recipes::kind::{Fenced, Kind};
use zk_recipes::{
    Acquire, AtRiskPolicy, Election, ExclusiveLock, FairLock, Guard, LockError, LockState,
    MultiLock, NamedLocks, RwLock, Semaphore, SessionState, TryAcquire,
};
use zk_tests::options::Drawn;

use super::task::{Called, Task};
use super::unasked;
use crate::history::{Failure, Share, What};
use crate::world::World;
use crate::world::kinds::WorldKind;
use crate::world::registry::{Guarded, Standing};

/// The number of permits of the semaphore.
pub const PERMITS: u32 = 2;

/// The semaphore whose number of permits changes.
pub const RESIZED: &str = "/permits";
/// The number of permits that it has until somebody changes it, and the most that it ever has.
pub const RESIZED_MAX: u32 = 3;

/// How many uses of it change that number in worlds of relays, in percent.
const RESIZED_PERCENT: u64 = 60;

/// The semaphore with more permits than a waiter watches znodes for.
pub const WIDE: &str = "/wide";
/// The number of its permits.
pub const WIDE_PERMITS: u32 = 17;

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

/// How long a holder waits between two releases where holders give permits back one by one.
const BETWEEN_RELEASES_MS: (u64, u64) = (8_000, 40_000);
/// How long it takes at most until those who wait for the loss of a lock know that it was released.
const UNHEARD_MAX: Duration = Duration::from_secs(1);
/// How long a candidate pauses at least before it campaigns again after a loss.
const TERM_PAUSE: Duration = Duration::from_millis(200);
/// The root of some handles, below which both fair locks are.
pub const ROOT: &str = "/locks";
/// How many multi-locks have a part that was built from a handle with this root, in percent.
const ROOTED_PERCENT: u64 = 40;
/// How many holders prove their lock only after they have kept it, in percent, and how many of these
/// as soon as it is in doubt.
const LATE_PERCENT: u64 = 60;
const DOUBTED_PERCENT: u64 = 30;
/// How often a holder looks whether its lock is in doubt.
const DOUBT_INTERVAL: Duration = Duration::from_millis(50);
/// How many guards that treat risk as loss are kept without being asked, in percent.
const UNASKED_PERCENT: u64 = 25;
/// The usual policy.
const GO_ON: AtRiskPolicy = AtRiskPolicy::GoOn;

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
    let options = Drawn::new(&mut task.draw).or_check(task.check_least());
    let policy = options.at_risk;
    let path = task.draw.pick(&["/locks/a", "/locks/b"]);
    match kind {
        LockKind::Fair => {
            let mut used = Use::of(path, Share::Alone, policy);
            let (mut face, mut own) = (client, path);
            // A handle with another root speaks of the same lock.
            if task.aside().chance(30)
                && let (Ok(rooted), Some(rest)) = (face.rooted_at(ROOT), path.strip_prefix(ROOT))
            {
                (face, own, used.root) = (rooted, rest, ROOT);
            }
            let built = FairLock::builder(&face, own).and_then(|lock| options.set(lock).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            take(task, &used, || lock.acquire(), || lock.try_acquire()).await;
        }
        LockKind::Exclusive => {
            let path = EXCLUSIVE;
            let built =
                ExclusiveLock::builder(&client, path).and_then(|lock| options.set(lock).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            take(
                task,
                &Use::of(path, Share::Alone, policy),
                || lock.acquire(),
                || lock.try_acquire(),
            )
            .await;
        }
        LockKind::ReadWrite => {
            let path = "/rw";
            let built = RwLock::builder(&client, path).and_then(|lock| options.set(lock).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            if task.draw.chance(60) {
                let (acquire, attempt) = (|| lock.read(), || lock.try_read());
                take_unfenced(task, &Use::of(path, Share::Reader, policy), acquire, attempt).await;
            } else {
                take(
                    task,
                    &Use::of(path, Share::Alone, policy),
                    || lock.write(),
                    || lock.try_write(),
                )
                .await;
            }
        }
        LockKind::Semaphore => {
            let path = "/semaphore";
            let built = Semaphore::builder(&client, path)
                .and_then(|lock| options.set(lock.permits(PERMITS)).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            let share = Share::Permit(usize::try_from(PERMITS).unwrap_or(1));
            take_unfenced(
                task,
                &Use::of(path, share, policy),
                || lock.acquire(),
                || lock.try_acquire(),
            )
            .await;
        }
        LockKind::Election => {
            let path = "/election";
            let built = Election::builder(&client, path).and_then(|lock| options.set(lock).build());
            let Ok(lock) = built else { unreachable!("the options are valid") };
            if task.aside().chance(10) {
                return ask_for_the_leader(task, path, &lock).await;
            }
            let percent = if task.world.plan.has_aims { 70 } else { 40 };
            let leads = task.world.plan.is_mortal(task.who.client) && task.draw.chance(percent);
            if leads || task.aside().chance(15) {
                return lead(task, path, &lock).await;
            }
            take(
                task,
                &Use::of(path, Share::Alone, policy),
                || lock.campaign(),
                || lock.try_campaign(),
            )
            .await;
        }
        LockKind::Named => {
            let Ok(locks) = NamedLocks::new(&client, "/named") else {
                unreachable!("the path is valid")
            };
            let name = task.draw.pick(&["order/1", "order/2"]);
            let Ok(lock) = locks.lock(name) else { unreachable!("the name is valid") };
            let path = format!("/named/{name}");
            take(
                task,
                &Use::of(&path, Share::Alone, GO_ON),
                || lock.acquire(),
                || lock.try_acquire(),
            )
            .await;
        }
        LockKind::Multi => use_both(task).await,
    }
}

/// Asks once who leads.
async fn ask_for_the_leader(task: &mut Task, name: &str, lock: &Election) {
    let called = task.call_within("leader", name, lock.leader()).await;
    if let Some(leader) = called.done().flatten() {
        task.push(What::Named { path: leader.path });
    }
}

/// Leads again and again, until a body has come to its end.
async fn lead(task: &mut Task, name: &str, lock: &Election) {
    let longest = task.draw.pick(&[3_000, 40_000]);
    let duration = task.draw.ms(1, longest);
    let (body_of, ran_lost) = (&*task, Cell::new(false));
    let (ended, hurried) = (Cell::new(None), Cell::new(false));
    let leading = lock.run_while_leader(async |leadership| {
        if body_of.leads_too_soon(ended.take()) {
            hurried.set(true);
        }
        let _ended = Ended { task: body_of, at: &ended };
        let _kept = body_of.world.trouble.keep(leadership.path());
        let id = body_of.id();
        let is_held = body_of.is_promised(leadership.state());
        let (path, token) = (leadership.path().to_owned(), leadership.fencing_token().get());
        let (lock, zxid) = (name.to_owned(), body_of.zxid());
        let (path, token, share) = (Some(path), Some(token), Share::Alone);
        body_of.push(What::Granted { lock, guard: id, share, path, token, is_held, zxid });
        let leased = body_of.leased(leadership.session());
        let znode = Some((leadership.path().to_owned(), token));
        let guarded =
            Guarded { lock: name, guard: id, share, leased, znode, is_lost_at_risk: false };
        body_of.register(guarded, body_of.reliance(leadership));
        let mut working = pin!(body_of.hold_for(duration));
        poll_fn(|cx| {
            // Nothing else runs between the look of the library at its lock and this one.
            if matches!(leadership.state(), LockState::Lost(_)) {
                ran_lost.set(true);
            }
            working.as_mut().poll(cx)
        })
        .await;
    });
    body_of.call_to_end("lead", name, leading).await;
    if hurried.get() {
        task.push(What::Hurried { lock: name.to_owned() });
    }
    if ran_lost.get() {
        task.push(What::RanLost { lock: name.to_owned() });
    }
    task.world.registry.look();
}

/// When a leadership has ended, and on which connection.
type EndOfTerm = Option<(Duration, u64)>;

/// Notes when the body of a leader ends, or is dropped.
struct Ended<'a> {
    task: &'a Task,
    at: &'a Cell<EndOfTerm>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let connection = self.task.connection();
        self.at.set(connection.map(|connection| (self.task.world.history.now(), connection)));
    }
}

impl Task {
    /// Returns the number of the connection of the client, if it has one.
    fn connection(&self) -> Option<u64> {
        let status = self.client.status();
        (status.state == SessionState::Connected).then_some(status.connection)
    }

    /// Returns whether a leadership that begins now follows another one without a pause. After a
    /// reconnect, nobody need pause.
    fn leads_too_soon(&self, ended: EndOfTerm) -> bool {
        ended.is_some_and(|(at, connection)| {
            let pause = self.world.history.now() - at;
            pause < TERM_PAUSE && self.connection() == Some(connection)
        })
    }
}

/// Takes a permit of the semaphore whose number changes, or changes the number.
pub(super) async fn use_permits(task: &mut Task) {
    let check =
        task.draw.pick(&[Some(Duration::from_secs(30)), None]).or_else(|| task.check_least());
    let built = Semaphore::builder(&task.client, RESIZED).and_then(|lock| {
        lock.permits(RESIZED_MAX).accept_stored_permits().watch_check(check).build()
    });
    let Ok(mut lock) = built else { unreachable!("the options are valid") };
    let is_relay = task.world.plan.kinds.is_relay;
    let acquires = if is_relay { 100 - RESIZED_PERCENT } else { 75 };
    if task.draw.chance(acquires) {
        let share = Share::Permit(usize::try_from(RESIZED_MAX).unwrap_or(1));
        let (acquire, attempt) = (|| lock.acquire(), || lock.try_acquire());
        return take_unfenced(task, &Use::of(RESIZED, share, GO_ON), acquire, attempt).await;
    }
    let permits = if is_relay {
        task.draw.pick(&[1, RESIZED_MAX])
    } else {
        task.draw.pick(&[1, 1, 2, RESIZED_MAX])
    };
    let (change, from) = (task.id(), task.zxid());
    task.push(What::Resizing { change, permits, from });
    let called = task.call_within("set_permits", RESIZED, lock.set_permits(permits)).await;
    if called.done().is_some() {
        task.push(What::Resized { change, to: task.zxid() });
    }
}

/// Takes several permits of the wide semaphore, and gives them back.
pub(super) async fn crowd(task: &mut Task) {
    let built = Semaphore::builder(&task.client, WIDE)
        .and_then(|lock| lock.permits(WIDE_PERMITS).watch_check(task.check_least()).build());
    let Ok(lock) = built else { unreachable!("the options are valid") };
    let share = Share::Permit(usize::try_from(WIDE_PERMITS).unwrap_or(1));
    let is_slow = task.world.plan.is_of(WorldKind::Crowded);
    let mut kept = Vec::new();
    for _ in 0..task.draw.size(3, 9) {
        // All may wait for each other.
        let limit = if is_slow { task.long_timeout(100) } else { task.draw.ms(100, 20_000) };
        let acquire = lock.acquire().timeout(limit).into_future();
        let Some(guard) = task.call("acquire", WIDE, Some(limit), acquire).await.done() else {
            break;
        };
        let (id, zxid) = (task.id(), task.zxid());
        let is_held = task.is_promised(guard.state());
        let (name, path) = (WIDE.to_owned(), Some(guard.path().to_owned()));
        let token = None;
        task.push(What::Granted { lock: name, guard: id, share, path, token, is_held, zxid });
        let leased = task.leased(guard.session());
        let znode = Some((guard.path().to_owned(), None));
        let guarded =
            Guarded { lock: WIDE, guard: id, share, leased, znode, is_lost_at_risk: false };
        task.register(guarded, task.reliance(&guard));
        kept.push((task.world.trouble.keep(guard.path()), guard));
    }
    task.hold().await;
    for (index, (_kept, guard)) in kept.into_iter().enumerate() {
        if is_slow && index > 0 && !task.is_calm() {
            // Somebody else can learn of each of them.
            let pause = task.draw.ms(BETWEEN_RELEASES_MS.0, BETWEEN_RELEASES_MS.1);
            task.hold_for(pause).await;
        }
        task.call_within("release", WIDE, guard.release()).await;
    }
    task.world.registry.look();
}

/// What a caller takes.
#[derive(Clone, Copy)]
struct Use<'a> {
    name: &'a str,
    share: Share,
    policy: AtRiskPolicy,
    /// The root of the handle from which the lock was built.
    root: &'static str,
}

impl<'a> Use<'a> {
    fn of(name: &'a str, share: Share, policy: AtRiskPolicy) -> Self {
        Self { name, share, policy, root: "" }
    }
}

async fn take<K: Kind + Fenced>(
    task: &mut Task,
    used: &Use<'_>,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    let token = |guard: &Guard<K>| Some(guard.fencing_token().get());
    take_with(task, used, token, acquire, attempt).await;
}

async fn take_unfenced<K: Kind>(
    task: &mut Task,
    used: &Use<'_>,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    take_with(task, used, |_| None, acquire, attempt).await;
}

async fn take_with<K: Kind>(
    task: &mut Task,
    used: &Use<'_>,
    token: impl Fn(&Guard<K>) -> Option<i64>,
    acquire: impl Fn() -> Acquire<K>,
    attempt: impl Fn() -> TryAcquire<K>,
) {
    let Use { name, share, policy, root } = *used;
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
    let called = task.call(what, name, timeout, acquiring).await;
    tell_loss(task, name, &called);
    let Some(Some(guard)) = called.done() else { return };
    let at = format!("{root}{}", guard.path());
    let _kept = task.world.trouble.keep(&at);
    let id = task.id();
    let is_held = task.is_promised(guard.state());
    let (lock, path) = (name.to_owned(), Some(at.clone()));
    let (token, zxid) = (token(&guard), task.zxid());
    task.push(What::Granted { lock, guard: id, share, path, token, is_held, zxid });
    let leased = task.leased(guard.session());
    let znode = Some((at.clone(), token));
    let is_lost_at_risk = policy == AtRiskPolicy::TreatAsLost;
    let guarded = Guarded { lock: name, guard: id, share, leased, znode, is_lost_at_risk };
    let is_unasked = is_lost_at_risk
        && guarded.leased.is_some()
        && guard.state() == LockState::Held
        && task.aims("a guard that nobody asks", UNASKED_PERCENT);
    if is_unasked {
        unasked::keep(task, name, &guard).await;
    } else {
        task.register(guarded, task.reliance(&guard));
        if task.world.registry.is_shy() {
            task.hold().await;
            task.world.registry.ask();
        } else {
            keep(task, name, &guard, (at, token)).await;
        }
    }
    let lost = guard.lost();
    if task.draw.chance(80) {
        task.call_within("release", name, guard.release()).await;
    } else {
        drop(guard);
    }
    task.world.registry.look();
    // Whoever waits for the loss is told that there is nothing left to lose.
    if tokio::time::timeout(UNHEARD_MAX, lost).await.is_err() {
        task.push(What::Unheard { lock: name.to_owned() });
    }
}

/// Records that a caller was told of the loss of a lock that nothing can have taken away.
fn tell_loss<T>(task: &Task, name: &str, called: &Called<T>) {
    let is_lost = matches!(called, Called::Failed(Failure::Lost(_), _));
    if is_lost && task.stays_leased() {
        task.push(What::LostForNothing { lock: name.to_owned() });
    }
}

async fn keep<K: Kind>(
    task: &mut Task,
    name: &str,
    guard: &Guard<K>,
    znode: (String, Option<i64>),
) {
    let (path, token) = znode;
    match task.draw.between(0, 3) {
        0 => {
            let aim = task.aim("a late proof");
            let late = aim
                .and_then(|mut aim| aim.chance(LATE_PERCENT).then(|| aim.chance(DOUBTED_PERCENT)));
            if let Some(until_doubted) = late {
                // By now the lock may have been lost, and somebody else may have it.
                let world = Arc::clone(&task.world);
                tokio::select! {
                    biased;
                    () = task.hold() => {}
                    () = doubted(&world, guard), if until_doubted => {}
                }
            }
            let from = task.zxid();
            if task.call_within("validate", name, guard.validate()).await.done().is_some() {
                let (lock, to) = (name.to_owned(), task.zxid());
                task.push(What::Validated { lock, path, token, from, to });
            }
            if late.is_none() {
                task.hold().await;
            }
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

/// Waits until a guard does not say *held* any more.
async fn doubted<K: Kind>(world: &World, guard: &Guard<K>) {
    while guard.state() == LockState::Held {
        world.sleep(DOUBT_INTERVAL).await;
    }
}

/// Takes both fair locks at once.
async fn use_both(task: &mut Task) {
    let paths = ["/locks/a", "/locks/b"];
    let part = |path: &'static str, is_rooted: bool| {
        let root = if is_rooted { ROOT } else { "" };
        let face = if is_rooted { task.client.rooted_at(root) } else { Ok(task.client.clone()) };
        face.and_then(|face| FairLock::new(&face, path.strip_prefix(root).unwrap_or(path)))
    };
    // One of them may speak of the same lock by a handle with another root.
    let aim = task.aim("a part with a root");
    let rooted = aim.and_then(|mut aim| aim.chance(ROOTED_PERCENT).then(|| aim.pick(&paths)));
    let [Ok(a), Ok(b)] = paths.map(|path| part(path, rooted == Some(path))) else {
        unreachable!("the paths are valid")
    };
    let (first, last) = if task.aside().chance(50) { (&a, &b) } else { (&b, &a) };
    let Ok(both) = MultiLock::builder().with(first).with(last).build() else {
        unreachable!("the locks are different")
    };
    let timeout = task.timeout();
    let acquire = match timeout {
        Some(timeout) => both.acquire().timeout(timeout),
        None => both.acquire(),
    };
    let called = task.call("acquire", "both", timeout, acquire.into_future()).await;
    tell_loss(task, "both", &called);
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
            guard.as_ref().map(|guard: &zk_recipes::MultiGuard| Standing::from(guard.state()))
        };
        let is_held_now = is_held().is_some_and(|standing| standing.is_relied_on);
        let (lock, share) = (path.to_owned(), Share::Alone);
        task.push(What::Granted {
            lock,
            guard: id,
            share,
            path: None,
            token: None,
            is_held: is_held_now,
            zxid: task.zxid(),
        });
        let (leased, znode) = (None, None);
        let guarded =
            Guarded { lock: path, guard: id, share, leased, znode, is_lost_at_risk: false };
        task.register(guarded, is_held);
    }
    task.hold().await;
    let Some(guard) = take(&kept) else { return };
    if task.draw.chance(80) {
        task.call_within("release", "both", guard.release()).await;
    } else {
        drop(guard);
    }
    task.world.registry.look();
}
