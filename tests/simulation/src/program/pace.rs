//! How long tasks pause and keep something in worlds of some kinds.

use std::time::Duration;

use super::task::Task;
use crate::world::kinds::WorldKind;

/// How long a task keeps something in a calm world, in hundredths of its session timeout.
const CALM_HOLD: (u64, u64) = (20, 120);
/// How many keep it for a moment instead, in percent, and for how long at most.
const SHORT_PERCENT: u64 = 33;
const SHORT_MS_MAX: u64 = 1_000;
/// The longest pauses and holds where leases are short and callers write all the time.
const BREATHLESS_IDLE_MS_MAX: u64 = 600;
const BREATHLESS_HOLD_MS_MAX: u64 = 2_000;
/// The longest pauses and holds where an administrator deletes what callers rely on: somebody has to rely
/// on something all the time.
const WAYLAID_IDLE_MS_MAX: u64 = 300;
const WAYLAID_HOLD_MS_MAX: u64 = 1_500;
/// The longest pauses where links are narrow, so that much waits for them.
const NARROW_IDLE_MS_MAX: [u64; 3] = [10, 1_000, 10_000];

impl Task {
    /// Draws for how long to keep something, if the kind of the world determines it.
    pub(super) fn paced_hold(&mut self) -> Option<Duration> {
        let ms = match self.world.plan.kinds.kind? {
            WorldKind::Calm if self.draw.chance(SHORT_PERCENT) => {
                self.draw.between(1, SHORT_MS_MAX)
            }
            WorldKind::Calm => {
                let timeout = u64::try_from(self.client.status().timeout.as_millis()).unwrap_or(0);
                timeout * self.draw.between(CALM_HOLD.0, CALM_HOLD.1) / 100
            }
            WorldKind::Breathless => self.draw.between(1, BREATHLESS_HOLD_MS_MAX),
            WorldKind::Waylaid => self.draw.between(1, WAYLAID_HOLD_MS_MAX),
            WorldKind::Crowded
            | WorldKind::Lulls
            | WorldKind::Moving
            | WorldKind::Narrow
            | WorldKind::Returning
            | WorldKind::Waiting => return None,
        };
        Some(Duration::from_millis(ms))
    }

    /// Draws for how long to pause, if the kind of the world determines it.
    pub(super) fn paced_idle(&mut self) -> Option<Duration> {
        let longest = match self.world.plan.kinds.kind? {
            WorldKind::Breathless => BREATHLESS_IDLE_MS_MAX,
            WorldKind::Narrow => self.draw.pick(&NARROW_IDLE_MS_MAX),
            WorldKind::Waylaid => WAYLAID_IDLE_MS_MAX,
            _ => return None,
        };
        Some(Duration::from_millis(self.draw.between(1, longest)))
    }
}
