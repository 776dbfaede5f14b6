//! Time: the clock of deadlines, waiting by that clock, and the time of day.
//!
//! Deadlines pass from one process to another, so they are times of `CLOCK_BOOTTIME`, which all
//! processes of a machine share, and which goes on while the machine is suspended.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// How often a wait reads the clock. The timers of the runtime do not count the time during which the
/// machine is suspended, so after a resume, a wait may be late by this.
const STEP_MAX: Duration = Duration::from_millis(500);

/// Returns the time since the machine has booted.
pub(crate) fn boot_now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::try_from(now).expect("the machine has booted in the past")
}

/// Returns the time of day, with which the times of servers are compared.
#[expect(clippy::disallowed_methods, reason = "ages are shown to people, and decide nothing")]
pub(crate) fn day_now() -> SystemTime {
    SystemTime::now()
}

/// Waits until a time of [`boot_now`], or without end. Cancel safe.
#[expect(clippy::disallowed_methods, reason = "no event announces the deadline of a lock")]
pub(crate) async fn wait_until(at: Option<Duration>) {
    let Some(at) = at else { return std::future::pending().await };
    loop {
        let left = at.saturating_sub(boot_now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(STEP_MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_at_its_time_and_not_before() {
        let at = boot_now() + STEP_MAX + Duration::from_millis(20);
        wait_until(Some(at)).await;
        assert!(boot_now() >= at);
        wait_until(Some(Duration::ZERO)).await;
    }
}
