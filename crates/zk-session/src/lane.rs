//! Lanes: for code that has to see answers, watch events and session changes in one order.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::chroot::response_to_client;
use crate::driver::inbox::Inbox;
use crate::driver::shared::{Command, LaneEvent, Shared, Sink};
use crate::error::OpError;
use crate::machine::{Flight, Reply, SessionState, Status, Token};
use crate::time::Time;

/// Operations of one lane that were not answered. Those of lanes do not count against
/// `outstanding_limit`: a recipe that cannot send because others do keeps its lock from everybody.
const UNANSWERED_MAX: usize = 256;

/// A lane: flights go in, and their answers, the events of their watches and the changes of the
/// session come out of one queue, in the order of the server.
///
/// This is what lock recipes are built on. Ordinary code is better served by the methods of
/// [`Client`](crate::Client).
///
/// A lane keeps the client's session open. Dropping it forgets its watches and unanswered
/// flights; flights that were not sent will not be.
///
/// Its queue holds at most one reply for each flight, one event for each watch, and between two of
/// these at most two changes of a kind: a lane that is not polled does not grow. A change that is
/// followed by another of its kind is skipped; the first `Ended` among them never is.
///
/// At most 256 of its operations may be unanswered at a time. They do not count against
/// [`outstanding_limit`](crate::ClientBuilder::outstanding_limit), nor are they refused because of
/// it.
#[derive(Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    id: u64,
    events: Inbox,
    /// Flights, oldest first, as they are answered, with the number of their operations.
    unanswered: VecDeque<(Token, usize)>,
    /// The alarm that the task has, if any.
    alarm: Option<Time>,
    needs_lease: bool,
}

impl Lane {
    pub(crate) fn open(shared: Arc<Shared>) -> Self {
        let id = shared.fresh_id();
        let (teller, events) = Inbox::open();
        // Without a task, the other end is gone, and the first event says so.
        let _ = shared.commands.send(Command::OpenLane(id, teller));
        Self { shared, id, events, unanswered: VecDeque::new(), alarm: None, needs_lease: false }
    }

    /// Submits a flight, with paths as the client sees them. Its watches are named by the `local`
    /// half of their id; the other half is filled in.
    ///
    /// # Errors
    ///
    /// The flight was not taken: more than 256 operations of this lane would be unanswered
    /// ([`OpError::QueueFull`]), or the client has stopped.
    pub fn submit(&mut self, mut flight: Flight) -> Result<Token, OpError> {
        let count = flight.operations.len();
        let unanswered = self.unanswered.iter().map(|(_, count)| count).sum();
        if count + unanswered > UNANSWERED_MAX {
            return Err(OpError::QueueFull(unanswered));
        }
        self.shared.to_server(&mut flight);
        let token = self.shared.submit(flight, self.id, Sink::Lane(self.id), None)?;
        self.unanswered.push_back((token, count));
        Ok(token)
    }

    /// Takes a flight back: if it was not sent yet, it will not be, and is answered with
    /// [`OpError::Recalled`]. If it was sent, its answer comes as ever.
    pub fn recall(&mut self, token: Token) {
        let _ = self.shared.commands.send(Command::Recall(token));
    }

    /// Whether whoever uses the lane relies on the session's ephemerals, or may do so next. As long
    /// as any lane of the client does, the session is [leased](crate::Lease), by writes if that is
    /// what keeps the lease. False at first, and when the lane is dropped.
    pub fn need_lease(&mut self, needs_lease: bool) {
        if self.needs_lease != needs_lease {
            self.needs_lease = needs_lease;
            let _ = self.shared.commands.send(Command::NeedLease(self.id, needs_lease));
        }
    }

    /// Has an [`Alarm`](LaneEvent::Alarm) sent at this time, or soon after. A lane has one alarm: an
    /// earlier time replaces a later one, and a later one is ignored while an earlier one is
    /// pending. So an alarm may come before the last time that was asked for: compare it with
    /// [`now`](Self::now), and ask again.
    ///
    /// The timer is that of the client's task. It does not depend on the runtime of the caller,
    /// which may end, stall, or be none of tokio's, and it goes by the client's clock.
    pub fn wake_at(&mut self, at: Time) {
        if self.alarm.is_none_or(|alarm| at < alarm) {
            self.alarm = Some(at);
            let _ = self.shared.commands.send(Command::WakeLane(self.id, at));
        }
    }

    /// Waits for the next event. Cancel safe: no event is lost.
    pub async fn next(&mut self) -> LaneEvent {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Takes the next event, or has the task woken when it is there.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<LaneEvent> {
        self.events.poll_next(cx).map(|event| self.translate(event))
    }

    /// Takes the next event, if it is there. Unlike [`poll_next`](Self::poll_next) it is not
    /// subject to tokio's cooperative budget: `None` means that nothing has arrived.
    pub fn try_next(&mut self) -> Option<LaneEvent> {
        self.events.try_next().map(|event| self.translate(event))
    }

    fn translate(&mut self, event: LaneEvent) -> LaneEvent {
        match event {
            LaneEvent::Reply { token, mut reply } => {
                self.answered(token);
                self.to_client(&mut reply);
                LaneEvent::Reply { token, reply }
            }
            LaneEvent::Watch { local, mut event } => {
                event.path = self.shared.chroot.to_client(&event.path);
                LaneEvent::Watch { local, event }
            }
            LaneEvent::Alarm => {
                self.alarm = None;
                event
            }
            LaneEvent::Change(_) | LaneEvent::Stopped => event,
        }
    }

    fn answered(&mut self, token: Token) {
        if let Some(at) = self.unanswered.iter().position(|(other, _)| *other == token) {
            self.unanswered.remove(at);
        }
        if self.unanswered.is_empty() {
            // Most lanes wait for events, and not for answers.
            self.unanswered = VecDeque::new();
        }
    }

    /// A view of the session.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// The client's time.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Runs `duty` with another lane after the next reconnect of this session. Until then nothing
    /// is kept alive; if the session ends first, nothing is run. At most 1024 of them wait.
    pub fn after_reconnect<F>(&self, duty: impl FnOnce(Self) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let before = self.shared.status();
        let mut status = self.shared.status.clone();
        let shared = Arc::downgrade(&self.shared);
        self.shared.janitor.remember(async move {
            let is_over = |now: &Status| {
                now.session != before.session
                    || (now.state == SessionState::Connected && now.connection > before.connection)
            };
            let Ok(now) = status.wait_for(is_over).await.map(|status| *status) else { return };
            if now.session == before.session
                && let Some(shared) = shared.upgrade()
            {
                duty(Self::open(shared)).await;
            }
        });
    }

    /// Runs `duty` with another lane when `pause` has passed, if this session still lives. Until then
    /// nothing is kept alive; if the session ends first, or the last handle goes away, nothing is
    /// run. Shares its bound with [`after_reconnect`](Self::after_reconnect).
    pub fn after_pause<F>(&self, pause: Duration, duty: impl FnOnce(Self) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let session = self.shared.status().session;
        let mut status = self.shared.status.clone();
        let shared = Arc::downgrade(&self.shared);
        self.shared.janitor.remember(async move {
            let is_over = async {
                let _ = status.wait_for(|now| now.session != session).await;
            };
            if tokio::time::timeout(pause, is_over).await.is_err()
                && let Some(shared) = shared.upgrade()
            {
                duty(Self::open(shared)).await;
            }
        });
    }

    /// A client handle of the same session.
    pub fn client(&self) -> crate::Client {
        crate::Client::from_shared(Arc::clone(&self.shared))
    }

    fn to_client(&self, reply: &mut Reply) {
        for response in reply.results.iter_mut().flatten() {
            response_to_client(&self.shared.chroot, response);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for (token, _) in self.unanswered.drain(..) {
            let _ = self.shared.commands.send(Command::Cancel(token));
        }
        let _ = self.shared.commands.send(Command::ForgetOwner(self.id));
    }
}
