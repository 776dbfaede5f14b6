//! A timer that depends on no runtime.
//!
//! All other timers run on the client's runtime. If that runtime is blocked or is not driven, these
//! timers do not notice that a deadline has passed. So a future that waits with a deadline also
//! lets another thread check the client's clock. The waiter's own runtime cannot be used for this:
//! it may have no timers, or may not be tokio at all.
//!
//! A clock that follows tokio's may be virtual, and the real time of the other thread means nothing
//! then: the number of polls of a future would depend on the speed of the machine. With such a
//! clock, there is no other thread, and the timers of the client's runtime are the only ones.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_timer::Delay;

use crate::driver::clock::Clock;
use crate::driver::ends::STALL_MIN;
use crate::time::Time;

/// The shortest delay. It ensures that the loop below ends.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// The timer is armed for at most this long, and then armed again: a deadline may be further ahead
/// than the system's clock can count.
const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A timer that belongs to no runtime: another thread runs it.
///
/// It is for deadlines that must be kept even if the client's runtime is blocked or not driven. A
/// client with [`Clock::tokio`] has no such timer, so each deadline also needs an alarm of a lane.
pub struct Watchdog {
    is_real: bool,
    armed: Option<(Time, Delay)>,
}

impl Watchdog {
    pub(crate) fn of(clock: &Clock) -> Self {
        Self { is_real: clock.is_real(), armed: None }
    }

    /// Completes if the time `at` has come. Otherwise wakes the task at that time or earlier, unless
    /// the client's clock follows tokio's.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Time, at: Time) -> Poll<()> {
        if at <= now {
            return Poll::Ready(());
        }
        if !self.is_real {
            return Poll::Pending;
        }
        // A timer that is armed for an earlier time stays, and is armed again when it fires.
        if self.armed.as_ref().is_none_or(|(armed, _)| at < *armed) {
            self.arm(now, at);
        }
        while let Some((_, delay)) = &mut self.armed
            && Pin::new(delay).poll(cx).is_ready()
        {
            self.arm(now, at);
        }
        Poll::Pending
    }

    fn arm(&mut self, now: Time, at: Time) {
        // The two clocks may differ, so the timer may fire before the client's clock shows the
        // time.
        let delay = at.saturating_since(now).clamp(DELAY_MIN, DELAY_MAX);
        self.armed = Some((at, Delay::new(delay)));
    }
}

/// The deadline of something whose outcome the session's task finds out, and a watchdog in case that
/// task does not run.
#[derive(Debug)]
pub(crate) struct Overdue {
    at: Time,
    watchdog: Watchdog,
}

impl Overdue {
    /// The task has [`STALL_MIN`] to keep a deadline, because what it reports is more precise: it
    /// knows whether it has sent a request.
    pub(crate) fn after(deadline: Time, clock: &Clock) -> Self {
        Self { at: deadline + STALL_MIN, watchdog: Watchdog::of(clock) }
    }

    /// Completes if the task has missed the deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<()> {
        self.watchdog.poll(cx, now, self.at)
    }
}

/// Waits for something that the session's task reports by this deadline. Returns `None` if the task
/// has missed the deadline.
pub(crate) async fn unless_overdue<T>(
    deadline: Time,
    clock: &Clock,
    report: impl Future<Output = T>,
) -> Option<T> {
    let mut overdue = Overdue::after(deadline, clock);
    let mut report = pin!(report);
    poll_fn(|cx| {
        if let Poll::Ready(output) = report.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        overdue.poll(cx, clock.now()).map(|()| None)
    })
    .await
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("is_armed", &self.armed.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn is_armed_with(clock: &Clock) -> bool {
        let mut watchdog = Watchdog::of(clock);
        let (now, hour) = (clock.now(), Duration::from_secs(3600));
        assert!(watchdog.poll(&mut Context::from_waker(Waker::noop()), now, now).is_ready());
        let polled = watchdog.poll(&mut Context::from_waker(Waker::noop()), now, now + hour);
        assert!(polled.is_pending());
        watchdog.armed.is_some()
    }

    #[test]
    fn the_number_of_polls_in_virtual_time_does_not_depend_on_real_time() {
        assert!(is_armed_with(&Clock::system()));
        assert!(!is_armed_with(&Clock::tokio()));
    }
}
