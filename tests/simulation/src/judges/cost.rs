//! Clients send few requests when nobody wants anything, and never many at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use zk_testserver::RequestRecord;

use crate::history::{Event, What};
use crate::program::Program;
use crate::program::trees::WIDE;

/// How many requests a client may send in a minute in which none of its tasks runs. Pings are not
/// counted.
const IDLE_MAX: usize = 4;
/// How many requests there may be in a second, for each task, and for each client that reconnects.
const STORM_MAX: usize = 100;
/// How many there may be beside those for each call that begins in it.
const STORM_OF_CALL: usize = 10;

/// Returns how the promise was broken.
pub fn judge(
    events: &[Event],
    requests: &[RequestRecord],
    program: &Program,
    quiet: &Range<Duration>,
) -> Vec<String> {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client)).count();
    let tasks = program.tasks().count();
    // One call deletes a wide subtree, whose flights another judge counts.
    let is_wide =
        |request: &&RequestRecord| request.path.as_deref().is_some_and(|path| path.contains(WIDE));
    let times = requests.iter().filter(|it| !is_wide(it)).map(|request| request.at);
    // Afterwards the judges read what is left, as fast as they can.
    let times: Vec<Duration> = times.filter(|at| *at < quiet.end).collect();
    let begun = events.iter().filter(|event| matches!(event.what, What::Begun { .. }));
    let begun: Vec<Duration> = begun.map(|event| event.at).collect();
    judge_times(&times, &begun, quiet, IDLE_MAX * clients, STORM_MAX * (tasks + clients))
}

/// Judges requests at these times. The second ones are those at which calls begin.
fn judge_times(
    times: &[Duration],
    begun: &[Duration],
    quiet: &Range<Duration>,
    idle_max: usize,
    storm_max: usize,
) -> Vec<String> {
    let mut violations = Vec::new();
    let idle = times.iter().filter(|at| quiet.contains(*at)).count();
    if idle > idle_max {
        violations.push(format!("{idle} requests between {quiet:?}, when no task runs"));
    }
    let (requests, calls) = (by_second(times), by_second(begun));
    let storm = requests.into_iter().find(|(second, count)| {
        let calls = calls.get(second).copied().unwrap_or_default();
        *count > storm_max + STORM_OF_CALL * calls
    });
    if let Some((second, count)) = storm {
        violations.push(format!("{count} requests in second {second}"));
    }
    violations
}

fn by_second(times: &[Duration]) -> BTreeMap<u64, usize> {
    let mut seconds = BTreeMap::new();
    for at in times {
        *seconds.entry(at.as_secs()).or_default() += 1;
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(times_ms: impl IntoIterator<Item = u64>) -> usize {
        count_beside(times_ms, &[])
    }

    fn count_beside(times_ms: impl IntoIterator<Item = u64>, begun: &[Duration]) -> usize {
        let times: Vec<Duration> = times_ms.into_iter().map(Duration::from_millis).collect();
        let quiet = Duration::from_secs(10)..Duration::from_secs(70);
        judge_times(&times, begun, &quiet, 3, 50).len()
    }

    #[test]
    fn requests_of_idle_clients_are_seen() {
        assert_eq!(count([11_000, 12_000, 13_000]), 0);
        assert_eq!(count([11_000, 12_000, 13_000, 14_000]), 1);
    }

    #[test]
    fn storms_are_seen() {
        assert_eq!(count((0..50).map(|ms| 1_000 + ms)), 0);
        assert_eq!(count((0..51).map(|ms| 1_000 + ms)), 1);
        let call = [Duration::from_millis(1_500)];
        assert_eq!(count_beside((0..60).map(|ms| 1_000 + ms), &call), 0);
        assert_eq!(count_beside((0..61).map(|ms| 1_000 + ms), &call), 1);
        assert_eq!(count_beside((0..51).map(|ms| 2_000 + ms), &call), 1, "in another second");
    }
}
