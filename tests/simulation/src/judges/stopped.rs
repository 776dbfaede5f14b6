//! Nobody waits for a client that has ended with its session: calls that it has begun end at once, and
//! so do those that begin later. It connects to no server any more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::users::{Used, Users};
use crate::history::{Event, Id, What};
use crate::world::plan::{FaultKind, Plan};

/// How long a call may take to end after its client, and a call of a client that has ended. A body
/// looks at its lock now and then.
const END_MAX: Duration = Duration::from_secs(1);

/// Returns how the promise was broken.
pub fn judge(events: &[Event], plan: &Plan) -> Vec<String> {
    // Callers that are stopped learn of an end when they go on.
    let are_stopped = [FaultKind::Stop, FaultKind::Suspension];
    let are_stopped = plan.faults.iter().any(|kind| are_stopped.contains(kind));
    judge_events(events, if are_stopped { Duration::MAX } else { END_MAX })
}

fn judge_events(events: &[Event], end_max: Duration) -> Vec<String> {
    let mut violations = Vec::new();
    let mut users = Users::default();
    let mut calls: BTreeMap<Id, (Used, &Event)> = BTreeMap::new();
    for event in events {
        users.see(event);
        match (&event.what, event.who) {
            // A hand-over waits for holders, for as long as a session lasts.
            (What::Begun { name: "hand_over", .. }, _) => {}
            (What::Begun { call, .. }, Some(who)) => {
                calls.insert(*call, (users.of(who), event));
            }
            (What::Ended { call, .. }, _) => {
                let Some((client, begun)) = calls.remove(call) else { continue };
                let Some(stopped_at) = users.stopped_at(client) else { continue };
                if event.at.saturating_sub(stopped_at.max(begun.at)) > end_max {
                    violations.push(format!(
                        "the client had ended at {stopped_at:?}, and this call has ended at {:?}: \
                         {begun}",
                        event.at
                    ));
                }
            }
            (What::Endless { stream }, _) => violations.push(format!(
                "{stream} goes on at {:?} after the error that says that its client has stopped",
                event.at
            )),
            (What::Revived { client }, _) => violations.push(format!(
                "client {client} has ended with its session, and connects again at {:?}",
                event.at
            )),
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::End;
    use crate::judges::tests::history;

    fn begun(call: Id) -> What {
        What::Begun { call, name: "wait", on: "/a".to_owned(), timeout: None }
    }

    fn ended(call: Id) -> What {
        What::Ended { call, end: End::Done }
    }

    /// The events are a second apart.
    fn count(whats: Vec<What>) -> usize {
        judge_events(&history(whats), END_MAX).len()
    }

    fn stopped(life: u64) -> What {
        What::Stopped { life }
    }

    #[test]
    fn a_call_that_outlives_its_client_is_seen() {
        assert_eq!(count(vec![begun(1), stopped(0), ended(1)]), 0);
        assert_eq!(count(vec![begun(1), stopped(0), What::Calm, ended(1)]), 1);
        assert_eq!(count(vec![begun(1), What::Calm, What::Calm, ended(1)]), 0);
    }

    #[test]
    fn a_call_of_a_client_that_has_ended_must_not_wait() {
        let waits = |before: Vec<What>| {
            let call = [begun(1), What::Calm, What::Calm, ended(1)];
            count(before.into_iter().chain(call).collect())
        };
        assert_eq!(waits(vec![stopped(0)]), 1);
        assert_eq!(waits(vec![stopped(0), What::Renewed { life: 1 }]), 0);
        assert_eq!(waits(vec![What::Renewed { life: 1 }, stopped(1)]), 1);
    }

    #[test]
    fn a_call_of_the_client_before_may_go_on() {
        let all = vec![begun(1), What::Renewed { life: 1 }, stopped(1), What::Calm, ended(1)];
        assert_eq!(count(all), 0, "such as its close");
    }

    #[test]
    fn a_client_that_comes_back_is_seen() {
        assert_eq!(count(vec![stopped(0), What::Revived { client: 0 }]), 1);
    }

    #[test]
    fn a_stream_that_goes_on_is_seen() {
        assert_eq!(count(vec![stopped(0), What::Endless { stream: "observe" }]), 1);
    }
}
