//! The clock of the servers, which may run faster or slower than that of their clients.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the time since the start at the speed of the servers' clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerClock {
    start: Instant,
    /// Thousandths of the speed of tokio's clock.
    rate: u32,
}

impl ServerClock {
    pub(super) fn start(rate: u32) -> Self {
        Self { start: Instant::now(), rate }
    }

    pub(super) fn now(self) -> Duration {
        let elapsed = self.start.elapsed();
        if self.rate == 1_000 { elapsed } else { elapsed * self.rate / 1_000 }
    }

    /// Returns when this clock shows a time, or `None` for times that never come. Tests may ask for a
    /// lag or a delay without end.
    pub(super) fn instant(self, time: Duration) -> Option<Instant> {
        if self.rate == 1_000 {
            return self.start.checked_add(time);
        }
        // Rounded up: at that moment, the time must have come.
        let elapsed = time.checked_mul(1_000)? / self.rate + Duration::from_nanos(1);
        self.start.checked_add(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep_until;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_runs_at_its_rate_and_alarms_are_never_early() {
        for rate in [950, 1_000, 1_050] {
            let clock = ServerClock::start(rate);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(clock.now(), Duration::from_millis(20 * u64::from(rate)));
            let time = clock.now() + Duration::from_nanos(7);
            sleep_until(clock.instant(time).unwrap()).await;
            assert!((time..time + Duration::from_millis(3)).contains(&clock.now()), "{rate}");
            assert_eq!(clock.instant(Duration::MAX), None);
        }
    }
}
