//! Pauses between attempts to reach a server that refuses to serve.
//!
//! The length of the pauses doubles, so that a server that is overloaded for a long time gets few
//! requests. It also depends on a seed, so that requests that were refused together do not come back
//! together. [`Repeating`](super::Repeating) says when machines pause, and when they give up.

use std::time::Duration;

use jute_codec::ErrorCode;
use zk_session::{OpError, Time};

/// First pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Number of refusals of unclear meaning that a machine tolerates. It gives up after about 20 s.
const DOUBTS_MAX: u8 = 8;

/// How often one machine has paused, and why.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    /// Number of pauses since the machine last made progress.
    pauses: u8,
    /// Number of refusals of unclear meaning since the machine last made progress.
    doubts: u8,
}

impl Pauses {
    /// Begins the next pause. Returns its end.
    ///
    /// Each pause is longer than the last one, and its length depends on the seed: many machines that
    /// were refused at the same time must not retry at the same time.
    pub(crate) fn begin(&mut self, now: Time, seed: u64) -> Time {
        // Machines of the same seed that pause again and again take another place each time.
        let seed = seed.rotate_right(8 * u32::from(self.pauses % 8));
        now + spread(self.next_length(), u128::from(seed))
    }

    /// Counts a refusal. Returns whether the machine has to give up.
    pub(crate) fn is_too_many(&mut self, error: &OpError) -> bool {
        let is_known_to_pass = matches!(
            error,
            OpError::Server { code: ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY, .. }
                | OpError::QueueFull { .. }
        );
        self.doubts = self.doubts.saturating_add(u8::from(!is_known_to_pass));
        self.doubts > DOUBTS_MAX
    }

    /// Records that the machine made progress, so that the next pause is the shortest again.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    fn next_length(&mut self) -> Duration {
        let length = PAUSE.saturating_mul(1 << self.pauses.min(8)).min(PAUSE_MAX);
        self.pauses = self.pauses.saturating_add(1);
        length
    }
}

/// Returns a time between 1 and 1.25 times the interval, depending on the id.
pub(crate) fn spread(interval: Duration, id: u128) -> Duration {
    interval.saturating_add((interval / 4 / 255).saturating_mul(u32::from(id as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let now = Time::default();
        let begin = |pauses: &mut Pauses| pauses.begin(now, 0);
        let mut next = || begin(&mut pauses).saturating_since(now);
        let lengths: Vec<_> = (0..300).map(|_| next().as_millis()).collect();
        assert_eq!(lengths[..6], [200, 400, 800, 1600, 3200, 5000]);
        assert!(lengths[6..].iter().all(|length| *length == 5000));
        // What the guide says, which is the longest pause with the greatest spread.
        assert_eq!(format!("{:.2}", spread(PAUSE_MAX, u128::MAX).as_secs_f64()), "6.25");
        pauses.reset();
        assert_eq!(begin(&mut pauses), now + PAUSE);
    }

    #[test]
    fn the_seed_spreads_each_pause_over_a_quarter_of_its_length() {
        let now = Time::default();
        let mut last = std::collections::BTreeSet::new();
        for seed in 0..256_u64 {
            let mut pauses = Pauses::default();
            let seed = seed.wrapping_mul(0x0101_0101_0101_0101);
            for base in [200, 400, 800] {
                let until = pauses.begin(now, seed);
                let length = until.saturating_since(now).as_millis();
                assert!((base..=base * 5 / 4).contains(&length), "{length} ms");
                last.insert(length);
            }
        }
        assert!(last.len() >= 200, "{last:?}");
    }

    #[test]
    fn what_passes_is_waited_out_and_what_may_not_pass_is_given_up() {
        let mut pauses = Pauses::default();
        for code in [ErrorCode::THROTTLED_OP, ErrorCode::NOT_READ_ONLY] {
            assert!((0..1000).all(|_| !pauses.is_too_many(&OpError::server(code))), "{code}");
        }
        let unknown = OpError::server(ErrorCode(-999));
        let survived = (0..1000).take_while(|_| !pauses.is_too_many(&unknown)).count();
        assert_eq!(survived, usize::from(DOUBTS_MAX));
    }
}
