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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_as_much_as_the_guide_says() {
        let percent = Duration::from_secs(1);
        assert_eq!(slow(percent * 100), percent * 95);
        assert_eq!(slow(percent * 100).as_secs_f64(), 0.95 * 100.0);
        assert_eq!(percent * 100 - slow(percent * 100), percent * 5);
        assert_eq!(fast(percent * 100) - percent * 100, percent * 5);
    }
}
