//! Whoever waits for a watch looks from time to time whether it has missed a change: no server reports
//! one to those who may no longer read the znode.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_testserver::RequestRecord;

use super::patience::Moment;
use crate::history::{Event, Id, What};
use crate::world::plan::Plan;

/// How long a waiter may go without a check: 30 s, and up to a quarter more.
const INTERVAL_MAX: Duration = Duration::from_millis(37_500);
/// What a check and the looks of this judge may take beside round trips.
const GRACE: Duration = Duration::from_secs(5);
/// After how long a wait that goes on is judged as two waits.
const LONG: Duration = Duration::from_secs(60);

/// Somebody who waits for a watch on one connection. After a reconnect, the next check comes later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_structs, reason = "the world creates it")]
pub struct Watcher {
    /// The number of the call or of the view.
    pub id: Id,
    /// The session of its client.
    pub session: SessionId,
    /// How many connections its client has had.
    pub connection: u64,
    /// What is watched.
    pub target: Target,
}

/// What a check concerns.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[allow(clippy::exhaustive_enums, reason = "the world creates it")]
pub enum Target {
    /// This znode.
    At(&'static str),
    /// A child of this znode, which is tested for its existence.
    Below(&'static str),
}

impl Target {
    fn path(self) -> &'static str {
        match self {
            Self::At(path) | Self::Below(path) => path,
        }
    }

    fn is_checked_by(self, op: OpCode, path: &str) -> bool {
        match self {
            Self::At(own) => path == own,
            Self::Below(parent) => {
                let child = path.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
                op == OpCode::EXISTS && child.is_some()
            }
        }
    }
}

/// Follows who waits: since when, and until when at least.
#[derive(Clone, Debug, Default)]
pub struct Checks(BTreeMap<Watcher, (Duration, Duration)>);

impl Checks {
    /// Looks at a moment. Returns those that have waited for long and do not any more, or are judged
    /// now although they go on, and from when to when they have waited.
    pub fn look(&mut self, moment: &Moment) -> Vec<(Watcher, Duration, Duration)> {
        let waits: BTreeSet<Watcher> = moment
            .watchers
            .iter()
            .copied()
            .filter(|watcher| moment.prompt.contains(&watcher.session))
            .collect();
        let mut ended = Vec::new();
        self.0.retain(|watcher, (from, to)| {
            let goes_on = waits.contains(watcher);
            if goes_on {
                *to = moment.now;
            }
            let is_long = *to - *from >= LONG;
            // After some trouble, nobody knows until when there was none.
            if (!goes_on && moment.prompt.contains(&watcher.session)) || is_long {
                ended.push((*watcher, *from, *to));
            }
            goes_on && !is_long
        });
        for watcher in waits {
            self.0.entry(watcher).or_insert((moment.now, moment.now));
        }
        ended.retain(|(_, from, to)| *to - *from >= INTERVAL_MAX);
        ended
    }
}

/// Returns how the promise was broken.
pub fn judge(events: &[Event], requests: &[RequestRecord], plan: &Plan) -> Vec<String> {
    let is_watched = |path: &str| {
        events.iter().any(|event| match &event.what {
            What::WasWaiting { watcher, .. } => path.starts_with(watcher.target.path()),
            _ => false,
        })
    };
    let requests = requests.iter().filter_map(|request| {
        let path = request.path.as_deref().filter(|path| is_watched(path))?;
        Some((request.session, request.at, request.op, path))
    });
    let slack = GRACE + 4 * plan.round_trip_max() + plan.unapplied_max();
    judge_requests(events, &requests.collect::<Vec<_>>(), INTERVAL_MAX + slack)
}

fn judge_requests(
    events: &[Event],
    requests: &[(SessionId, Duration, OpCode, &str)],
    longest: Duration,
) -> Vec<String> {
    let broken = |event: &Event| {
        let What::WasWaiting { watcher, from, to } = &event.what else { return None };
        let is_checked = requests.iter().any(|(session, at, op, path)| {
            *session == watcher.session
                && (*from..*to).contains(at)
                && watcher.target.is_checked_by(*op, path)
        });
        (!is_checked && *to - *from >= longest)
            .then(|| format!("{watcher:?} has waited from {from:?} to {to:?} without a check"))
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;
    use crate::sample;

    const GATE: &str = "/barriers/gate";

    fn watcher(connection: u64) -> Watcher {
        Watcher { id: 7, session: SessionId(1), connection, target: Target::At(GATE) }
    }

    fn moment(seconds: u64, watchers: &[Watcher]) -> Moment {
        Moment {
            now: Duration::from_secs(seconds),
            prompt: [SessionId(1)].into(),
            watchers: watchers.to_vec(),
            ..Moment::default()
        }
    }

    #[test]
    fn a_wait_ends_with_its_connection_and_is_split_after_a_while() {
        let seconds = Duration::from_secs;
        let mut checks = Checks::default();
        let [first, second] = [1, 2].map(watcher);
        assert_eq!(checks.look(&moment(0, &[first])), []);
        assert_eq!(checks.look(&moment(50, &[first])), []);
        assert_eq!(checks.look(&moment(51, &[second])), [(first, seconds(0), seconds(50))]);
        assert_eq!(checks.look(&moment(111, &[second])), [(second, seconds(51), seconds(111))]);
        assert_eq!(checks.look(&moment(160, &[second])), []);
        let troubled = Moment { prompt: BTreeSet::new(), ..moment(161, &[]) };
        assert_eq!(checks.look(&troubled), [], "something goes wrong");
        assert_eq!(checks.look(&moment(170, &[second])), []);
        assert_eq!(checks.look(&moment(180, &[])), [], "it was not for long");
    }

    #[test]
    fn somebody_waits_for_long_in_the_newest_worlds() {
        let events = sample::newest().iter().flat_map(|report| &report.events);
        let targets: BTreeSet<Target> = events
            .filter_map(|event| match &event.what {
                What::WasWaiting { watcher, .. } => Some(watcher.target),
                _ => None,
            })
            .collect();
        assert!(targets.len() > 2, "{targets:?}");
    }

    #[test]
    fn a_wait_without_a_check_is_seen() {
        let session = SessionId(1);
        let (from, to) = (Duration::from_secs(10), Duration::from_secs(60));
        let count = |target, requests: &[(u64, OpCode, &str)]| {
            let watcher = Watcher { target, ..watcher(1) };
            let events = history(vec![What::WasWaiting { watcher, from, to }]);
            let at = |second| Duration::from_secs(second);
            let requests =
                requests.iter().map(|(second, op, path)| (session, at(*second), *op, *path));
            judge_requests(&events, &requests.collect::<Vec<_>>(), INTERVAL_MAX).len()
        };
        let gate = Target::At(GATE);
        assert_eq!(count(gate, &[]), 1);
        assert_eq!(count(gate, &[(40, OpCode::EXISTS, GATE)]), 0);
        assert_eq!(count(gate, &[(5, OpCode::EXISTS, GATE), (61, OpCode::EXISTS, GATE)]), 1);
        assert_eq!(count(gate, &[(40, OpCode::EXISTS, "/barriers/gate/x")]), 1);
        let below = Target::Below("/meeting");
        assert_eq!(count(below, &[(40, OpCode::EXISTS, "/meeting/member-a")]), 0);
        assert_eq!(count(below, &[(40, OpCode::DELETE, "/meeting/member-a")]), 1);
        assert_eq!(count(below, &[(40, OpCode::EXISTS, "/meeting")]), 1);
    }
}
