//! A second opinion on the time.
//!
//! All timers are those of the client's runtime. Should nobody drive that runtime, because it is
//! blocked or was forgotten, a deadline would pass unseen. So whoever waits with a deadline has the
//! client's clock looked at by another thread too. The runtime of the waiter would not do: it may
//! have no timers, and may be none of tokio's.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_timer::Delay;
use zk_session::Time;

/// Shortest delay, so that the loop below ends.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// The timer is armed for at most this long, and then armed again: a deadline may lie further ahead
/// than the system's clock can count.
const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A timer that belongs to no runtime.
#[derive(Default)]
pub(crate) struct Watchdog {
    armed: Option<(Time, Delay)>,
}

impl Watchdog {
    /// Ready when it is `at` or later. Otherwise the task is woken then, or earlier.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Time, at: Time) -> Poll<()> {
        if at <= now {
            return Poll::Ready(());
        }
        // One that is armed for an earlier time may stay, and is armed again when that has come.
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
        // The clocks may differ, so the time may have come here and not there.
        let delay = at.saturating_since(now).clamp(DELAY_MIN, DELAY_MAX);
        self.armed = Some((at, Delay::new(delay)));
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("is_armed", &self.armed.is_some()).finish()
    }
}
