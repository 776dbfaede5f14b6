//! Running attempts until one holds the lock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use tracing::{Instrument as _, Span, debug, debug_span, warn};
use zk_session::machine::Operation;
use zk_session::{Client, OpError, Slot, Time};

use super::{Fed, Feed, has_stopped, keeper, pause, release};
use crate::error::{LockError, LostReason};
use crate::guard::Guard;
use crate::lock::AtRiskPolicy;
use crate::machine::contender::Contender;
use crate::machine::exclusive::{Exclusive, ExclusiveProfile};
use crate::machine::{
    self, Held, Input, PAUSE, Patience, Profile, Restart, Step, Verdict, flight, list, queue, read,
    replayable,
};
use crate::phase::{Observer, Phase};
use crate::stats::Counters;

/// Attempts that may lose their znode before the acquire gives up.
const ZNODES_LOST_MAX: u32 = 5;

/// What an acquire is about.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) client: Client,
    pub(crate) target: Target,
    /// When to give up.
    pub(crate) deadline: Option<Time>,
    /// Where to tell how it goes.
    pub(crate) observer: Observer,
    pub(crate) counters: Arc<Counters>,
    pub(crate) at_risk: AtRiskPolicy,
}

/// What is to be obtained.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The one znode of an exclusive lock.
    Exclusive(Arc<ExclusiveProfile>),
    /// The front of a queue.
    Queue(Arc<Profile>),
}

impl Target {
    fn attempt(&self, id: u128, may_wait: bool) -> machine::Attempt {
        match self {
            Self::Exclusive(profile) => {
                machine::Attempt::Exclusive(Exclusive::new(Arc::clone(profile), id, may_wait))
            }
            Self::Queue(profile) => {
                machine::Attempt::Contender(Contender::new(Arc::clone(profile), id, may_wait))
            }
        }
    }

    fn path(&self) -> &ByteString {
        match self {
            Self::Exclusive(profile) => &profile.path,
            Self::Queue(profile) => &profile.directory,
        }
    }

    /// The read that tells whether it is taken.
    fn look(&self) -> Operation {
        match self {
            Self::Exclusive(profile) => read(profile.path.clone(), None),
            Self::Queue(profile) => list(&profile.directory, None),
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Exclusive(_) => "read",
            Self::Queue(_) => "list",
        }
    }

    fn is_taken(&self, seen: &Response) -> Result<bool, LockError> {
        match (self, seen) {
            (Self::Queue(profile), Response::GetChildren(names)) => queue::is_taken(profile, names),
            // What is not ephemeral is no lock. The attempt says so.
            (Self::Exclusive(_), Response::GetData(found)) => Ok(found.stat.ephemeral_owner != 0),
            _ => Ok(false),
        }
    }
}

/// An attempt that hands over to the janitor when it is dropped, at any moment.
///
/// What it does is done within its span. The future is not instrumented with it: that would keep
/// the span twice for as long as it waits.
struct Attempt {
    /// Gone once the lock is held.
    parts: Option<Parts>,
    counters: Arc<Counters>,
    span: Span,
}

struct Parts {
    machine: machine::Attempt,
    feed: Feed,
    slot: Slot,
}

enum Outcome<T> {
    Busy,
    Held(T),
    Restart(Restart),
}

/// Acquires the lock. Dropping the future leaves nothing behind but work for the janitor.
pub(crate) async fn acquire<K>(order: &Order) -> Result<Guard<K>, LockError> {
    match attempts(order, true).await? {
        Some(guard) => Ok(guard),
        None => unreachable!("an attempt that may wait is never busy"),
    }
}

/// Acquires the lock if it need not be waited for. A lock that is taken costs one read.
pub(crate) async fn try_acquire<K>(order: &Order) -> Result<Option<Guard<K>>, LockError> {
    if is_taken(order).await? {
        return Ok(None);
    }
    attempts(order, false).await
}

async fn attempts<K>(order: &Order, may_wait: bool) -> Result<Option<Guard<K>>, LockError> {
    let since = order.client.now();
    let mut znodes_lost = 0;
    loop {
        let mut outcome = attempt(order, may_wait).await?;
        if order.at_risk == AtRiskPolicy::TreatAsLost
            && let Outcome::Held(guard) = outcome
        {
            // In a box: this wait is rare, and every waiter would keep the room for it.
            outcome = Box::pin(leased(order, guard)).await?;
        }
        match outcome {
            Outcome::Busy => return Ok(None),
            Outcome::Held(guard) => {
                Counters::count(&order.counters.acquired);
                order.counters.waited(order.client.now().saturating_since(since));
                return Ok(Some(guard));
            }
            Outcome::Restart(restart) => {
                debug!(?restart, "starting a new attempt");
                order.observer.tell(Phase::Claiming);
                if restart == Restart::ZnodeGone {
                    znodes_lost += 1;
                    if znodes_lost > ZNODES_LOST_MAX {
                        return Err(LockError::Lost(LostReason::ZnodeDeleted));
                    }
                    let length = jitter(&order.client, PAUSE);
                    before(order, pause(&order.client, length)).await?;
                }
            }
        }
    }
}

/// A function of its own, so that what is kept between attempts is not kept beside one.
async fn attempt<K>(order: &Order, may_wait: bool) -> Result<Outcome<Guard<K>>, LockError> {
    let slot = before(order, order.client.reserve_slot()).await?;
    Counters::count(&order.counters.attempts);
    let mut attempt = Attempt::new(order, slot, may_wait);
    let outcome = attempt.run(order).await?;
    Ok(match outcome {
        Outcome::Busy => Outcome::Busy,
        Outcome::Held(held) => Outcome::Held(attempt.into_guard(order, held)),
        Outcome::Restart(restart) => Outcome::Restart(restart),
    })
}

/// The guard, when there is a lease.
async fn leased<K>(order: &Order, guard: Guard<K>) -> Result<Outcome<Guard<K>>, LockError> {
    Ok(match before(order, guard.first_held()).await? {
        Ok(()) => Outcome::Held(guard),
        Err(LostReason::ZnodeDeleted) => Outcome::Restart(Restart::ZnodeGone),
        Err(_) => Outcome::Restart(Restart::SessionOver),
    })
}

impl Attempt {
    fn new(order: &Order, slot: Slot, may_wait: bool) -> Self {
        let id = order.client.unique_id();
        let span = debug_span!("attempt", path = %order.target.path(), id = format!("{id:032x}"));
        let machine = order.target.attempt(id, may_wait);
        let feed = Feed::new(order.client.lane());
        let parts = Some(Parts { machine, feed, slot });
        Self { parts, counters: Arc::clone(&order.counters), span }
    }

    async fn run(&mut self, order: &Order) -> Result<Outcome<Held>, LockError> {
        let Self { parts, span, .. } = self;
        let Parts { machine, feed, .. } = parts.as_mut().expect("the lock is not held yet");
        let mut step = machine.start();
        loop {
            let until = match span.in_scope(|| follow(order, machine, feed, step))? {
                Next::End(outcome) => return Ok(outcome),
                Next::Wait(until) => until,
            };
            // Whoever is next has to be ready. Those behind cost no writes.
            feed.lane.need_lease(machine.ahead().is_some_and(|ahead| ahead <= 1));
            let phase = machine.ahead().map_or(Phase::Claiming, |ahead| Phase::Queued { ahead });
            order.observer.tell(phase);
            step = loop {
                let at = until.into_iter().chain(order.deadline).min();
                let fed = feed.next(at).await;
                let is_timer = matches!(fed, Fed::Input(Input::Timer));
                if is_timer && order.deadline.is_some_and(|deadline| deadline <= feed.lane.now()) {
                    return Err(LockError::TimedOut);
                }
                if let Some(step) = span.in_scope(|| advance(machine, feed, fed))? {
                    break step;
                }
            };
            let tally = machine.take_tally();
            order.counters.add(tally);
            if tally.watches_missed > 0 {
                warn!(parent: &*span, path = %order.target.path(), "a watch did not tell of a change");
            }
        }
    }

    fn into_guard<K>(mut self, order: &Order, held: Held) -> Guard<K> {
        let Parts { machine, feed, slot } = self.parts.take().expect("the lock was just obtained");
        let (release, _) = machine.abandon();
        keeper::start(order, feed, slot, release, held, self.span.clone())
    }
}

/// Cancellation in whatever state: the janitor removes what there may be.
impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(Parts { machine, feed, slot }) = self.parts.take() else { return };
        let is_pending = feed.pending.is_some();
        let (release, is_creating) = machine.abandon();
        let counters = Arc::clone(&self.counters);
        let (span, is_pending) = (self.span.clone(), is_creating && is_pending);
        let duty = release::duty(feed, release, is_pending, counters, span.clone());
        slot.run(duty.instrument(span));
    }
}

/// What is left of a step when all was done that could be done at once.
enum Next {
    End(Outcome<Held>),
    Wait(Option<Time>),
}

fn follow(
    order: &Order,
    machine: &mut machine::Attempt,
    feed: &mut Feed,
    mut step: Step,
) -> Result<Next, LockError> {
    loop {
        match step {
            Step::Busy => return Ok(Next::End(Outcome::Busy)),
            Step::Failed(error) => return Err(error),
            Step::Restart(restart) => return Ok(Next::End(Outcome::Restart(restart))),
            Step::Submit(flight) => {
                feed.submit(flight).map_err(|error| unusable(order, error))?;
                return Ok(Next::Wait(None));
            }
            Step::Wait(until) => return Ok(Next::Wait(until)),
            // Nothing is decided before everything that has arrived is known.
            Step::Held(held) => match feed.arrived() {
                None => return Ok(Next::End(Outcome::Held(held))),
                Some(fed) => step = advance(machine, feed, fed)?.unwrap_or(Step::Held(held)),
            },
        }
    }
}

fn unusable(order: &Order, error: OpError) -> LockError {
    LockError::definite(error, "use", order.target.path())
}

fn advance(
    machine: &mut machine::Attempt,
    feed: &Feed,
    fed: Fed,
) -> Result<Option<Step>, LockError> {
    match fed {
        Fed::AuthFailed => Err(LockError::AuthFailed),
        Fed::Closed => Err(LockError::Closed),
        Fed::Connected(_) => Ok(None),
        // What was known before a deadline passed is as void as after a disconnect.
        Fed::Lapsed => Ok(Some(machine.handle(feed.view(), Input::Suspended))),
        Fed::Input(input) => Ok(Some(machine.handle(feed.view(), input))),
    }
}

/// One read, replayed until it has an answer.
async fn is_taken(order: &Order) -> Result<bool, LockError> {
    let mut feed = Feed::new(order.client.lane());
    let mut patience = Patience::default();
    let refused = |error| LockError::definite(error, order.target.verb(), order.target.path());
    loop {
        feed.submit(flight(None, vec![order.target.look()])).map_err(refused)?;
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
            Some(Verdict::Done(seen)) => return order.target.is_taken(&seen),
            Some(Verdict::Refused(OpError::Server(ErrorCode::NO_NODE))) => return Ok(false),
            Some(Verdict::Refused(error)) => return Err(refused(error)),
            Some(Verdict::Later(error)) => {
                if patience.is_over(&error) {
                    return Err(refused(error));
                }
                before(order, pause(&order.client, patience.pause())).await?;
            }
            Some(Verdict::SessionOver) if has_stopped(&order.client) => {
                return Err(LockError::Lost(LostReason::SessionExpired));
            }
            // The next try waits for the next connection, or the next session.
            Some(Verdict::SessionOver | Verdict::NotApplied | Verdict::Unknown) | None => {}
        }
    }
}

/// Waits for something, but not past the deadline, nor longer than the client lives.
async fn before<T>(order: &Order, future: impl Future<Output = T>) -> Result<T, LockError> {
    let mut future = pin!(future);
    // Opened when there is something to wait for.
    let mut feed = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let feed = feed.get_or_insert_with(|| Feed::new(order.client.lane()));
        loop {
            return Poll::Ready(Err(match ready!(feed.poll_next(cx, order.deadline)) {
                Fed::Input(Input::Timer) => LockError::TimedOut,
                Fed::AuthFailed => LockError::AuthFailed,
                Fed::Closed => LockError::Closed,
                Fed::Connected(_) | Fed::Input(_) | Fed::Lapsed => continue,
            }));
        }
    })
    .await
}

/// Between half and all of a pause.
fn jitter(client: &Client, pause: Duration) -> Duration {
    let half = pause / 2;
    half + half.mul_f64(f64::from(client.unique_id() as u32) / f64::from(u32::MAX))
}
