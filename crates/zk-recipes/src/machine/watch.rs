//! Numbers of watches.

pub use zk_session::recipe::WatchNumber;

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
