//! A call with a timeout ends with it, whatever it waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Event, Id, What};
use crate::world::plan::{FaultKind, Plan};

/// How much later a call may end. The client and its caller run one after the other.
const LATE: Duration = Duration::from_millis(100);

/// Returns how the promise was broken.
pub fn judge(events: &[Event], plan: &Plan) -> Vec<String> {
    // Callers that are stopped are told later.
    let are_stopped = [FaultKind::Stop, FaultKind::Suspension];
    if are_stopped.iter().any(|kind| plan.faults.contains(kind)) {
        return Vec::new();
    }
    judge_events(events)
}

fn judge_events(events: &[Event]) -> Vec<String> {
    let mut calls: BTreeMap<Id, (Duration, &Event)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Begun { call, timeout: Some(timeout), .. } => {
                calls.insert(*call, (event.at + *timeout, event));
            }
            What::Ended { call, .. } => {
                let Some((due, begun)) = calls.remove(call) else { continue };
                if event.at > due + LATE {
                    violations.push(format!("this call has ended at {:?}: {begun}", event.at));
                }
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::End;

    fn call(seconds: u64) -> Vec<String> {
        let timeout = Some(Duration::from_secs(3));
        let begun = What::Begun { call: 1, name: "release", on: "/a".to_owned(), timeout };
        let ended = What::Ended { call: 1, end: End::Dropped };
        let at = |seconds, what| Event { at: Duration::from_secs(seconds), who: None, what };
        judge_events(&[at(5, begun), at(seconds, ended)])
    }

    #[test]
    fn a_call_that_ends_after_its_timeout_is_seen() {
        assert_eq!(call(8), Vec::<String>::new());
        assert_eq!(call(9).len(), 1);
    }
}
