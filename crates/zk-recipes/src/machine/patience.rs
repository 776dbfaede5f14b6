//! How long a machine goes on asking servers that refuse to answer.
//!
//! The pauses double, so that a server that is overloaded for long is asked seldom. A refusal that
//! is known to pass (throttling, a server without a quorum) is waited out however long it takes:
//! the deadline of the caller is the bound. Any other code that leaves the outcome open, such as a
//! system error or one that this client does not know, may never pass, so after some of them the
//! machine gives up with the code.

use std::time::Duration;

use jute_codec::ErrorCode;
use zk_session::OpError;

/// First pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Refusals of unclear meaning that a machine survives: about 20 s of them.
const DOUBTS_MAX: u8 = 8;

/// How long to go on, since the machine has last reached what it asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    pauses: u8,
    doubts: u8,
}

impl Patience {
    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = PAUSE.saturating_mul(1 << self.pauses.min(8)).min(PAUSE_MAX);
        self.pauses = self.pauses.saturating_add(1);
        pause
    }

    /// Counts a refusal. True if it was one too many.
    pub(crate) fn is_over(&mut self, error: &OpError) -> bool {
        let is_known_to_pass = matches!(
            error,
            OpError::Server(ErrorCode::THROTTLED_OP | ErrorCode::NOT_READ_ONLY)
                | OpError::QueueFull(_)
        );
        self.doubts = self.doubts.saturating_add(u8::from(!is_known_to_pass));
        self.doubts > DOUBTS_MAX
    }

    /// What was asked for was answered.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut patience = Patience::default();
        let pauses: Vec<_> = (0..300).map(|_| patience.pause().as_millis()).collect();
        assert_eq!(pauses[..6], [200, 400, 800, 1600, 3200, 5000]);
        assert!(pauses[6..].iter().all(|pause| *pause == 5000));
        patience.reset();
        assert_eq!(patience.pause(), PAUSE);
    }

    #[test]
    fn what_passes_is_waited_out_and_what_may_not_pass_is_given_up() {
        let mut patience = Patience::default();
        for code in [ErrorCode::THROTTLED_OP, ErrorCode::NOT_READ_ONLY] {
            assert!((0..1000).all(|_| !patience.is_over(&OpError::Server(code))), "{code}");
        }
        let unknown = OpError::Server(ErrorCode(-999));
        let survived = (0..1000).take_while(|_| !patience.is_over(&unknown)).count();
        assert_eq!(survived, usize::from(DOUBTS_MAX));
    }
}
