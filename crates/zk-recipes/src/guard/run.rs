//! Running a body of work while the lock is held.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use zk_session::recipe::Session;

use super::hold::Hold;
use crate::lock::error::Stopped;
use crate::lock::state::LockState;

/// A body that is running; see [`Guard::run`](crate::Guard::run).
///
/// Dropping it drops the body, and does not affect the guard.
#[must_use = "futures do nothing unless polled"]
pub struct Run<'a, F> {
    hold: &'a Arc<Hold>,
    /// `None` after it has completed or was stopped.
    body: Option<Pin<Box<F>>>,
    /// Completes when the body has to be stopped.
    alarm: Pin<Box<dyn Future<Output = Stopped> + Send>>,
    stops_at_risk: bool,
}

impl<'a, F: Future> Run<'a, F> {
    pub(crate) fn new(hold: &'a Arc<Hold>, body: F) -> Self {
        let lost = hold.lost();
        let alarm = Box::pin(async move { Stopped::Lost(lost.await) });
        Self { hold, body: Some(Box::pin(body)), alarm, stops_at_risk: false }
    }

    /// Also stops the body when the lock is at risk, with [`Stopped::AtRisk`]. Use it for work that
    /// must not continue while it is uncertain whether the lock is held, even though a short loss
    /// of the connection then interrupts the work. The guard keeps the lock, which may be held
    /// again a moment later. If there is no lease yet, because the session was idle, the body
    /// starts when there is a lease. Default: continue until the lock is lost.
    pub fn stop_at_risk(mut self) -> Self {
        self.alarm = Box::pin(until_at_risk(Arc::clone(self.hold)));
        self.stops_at_risk = true;
        self
    }

    fn verdict(&self) -> Option<Stopped> {
        match self.hold.state() {
            LockState::Lost(reason) => Some(Stopped::Lost(reason)),
            LockState::AtRisk if self.stops_at_risk && self.hold.was_held() => {
                Some(Stopped::AtRisk)
            }
            LockState::AtRisk if self.stops_at_risk => {
                self.hold.client().status().slow_commits().map(Stopped::NoLease)
            }
            LockState::AtRisk | LockState::Held => None,
        }
    }

    /// Returns whether the body may start. A body that stops at risk does not start before the lock
    /// is held with a lease.
    fn may_begin(&self) -> bool {
        !self.stops_at_risk || self.hold.was_held()
    }
}

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, Stopped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let run = self.get_mut();
        let mut body = run.body.take().expect("polled after completion");
        // Poll the alarm first, so that a change after the checks below wakes this task again.
        if let Poll::Ready(stopped) = run.alarm.as_mut().poll(cx) {
            return Poll::Ready(Err(stopped));
        }
        if let Some(stopped) = run.verdict() {
            return Poll::Ready(Err(stopped));
        }
        if !run.may_begin() {
            run.body = Some(body);
            return Poll::Pending;
        }
        let polled = body.as_mut().poll(cx);
        // A body that has blocked may have completed long after the lock was lost.
        if let Some(stopped) = run.verdict() {
            return Poll::Ready(Err(stopped));
        }
        if polled.is_pending() {
            run.body = Some(body);
        }
        polled.map(Ok)
    }
}

impl<F> std::fmt::Debug for Run<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("path", &self.hold.path)
            .field("stops_at_risk", &self.stops_at_risk)
            .finish_non_exhaustive()
    }
}

/// Waits until the lock is lost, or at risk after it was held with a lease. Also wakes its task
/// when the lock is held with a lease for the first time.
async fn until_at_risk(hold: Arc<Hold>) -> Stopped {
    let mut states = hold.client().states();
    let session = Session::of(hold.client());
    let (mut lane, mut watchdog) = (session.lane(), session.watchdog());
    let mut lost = pin!(hold.lost());
    loop {
        // A change after this call ends the wait below.
        let status = states.current();
        match hold.state() {
            LockState::Lost(reason) => return Stopped::Lost(reason),
            LockState::AtRisk if hold.was_held() => return Stopped::AtRisk,
            LockState::AtRisk => {
                if let Some(slow) = status.slow_commits() {
                    return Stopped::NoLease(slow);
                }
            }
            LockState::Held => {}
        }
        if !hold.was_held() {
            tokio::select! {
                biased;
                reason = &mut lost => return Stopped::Lost(reason),
                () = hold.next_change(&mut states, &mut lane) => {}
            }
            continue;
        }
        // An acknowledgement postpones this deadline without an event.
        let overdue = status.risk_deadline().unwrap_or_default();
        lane.wake_at(overdue);
        tokio::select! {
            biased;
            reason = &mut lost => return Stopped::Lost(reason),
            Some(_) = states.next() => {}
            _ = lane.next() => {}
            () = poll_fn(|cx| watchdog.poll(cx, hold.client().now(), overdue)) => {}
        }
    }
}
