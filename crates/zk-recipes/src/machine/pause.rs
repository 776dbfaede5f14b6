//! Pauses between attempts to reach a server that refuses to serve.
//!
//! All machines follow the same rules. The length of the pauses doubles, so that a server that is
//! overloaded for a long time gets few requests. It also depends on the machine's lane, so that
//! requests that were refused together do not come back together. The end of the connection ends a
//! pause. If a refusal is known to be temporary (throttling, a server without a quorum), a
//! machine retries until the caller's deadline. Any other code that leaves the outcome open, such
//! as a system error or a code that this client does not know, may be permanent, so a machine gives
//! up with that code after it has received a few of them.

use std::time::Duration;

use jute_codec::ErrorCode;
use zk_session::{OpError, Time};

use super::step::{Input, SessionView};

/// First pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Number of refusals of unclear meaning that a machine tolerates. It gives up after about 20 s.
const DOUBTS_MAX: u8 = 8;

/// The pauses of one machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    until: Option<Time>,
    /// Number of pauses since the machine last made progress.
    pauses: u8,
    /// Number of refusals of unclear meaning since the machine last made progress.
    doubts: u8,
}

impl Pauses {
    /// Begins the next pause. Returns its end, in the form that `Step::Wait` needs.
    ///
    /// Each pause is longer than the last one, and its length depends on the machine's lane: many
    /// machines that were refused at the same time must not retry at the same time.
    pub(crate) fn begin(&mut self, view: SessionView) -> Option<Time> {
        self.begin_at(view.now, view.seed)
    }

    /// Begins the next pause of a caller who is no machine.
    pub(crate) fn begin_at(&mut self, now: Time, seed: u64) -> Option<Time> {
        // Machines of the same seed that pause again and again take another place each time.
        let seed = seed.rotate_right(8 * u32::from(self.pauses % 8));
        let length = spread(self.next_length(), u128::from(seed));
        self.until = Some(now + length);
        self.until
    }

    /// Returns whether this input ends the pause, and if so, ends it. Besides the timer, that is the
    /// end of the connection: the next server may immediately accept the request that this one was
    /// too busy for, and others may be waiting for this machine.
    pub(crate) fn end_with(&mut self, input: &Input) -> bool {
        matches!(input, Input::Timer | Input::Suspended) && self.end()
    }

    /// Returns the end of the pause, or `None` if there is no pause.
    pub(crate) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Ends the pause. Returns whether there was one.
    pub(crate) fn end(&mut self) -> bool {
        self.until.take().is_some()
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
        let begin = |pauses: &mut Pauses| pauses.begin_at(now, 0);
        let mut next = || begin(&mut pauses).expect("a pause has begun").saturating_since(now);
        let lengths: Vec<_> = (0..300).map(|_| next().as_millis()).collect();
        assert_eq!(lengths[..6], [200, 400, 800, 1600, 3200, 5000]);
        assert!(lengths[6..].iter().all(|length| *length == 5000));
        assert!(pauses.end());
        assert!(!pauses.end());
        pauses.reset();
        assert_eq!(begin(&mut pauses), Some(now + PAUSE));
    }

    #[test]
    fn the_seed_spreads_each_pause_over_a_quarter_of_its_length() {
        let now = Time::default();
        let mut last = std::collections::BTreeSet::new();
        for seed in 0..256_u64 {
            let mut pauses = Pauses::default();
            let seed = seed.wrapping_mul(0x0101_0101_0101_0101);
            for base in [200, 400, 800] {
                let until = pauses.begin_at(now, seed).expect("a pause has begun");
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
