//! A second opinion on the time.
//!
//! All timers are those of the client's runtime. Should nobody drive that runtime, because it is
//! blocked or was forgotten, a deadline would pass unseen. So whoever waits with a deadline on a
//! runtime of tokio's lets that one look at the client's clock too.

#![expect(clippy::disallowed_methods, reason = "this is the runner: it owns timers")]

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, Id};
use tokio::time::Sleep;
use zk_session::Time;

/// A timer of the runtime in which it is polled. Outside of tokio it never wakes anybody.
#[derive(Default)]
pub(crate) struct Watchdog {
    timer: Option<Timer>,
}

struct Timer {
    runtime: Id,
    at: Time,
    sleep: Pin<Box<Sleep>>,
}

impl Watchdog {
    /// Ready when it is `at` or later. Otherwise the task is woken then, or earlier.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Time, at: Time) -> Poll<()> {
        if at <= now {
            return Poll::Ready(());
        }
        let Ok(runtime) = Handle::try_current() else { return Poll::Pending };
        // A timer of a runtime that has ended must not be polled, and one that is armed for an
        // earlier time than this may stay.
        let is_of_use = |timer: &Timer| timer.runtime == runtime.id() && timer.at <= at;
        let timer = match self.timer.take().filter(is_of_use) {
            Some(timer) => timer,
            None => Timer::new(runtime.id(), now, at),
        };
        let timer = self.timer.insert(timer);
        if timer.sleep.as_mut().poll(cx).is_ready() {
            // It was armed for an earlier time, or the clocks differ.
            *timer = Timer::new(runtime.id(), now, at);
            if timer.sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl Timer {
    fn new(runtime: Id, now: Time, at: Time) -> Self {
        let sleep = Box::pin(tokio::time::sleep(at.saturating_since(now)));
        Self { runtime, at, sleep }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("is_armed", &self.timer.is_some()).finish()
    }
}
