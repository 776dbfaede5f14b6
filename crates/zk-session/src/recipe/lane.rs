//! Lanes: one ordered queue of replies, watch events and session changes.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytestring::ByteString;
use futures_core::Stream;

use crate::chroot::translate::Root;
use crate::driver::command::{Command, ReplySink};
use crate::driver::janitor::Due;
use crate::driver::lane_event::LaneEvent;
use crate::driver::lane_queue::{LaneReceiver, LeaseNeed, lane_queue};
use crate::driver::notices::Notice;
use crate::driver::shared::Shared;
use crate::error::OpError;
use crate::machine::{Flight, OwnerId, SessionState, Status, Token};
use crate::time::Time;

/// Maximum number of operations of one lane that are waiting or in flight. They do not count
/// against `outstanding_limit`: a recipe that cannot send because of unrelated requests would block
/// all other contenders for its lock.
const PENDING_MAX: usize = 256;

/// A lane submits flights. It receives their replies, the events of their watches and the changes
/// of the session through one queue, in the order in which the server sent them.
///
/// Recipes are built on lanes. Other code is better served by the methods of
/// [`Client`](crate::Client).
///
/// A lane keeps the client's session open. Dropping it removes its watches and discards its pending
/// flights; flights that were not sent by then are never sent.
///
/// The queue holds at most one reply per flight and one event per watch. Between any two of these,
/// it holds at most two changes of each kind, so the queue of a lane that is not polled does not
/// grow. A change may be replaced by a later one of its kind, except for the first `Ended` among
/// them.
/// At most 256 operations of a lane may be pending at a time. They do not count against
/// [`outstanding_limit`](crate::ClientBuilder::outstanding_limit), and are never refused because of
/// it.
///
/// As a [`Stream`], it yields what [`next`](Self::next) returns, and ends after
/// [`LaneEvent::Stopped`].
pub struct Lane {
    shared: Arc<Shared>,
    id: OwnerId,
    events: LaneReceiver,
    /// Pending flights and the number of their operations, oldest first.
    pending: VecDeque<(Token, usize)>,
    /// The alarm that is set, if any.
    alarm: Option<Time>,
    needs_lease: bool,
    /// The lane has yielded [`LaneEvent::Stopped`].
    has_stopped: bool,
    /// Number of times that the lane has begun to need the lease.
    needs: u32,
}

impl Lane {
    pub(crate) fn open(shared: Arc<Shared>) -> Self {
        let id = shared.fresh_owner();
        let (sender, events) = lane_queue();
        // If the task has ended, the sender is dropped and the first event is `Stopped`.
        shared.send(Command::OpenLane(id, sender));
        Self {
            shared,
            id,
            events,
            pending: VecDeque::new(),
            alarm: None,
            needs_lease: false,
            has_stopped: false,
            needs: 0,
        }
    }

    /// Submits a flight with the client's paths. A create without an access control list, even in a
    /// multi, gets the default list of the client.
    ///
    /// # Errors
    ///
    /// Fails with [`OpError::QueueFull`] if more than 256 operations of this lane would be pending,
    /// or if the client has stopped. In both cases, nothing is sent.
    pub fn submit(&mut self, mut flight: Flight) -> Result<Token, OpError> {
        let count = flight.operations.len();
        let pending = self.pending.iter().map(|(_, count)| count).sum();
        if count + pending > PENDING_MAX {
            return Err(OpError::QueueFull { waiting: pending, target: flight.target() });
        }
        for operation in &mut flight.operations {
            self.shared.access.complete(&self.shared.chroot, &mut operation.request);
        }
        let sink = ReplySink::Lane(self.id);
        let token = self.shared.submit(flight, Root::Client, self.id, sink, None, None)?;
        self.pending.push_back((token, count));
        Ok(token)
    }

    /// Withdraws a flight. If none of it was sent, it completes with [`OpError::Recalled`] and will
    /// never be sent. Otherwise it completes as usual.
    pub fn recall(&mut self, token: Token) {
        self.shared.send(Command::Recall(token));
    }

    /// Sets whether the user of this lane relies on the session's ephemeral znodes, or may do so
    /// soon. While any lane of the client is set to true, the session keeps a
    /// [lease](crate::Lease), by writing if necessary. The value is false at first, and after the
    /// lane is dropped.
    pub fn need_lease(&mut self, needs_lease: bool) {
        if self.needs_lease != needs_lease {
            self.needs_lease = needs_lease;
            self.needs += u32::from(needs_lease);
            let need = needs_lease.then_some(self.needs);
            self.shared.send(Command::NeedLease(self.id, need));
        }
    }

    /// Sets whether the user of this lane holds a lock. The log says that locks are lost only if one
    /// is held. The value is false at first, and after the lane is dropped.
    pub fn hold_lock(&mut self, holds_lock: bool) {
        self.shared.send(Command::HoldLock(self.id, holds_lock));
    }

    /// Returns a view of the newest need for the lease, which tells whether the session's task
    /// knows of it.
    pub fn lease_need(&self) -> LeaseNeed {
        self.events.need(self.needs)
    }

    /// Waits until the session's task has handled all earlier commands of this lane's user, or
    /// until the next event, which is discarded.
    pub async fn turn(&mut self) {
        self.wake_at(self.now());
        self.next().await;
    }

    /// Schedules an [`Alarm`](LaneEvent::Alarm) for this time. The alarm arrives then, or soon
    /// after.
    ///
    /// A lane has one alarm. An earlier time replaces a later one; a later time is ignored while an
    /// earlier one is pending. So an alarm may arrive before the last scheduled time: compare that
    /// time with [`now`](Self::now), and schedule the alarm again if necessary.
    ///
    /// The timer belongs to the session's task and follows the client's clock. It does not depend
    /// on the caller's runtime, which may shut down, stall, or not be tokio's.
    pub fn wake_at(&mut self, at: Time) {
        if self.alarm.is_none_or(|alarm| at < alarm) {
            self.alarm = Some(at);
            self.shared.send(Command::WakeLane(self.id, at));
        }
    }

    /// Waits for the next event. Cancel safe: no event is lost.
    pub async fn next(&mut self) -> LaneEvent {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Takes the next event, or registers the task to be woken when one arrives.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<LaneEvent> {
        self.events.poll_next(cx).map(|event| self.receive(event))
    }

    /// Takes the next event if there is one. Unlike [`poll_next`](Self::poll_next), it is not
    /// subject to tokio's cooperative budget: `None` means that nothing has arrived.
    pub fn try_next(&mut self) -> Option<LaneEvent> {
        self.events.try_next().map(|event| self.receive(event))
    }

    /// Updates the lane's state.
    fn receive(&mut self, mut event: LaneEvent) -> LaneEvent {
        match &mut event {
            LaneEvent::Reply { token, reply } => {
                self.shared.receive(reply);
                let token = *token;
                self.remove_pending(token);
            }
            LaneEvent::Alarm => self.alarm = None,
            LaneEvent::Change(_) | LaneEvent::Stopped | LaneEvent::Watch { .. } => {}
        }
        event
    }

    fn remove_pending(&mut self, token: Token) {
        if let Some(at) = self.pending.iter().position(|(other, _)| *other == token) {
            self.pending.remove(at);
        }
        if self.pending.is_empty() {
            // Frees the buffer, because most lanes wait for events rather than for replies.
            self.pending = VecDeque::new();
        }
    }

    /// Counts a cleanup in the [backlog](crate::recipe::Session::janitor_backlog) until the result
    /// is dropped.
    pub fn due(&self) -> Due {
        self.shared.janitor.due()
    }

    /// Returns a snapshot of the session.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns a random number that belongs to this lane. Recipes spread their pauses with it.
    pub fn seed(&self) -> u64 {
        self.shared.seed_of(self.id)
    }

    /// Returns the current time of the client's clock.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Runs `cleanup` with a new lane after the next reconnect of this session. The cleanup looks
    /// for what a lost request has left at `path`, so the session is not handed over before.
    ///
    /// Waiting does not keep the client open. If the session ends first, the closure is dropped
    /// without being called. At most 1024 closures of a client wait at a time; further ones are
    /// dropped.
    pub fn after_reconnect<F>(
        &self,
        path: &ByteString,
        cleanup: impl FnOnce(Self) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let before = self.shared.status();
        let mut status = self.shared.ends.status.clone();
        // A strong reference would keep the client open until the reconnect.
        let shared = self.shared.downgrade();
        self.shared.janitor.defer_sweep(self.shared.chroot.to_server(path), async move {
            let is_decided = |now: &Status| {
                now.session != before.session
                    || (now.state == SessionState::Connected && now.connection > before.connection)
            };
            let Ok(now) = status.wait_for(is_decided).await else { return };
            if now.session == before.session
                && let Some(shared) = shared.upgrade()
            {
                cleanup(Self::open(shared)).await;
            }
        });
    }

    /// Counts a message about a single lock, as
    /// [`Session::count_notice`](super::Session::count_notice) does.
    pub fn count_notice(&self, notice: Notice) -> u32 {
        self.shared.notices.count(notice, self.now())
    }

    /// Runs `cleanup` with a new lane after `pause`, provided that this session is still open. The
    /// cleanup deletes a znode at `path`, so the session is not handed over before.
    ///
    /// Waiting does not keep the client open. If the session ends first, or the last handle to
    /// the client is dropped, the closure is dropped without being called. Closures of this method
    /// and of [`after_reconnect`](Self::after_reconnect) share one limit.
    pub fn after_pause<F>(
        &self,
        pause: Duration,
        path: &ByteString,
        cleanup: impl FnOnce(Self) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let session = self.shared.status().session;
        let mut status = self.shared.ends.status.clone();
        let shared = self.shared.downgrade();
        self.shared.janitor.defer_duty(self.shared.chroot.to_server(path), async move {
            let session_ended = async {
                let _ = status.wait_for(|now| now.session != session).await;
            };
            if tokio::time::timeout(pause, session_ended).await.is_err()
                && let Some(shared) = shared.upgrade()
            {
                cleanup(Self::open(shared)).await;
            }
        });
    }
}

impl Stream for Lane {
    type Item = LaneEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LaneEvent>> {
        let lane = self.get_mut();
        if lane.has_stopped {
            return Poll::Ready(None);
        }
        let event = ready!(lane.poll_next(cx));
        lane.has_stopped = matches!(event, LaneEvent::Stopped);
        Poll::Ready(Some(event))
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("id", &self.id.0)
            .field("pending", &self.pending.len())
            .field("needs_lease", &self.needs_lease)
            .finish_non_exhaustive()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for (token, _) in self.pending.drain(..) {
            self.shared.send(Command::Cancel(token));
        }
        self.shared.send(Command::RemoveOwner(self.id));
    }
}
