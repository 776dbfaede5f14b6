//! How a client that updates a value behaves beside others that do the same.
//!
//! A write that is refused because another one was faster has been proposed to the whole ensemble,
//! unlike a read. So after such a write, the client pauses and reads, and if others have written a
//! lot meanwhile, it pauses once more before it writes.

use std::time::Duration;

use zk_session::Time;

use super::versioned::Revision;

/// The longest pause after the first write that was refused. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(5);
/// Limit of the longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What one update knows about the writes of others.
#[derive(Debug, Default)]
pub(super) struct Contention {
    /// What the last read has found, and when.
    last: Option<(Revision, Time)>,
    /// The last read was not followed by a write.
    has_let_pass: bool,
    refusals: u32,
}

impl Contention {
    /// Takes note of a read. Returns whether the update should pause again instead of writing: others
    /// have written at least twice since the last read, and more than two times in five round trips.
    /// A write would probably be refused.
    pub(super) fn must_let_others_write(
        &mut self,
        found: Revision,
        asked: Time,
        answered: Time,
    ) -> bool {
        let is_busy = self.last.is_some_and(|(last, at)| {
            // Versions wrap around.
            let writes = found.version.0.wrapping_sub(last.version.0);
            let (writes, elapsed) = (writes.try_into().unwrap_or(0), answered.saturating_since(at));
            let round_trip: Duration = answered.saturating_since(asked);
            writes >= 2 && round_trip.saturating_mul(writes).saturating_mul(5) > elapsed * 2
        });
        self.last = Some((found, answered));
        self.has_let_pass = is_busy && !self.has_let_pass;
        self.has_let_pass
    }

    /// Returns the greatest length of the next pause.
    pub(super) fn next_pause(&mut self) -> Duration {
        let length = PAUSE.saturating_mul(1 << self.refusals.min(8)).min(PAUSE_MAX);
        self.refusals += 1;
        length
    }
}

#[cfg(test)]
mod tests {
    use zk_session::{Version, Zxid};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::default() + Duration::from_millis(ms)
    }

    fn revision(version: i32) -> Revision {
        Revision { version: Version(version), czxid: Zxid(1) }
    }

    #[test]
    fn an_update_lets_others_write_once_if_they_write_often() {
        let mut busy = Contention::default();
        assert!(!busy.must_let_others_write(revision(7), at(0), at(2)));
        // Three writes in ten milliseconds, which are five round trips.
        assert!(busy.must_let_others_write(revision(10), at(10), at(12)));
        assert!(!busy.must_let_others_write(revision(13), at(20), at(22)), "twice in a row");
        assert!(busy.must_let_others_write(revision(16), at(30), at(32)));
    }

    #[test]
    fn an_update_beside_few_writes_does_not_wait() {
        for (writes, ms) in [(0, 10), (1, 4), (2, 12), (3, 20), (-5, 10)] {
            let mut calm = Contention::default();
            assert!(!calm.must_let_others_write(revision(7), at(0), at(2)));
            let (asked, answered) = (at(ms), at(ms + 2));
            assert!(!calm.must_let_others_write(revision(7 + writes), asked, answered), "{writes}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let mut contention = Contention::default();
        let lengths: Vec<_> = (0..12).map(|_| contention.next_pause().as_millis()).collect();
        assert_eq!(lengths[..4], [5, 10, 20, 40]);
        assert_eq!(lengths[7..], [640, 1000, 1000, 1000, 1000]);
    }
}
