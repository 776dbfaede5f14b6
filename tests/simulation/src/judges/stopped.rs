//! Nobody waits for a client that has ended with its session: calls that it has begun end at once, and
//! so do those that begin later. It connects to no server any more.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Event, Id, What, Who};
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
    let mut clients = Stopped::default();
    let mut calls: BTreeMap<Id, (Who, &Event)> = BTreeMap::new();
    for event in events {
        clients.see(event);
        match (&event.what, event.who) {
            // A hand-over waits for holders, for as long as a session lasts.
            (What::Begun { name: "hand_over", .. }, _) => {}
            (What::Begun { call, .. }, Some(who)) => drop(calls.insert(*call, (who, event))),
            (What::Ended { call, .. }, _) => {
                let Some((who, begun)) = calls.remove(call) else { continue };
                let Some(stopped_at) = clients.stopped_at(who) else { continue };
                if event.at.saturating_sub(stopped_at.max(begun.at)) > end_max {
                    violations.push(format!(
                        "the client had ended at {stopped_at:?}, and this call has ended at {:?}: \
                         {begun}",
                        event.at
                    ));
                }
            }
            (What::Revived { client }, _) => violations.push(format!(
                "client {client} has ended with its session, and connects again at {:?}",
                event.at
            )),
            _ => {}
        }
    }
    violations
}

/// Who uses a client that has ended with its session.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// When the last client of each number has ended.
    stopped: BTreeMap<usize, Duration>,
    /// The tasks that have another client since.
    renewed: BTreeMap<Who, Duration>,
}

impl Stopped {
    pub(super) fn see(&mut self, event: &Event) {
        let Some(who) = event.who else { return };
        match event.what {
            What::Stopped => drop(self.stopped.insert(who.client, event.at)),
            What::Renewed => drop(self.renewed.insert(who, event.at)),
            _ => {}
        }
    }

    /// Returns when the client of this task has ended, if it has.
    pub(super) fn stopped_at(&self, who: Who) -> Option<Duration> {
        let stopped_at = *self.stopped.get(&who.client)?;
        // A task has a new client only after the end of the old one.
        let has_another = self.renewed.get(&who).is_some_and(|renewed| *renewed >= stopped_at);
        (!has_another).then_some(stopped_at)
    }
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

    #[test]
    fn a_call_that_outlives_its_client_is_seen() {
        assert_eq!(count(vec![begun(1), What::Stopped, ended(1)]), 0);
        assert_eq!(count(vec![begun(1), What::Stopped, What::Calm, ended(1)]), 1);
        assert_eq!(count(vec![begun(1), What::Calm, What::Calm, ended(1)]), 0);
    }

    #[test]
    fn a_call_of_a_client_that_has_ended_must_not_wait() {
        let waits = |before: Vec<What>| {
            let call = [begun(1), What::Calm, What::Calm, ended(1)];
            count(before.into_iter().chain(call).collect())
        };
        assert_eq!(waits(vec![What::Stopped]), 1);
        assert_eq!(waits(vec![What::Stopped, What::Renewed]), 0);
        assert_eq!(waits(vec![What::Stopped, What::Renewed, What::Stopped]), 1);
    }

    #[test]
    fn a_client_that_comes_back_is_seen() {
        assert_eq!(count(vec![What::Stopped, What::Revived { client: 0 }]), 1);
    }
}
