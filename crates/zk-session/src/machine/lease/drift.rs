//! Allows for clock drift: our clock may be 5 % slower or faster than the servers'.

use std::time::Duration;

/// Returns how much time a clock that is 5 % slow may measure before `time` has really passed.
pub(in crate::machine) fn slow(time: Duration) -> Duration {
    time.saturating_mul(19) / 20
}

/// Returns how much time a clock that is 5 % fast must measure until `time` has really passed.
pub(super) fn fast(time: Duration) -> Duration {
    time.saturating_add(time / 20)
}
