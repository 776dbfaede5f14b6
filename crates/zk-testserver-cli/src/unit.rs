//! Durations, as people write them.

use std::time::Duration;

/// The longest duration, so that multiples of it can be computed.
const DURATION_MAX: Duration = Duration::from_secs(1_000 * 24 * 60 * 60);

/// Parses a duration with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is no duration such as 500ms, 2s, 5m or 1h")),
    };
    let millis = number.parse().ok().and_then(|number: u64| number.checked_mul(millis));
    let duration = millis.map(Duration::from_millis).filter(|all| *all <= DURATION_MAX);
    duration.ok_or_else(|| format!("{text:?} is no duration between 0ms and 24000h"))
}

/// Does the same, but refuses zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() {
        return Err("the shortest duration here is 1ms".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_limits() {
        for (text, millis) in [("0ms", 0), ("500ms", 500), ("2s", 2_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "ms", "-1s", "1.5s", "1 s", "1d", "24001h", "99999999999999999999s"] {
            let problem = duration(text).expect_err(text);
            assert!(problem.contains(&format!("{text:?}")), "{problem}");
        }
        assert!(positive_duration("0s").is_err());
    }
}
