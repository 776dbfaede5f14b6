//! A small random number generator whose seed is an argument.

/// The SplitMix64 generator: fast, repeatable, and good enough for jitter and ids.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound`, which must not be 0. The bias is below 2^-32 for the bounds
    /// used in this crate.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert_ne!(bound, 0, "no number is below 0");
        self.next() % bound
    }
}
