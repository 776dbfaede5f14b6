//! Until when a lock is safe, as a time that another process understands.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockState};

use crate::clock::boot_now;

/// The time between two looks at the lease, as a fraction of the session timeout.
const LOOKS: u32 = 40;
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Returns the time from which another contender may hold the lock; `None` if the lock is lost.
pub(crate) fn deadline<K: Kind>(guard: &Guard<K>, client: &Client) -> Option<Duration> {
    // Read the clock first: a pause between these lines then makes the deadline earlier, not later.
    let now = boot_now();
    match guard.state() {
        LockState::Lost(_) => None,
        LockState::Held | LockState::AtRisk => {
            let left = client.status().guard_deadline()?.saturating_since(client.now());
            Some(now + left)
        }
    }
}

/// Returns the times at which to look at the lease again. Renewals of a lease cause no events.
pub(crate) fn looks(client: &Client) -> Interval {
    let mut looks = interval((client.status().timeout / LOOKS).clamp(LOOK_MIN, LOOK_MAX));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Returns the time that remains between SIGKILL and the deadline, in which processes disappear.
pub(crate) fn margin(timeout: Duration) -> Duration {
    (timeout / 20).min(Duration::from_millis(500))
}
