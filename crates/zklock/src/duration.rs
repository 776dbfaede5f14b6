//! Durations on the command line.

use std::fmt;
use std::time::Duration;

/// The longest duration that an option accepts: a year.
const MAX: Duration = Duration::from_secs(365 * 24 * 3600);

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration such as `30s`, `1.5m`, `500ms` or `30`, which means seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = if unit.is_empty() { "s" } else { unit };
    let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let parsed = number.parse::<f64>().ok().zip(millis);
    let Some((number, millis)) = parsed else {
        return Err("write a number and a unit, such as 500ms, 30s, 5m, 2h or 1d; a number alone \
                    means seconds"
            .to_owned());
    };
    #[expect(clippy::cast_precision_loss, reason = "the units are small and exact")]
    let duration = Duration::try_from_secs_f64(number * millis as f64 / 1_000.0);
    duration.ok().filter(|it| *it <= MAX).ok_or_else(|| "the longest duration is 365d".to_owned())
}

/// Parses a duration that is longer than nothing.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    if duration.is_zero() {
        return Err("it must be longer than 0; use --try for a single attempt".to_owned());
    }
    Ok(duration)
}

/// A duration as people write it: its two largest units.
pub(crate) struct Short(pub(crate) Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
        let text = match (days, hours, minutes) {
            (0, 0, 0) => format!("{seconds}s"),
            (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
            (0, _, _) => format!("{hours}h {}m", minutes % 60),
            _ => format!("{days}d {}h", hours % 24),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, millis) in
            [("30", 30_000), ("1.5s", 1_500), ("250ms", 250), ("2m", 120_000), ("1d", 86_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert!(positive("0").is_err() && positive("0ms").is_err());
        assert_eq!(positive("1ms"), Ok(Duration::from_millis(1)));
        for text in ["", "s", "-1s", "5 s", "1.2.3s", "5y", "366d", "soon", "1e9"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_show_their_two_largest_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (133, "2m 13s"), (7_260, "2h 1m"), (180_000, "2d 2h")]
        {
            assert_eq!(Short(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
