//! The takers of a queue pass over an item for a while that one of them has given back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Event, Id, What};
use crate::world::plan::Plan;

/// How much earlier an item may seem to be delivered: times are compared that were read in turn.
const EARLY: Duration = Duration::from_millis(20);
/// For how many round trips somebody must have had the item. A taker that has listed the item before
/// then tries to take several items one after the other, and may get it as soon as it is given back.
const HELD_MIN: u32 = 20;

/// Returns how the promise was broken. Where something goes wrong, a request may arrive long after its
/// taker has decided to take the item.
pub fn judge(events: &[Event], plan: &Plan) -> Vec<String> {
    let is_simple = plan.faults.is_empty() && !plan.closes_connections();
    if !plan.reads_are_current() || !is_simple {
        return Vec::new();
    }
    judge_events(events, HELD_MIN * plan.round_trip_max())
}

fn judge_events(events: &[Event], held_min: Duration) -> Vec<String> {
    let mut taken: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut returned: BTreeMap<(Id, &str), Duration> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Taken { item, .. } => drop(taken.insert(item, event.at)),
            What::Returned { by, item, until } => {
                let since = taken.get(item.as_str());
                if since.is_some_and(|since| event.at >= *since + held_min) {
                    returned.insert((*by, item), *until);
                }
            }
            What::Delivered { by, item } => {
                let until = returned.remove(&(*by, item.as_str()));
                if let Some(until) = until.filter(|until| event.at + EARLY < *until) {
                    violations.push(format!(
                        "at {:?}: {item} was taken by the queue that has given it back, and was to \
                         pass over it until {until:?}",
                        event.at
                    ));
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
    use crate::judges::tests::history;

    fn delivered(by: Id) -> Vec<What> {
        let (queue, item) = ("/queue".to_owned(), "a".to_owned());
        let (path, lease, token, is_held) = (String::new(), 1, 1, true);
        let taken = What::Taken { queue, item: item.clone(), path, lease, token, is_held };
        vec![taken, What::Delivered { by, item }]
    }

    /// Counts what is wrong if queue 1 gives an item back after two seconds, which its takers pass over
    /// for so many more, and then a queue gets it two seconds later.
    fn count(delay: u64, by: Id, held_min: u64) -> usize {
        let until = Duration::from_secs(2 + delay);
        let returned = What::Returned { by: 1, item: "a".to_owned(), until };
        let events = [delivered(1), vec![returned], delivered(by)].concat();
        judge_events(&history(events), Duration::from_secs(held_min)).len()
    }

    #[test]
    fn an_item_that_returns_too_early_to_its_queue_is_seen() {
        assert_eq!(count(3, 1, 2), 1);
        assert_eq!(count(2, 1, 2), 0, "the time was over");
        assert_eq!(count(3, 2, 2), 0, "another queue may have it at once");
        assert_eq!(count(3, 1, 3), 0, "its taker may have begun before");
    }
}
