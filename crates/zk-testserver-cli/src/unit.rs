//! Durations and the names of requests, as people write them.

use std::time::Duration;

use zk_testserver::OpCode;

/// The longest duration, so that multiples of it can be computed.
const DURATION_MAX: Duration = Duration::from_secs(1_000 * 24 * 60 * 60);

/// The numbers that servers use among themselves, and in results.
const NO_REQUESTS: [OpCode; 3] = [OpCode::CREATE_SESSION, OpCode::DELETE_CONTAINER, OpCode::ERROR];

/// Returns the requests that clients send, by the names of ZooKeeper's documentation.
fn ops() -> Vec<(String, OpCode)> {
    let known = OpCode::KNOWN.iter().filter(|op| !NO_REQUESTS.contains(op));
    let mut ops: Vec<_> = known.filter_map(|op| Some((documented_name(op.name()?), *op))).collect();
    ops.sort();
    ops
}

/// Returns a name such as `GET_ACL` as `getACL`.
fn documented_name(name: &str) -> String {
    let word = |(index, word): (usize, &str)| match word {
        "ACL" | "TTL" => word.to_owned(),
        _ if index == 0 => word.to_lowercase(),
        _ => {
            let (first, rest) = word.split_at(1);
            first.to_owned() + &rest.to_lowercase()
        }
    };
    name.split('_').enumerate().map(word).collect()
}

/// Parses a duration with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} is not a duration such as 500ms, 2s, 5m or 1h")),
    };
    let millis = number.parse().ok().and_then(|number: u64| number.checked_mul(millis));
    let duration = millis.map(Duration::from_millis).filter(|all| *all <= DURATION_MAX);
    duration.ok_or_else(|| format!("{text:?} is not a duration between 0ms and 24000h"))
}

/// Does the same, but refuses zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() {
        return Err("the shortest duration here is 1ms".to_owned());
    }
    Ok(duration)
}

/// Parses the name of a request.
pub(crate) fn op(text: &str) -> Result<OpCode, String> {
    let ops = ops();
    let found = ops.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, op)| *op).ok_or_else(|| {
        let names: Vec<&str> = ops.iter().map(|(name, _)| &**name).collect();
        format!("{text:?} is not a request; the requests are {}", names.join(", "))
    })
}

/// Returns the name of an operation, or its number if there is no name.
pub(crate) fn op_name(op: OpCode) -> String {
    match op.name() {
        Some(name) if NO_REQUESTS.contains(&op) => name.to_owned(),
        Some(name) => documented_name(name),
        None => op.0.to_string(),
    }
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

    #[test]
    fn names_of_requests_are_found_again() {
        let ops = ops();
        let expected = ["create2", "createTTL", "getACL", "getAllChildrenNumber", "whoAmI"];
        assert!(expected.iter().all(|name| ops.iter().any(|(known, _)| known == name)), "{ops:?}");
        for (name, code) in ops {
            assert_eq!(op(&name.to_uppercase()), Ok(code));
            assert_eq!(op_name(code), name);
        }
        assert!(op("createe").expect_err("no such request").contains("createContainer"));
        assert_eq!(op_name(OpCode(4711)), "4711");
    }
}
