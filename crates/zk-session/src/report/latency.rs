//! A histogram of durations.
//!
//! Each bucket is 1.41 times as wide as the one before, so that a few dozen numbers describe
//! everything between a microsecond and an hour with an error of at most a fifth.

use std::time::Duration;

/// Maximum number of buckets. The last one begins at about 100 minutes, and has no end.
const BUCKETS_MAX: usize = 66;

/// How many durations fell into each bucket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Latencies {
    /// Bucket 2k begins at 2^k µs, and bucket 2k + 1 at √2 · 2^k µs. The first one also contains
    /// everything shorter. Only the buckets from `first` to the last one that is not empty are
    /// stored, because most sessions use few of them.
    buckets: Vec<u64>,
    first: usize,
    count: u64,
    total: Duration,
    longest: Duration,
}

impl Latencies {
    pub(crate) fn record(&mut self, duration: Duration) {
        let bucket = bucket(duration);
        self.make_room(bucket);
        if let Some(count) = self.buckets.get_mut(bucket - self.first) {
            *count += 1;
        }
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.longest = self.longest.max(duration);
    }

    /// Stores a bucket, and those between it and the others.
    fn make_room(&mut self, bucket: usize) {
        if self.buckets.is_empty() {
            self.first = bucket;
        }
        let missing = self.first.saturating_sub(bucket);
        let length = (self.buckets.len() + missing).max(bucket + 1 - self.first.min(bucket));
        if length > self.buckets.len() {
            let mut buckets = Vec::with_capacity(length);
            buckets.resize(missing, 0);
            buckets.append(&mut self.buckets);
            buckets.resize(length, 0);
            self.buckets = buckets;
            self.first -= missing;
        }
    }

    pub(crate) fn quantile(&self, share: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the rank is between 1 and the count, and a small error does not matter"
        )]
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(self.first + bucket).min(self.longest);
            }
        }
        Duration::ZERO
    }

    pub(crate) fn mean(&self) -> Duration {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.total.checked_div(count).unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }
}

fn bucket(duration: Duration) -> usize {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = us.ilog2();
    // Compares the squares, to find out without floating-point numbers whether us ≥ √2 · 2^power.
    let is_second = u128::from(us) * u128::from(us) >= 1 << (2 * power + 1);
    (2 * power as usize + usize::from(is_second)).min(BUCKETS_MAX - 1)
}

/// Returns the geometric mean of the ends of a bucket.
fn middle(bucket: usize) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "the number is below 100")]
    let exponent = (bucket as f64 + 0.5) / 2.0;
    Duration::from_secs_f64(exponent.exp2() / 1e6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_recorded_is_zero() {
        let latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), Duration::ZERO);
        assert_eq!(latencies.mean(), Duration::ZERO);
    }

    #[test]
    fn extremes_have_a_bucket() {
        let mut latencies = Latencies::default();
        for duration in [Duration::ZERO, Duration::MAX] {
            latencies.record(duration);
            latencies.record(duration);
        }
        assert!(latencies.quantile(0.5) <= Duration::from_micros(2));
        assert!(latencies.quantile(1.0) >= Duration::from_secs(3600));
        assert_eq!(latencies.longest(), Duration::MAX);
    }

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_fifth_off(
            mut micros in proptest::collection::vec(1_u64..3_000_000_000, 1..200),
            share in 0.0_f64..=1.0,
        ) {
            let mut latencies = Latencies::default();
            for us in &micros {
                latencies.record(Duration::from_micros(*us));
            }
            micros.sort_unstable();
            let rank = ((micros.len() as f64 * share).ceil() as usize).clamp(1, micros.len());
            let exact = micros[rank - 1] as f64 / 1e6;
            let found = latencies.quantile(share).as_secs_f64();
            prop_assert!(found >= exact * 0.8 && found <= exact * 1.2, "{found} for {exact}");
        }
    }
}
