//! Watches: their numbers, and when they are checked.
//!
//! A watch may never fire: no server reports a change to those who may not read the znode, and it
//! tells nobody that permissions have changed. So whoever waits for one looks from time to time.

#[cfg(feature = "tokio")]
use std::time::Duration;

#[cfg(feature = "tokio")]
use zk_session::Time;
pub use zk_session::recipe::WatchNumber;

#[cfg(feature = "tokio")]
use super::pause::spread;
#[cfg(feature = "tokio")]
use super::step::SessionView;

/// How often watches are checked, unless an option of the recipe says otherwise.
#[cfg(feature = "tokio")]
pub(crate) const WATCH_CHECK: Duration = Duration::from_secs(30);

/// The shortest interval that an option permits. A shorter one would be a hot loop.
#[cfg(feature = "tokio")]
pub(crate) const WATCH_CHECK_MIN: Duration = Duration::from_millis(10);

/// Returns when to check watches for the next time, if no option says how often: after
/// [`WATCH_CHECK`], and up to a quarter later.
#[cfg(feature = "tokio")]
pub(crate) fn next_check(view: SessionView) -> Time {
    view.now + spread(WATCH_CHECK, view.seed.into())
}

/// Returns whether to check watches now. Otherwise, `at` is the time to ask again.
///
/// Without a connection, there is no check: the client restores watches on its next connection, and
/// the server reports what was missed. If all checks that are due by then followed, they would come
/// at once.
#[cfg(feature = "tokio")]
pub(crate) fn is_check_due(view: SessionView, at: &mut Time) -> bool {
    if *at > view.now {
        return false;
    }
    let is_due = view.connection.is_some();
    if !is_due {
        *at = next_check(view);
    }
    is_due
}

/// Issues watch numbers. No number is issued twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchNumbers {
    next: WatchNumber,
}

impl Default for WatchNumbers {
    fn default() -> Self {
        Self { next: WatchNumber::FIRST }
    }
}

impl WatchNumbers {
    pub(crate) fn issue(&mut self) -> WatchNumber {
        let number = self.next;
        self.next = number.next();
        number
    }

    /// Continues after the numbers that another machine issued on the same lane.
    #[cfg(feature = "tokio")]
    pub(crate) fn after(last: Option<WatchNumber>) -> Self {
        let next = last.map_or(WatchNumber::FIRST, WatchNumber::next);
        Self { next }
    }
}
