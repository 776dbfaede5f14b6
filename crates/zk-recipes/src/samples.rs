//! Random samples for unit tests, always the same ones. They replace a library for property tests,
//! because Cargo would also build that library for each example of this crate.

/// An endless sequence of numbers (SplitMix64).
pub(crate) struct Samples(u64);

impl Samples {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Draws a text of at most 20 characters: digits and signs that names use, other ASCII
    /// characters, and characters of up to four bytes.
    pub(crate) fn text(&mut self) -> String {
        const OF_NAMES: [char; 12] =
            ['-', '_', '.', '/', '%', '0', '1', '9', 'l', 'o', 'k', '\u{0}'];
        let length = self.below(21);
        let mut text = String::new();
        for _ in 0..length {
            let kind = self.below(3);
            let number = u32::try_from(self.below(0x11_0000)).unwrap_or(0);
            let letter = match kind {
                0 => OF_NAMES.get(number as usize % OF_NAMES.len()).copied(),
                1 => char::from_u32(number % 0x80),
                // The range of surrogates has no characters.
                _ => char::from_u32(number),
            };
            text.push(letter.unwrap_or('\u{fffd}'));
        }
        text
    }
}
