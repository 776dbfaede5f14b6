//! Locks with a holder and a waiter, and a task that observes them all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use zk_recipes::{Client, FairLock, Guard, LockError, LockState, LockStatus, Phase, Released};
use zk_tests::wait::{PATIENCE, catch_up, held_again, soon};

use super::seconds;

/// All locks, and their observer.
pub(super) struct Stands {
    all: Arc<Vec<Stand>>,
    waiters: Vec<JoinSet<Result<Guard, LockError>>>,
    seen: Arc<Mutex<Seen>>,
    looking: JoinSet<()>,
}

/// A lock, its holder and its waiter.
struct Stand {
    holder: Client,
    lock: FairLock,
    guard: Guard,
    /// The status of the waiter's lock, once its wait has ended.
    next: Arc<OnceLock<LockStatus>>,
    /// Paths of both znodes, in order.
    znodes: Vec<String>,
}

impl Stand {
    async fn take(
        index: usize,
        holder: &Client,
        waiter: &Client,
        waiting: &mut JoinSet<Result<Guard, LockError>>,
    ) -> Self {
        let path = format!("/locks/{index}");
        let lock = FairLock::new(holder, &path).unwrap();
        let guard = lock.acquire().timeout(PATIENCE).await.unwrap();
        assert!(guard.remaining().is_some(), "there is a lease by default");
        let (acquire, mut phases) = FairLock::new(waiter, &path).unwrap().acquire().phases();
        let next = Arc::new(OnceLock::new());
        let told = Arc::clone(&next);
        waiting.spawn(async move {
            let guard = acquire.await?;
            told.set(guard.status()).ok();
            Ok(guard)
        });
        soon("a place", async {
            while !matches!(phases.next().await, Some(Phase::Queued { .. })) {}
        })
        .await;
        let znodes = places(holder, &lock).await;
        assert!(znodes.len() == 2 && znodes[0] == guard.path(), "{znodes:?}");
        Self { holder: holder.clone(), lock, guard, next, znodes }
    }

    /// Returns the state of the waiter, if its wait has ended.
    fn next(&self) -> Option<LockState> {
        self.next.get().and_then(LockStatus::state)
    }
}

impl Stands {
    /// Acquires and queues for one lock per pair of a holder and a waiter.
    pub(super) async fn take(pairs: Vec<(Client, Client)>) -> Self {
        let (mut all, mut waiters) = (Vec::new(), Vec::new());
        for (index, (holder, waiter)) in pairs.into_iter().enumerate() {
            let mut waiting = JoinSet::new();
            all.push(Stand::take(index, &holder, &waiter, &mut waiting).await);
            waiters.push(waiting);
        }
        let all = Arc::new(all);
        let seen = Arc::new(Mutex::new(Seen::new(all.len())));
        let mut looking = JoinSet::new();
        looking.spawn(look(Arc::clone(&all), Arc::clone(&seen)));
        Self { all, waiters, seen, looking }
    }

    /// Starts new measurements. Recorded losses are kept.
    pub(super) fn begin_round(&self) {
        let mut seen = lock(&self.seen);
        let at_risk_since = std::mem::take(&mut seen.at_risk_since);
        let (lost, shared) = (std::mem::take(&mut seen.lost), std::mem::take(&mut seen.shared));
        *seen = Seen { at_risk_since, lost, shared, ..Seen::new(self.all.len()) };
    }

    /// Returns the observations since the round began.
    pub(super) fn seen(&mut self) -> Seen {
        assert!(self.looking.try_join_next().is_none(), "the observer has stopped");
        lock(&self.seen).clone()
    }

    /// Returns the locks whose holder or waiter has lost its place.
    pub(super) async fn displaced(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for stand in self.all.iter() {
            let (znodes, now) = (&stand.znodes, places(&stand.holder, &stand.lock).await);
            if stand.next.get().is_some() || now != *znodes {
                problems
                    .push(format!("{znodes:?} became {now:?}, {:?} for the next", stand.next()));
            }
        }
        problems
    }

    /// Lets every holder release its lock, and checks that the waiter gets the lock with the znode
    /// with which it waited.
    pub(super) async fn end(mut self) {
        self.looking.shutdown().await;
        let all = Arc::into_inner(self.all).expect("the observer has ended");
        for (stand, mut waiting) in all.into_iter().zip(self.waiters) {
            let Stand { guard, znodes, .. } = stand;
            held_again(&znodes[0], &guard).await;
            assert!(waiting.try_join_next().is_none(), "{} does not wait", znodes[1]);
            let token = guard.fencing_token();
            assert_eq!(soon("a release", guard.release()).await, Ok(Released::Released));
            let next = soon("a grant", waiting.join_next()).await.expect("it waits");
            let next = next.expect("the task does not panic").expect("the lock is granted");
            assert_eq!(next.path(), znodes[1]);
            assert!(next.fencing_token() > token, "{}", znodes[1]);
            assert_eq!(soon("a release", next.release()).await, Ok(Released::Released));
        }
    }
}

/// Returns the paths of the znodes of all contenders.
async fn places(client: &Client, lock: &FairLock) -> Vec<String> {
    soon("the commits of others", catch_up(client)).await;
    let contenders = soon("a look at the queue", lock.contenders()).await.unwrap();
    contenders.into_iter().map(|contender| contender.path).collect()
}

/// Observations of all guards.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    begin: Instant,
    /// When the observer noticed that a holder had lost its lock, and the state of the lock.
    lost: BTreeMap<usize, (Duration, LockState)>,
    /// Locks that another contender was granted before the holder had lost them.
    shared: BTreeSet<usize>,
    remaining_min: Vec<Duration>,
    at_risk_since: Vec<Option<Instant>>,
    at_risk_max: Duration,
    look_gap_max: Duration,
}

impl Seen {
    fn new(stands: usize) -> Self {
        Self {
            begin: Instant::now(),
            lost: BTreeMap::new(),
            shared: BTreeSet::new(),
            remaining_min: vec![Duration::MAX; stands],
            at_risk_since: vec![None; stands],
            at_risk_max: Duration::ZERO,
            look_gap_max: Duration::ZERO,
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let shared = self.shared.iter().map(|lock| format!("two have the lock {lock}"));
        let lost = self.lost.iter().map(|(lock, (after, state))| {
            format!("the holder of lock {lock} was {state:?} after {}", seconds(*after))
        });
        shared.chain(lost).collect()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, shared, .. } = self;
        write!(f, "{} of {} guards are lost", lost.len(), self.remaining_min.len())?;
        let times = || lost.values().map(|(after, _)| *after);
        if let (Some(first), Some(last)) = (times().min(), times().max()) {
            write!(f, " after {} to {}", seconds(first), seconds(last))?;
        }
        let others = self.remaining_min.iter().enumerate();
        let others = others.filter(|(index, _)| !lost.contains_key(index)).map(|(_, left)| *left);
        write!(
            f,
            ", {} remain for the others at least, at risk for {} at most, {} locks are shared; \
             looked at at least every {} ms",
            seconds(others.min().unwrap_or_default()),
            seconds(self.at_risk_max),
            shared.len(),
            self.look_gap_max.as_millis(),
        )
    }
}

async fn look(stands: Arc<Vec<Stand>>, seen: Arc<Mutex<Seen>>) {
    let mut last = Instant::now();
    loop {
        sleep(LOOK_INTERVAL).await;
        let mut seen = lock(&seen);
        seen.look_gap_max = seen.look_gap_max.max(last.elapsed());
        last = Instant::now();
        for (index, stand) in stands.iter().enumerate() {
            // The waiter is read first: if the holder's lock is not lost after that, it was not
            // lost before.
            let next = stand.next();
            let state = stand.guard.state();
            let is_lost = matches!(state, LockState::Lost(_));
            if next == Some(LockState::Held) && !is_lost {
                seen.shared.insert(index);
            }
            let remaining = stand.guard.remaining().unwrap_or_default();
            seen.remaining_min[index] = seen.remaining_min[index].min(remaining);
            let now = Instant::now();
            let since = now.saturating_duration_since(seen.begin);
            if is_lost {
                seen.lost.entry(index).or_insert((since, state));
            }
            let at_risk = seen.at_risk_since[index].filter(|_| state == LockState::AtRisk);
            seen.at_risk_since[index] =
                (state == LockState::AtRisk).then(|| at_risk.unwrap_or(now));
            let at_risk = at_risk.map_or(Duration::ZERO, |since| now - since);
            seen.at_risk_max = seen.at_risk_max.max(at_risk);
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("no thread panics while it has the lock")
}

const LOOK_INTERVAL: Duration = Duration::from_millis(20);
