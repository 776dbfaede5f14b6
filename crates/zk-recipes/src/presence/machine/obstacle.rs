//! What keeps a presence from creating its znode, and the watches that may report its end.
//!
//! No server reports that permissions or quotas were changed. But other clients can create a
//! directory that this client may not create, and delete a znode that refuses children. So one
//! flight tests both with `exists`, which also watches a znode that is missing:
//!
//! 1. The znode that could not be created, if it is an ancestor. It is the first one that is missing,
//!    so a presence whose ancestors are created one by one gets further with each event.
//! 2. The parent of that znode, which has refused it.
//!
//! A server reports no event of a znode that the client may not read, so a presence tries again after
//! pauses too.

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::OpError;
use zk_session::recipe::Operation;

use crate::machine::{Answer, Failure, Pauses, WatchNumber, WatchNumbers, parent, watch_existence};

/// The znodes whose changes may make a create possible that was refused.
#[derive(Debug, Default)]
pub(super) struct Obstacle {
    places: Vec<Place>,
    /// One of the watches has fired since the last tests were submitted.
    has_fired: bool,
    /// The last tests have shown a change.
    has_changed: bool,
    /// Pauses between two attempts.
    pub(super) pauses: Pauses,
}

#[derive(Debug)]
struct Place {
    path: ByteString,
    /// The znode was missing when the create was refused.
    is_missing: bool,
    watch: WatchNumber,
}

impl Obstacle {
    /// Returns tests for a failure to create this znode or one of its ancestors. They set the
    /// watches. A watch that is pending on the same path keeps its number, so that the registry holds
    /// one for each znode, however often the create is refused.
    pub(super) fn tests(
        &mut self,
        own: &ByteString,
        failure: &Failure,
        watches: &mut WatchNumbers,
    ) -> Vec<Operation> {
        let mut last = std::mem::take(&mut self.places);
        let refused = &failure.path;
        let parent = parent(refused);
        let is_rootless = matches!(failure.error, OpError::ChrootMissing { .. });
        let mut add = |path: ByteString, is_missing| {
            let known = last.iter().position(|place| place.path == path);
            let known = known.map(|known| last.swap_remove(known).watch);
            let watch = known.unwrap_or_else(|| watches.issue());
            self.places.push(Place { path, is_missing, watch });
        };
        // The presence watches its own znode with each create.
        if refused != own {
            add(refused.clone(), true);
        }
        // The root of the client is missing if its chroot is.
        add(parent, is_rootless);
        self.has_fired = false;
        let test = |place: &Place| watch_existence(place.path.clone(), place.watch);
        self.places.iter().map(test).collect()
    }

    /// Takes note of an event. Returns whether it is one of these watches.
    pub(super) fn fired(&mut self, watch: WatchNumber) -> bool {
        let known = self.places.iter().position(|place| place.watch == watch);
        if let Some(known) = known {
            self.places.swap_remove(known);
        }
        self.has_fired |= known.is_some();
        known.is_some()
    }

    /// Returns whether these results of the tests are a reason to try again at once. They are not if
    /// those before were one too: a server that says so each time must not be asked without end.
    pub(super) fn has_changed(&mut self, results: &[Answer]) -> bool {
        let is_change = |(place, result): (&Place, &Answer)| match result {
            Answer::Done(Response::Exists(_)) => place.is_missing,
            result if result.is_no_node() => !place.is_missing,
            // A test that was refused shows nothing.
            Answer::Done(_)
            | Answer::Refused(_)
            | Answer::SessionEnded
            | Answer::Unknown { .. } => false,
        };
        // The places whose watches have fired are not there any more.
        let is_now = self.has_fired || self.places.iter().zip(results).any(is_change);
        self.has_changed = is_now && !self.has_changed;
        self.has_changed
    }
}

#[cfg(test)]
mod tests {
    use jute_codec::{ErrorCode, Stat};

    use super::*;
    use crate::machine::FailedAction;

    const OWN: &str = "/a/b/p";

    fn failure(path: &'static str) -> Failure {
        let error = OpError::server(ErrorCode::NO_AUTH);
        Failure::new(FailedAction::Create, ByteString::from_static(path), error)
    }

    fn numbers(operations: &[Operation]) -> Vec<WatchNumber> {
        operations.iter().map(|operation| operation.watch.expect("each sets a watch")).collect()
    }

    #[test]
    fn a_watch_keeps_its_number_until_it_has_fired() {
        let mut watches = WatchNumbers::default();
        let mut obstacle = Obstacle::default();
        let own = ByteString::from_static(OWN);
        let first = numbers(&obstacle.tests(&own, &failure("/a/b"), &mut watches));
        let second = numbers(&obstacle.tests(&own, &failure("/a/b"), &mut watches));
        assert_eq!((first.len(), &first), (2, &second));
        assert!(obstacle.fired(first[0]) && !obstacle.fired(first[0]));
        let third = numbers(&obstacle.tests(&own, &failure("/a/b"), &mut watches));
        assert_eq!(third[1], first[1]);
        assert!(!first.contains(&third[0]));
        // The other reason is that the parent refuses.
        let fourth = numbers(&obstacle.tests(&own, &failure(OWN), &mut watches));
        assert_eq!(fourth, third[..1]);
    }

    #[test]
    fn a_change_that_is_seen_again_and_again_is_no_reason_to_hurry() {
        let found = || Answer::Done(Response::Exists(Stat::default()));
        let missing = || Answer::Refused(OpError::server(ErrorCode::NO_NODE));
        let unknown = || Answer::Refused(OpError::server(ErrorCode::NO_AUTH));
        let mut watches = WatchNumbers::default();
        let own = ByteString::from_static(OWN);
        let changes = [
            [found(), found()],
            [missing(), missing()],
            [unknown(), missing()],
            [found(), unknown()],
        ];
        for results in changes {
            let mut obstacle = Obstacle::default();
            let mut has_changed = || {
                let _ = obstacle.tests(&own, &failure("/a/b"), &mut watches);
                obstacle.has_changed(&results)
            };
            let seen = [has_changed(), has_changed(), has_changed(), has_changed()];
            assert_eq!(seen, [true, false, true, false], "{results:?}");
        }
        for results in [[missing(), found()], [unknown(), unknown()]] {
            let mut obstacle = Obstacle::default();
            let tests = obstacle.tests(&own, &failure("/a/b"), &mut watches);
            assert!(!obstacle.has_changed(&results), "{results:?}");
            // An event that arrives between the two replies counts.
            assert!(obstacle.fired(numbers(&tests)[1]));
            assert!(obstacle.has_changed(&results), "{results:?}");
        }
    }
}
