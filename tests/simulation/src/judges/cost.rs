//! Clients send few requests when nobody wants anything, and never many at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use zk_testserver::RequestRecord;

use crate::program::Program;

/// How many requests a client may send in a minute in which none of its tasks runs. Pings are not
/// counted.
const IDLE_MAX: usize = 4;
/// How many requests there may be in a second, for each task, and for each client that reconnects.
const STORM_MAX: usize = 100;

/// Returns how the promise was broken.
pub fn judge(
    requests: &[RequestRecord],
    program: &Program,
    quiet: &Range<Duration>,
) -> Vec<String> {
    let clients = (0..program.clients.len()).filter(|client| program.uses(*client)).count();
    let tasks = program.tasks().count();
    // Afterwards the judges read what is left, as fast as they can.
    let times = requests.iter().map(|request| request.at).filter(|at| *at < quiet.end);
    let times: Vec<Duration> = times.collect();
    judge_times(&times, quiet, IDLE_MAX * clients, STORM_MAX * (tasks + clients))
}

fn judge_times(
    times: &[Duration],
    quiet: &Range<Duration>,
    idle_max: usize,
    storm_max: usize,
) -> Vec<String> {
    let mut violations = Vec::new();
    let idle = times.iter().filter(|at| quiet.contains(*at)).count();
    if idle > idle_max {
        violations.push(format!("{idle} requests between {quiet:?}, when no task runs"));
    }
    let mut seconds: BTreeMap<u64, usize> = BTreeMap::new();
    for at in times {
        *seconds.entry(at.as_secs()).or_default() += 1;
    }
    let storm = seconds.into_iter().max_by_key(|(_, count)| *count);
    if let Some((second, count)) = storm.filter(|(_, count)| *count > storm_max) {
        violations.push(format!("{count} requests in second {second}"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(times_ms: impl IntoIterator<Item = u64>) -> usize {
        let times: Vec<Duration> = times_ms.into_iter().map(Duration::from_millis).collect();
        let quiet = Duration::from_secs(10)..Duration::from_secs(70);
        judge_times(&times, &quiet, 3, 50).len()
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
    }
}
