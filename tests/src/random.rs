//! Repeatable random numbers: the same seed produces the same run.

use std::time::Duration;

/// The SplitMix64 generator of Steele, Lea and Flood: small, fast, good enough to choose faults.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts the sequence of this seed. All seeds are equally good.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number of the sequence.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound - 1`.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert_ne!(bound, 0, "no number is below 0");
        self.next_u64() % bound
    }

    /// Returns a uniformly distributed time from zero to twice `mean`.
    pub fn around(&mut self, mean: Duration) -> Duration {
        let nanos = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(self.below(nanos.saturating_mul(2).saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_of_seed_1234567_is_reproduced() {
        let mut random = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn times_stay_within_twice_the_mean() {
        let mut random = SplitMix64::new(7);
        let mean = Duration::from_millis(10);
        let drawn: Vec<Duration> = (0..1000).map(|_| random.around(mean)).collect();
        assert!(drawn.iter().all(|time| *time <= 2 * mean));
        let average = drawn.iter().sum::<Duration>() / 1000;
        assert!((mean * 9 / 10..mean * 11 / 10).contains(&average), "{average:?}");
    }
}
