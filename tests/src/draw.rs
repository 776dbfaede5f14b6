//! Draws everything that a run decides: the same seed draws the same run.

use std::time::Duration;

use crate::random::SplitMix64;

/// Chosen once, so that what was added last draws nothing that others draw.
const ASIDE_SALT: u64 = 0xa51de;

/// A sequence of draws.
#[derive(Clone, Debug)]
pub struct Draw(SplitMix64);

impl Draw {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        // Neighbouring seeds begin with unrelated numbers.
        random.next_u64();
        Self(random)
    }

    /// Starts another sequence, so that a part of the run that draws more or less does not change
    /// what the others draw.
    pub fn fork(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }

    /// Returns draws of their own for what was added last, so that the others stay what they were.
    #[must_use]
    pub fn aside(&self) -> Self {
        Self::new(self.clone().seed() ^ ASIDE_SALT)
    }

    /// Returns a number that is the seed of something.
    pub fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    /// Returns a number of this range, both ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// Returns a size of this range, both ends included.
    pub fn size(&mut self, least: usize, most: usize) -> usize {
        let drawn = self.between(least as u64, most as u64);
        usize::try_from(drawn).unwrap_or(most)
    }

    /// Returns a number of milliseconds of this range. Short times are as likely as long ones: the
    /// logarithm is uniform.
    pub fn ms(&mut self, least: u64, most: u64) -> Duration {
        let (mut low, mut high) = (least, most);
        while high > low.saturating_mul(2).max(low + 1) {
            let middle = low.max(1).saturating_mul(2);
            if self.chance(50) {
                low = middle.min(high);
            } else {
                high = (high / 2).max(low);
            }
        }
        Duration::from_millis(self.between(low, high))
    }

    /// Returns one of these values.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        let index = self.size(0, values.len() - 1);
        *values.get(index).expect("the index is below the length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_in_their_range_and_reach_both_halves() {
        let mut draw = Draw::new(1);
        let drawn: Vec<u128> = (0..1_000).map(|_| draw.ms(10, 10_000).as_millis()).collect();
        assert!(drawn.iter().all(|ms| (10..=10_000).contains(ms)));
        let short = drawn.iter().filter(|ms| **ms < 300).count();
        assert!((200..=800).contains(&short), "{short} of 1,000 are short");
    }

    #[test]
    fn a_fork_does_not_depend_on_what_the_other_forks_draw() {
        let forks = |count: u64| {
            let mut draw = Draw::new(7);
            let mut first = draw.fork();
            for _ in 0..count {
                first.seed();
            }
            draw.fork().seed()
        };
        assert_eq!(forks(0), forks(100));
    }
}
