//! Running attempts until one holds the lock.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jute_codec::{ErrorCode, Response};
use tokio::sync::watch;
use tracing::{debug, warn};
use zk_session::{Client, OpError, Slot, Time};

use super::{Fed, Feed, hold, release};
use crate::error::{LockError, LostReason};
use crate::guard::Guard;
use crate::machine::fair::Fair;
use crate::machine::queue;
use crate::machine::{
    Held, Input, PAUSE, Profile, Restart, Step, Verdict, flight, list, replayable,
};
use crate::phase::Phase;

/// Attempts that may lose their znode before the acquire gives up.
const ZNODES_LOST_MAX: u32 = 5;

/// What an acquire is about.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) client: Client,
    pub(crate) profile: Profile,
    /// When to give up.
    pub(crate) deadline: Option<Time>,
    /// Where to tell how it goes.
    pub(crate) phase: Option<Arc<watch::Sender<Phase>>>,
    pub(crate) watches_missed: Arc<AtomicU64>,
}

/// An attempt that hands over to the janitor when it is dropped, at any moment.
struct Attempt {
    /// Gone once the lock is held.
    parts: Option<Parts>,
}

struct Parts {
    fair: Fair,
    feed: Feed,
    slot: Slot,
}

enum Outcome {
    Busy,
    Held(Held),
    Restart(Restart),
}

/// Acquires the lock. Dropping the future leaves nothing behind but work for the janitor.
pub(crate) async fn acquire(order: Order) -> Result<Guard, LockError> {
    match attempts(&order, true).await? {
        Some(guard) => Ok(guard),
        None => unreachable!("an attempt that may queue is never busy"),
    }
}

/// Acquires the lock if nobody stands in the queue. A queue that is not empty costs one read.
pub(crate) async fn try_acquire(order: Order) -> Result<Option<Guard>, LockError> {
    if is_taken(&order).await? {
        return Ok(None);
    }
    attempts(&order, false).await
}

async fn attempts(order: &Order, may_queue: bool) -> Result<Option<Guard>, LockError> {
    let mut znodes_lost = 0;
    loop {
        let slot = before(order, order.client.reserve_slot()).await?;
        let mut attempt = Attempt::new(order, slot, may_queue);
        match attempt.run(order).await? {
            Outcome::Busy => return Ok(None),
            Outcome::Held(held) => return Ok(Some(attempt.into_guard(held))),
            Outcome::Restart(restart) => {
                debug!(?restart, "starting a new attempt");
                drop(attempt);
                if restart == Restart::ZnodeGone {
                    znodes_lost += 1;
                    if znodes_lost > ZNODES_LOST_MAX {
                        return Err(LockError::Lost(LostReason::ZnodeDeleted));
                    }
                    let pause = jitter(&order.client, PAUSE);
                    before(order, tokio::time::sleep(pause)).await?;
                }
            }
        }
    }
}

impl Attempt {
    fn new(order: &Order, slot: Slot, may_queue: bool) -> Self {
        let fair = Fair::new(order.profile.clone(), order.client.unique_id(), may_queue);
        let feed = Feed::new(order.client.lane());
        Self { parts: Some(Parts { fair, feed, slot }) }
    }

    async fn run(&mut self, order: &Order) -> Result<Outcome, LockError> {
        let Parts { fair, feed, .. } = self.parts.as_mut().expect("the lock is not held yet");
        let mut step = fair.start();
        loop {
            let mut until = None;
            match step {
                Step::Busy => return Ok(Outcome::Busy),
                Step::Failed(error) => return Err(error),
                Step::Restart(restart) => return Ok(Outcome::Restart(restart)),
                Step::Submit(flight) => before(order, feed.submit_patiently(flight))
                    .await?
                    .map_err(|error| LockError::definite(error, "use", &order.profile.directory))?,
                Step::Wait(at) => until = at,
                Step::Held(ref held) => {
                    // Nothing is decided before everything that has arrived is known.
                    let Some(fed) = feed.arrived() else {
                        return Ok(Outcome::Held(held.clone()));
                    };
                    step = advance(fair, feed, fed)?.unwrap_or(step);
                    continue;
                }
            }
            tell(order, fair.ahead().map_or(Phase::Claiming, |ahead| Phase::Queued { ahead }));
            step = loop {
                let at = until.into_iter().chain(order.deadline).min();
                let fed = feed.next(at).await;
                if matches!(fed, Fed::Input(Input::Timer))
                    && until.is_none_or(|at| at > feed.lane.now())
                {
                    return Err(LockError::TimedOut);
                }
                if let Some(step) = advance(fair, feed, fed)? {
                    break step;
                }
            };
            let missed = fair.take_watches_missed();
            if missed > 0 {
                warn!(directory = %order.profile.directory, "a watch did not tell of a change");
                order.watches_missed.fetch_add(missed, Ordering::Relaxed);
            }
        }
    }

    fn into_guard(mut self, held: Held) -> Guard {
        let Parts { fair, feed, slot } = self.parts.take().expect("the lock was just obtained");
        let (release, _) = fair.abandon();
        hold::start(feed, slot, release, held)
    }
}

/// Cancellation in whatever state: the janitor removes what there may be.
impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(Parts { fair, feed, slot }) = self.parts.take() else { return };
        let is_pending = feed.pending.is_some();
        let (release, is_creating) = fair.abandon();
        slot.run(release::duty(feed, release, is_creating && is_pending));
    }
}

fn advance(fair: &mut Fair, feed: &Feed, fed: Fed) -> Result<Option<Step>, LockError> {
    match fed {
        Fed::AuthFailed => Err(LockError::AuthFailed),
        Fed::Closed => Err(LockError::Closed),
        Fed::Connected(_) => Ok(None),
        // What was known before a deadline passed is as void as after a disconnect.
        Fed::Lapsed => Ok(Some(fair.handle(feed.view(), Input::Suspended))),
        Fed::Input(input) => Ok(Some(fair.handle(feed.view(), input))),
    }
}

/// One read, replayed until it has an answer.
async fn is_taken(order: &Order) -> Result<bool, LockError> {
    let mut feed = Feed::new(order.client.lane());
    let directory = &order.profile.directory;
    loop {
        let list = flight(None, vec![list(directory, None)]);
        before(order, feed.submit_patiently(list))
            .await?
            .map_err(|error| LockError::definite(error, "list", directory))?;
        let mut reply = loop {
            match feed.next(order.deadline).await {
                Fed::Input(Input::Reply(reply)) => break reply,
                Fed::Input(Input::Timer) => return Err(LockError::TimedOut),
                Fed::AuthFailed => return Err(LockError::AuthFailed),
                Fed::Closed => return Err(LockError::Closed),
                Fed::Connected(_) | Fed::Input(_) | Fed::Lapsed => {}
            }
        };
        match reply.results.pop().map(replayable) {
            Some(Verdict::Done(Response::GetChildren(names))) => {
                return queue::is_taken(&order.profile, &names);
            }
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => return Ok(false),
            Some(Verdict::Refused(error)) => {
                return Err(LockError::definite(error, "list", directory));
            }
            Some(Verdict::Later) => {
                before(order, tokio::time::sleep(PAUSE)).await?;
            }
            _ => {}
        }
    }
}

/// Waits for something, but not past the deadline.
async fn before<T>(order: &Order, future: impl Future<Output = T>) -> Result<T, LockError> {
    match order.deadline {
        None => Ok(future.await),
        Some(deadline) => {
            let left = deadline.saturating_since(order.client.now());
            tokio::time::timeout(left, future).await.map_err(|_| LockError::TimedOut)
        }
    }
}

/// Between half and all of a pause.
fn jitter(client: &Client, pause: Duration) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(f64::from(client.unique_id() as u32) / f64::from(u32::MAX))
}

fn tell(order: &Order, phase: Phase) {
    if let Some(sender) = &order.phase {
        sender.send_if_modified(|current| std::mem::replace(current, phase) != phase);
    }
}
