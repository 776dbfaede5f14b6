//! Gaps between replies, in which a server may have paused unnoticed.

use std::time::Duration;

/// The two longest gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps([Duration; 2]);

impl Gaps {
    pub(super) fn add(&mut self, gap: Duration) {
        let [first, second] = self.0;
        self.0 = [first.max(gap), second.max(first.min(gap))];
    }

    pub(super) fn longest(self) -> [Duration; 2] {
        self.0
    }

    pub(super) fn sum(self) -> Duration {
        let [first, second] = self.0;
        first + second
    }
}
