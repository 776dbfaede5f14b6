//! Running attempts until one of them holds the lock.

use std::sync::Arc;
use std::task::{Context, Poll};

use jute_codec::ErrorCode;
use tracing::{Span, debug, debug_span};
use zk_session::recipe::{Abridged, Session, Slot};
use zk_session::{OpError, Time, WatchMode};

use super::lock::Lock;
use crate::engine::attended::{Attended, Left};
use crate::engine::drive::{Supervisor, before, drive, jitter, pause, reserve, run};
use crate::engine::feed::{Feed, FeedEvent};
use crate::engine::persistent::PersistentWatch;
use crate::error::RecipeError;
use crate::guard::{Guard, RemovalDuty, start_keeper};
use crate::lock::error::{LockError, LostReason, Stopped};
use crate::lock::kind::Kind;
use crate::lock::log;
use crate::lock::outcome::{Held, NotHeld, Restart};
use crate::lock::phase::Phase;
use crate::lock::recipe::{Attempt, Recipe};
use crate::lock::state::AtRiskPolicy;
use crate::machine::{Input, PAUSE, ReadAll, Step};
use crate::timed_out::LastSeen;

/// Number of attempts that may lose their znode before the acquire gives up.
const ZNODES_LOST_MAX: u32 = 5;

/// The parameters of an acquire.
pub(crate) struct AcquireRequest<K: Kind> {
    pub(crate) lock: Lock<K>,
    /// When to give up.
    pub(crate) deadline: Option<Time>,
    /// The client may hold the lock already, so waiting behind its own session is not a mistake.
    pub(crate) is_beside_own: bool,
}

/// Acquires the lock. If the future is dropped, the janitor removes what it has left behind.
#[expect(clippy::manual_async_fn, reason = "a waiter would have its argument in memory twice")]
pub(crate) fn acquire<K: Kind>(
    request: AcquireRequest<K>,
) -> impl Future<Output = Result<Guard<K>, LockError>> + Send {
    async move {
        match attempts(&request, true).await? {
            Some(guard) => Ok(guard),
            None => unreachable!("an attempt that may wait is never busy"),
        }
    }
}

/// Acquires the lock if no wait is necessary. If the lock is taken, this costs one read.
pub(crate) async fn try_acquire<K: Kind>(
    request: AcquireRequest<K>,
) -> Result<Option<Guard<K>>, LockError> {
    if is_taken(&request).await? {
        return Ok(None);
    }
    claim(&request).await
}

/// Acquires the lock if no wait is necessary, without a read before the create.
pub(crate) async fn claim<K: Kind>(
    request: &AcquireRequest<K>,
) -> Result<Option<Guard<K>>, LockError> {
    attempts(request, false).await
}

/// The result of an attempt that did not fail.
enum Outcome<K: Kind> {
    Busy,
    Held(Guard<K>),
    Restart(Restart),
}

async fn attempts<K: Kind>(
    request: &AcquireRequest<K>,
    may_wait: bool,
) -> Result<Option<Guard<K>>, LockError> {
    let terms = &request.lock.terms;
    let since = terms.client.now();
    let mut znodes_lost = 0;
    loop {
        let mut outcome = attempt(request, may_wait).await?;
        if terms.options.at_risk == AtRiskPolicy::TreatAsLost
            && let Outcome::Held(guard) = outcome
        {
            // Box this future: the wait is rare, but otherwise every waiter would reserve memory
            // for it.
            outcome = Box::pin(leased(request, guard)).await?;
        }
        match outcome {
            Outcome::Busy => return Ok(None),
            Outcome::Held(guard) => {
                terms.counters.acquired(terms.client.now().saturating_since(since));
                return Ok(Some(guard));
            }
            Outcome::Restart(restart) => {
                debug!(?restart, "starting a new attempt");
                terms.observer.report(Phase::Claiming);
                if restart == Restart::ZnodeGone {
                    znodes_lost += 1;
                    if znodes_lost > ZNODES_LOST_MAX {
                        return Err(LockError::Lost(LostReason::ZnodeDeleted));
                    }
                    let length = jitter(&terms.client, PAUSE);
                    let pausing = pause(&terms.client, length);
                    before(&terms.client, request.deadline, pausing).await?;
                }
            }
        }
    }
}

/// Runs one attempt. This is a separate function so that the state of the loop above does not
/// occupy memory twice while an attempt waits.
async fn attempt<K: Kind>(
    request: &AcquireRequest<K>,
    may_wait: bool,
) -> Result<Outcome<K>, LockError> {
    let path = K::path(&request.lock.profile);
    let slot = reserve(request.lock.client(), path, request.deadline).await?;
    request.lock.terms.counters.attempted();
    let mut attempt = prepare(&request.lock, slot, may_wait);
    match run_attempt(&mut attempt, request).await {
        Ok(held) => Ok(Outcome::Held(into_guard(attempt, &request.lock, held))),
        Err(NotHeld::Busy) => Ok(Outcome::Busy),
        Err(NotHeld::Restart(restart)) => Ok(Outcome::Restart(restart)),
        Err(NotHeld::Failed(error)) => Err(error),
    }
}

/// Waits until the guard has a lease.
async fn leased<K: Kind>(
    request: &AcquireRequest<K>,
    guard: Guard<K>,
) -> Result<Outcome<K>, LockError> {
    let waited = before(request.lock.client(), request.deadline, guard.first_held()).await;
    let stopped = waited.map_err(|error| {
        if error.is_timed_out() { LockError::TimedOut(guard.seen_last()) } else { error.into() }
    })?;
    Ok(match stopped {
        Ok(()) => Outcome::Held(guard),
        Err(Stopped::Lost(LostReason::ZnodeDeleted)) => Outcome::Restart(Restart::ZnodeGone),
        Err(Stopped::NoLease(slow)) => return Err(LockError::NoLease(slow)),
        Err(Stopped::AtRisk | Stopped::Lost(_)) => Outcome::Restart(Restart::SessionEnded),
    })
}

/// An attempt that may be dropped at any moment.
///
/// The removal or the keeper that follows the attempt uses the span of its duty. The future of the
/// attempt itself is not instrumented, because that would keep the span in memory twice while it
/// waits.
type RunningAttempt<K> = Attended<<K as Recipe>::Attempt, RemovalDuty>;

fn prepare<K: Kind>(lock: &Lock<K>, slot: Slot, may_wait: bool) -> RunningAttempt<K> {
    let (id, path) = (Session::of(lock.client()).unique_id(), lock.path());
    let span = debug_span!("attempt", path = %Abridged(path), id = format!("{id:032x}"));
    let duty = RemovalDuty { counters: Arc::clone(&lock.terms.counters), span };
    Attended::with(lock.client(), slot, K::attempt(&lock.profile, id, may_wait), duty)
}

async fn run_attempt<K: Kind>(
    attempt: &mut RunningAttempt<K>,
    request: &AcquireRequest<K>,
) -> Result<Held, NotHeld> {
    let (machine, feed, RemovalDuty { span, .. }) = attempt.parts();
    let mut supervisor = Waiting { request, span, changes: None, has_warned: false };
    drive(feed, machine, &mut supervisor).await.unwrap_or_else(|stopped| {
        let mut error = LockError::from(stopped);
        if let LockError::TimedOut(timed_out) = &mut error
            && timed_out.seen == LastSeen::Nothing
        {
            timed_out.seen = last_seen(&machine.machine);
        }
        Err(NotHeld::Failed(error))
    })
}

/// Makes the owner's guard of an attempt that was granted the lock.
fn into_guard<K: Kind>(attempt: RunningAttempt<K>, lock: &Lock<K>, held: Held) -> Guard<K> {
    let Left { removal, feed, slot, duty } = attempt.end().expect("the lock was just granted");
    Guard::new(start_keeper::<K>(lock.terms.clone(), feed, slot, removal, held, duty.span))
}

/// Returns what an attempt had seen when its time was up. A missing connection is added elsewhere:
/// see [`Begun::explain`](crate::engine::limited::Begun::explain).
fn last_seen(attempt: &impl Attempt) -> LastSeen {
    match attempt.predecessor() {
        _ if attempt.is_first() => LastSeen::Unproven,
        None => LastSeen::Nothing,
        Some(predecessor) if attempt.is_behind_own_session() => LastSeen::OwnSession(predecessor),
        Some(predecessor) => LastSeen::Queued(predecessor),
    }
}

/// Supervises an attempt.
struct Waiting<'a, K: Kind> {
    request: &'a AcquireRequest<K>,
    span: &'a Span,
    /// What the attempt follows. It is in a box, because most waiters follow nothing.
    changes: Option<Box<PersistentWatch>>,
    /// The attempt has reported that it waits behind its own session.
    has_warned: bool,
}

impl<K: Kind> Supervisor<K::Attempt> for Waiting<'_, K> {
    type Stop = RecipeError;

    fn translate(
        &mut self,
        feed: &mut Feed,
        event: FeedEvent,
    ) -> Result<Option<Input>, RecipeError> {
        let is_late = self.request.deadline.is_some_and(|deadline| deadline <= feed.lane.now());
        match event {
            FeedEvent::Input(Input::Timer) if is_late => Err(RecipeError::timed_out()),
            FeedEvent::AuthFailed => Err(RecipeError::AuthFailed),
            FeedEvent::Closed => Err(RecipeError::Closed),
            FeedEvent::Connected(_) => Ok(None),
            // After the guard deadline, earlier conclusions are as invalid as after a disconnect.
            FeedEvent::Lapsed => Ok(Some(Input::Suspended)),
            FeedEvent::Input(input) => Ok(Some(input)),
        }
    }

    fn rejected(&mut self, error: OpError) -> RecipeError {
        RecipeError::of_client(error)
    }

    fn deadline(&self) -> Option<Time> {
        self.request.deadline
    }

    fn after_refusal(stop: &mut RecipeError, code: ErrorCode) {
        stop.after_refusal(code);
    }

    fn poll_aside(
        &mut self,
        cx: &mut Context<'_>,
        machine: &mut K::Attempt,
        feed: &Feed,
    ) -> Poll<Step<Result<Held, NotHeld>>> {
        if !machine.follows() {
            return Poll::Pending;
        }
        let Lock { profile, terms } = &self.request.lock;
        let changes = self.changes.get_or_insert_with(|| {
            let mode = WatchMode::Persistent;
            Box::new(PersistentWatch::new(&terms.client, K::path(profile), mode))
        });
        changes.poll_next(cx).map(|news| machine.told(feed.view(), news))
    }

    /// Returns true for a grant, which counts only if no event that has already arrived revokes it.
    /// An attempt that has ended without the lock accepts no more input.
    fn is_provisional(output: &Result<Held, NotHeld>) -> bool {
        output.is_ok()
    }

    fn before_wait(&mut self, machine: &K::Attempt, feed: &mut Feed) {
        if !self.has_warned && !self.request.is_beside_own && machine.must_warn_of_own_session() {
            self.has_warned = true;
            let path = self.request.lock.path();
            log::behind_own_session(self.request.lock.client(), self.span, path);
        }
        let ahead = machine.ahead();
        // The next contender must have a lease when it is granted the lock. Contenders further back
        // cause no writes.
        feed.lane.need_lease(ahead.is_some_and(|ahead| ahead <= 1));
        let phase = ahead.map_or(Phase::Claiming, |ahead| Phase::Queued { ahead });
        self.request.lock.terms.observer.report(phase);
    }

    fn after_input(&mut self, machine: &mut K::Attempt) {
        let tally = machine.take_tally();
        self.request.lock.terms.counters.add(tally);
        if tally.watches_missed > 0 {
            let lock = &self.request.lock;
            log::watch_missed(lock.client(), self.span, lock.path());
        }
    }
}

/// Reads whether the lock is taken.
async fn is_taken<K: Kind>(request: &AcquireRequest<K>) -> Result<bool, LockError> {
    let Lock { profile, terms } = &request.lock;
    let (operation, action) = K::look(profile);
    let mut read = ReadAll::new(vec![operation], action, K::path(profile));
    let seen = run(&terms.client, &mut read, request.deadline).await?;
    match seen.into_iter().next().flatten() {
        Some(response) => K::is_taken(profile, &response),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use jute_codec::{Create2Reply, DataReply, NameList, Response, Stat};
    use zk_session::{Acl, SessionId, Zxid};

    use super::*;
    use crate::exclusive::machine::attempt::ExclusiveAttempt;
    use crate::lock::kind::Fair;
    use crate::lock::options::LockOptions;
    use crate::lock::outcome::Znode;
    use crate::machine::{Answer, Answers, Machine as _, SessionView};
    use crate::queue::machine::attempt::QueueAttempt;
    use crate::queue::naming::{NameForm, QueueNames};
    use crate::queue::profile::QueueProfile;
    use crate::timed_out::TimedOut;

    fn is_provisional(output: &Result<Held, NotHeld>) -> bool {
        <Waiting<'_, Fair> as Supervisor<<Fair as Recipe>::Attempt>>::is_provisional(output)
    }

    /// The machine of an attempt that has failed or has to restart must not be driven further: it
    /// could be granted a lock whose acquire has reported an error.
    #[test]
    fn only_a_grant_is_revised_by_events_that_have_arrived() {
        let znode = Znode { name: "n".into(), sequence: 1, czxid: Zxid(1) };
        let session = SessionId(1);
        let held = Held { znode, session, connection: 1, own_watch: None, lapses: 0 };
        assert!(is_provisional(&Ok(held)));
        for not_held in [
            NotHeld::Busy,
            NotHeld::Failed(LockError::TimedOut(TimedOut::unexplained())),
            NotHeld::Restart(Restart::SessionEnded),
            NotHeld::Restart(Restart::ZnodeGone),
        ] {
            assert!(!is_provisional(&Err(not_held.clone())), "{not_held:?}");
        }
    }
    /// A lock that was granted needs a proof, because the guard deadline has passed between the create
    /// and its reply.
    #[test]
    fn an_attempt_with_nobody_ahead_says_that_it_waits_for_a_proof() {
        let view = SessionView {
            now: Time::default(),
            connection: Some(1),
            alive: None,
            is_running_out: false,
            lapses: 0,
            has_expired: false,
            has_left_session: false,
            seed: 0,
        };
        let (name, data) =
            (format!("{:032x}-lock-0000000001", 7), Some(format!("{:032x}", 7).into()));
        let stat = Stat { czxid: Zxid(5), ephemeral_owner: SessionId(1), ..Stat::default() };
        let options = |path: &str| {
            let path = path.into();
            LockOptions { path, acl: Acl::open(), ..LockOptions::default() }
        };
        let answered = |path: String, beside| {
            let created = Response::Create2(Create2Reply { path: path.into(), stat });
            let results = vec![Answer::Done(created), Answer::Done(beside)];
            let session = Some(SessionId(1));
            let (connection, replays, is_repeated) = (1, 0, false);
            Input::Answered(Answers { session, connection, results, replays, is_repeated })
        };

        let names = QueueNames::exclusive(NameForm::known("-lock-", "lock-"));
        let mut queued = QueueAttempt::new(QueueProfile::new(options("/l"), names), 7, true);
        let _ = queued.start(view);
        assert_eq!(last_seen(&queued), LastSeen::Nothing);
        let list = Response::GetChildren(NameList::from_iter([&name]));
        let step = queued.handle(view, answered(format!("/l/{name}"), list));
        assert!(matches!(step, Step::Submit(..)), "{step:?}");
        assert_eq!(last_seen(&queued), LastSeen::Unproven);

        let mut exclusive = ExclusiveAttempt::new(options("/a/l"), 7, true);
        let _ = exclusive.start(view);
        let read = Response::GetData(DataReply { data, stat });
        let step = exclusive.handle(view, answered("/a/l".to_owned(), read));
        assert!(matches!(step, Step::Submit(..)), "{step:?}");
        assert_eq!(last_seen(&exclusive), LastSeen::Unproven);
    }
}
