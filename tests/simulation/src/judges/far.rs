//! Whoever waits far behind in a queue needs no lease yet, so its session commits no writes for one.

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use zk_testserver::RequestRecord;

use super::patience::Moment;
use super::turns::parse;
use crate::history::{Event, What};

/// The locks whose queues are in the order of their numbers, with one holder at a time.
const QUEUES: [&str; 3] = ["/locks/a", "/locks/b", "/election"];
/// How many others must be ahead. The first two of a queue keep a lease, and the one behind them may
/// not know yet that it is the third.
const AHEAD: usize = 3;
/// How long a session must have nothing else to count.
const LONG: Duration = Duration::from_secs(10);
/// How long it may go on writing after it has lost the need.
const GRACE: Duration = Duration::from_secs(5);
/// How many writes of nothing there may be: a session makes a server catch up with one.
const WRITES_MAX: usize = 2;

/// What gives a session a place.
const CREATES: [OpCode; 4] =
    [OpCode::CREATE, OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL];

/// Follows which sessions have nothing but places far behind: since when, and until when at least.
#[derive(Clone, Debug, Default)]
pub struct Far(BTreeMap<SessionId, (Duration, Duration)>);

impl Far {
    /// Looks at a moment. Returns the sessions that were far behind for long and are not any more,
    /// and from when to when they were.
    pub fn look(&mut self, moment: &Moment) -> Vec<(SessionId, Duration, Duration)> {
        let far: Vec<SessionId> =
            moment.prompt.iter().copied().filter(|session| is_far(moment, *session)).collect();
        let mut ended = Vec::new();
        self.0.retain(|session, (from, to)| {
            let goes_on = far.contains(session);
            // After some trouble, a client may write for another reason.
            if !goes_on && moment.prompt.contains(session) && *to - *from >= LONG {
                ended.push((*session, *from, *to));
            }
            goes_on
        });
        for session in far {
            self.0.entry(session).or_insert((moment.now, moment.now)).1 = moment.now;
        }
        ended
    }
}

fn is_far(moment: &Moment, session: SessionId) -> bool {
    let mut owned = moment.ephemerals.iter().filter(|(_, owner)| *owner == session).peekable();
    let waits = |call: &super::patience::Waiting| {
        call.session != Some(session) || QUEUES.contains(&call.on.as_str())
    };
    owned.peek().is_some()
        && owned.all(|(path, _)| is_far_behind(moment, path))
        && moment.calls.values().all(waits)
}

fn is_far_behind(moment: &Moment, path: &str) -> bool {
    let Some((directory, own)) = parse(path) else { return false };
    let others = moment.ephemerals.iter().filter_map(|(other, _)| parse(other));
    let ahead = others.filter(|(of, other)| *of == directory && other.number < own.number).count();
    QUEUES.contains(&directory) && !moment.kept.contains(path) && ahead >= AHEAD
}

/// Returns how the promise was broken.
pub fn judge(events: &[Event], requests: &[RequestRecord]) -> Vec<String> {
    let is_write = |request: &&RequestRecord| {
        request.op == OpCode::MULTI && request.path.as_deref() == Some("/")
    };
    let writes: Vec<_> = requests.iter().filter(is_write).map(|it| (it.session, it.at)).collect();
    let is_create = |request: &&RequestRecord| CREATES.contains(&request.op);
    let creates: Vec<_> = requests.iter().filter(is_create).map(|it| (it.session, it.at)).collect();
    judge_writes(events, &writes, &creates)
}

/// Judges writes of nothing in these sessions at these times. A session that creates something has
/// another place, perhaps for less time than there is between two looks.
fn judge_writes(
    events: &[Event],
    writes: &[(SessionId, Duration)],
    creates: &[(SessionId, Duration)],
) -> Vec<String> {
    let broken = |event: &Event| {
        let What::WasFar { session, from, to } = &event.what else { return None };
        if creates.iter().any(|(other, at)| other == session && (*from..*to).contains(at)) {
            return None;
        }
        let is_needless = |(other, at): &&(SessionId, Duration)| {
            other == session && (*from + GRACE..*to).contains(at)
        };
        let count = writes.iter().filter(is_needless).count();
        (count > WRITES_MAX).then(|| {
            format!("{session} has waited far behind from {from:?} to {to:?}: {count} writes")
        })
    };
    events.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    fn moment(seconds: u64, own: u32) -> Moment {
        let znode = |number: u32| format!("/locks/a/x-lock-{number:010}");
        let others = (0..9).filter(|number| *number != own).map(|it| (znode(it), SessionId(2)));
        Moment {
            now: Duration::from_secs(seconds),
            prompt: [SessionId(1)].into(),
            ephemerals: others.chain([(znode(own), SessionId(1))]).collect(),
            ..Moment::default()
        }
    }

    #[test]
    fn a_session_is_far_behind_until_it_comes_near() {
        let mut far = Far::default();
        assert_eq!(far.look(&moment(0, 5)), []);
        assert_eq!(far.look(&moment(11, 4)), []);
        let (from, to) = (Duration::ZERO, Duration::from_secs(11));
        assert_eq!(far.look(&moment(12, 2)), [(SessionId(1), from, to)]);
        assert_eq!(far.look(&moment(13, 5)), []);
        assert_eq!(far.look(&moment(14, 2)), [], "it was not for long");
    }

    #[test]
    fn writes_of_a_session_that_is_far_behind_are_seen() {
        let session = SessionId(1);
        let seconds = Duration::from_secs;
        let events = history(vec![What::WasFar { session, from: seconds(10), to: seconds(30) }]);
        let broken = |session, times: [u64; 3]| {
            judge_writes(&events, &times.map(|second| (session, seconds(second))), &[]).len()
        };
        assert_eq!(broken(session, [16, 20, 24]), 1);
        assert_eq!(broken(SessionId(2), [16, 20, 24]), 0);
        assert_eq!(broken(session, [12, 20, 24]), 0, "it did not know it at once");
        assert_eq!(broken(session, [16, 20, 31]), 0, "it has come near");
        let writes = [16, 20, 24].map(|second| (session, seconds(second)));
        let with_create =
            |second| judge_writes(&events, &writes, &[(session, seconds(second))]).len();
        assert_eq!(with_create(15), 0, "it had another place for a moment");
        assert_eq!(with_create(9), 1);
    }
}
