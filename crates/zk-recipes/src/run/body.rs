//! Running a body of work while the lock is held.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Feed;
use super::hold::Hold;
use super::watchdog::Watchdog;
use crate::error::Stopped;
use crate::guard::LockState;
use crate::machine::PAUSE;

/// A body under way; see [`Guard::run`](crate::Guard::run).
///
/// Dropping it drops the body, and changes nothing for the guard.
#[must_use = "futures do nothing unless polled"]
pub struct Run<'a, F> {
    hold: &'a Arc<Hold>,
    /// Gone when it has ended, or was stopped.
    body: Option<Pin<Box<F>>>,
    /// Wakes the run when the body has to be stopped.
    alarm: Pin<Box<dyn Future<Output = Stopped> + Send>>,
    stops_at_risk: bool,
}

impl<'a, F: Future> Run<'a, F> {
    pub(crate) fn new(hold: &'a Arc<Hold>, body: F) -> Self {
        let lost = hold.lost();
        let alarm = Box::pin(async move { Stopped::Lost(lost.await) });
        Self { hold, body: Some(Box::pin(body)), alarm, stops_at_risk: false }
    }

    /// Also stops the body when the lock is at risk, with [`Stopped::AtRisk`]: for work that is
    /// better interrupted by a short loss of the connection than continued in doubt. The guard
    /// keeps the lock, and may hold it again a moment later. A lock that has no lease yet, because
    /// its session was idle, is waited for: the body begins when it has one. Default: go on until the lock is
    /// lost.
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
            LockState::AtRisk | LockState::Held => None,
        }
    }

    /// The body is not begun before the lock is held in full, if it is to stop when it is not.
    fn may_begin(&self) -> bool {
        !self.stops_at_risk || self.hold.was_held()
    }
}

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, Stopped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let run = self.get_mut();
        let mut body = run.body.take().expect("polled after completion");
        // First, so that what happens after the looks below wakes this again.
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
        // A body that has blocked may have come to its end when the lock was long lost.
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

/// Waits until the lock is at risk after it was held in full, or lost. Whoever polls it is woken
/// when the lock is held in full for the first time, too.
async fn until_at_risk(hold: Arc<Hold>) -> Stopped {
    let mut states = hold.client.states();
    let mut feed = Feed::new(hold.client.lane());
    let mut watchdog = Watchdog::default();
    let mut lost = pin!(hold.lost());
    loop {
        // What changes after this look ends the wait below.
        let status = states.current();
        match hold.state() {
            LockState::Lost(reason) => return Stopped::Lost(reason),
            LockState::AtRisk if hold.was_held() => return Stopped::AtRisk,
            LockState::AtRisk | LockState::Held => {}
        }
        let overdue = if hold.was_held() {
            // Acknowledgements move it on without a word.
            status.risk_deadline().unwrap_or_default()
        } else {
            hold.client.now() + PAUSE
        };
        tokio::select! {
            reason = &mut lost => return Stopped::Lost(reason),
            Some(_) = states.next() => {}
            _ = feed.next(Some(overdue)) => {}
            () = poll_fn(|cx| watchdog.poll(cx, hold.client.now(), overdue)) => {}
        }
    }
}
