//! Requests that were refused at one moment do not come back at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::OpCode;
use zk_testserver::RequestRecord;

use super::refusal;
use crate::program::locks::WIDE;
use crate::world::plan::{FaultKind, Plan};

/// How many requests are a group. Fewer may come back together by chance.
const GROUP_MIN: usize = 5;
/// When requests come back at the same moment: their pauses differ by more.
const MOMENT: Duration = Duration::from_millis(1);
/// How long a request is away at least if it has paused.
const PAUSE_MIN: Duration = Duration::from_millis(150);

/// A request: its connection, when it has arrived, its operation and its path, and whether a server has
/// refused it because it was busy.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    connection: u64,
    at: Duration,
    op: OpCode,
    path: &'a str,
    is_refused: bool,
}

/// Faults that hold nothing back. After the others, what was sent at several moments may arrive at one.
const FAULTS: [FaultKind; 7] = [
    FaultKind::Cut,
    FaultKind::LateCommit,
    FaultKind::Misreport,
    FaultKind::Overload,
    FaultKind::Refusal,
    FaultKind::Stampede,
    FaultKind::Throttle,
];

/// Returns how the promise was broken. Each contender of the semaphore with many permits asks for its
/// own znode alone; one call for several paths would pause once for all of them.
pub fn judge(requests: &[RequestRecord], plan: &Plan) -> Vec<String> {
    let holds_back = |kind: &FaultKind| *kind != FaultKind::Row && !FAULTS.contains(kind);
    if plan.faults.iter().any(holds_back) || !plan.jitter.is_zero() || !plan.service.is_zero() {
        return Vec::new();
    }
    let asked = requests.iter().filter_map(|request| {
        let path = request.path.as_deref().filter(|path| path.starts_with(WIDE))?;
        Some(Asked {
            connection: request.connection,
            at: request.at,
            op: request.op,
            path,
            is_refused: refusal(request).is_some(),
        })
    });
    judge_asked(&asked.collect::<Vec<_>>())
}

fn judge_asked(asked: &[Asked<'_>]) -> Vec<String> {
    let mut groups: BTreeMap<(u64, Duration), Vec<Asked<'_>>> = BTreeMap::new();
    for request in asked {
        groups.entry((request.connection, request.at)).or_default().push(*request);
    }
    groups.retain(|_, group| {
        let paths: BTreeSet<&str> = group.iter().map(|it| it.path).collect();
        group.iter().all(|it| it.is_refused)
            && paths.len() == group.len()
            && paths.len() >= GROUP_MIN
    });
    let broken = groups.iter().find_map(|((connection, at), group)| {
        let back = |one: &Asked<'_>| {
            let same = |other: &&Asked<'_>| {
                other.connection == *connection
                    && other.at > *at
                    && (other.op, other.path) == (one.op, one.path)
            };
            asked.iter().filter(same).map(|it| it.at).min()
        };
        let times: Vec<Duration> = group.iter().map(back).collect::<Option<_>>()?;
        let (first, last) = (times.iter().min()?, times.iter().max()?);
        (*first >= *at + PAUSE_MIN && *last < *first + MOMENT).then(|| {
            format!("{} requests were refused at {at:?} and came back at {first:?}", group.len())
        })
    });
    broken.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_come_back_together_are_seen() {
        const PATHS: [&str; 5] = ["/a", "/b", "/c", "/d", "/e"];
        let count = |pause: u64, apart: u64, refused: usize| {
            let one = |at, path, is_refused| Asked {
                connection: 1,
                at: Duration::from_millis(at),
                op: OpCode::EXISTS,
                path,
                is_refused,
            };
            let first = (0..).zip(PATHS).map(|(index, path)| one(100, path, index < refused));
            let back =
                (0..).zip(PATHS).map(|(index, path)| one(100 + pause + index * apart, path, false));
            judge_asked(&first.chain(back).collect::<Vec<_>>()).len()
        };
        assert_eq!(count(200, 0, 5), 1);
        assert_eq!(count(200, 3, 5), 0, "they come back apart");
        assert_eq!(count(100, 0, 5), 0, "something else has called them back");
        assert_eq!(count(200, 0, 4), 0, "one of them was answered");
    }
}
