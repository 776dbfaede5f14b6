//! Running a machine to its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::ErrorCode;
use zk_session::recipe::{Reply, Session, Slot};
use zk_session::{Client, OpError, Time};

use super::feed::{Feed, FeedEvent};
use crate::error::RecipeError;
use crate::machine::{Failure, Input, Machine, Pauses, Repeating, Step};

/// Decides which events of the session reach a machine, and when to stop the machine.
pub(crate) trait Supervisor<M: Machine> {
    /// Why the machine was stopped before its end.
    type Stop;

    /// Translates an event into an input for the machine. Returns `None` if the event does not
    /// concern the machine.
    fn translate(&mut self, feed: &mut Feed, event: FeedEvent)
    -> Result<Option<Input>, Self::Stop>;

    /// Returns the reason to stop the machine after the client has rejected its flight.
    fn rejected(&mut self, error: OpError) -> Self::Stop;

    /// Returns the deadline, if there is one. `translate` receives it as a timer.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Completes when the machine has to be stopped for a reason that is not an event of the feed.
    fn poll_stop(&mut self, _: &mut Context<'_>) -> Poll<Self::Stop> {
        Poll::Pending
    }

    /// Hands the machine what has arrived from elsewhere than the feed, and returns its next step.
    fn poll_aside(
        &mut self,
        _: &mut Context<'_>,
        _machine: &mut M,
        _feed: &Feed,
    ) -> Poll<Step<M::Output>> {
        Poll::Pending
    }

    /// Returns whether the machine may revise this output. If so, the machine receives all events
    /// that have already arrived before the output counts.
    fn is_provisional(_: &M::Output) -> bool {
        false
    }

    /// Adds to the reason to stop the machine that a server has refused what is pending, which would
    /// have been tried again.
    fn after_refusal(_: &mut Self::Stop, _: ErrorCode) {}

    /// Called when the machine is about to wait.
    fn before_wait(&mut self, _machine: &M, _feed: &mut Feed) {}

    /// Called after the machine has handled an input.
    fn after_input(&mut self, _machine: &mut M) {}
}

/// Runs a machine to its end, or until the supervisor stops it.
///
/// A waiter keeps the state of this future for as long as it waits, so steps and inputs do not live
/// across the await.
pub(crate) async fn drive<M: Machine, S: Supervisor<M>>(
    feed: &mut Feed,
    machine: &mut Repeating<M>,
    supervisor: &mut S,
) -> Result<M::Output, S::Stop> {
    let step = machine.start(feed.view());
    let mut until = match advance(feed, machine, supervisor, step)? {
        Next::Done(output) => return Ok(output),
        Next::Wait(until) => until,
    };
    poll_fn(|cx| poll_inputs(cx, feed, machine, supervisor, &mut until)).await
}

/// What a machine waits for once it has done everything that it can do without waiting.
enum Next<T> {
    Done(T),
    Wait(Option<Time>),
}

/// Follows a step, and the steps after it, until the machine waits or has finished.
fn advance<M: Machine, S: Supervisor<M>>(
    feed: &mut Feed,
    machine: &mut Repeating<M>,
    supervisor: &mut S,
    mut step: Step<M::Output>,
) -> Result<Next<M::Output>, S::Stop> {
    loop {
        let until = match step {
            Step::Done(output) => {
                let is_provisional = S::is_provisional(&output);
                let Some(event) = is_provisional.then(|| feed.arrived()).flatten() else {
                    return Ok(Next::Done(output));
                };
                step = match supervisor.translate(feed, event)? {
                    Some(input) => machine.handle(feed.view(), input),
                    None => Step::Done(output),
                };
                continue;
            }
            Step::Submit(flight, _) | Step::SubmitLater(flight, _) => {
                feed.submit(flight).map_err(|error| supervisor.rejected(error))?;
                None
            }
            Step::Wait(until) => until,
        };
        supervisor.before_wait(&machine.machine, feed);
        return Ok(Next::Wait(until));
    }
}

/// Hands inputs to the machine as they arrive, until it has finished. The machine receives a timer
/// at `until`.
fn poll_inputs<M: Machine, S: Supervisor<M>>(
    cx: &mut Context<'_>,
    feed: &mut Feed,
    machine: &mut Repeating<M>,
    supervisor: &mut S,
    until: &mut Option<Time>,
) -> Poll<Result<M::Output, S::Stop>> {
    loop {
        if let Poll::Ready(stop) = supervisor.poll_stop(cx) {
            return Poll::Ready(Err(stop));
        }
        let step = if let Poll::Ready(step) = supervisor.poll_aside(cx, &mut machine.machine, feed)
        {
            machine.take_over(feed.view(), step)
        } else {
            let at = until.iter().copied().chain(supervisor.deadline()).min();
            let event = ready!(feed.poll_next(cx, at));
            let input = supervisor.translate(feed, event).map_err(|mut stop| {
                if let Some(code) = machine.refusal() {
                    S::after_refusal(&mut stop, code);
                }
                stop
            })?;
            let Some(input) = input else { continue };
            machine.handle(feed.view(), input)
        };
        supervisor.after_input(&mut machine.machine);
        match advance(feed, machine, supervisor, step)? {
            Next::Done(output) => return Poll::Ready(Ok(output)),
            Next::Wait(next) => *until = next,
        }
    }
}

/// Supervises the machine of a caller who waits for its output, at most until a deadline.
pub(crate) struct Caller {
    pub(crate) deadline: Option<Time>,
}

impl<M: Machine> Supervisor<M> for Caller {
    type Stop = RecipeError;

    fn translate(
        &mut self,
        feed: &mut Feed,
        event: FeedEvent,
    ) -> Result<Option<Input>, RecipeError> {
        let is_late = self.deadline.is_some_and(|deadline| deadline <= feed.lane.now());
        match event {
            FeedEvent::Input(Input::Timer) if is_late => Err(RecipeError::timed_out()),
            FeedEvent::AuthFailed => Err(RecipeError::AuthFailed),
            FeedEvent::Closed => Err(RecipeError::Closed),
            FeedEvent::Input(input) => Ok(Some(input)),
            FeedEvent::Connected(_) | FeedEvent::Lapsed => Ok(None),
        }
    }

    fn rejected(&mut self, error: OpError) -> RecipeError {
        RecipeError::of_client(error)
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn after_refusal(stop: &mut RecipeError, code: ErrorCode) {
        stop.after_refusal(code);
    }
}

/// How long before its deadline a caller who wants to know the outcome withdraws what was not sent.
const WITHDRAWN_BEFORE: Duration = Duration::from_millis(10);

/// Supervises the machine of a caller who waits for the outcome of a write. A flight that was not sent
/// when the time is nearly up will not be sent: otherwise the outcome of a call without a connection
/// would be unknown. Only the session knows what was sent, and it needs a moment to say so.
pub(crate) struct Writer {
    caller: Caller,
    /// When the flight is withdrawn, unless that has happened.
    withdraw_at: Option<Time>,
    has_withdrawn: bool,
}

impl Writer {
    pub(crate) fn new(now: Time, deadline: Option<Time>) -> Self {
        let withdraw_at = deadline.map(|deadline| {
            let left = deadline.saturating_since(now);
            now + (left - WITHDRAWN_BEFORE.min(left / 10))
        });
        Self { caller: Caller { deadline }, withdraw_at, has_withdrawn: false }
    }
}

impl<M: Machine> Supervisor<M> for Writer {
    type Stop = RecipeError;

    fn translate(
        &mut self,
        feed: &mut Feed,
        event: FeedEvent,
    ) -> Result<Option<Input>, RecipeError> {
        let is_timer = matches!(event, FeedEvent::Input(Input::Timer));
        if is_timer && self.withdraw_at.is_some_and(|at| at <= feed.lane.now()) {
            self.withdraw_at = None;
            if let Some(token) = feed.pending {
                feed.lane.recall(token);
                self.has_withdrawn = true;
            }
            return Ok(None);
        }
        if let FeedEvent::Input(Input::Reply(reply)) = &event
            && self.has_withdrawn
            && is_recalled(reply)
        {
            // The machine would issue it again.
            return Ok(None);
        }
        Supervisor::<M>::translate(&mut self.caller, feed, event)
    }

    fn rejected(&mut self, error: OpError) -> RecipeError {
        RecipeError::of_client(error)
    }

    fn deadline(&self) -> Option<Time> {
        self.withdraw_at.or(self.caller.deadline)
    }

    fn after_refusal(stop: &mut RecipeError, code: ErrorCode) {
        stop.after_refusal(code);
    }
}

fn is_recalled(reply: &Reply) -> bool {
    let is_recalled = |result: &Result<_, OpError>| matches!(result, Err(OpError::Recalled { .. }));
    reply.results.iter().all(is_recalled)
}

/// Supervises a machine that nobody waits for. It is stopped only if the client stops.
pub(crate) struct Unattended;

/// The client has stopped.
#[derive(Debug)]
pub(crate) struct ClientStopped;

impl<M: Machine> Supervisor<M> for Unattended {
    type Stop = ClientStopped;

    fn translate(
        &mut self,
        _: &mut Feed,
        event: FeedEvent,
    ) -> Result<Option<Input>, ClientStopped> {
        match event {
            FeedEvent::Input(input) => Ok(Some(input)),
            FeedEvent::AuthFailed | FeedEvent::Closed => Err(ClientStopped),
            FeedEvent::Connected(_) | FeedEvent::Lapsed => Ok(None),
        }
    }

    fn rejected(&mut self, _: OpError) -> ClientStopped {
        ClientStopped
    }
}

/// Runs a machine that may fail for a caller, on a lane of its own. It does not call
/// [`run_to_end`], because the future of a waiter would be longer.
pub(crate) async fn run<T, M: Machine<Output = Result<T, Failure>>>(
    client: &Client,
    machine: &mut M,
    deadline: Option<Time>,
) -> Result<T, RecipeError> {
    let mut feed = Feed::new(Session::of(client).lane());
    let output = drive(&mut feed, &mut Repeating::new(machine), &mut Caller { deadline }).await?;
    output.map_err(RecipeError::of)
}

/// Runs a machine for a caller, on a lane of its own, and returns its output.
pub(crate) async fn run_to_end<M: Machine>(
    client: &Client,
    machine: &mut M,
    deadline: Option<Time>,
) -> Result<M::Output, RecipeError> {
    let mut feed = Feed::new(Session::of(client).lane());
    drive(&mut feed, &mut Repeating::new(machine), &mut Caller { deadline }).await
}

/// Waits for a future until the deadline passes or the client stops.
pub(crate) fn before<T>(
    client: &Client,
    deadline: Option<Time>,
    future: impl Future<Output = T>,
) -> impl Future<Output = Result<T, RecipeError>> {
    // An `async fn` would keep the future twice, and each waiter for a lock has one of these.
    wait(client, deadline, future, Err)
}

/// Reserves a slot of the janitor for a duty about this path. While all slots are taken, waits for
/// one, at most until the deadline.
pub(crate) async fn reserve(
    client: &Client,
    path: &ByteString,
    deadline: Option<Time>,
) -> Result<Slot, RecipeError> {
    let session = Session::of(client);
    match session.try_reserve_slot(path) {
        Some(slot) => Ok(slot),
        // Boxed, because each caller would have room for it, and nearly none has to wait.
        None => Box::pin(before(client, deadline, session.reserve_slot(path))).await,
    }
}

/// Waits for a future that ends with its client, until the deadline passes; then returns `None`.
pub(crate) async fn at_most<T>(
    client: &Client,
    deadline: Option<Time>,
    future: impl Future<Output = T>,
) -> Option<T> {
    if deadline.is_none() {
        return Some(future.await);
    }
    wait(client, deadline, future, |_| Ok(())).await.ok()
}

/// Waits for a future until the deadline passes. `stopped` decides whether to wait on when the client
/// has stopped.
async fn wait<T>(
    client: &Client,
    deadline: Option<Time>,
    future: impl Future<Output = T>,
    stopped: impl Fn(RecipeError) -> Result<(), RecipeError>,
) -> Result<T, RecipeError> {
    let mut future = pin!(future);
    // Open the feed only if the future has to wait.
    let mut feed = None;
    let mut has_stopped = false;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let feed = feed.get_or_insert_with(|| Feed::new(Session::of(client).lane()));
        while !has_stopped {
            let stop = match ready!(feed.poll_next(cx, deadline)) {
                FeedEvent::Input(Input::Timer) => {
                    return Poll::Ready(Err(RecipeError::timed_out()));
                }
                FeedEvent::AuthFailed => RecipeError::AuthFailed,
                FeedEvent::Closed => RecipeError::Closed,
                FeedEvent::Connected(_) | FeedEvent::Input(_) | FeedEvent::Lapsed => continue,
            };
            stopped(stop)?;
            has_stopped = true;
        }
        Poll::Pending
    })
    .await
}

/// Waits for this long, or until the client stops.
pub(crate) async fn pause(client: &Client, length: Duration) {
    let mut feed = Feed::new(Session::of(client).lane());
    let until = feed.lane.now() + length;
    while !matches!(
        feed.next(Some(until)).await,
        FeedEvent::Input(Input::Timer) | FeedEvent::AuthFailed | FeedEvent::Closed
    ) {}
}

/// Waits for the next of several pauses. Their lengths differ among callers, many of whom may begin
/// at the same time. Ends early if the connection is lost or the client stops.
pub(crate) async fn rest(client: &Client, pauses: &mut Pauses) {
    let session = Session::of(client);
    let mut feed = Feed::new(session.lane());
    let until = Some(pauses.begin(feed.lane.now(), session.unique_id() as u64));
    while !matches!(
        feed.next(until).await,
        FeedEvent::Input(Input::Timer | Input::Suspended)
            | FeedEvent::AuthFailed
            | FeedEvent::Closed
    ) {}
}

/// Returns a random part of the pause.
pub(crate) fn up_to(client: &Client, pause: Duration) -> Duration {
    pause.mul_f64(f64::from(Session::of(client).unique_id() as u32) / f64::from(u32::MAX))
}

/// Returns a random time between half of the pause and all of it.
pub(crate) fn jitter(client: &Client, pause: Duration) -> Duration {
    let half = pause / 2;
    half + up_to(client, half)
}
