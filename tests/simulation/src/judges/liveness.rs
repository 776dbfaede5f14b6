//! Once the faults have stopped, every call ends within a time that the world determines. Also
//! before, nobody waits for long who need not wait: `patience` finds out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Event, Id, What};
use crate::program::task::{CALM_HOLD_MAX, TIMEOUT_MAX};
use crate::program::{Program, TASKS_MAX};
use crate::world::plan::Plan;

/// The longest session timeout that a client requests.
const SESSION_TIMEOUT_MAX: Duration = Duration::from_secs(40);
/// The longest pause of a client or a recipe before it tries again.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How many round trips a task may need from the end of one holder to its own.
const ROUND_TRIPS_MAX: u32 = 20;

/// Returns how long after the faults all calls have ended, whatever has happened before.
///
/// A client may have to notice that its connection is dead, and others wait for the end of a session
/// whose client is gone: twice the session timeout. Then each task may wait for all others, one
/// after the other.
pub fn bound(plan: &Plan, program: &Program) -> Duration {
    let tasks = u32::try_from(program.tasks().count()).unwrap_or(u32::MAX);
    let turn = 2 * CALM_HOLD_MAX + ROUND_TRIPS_MAX * plan.round_trip_max() + plan.unapplied_max();
    let transfer = plan.transfer_max(TASKS_MAX);
    2 * (SESSION_TIMEOUT_MAX + 2 * plan.tick)
        + 2 * PAUSE_MAX
        + TIMEOUT_MAX
        + tasks * turn
        + transfer
}

/// Returns how long something may be to do that a connected client should do, while there is no
/// trouble.
///
/// A recipe that was refused pauses before it tries again.
pub fn patience(plan: &Plan) -> Duration {
    let pauses = if plan.faults.is_empty() { PAUSE_MAX / 2 } else { PAUSE_MAX * 3 / 2 };
    pauses + 10 * plan.round_trip_max() + 3 * plan.unapplied_max() + plan.transfer_max(TASKS_MAX)
}

/// Returns how the promise was broken.
pub fn judge(events: &[Event]) -> Vec<String> {
    let mut begun: BTreeMap<Id, &Event> = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Begun { call, .. } => drop(begun.insert(*call, event)),
            What::Ended { call, .. } => drop(begun.remove(call)),
            _ => {}
        }
    }
    let overdue = events.iter().filter_map(|event| match &event.what {
        What::Wavered { lock, guard } => Some(format!(
            "{lock} at {:?}: guard {guard} is not held any more, and nothing goes wrong",
            event.at
        )),
        What::Unaware { lock, guard, path } => Some(format!(
            "{lock} at {:?}: guard {guard} is relied on, and {path} was deleted long before",
            event.at
        )),
        What::StaysAtRisk { lock, guard } => {
            Some(format!("{lock} at {:?}: guard {guard} has been at risk for long", event.at))
        }
        What::Unheard { lock } => {
            Some(format!("{lock} was released before {:?}, and a waiter was not told", event.at))
        }
        What::Overdue { what, since } => {
            Some(format!("{what} has been due from {since:?} to {:?}", event.at))
        }
        _ => None,
    });
    let pending = begun.values().map(|event| format!("this call has not ended: {event}"));
    pending.chain(overdue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::End;
    use crate::judges::tests::history;

    #[test]
    fn something_overdue_is_seen() {
        let overdue = What::Overdue { what: "a turn".to_owned(), since: Duration::ZERO };
        assert_eq!(judge(&history(vec![overdue])).len(), 1);
    }

    #[test]
    fn a_call_that_does_not_end_is_seen() {
        let begun =
            |call| What::Begun { call, name: "acquire", on: "/a".to_owned(), timeout: None };
        let ended = |call| What::Ended { call, end: End::Done };
        assert_eq!(judge(&history(vec![begun(1), begun(2), ended(2), ended(1)])).len(), 0);
        assert_eq!(judge(&history(vec![begun(1), begun(2), ended(2)])).len(), 1);
    }

    #[test]
    fn a_guard_that_is_not_held_any_more_though_nothing_goes_wrong_is_seen() {
        let wavered = What::Wavered { lock: "/a".to_owned(), guard: 1 };
        assert_eq!(judge(&history(vec![wavered])).len(), 1);
        let (lock, path) = ("/a".to_owned(), "/a/x-lock-0000000001".to_owned());
        let unaware = What::Unaware { lock, guard: 1, path };
        assert_eq!(judge(&history(vec![unaware])).len(), 1);
        let at_risk = What::StaysAtRisk { lock: "/a".to_owned(), guard: 1 };
        assert_eq!(judge(&history(vec![at_risk])).len(), 1);
    }
}
