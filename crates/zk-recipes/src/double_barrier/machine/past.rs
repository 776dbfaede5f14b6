//! What a participant remembers of the znodes that it has lost, so that no round counts it unnoticed.
//!
//! A participant whose znode is gone (its session has ended, or somebody has deleted the znode)
//! enters again under a new name. A round may have counted the earlier znode before, or may count it
//! for a moment longer. If the participant did not look, it would wait for the end of the round that
//! it is part of, or would take the next round for this one.
//!
//! The data of the directory names only the last round, but its version counts the rounds. So a
//! participant that has looked at every version since it created the earlier znode knows whether
//! that znode was counted. If it has missed a version, it cannot know, and says so.
//!
//! A round that counts a znode after its deletion was formed by a participant that had read the data
//! before. So it is at most the first round after the one that is read behind the deletion.

use bytestring::ByteString;
use zk_session::{Version, Zxid};

/// The last round that a directory names.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The transaction that created the directory.
    pub(crate) directory: Zxid,
    /// The version of the directory's data, which grows with each round.
    pub(crate) version: Version,
    /// The participants.
    pub(crate) names: Vec<ByteString>,
}

/// What a round means for a participant that has lost a znode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// The round has not counted the participant.
    NotCounted,
    /// The round has counted an earlier znode.
    Counted,
    /// A round that was not seen may have counted an earlier znode.
    Unknown,
}

/// The earlier znodes of a participant, and the last round that it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// The names of the znodes that a round may have counted, or may still count.
    names: Vec<ByteString>,
    /// The directory, and the version that was seen last.
    seen: Option<(Zxid, Version)>,
    /// No round after this version counts an earlier znode.
    last_possible: Option<Version>,
    /// The round that has counted an earlier znode.
    counted_in: Option<Version>,
}

impl Past {
    /// Records that the znode with this name is lost.
    pub(crate) fn lose(&mut self, name: ByteString) {
        self.names.push(name);
        self.last_possible = None;
    }

    /// Returns whether a round may have counted an earlier znode, or may still count it.
    pub(crate) fn is_open(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns the names of the earlier znodes.
    pub(crate) fn names(&self) -> &[ByteString] {
        &self.names
    }

    /// Evaluates the rounds that were read before the deletion of all earlier znodes and behind it.
    /// Returns what they mean, and the round that has counted one of the znodes, if one has.
    ///
    /// `has_deleted` means that the last znode still existed: a round that had counted it before could
    /// not have ended, so the data would have named it. Whoever forms the next round may do so between
    /// the deletion and the second read.
    pub(crate) fn survey(
        &mut self,
        before: Option<Round>,
        behind: Round,
        has_deleted: bool,
    ) -> (Fate, Round) {
        let last_possible = Some(Version(behind.version.0.wrapping_add(1)));
        if let Some(before) = before.filter(|_| has_deleted && self.names.len() == 1) {
            self.seen = Some((before.directory, before.version));
            if self.look(&before) == Fate::Counted {
                self.last_possible = last_possible;
                return (Fate::Counted, before);
            }
        }
        let fate = self.look(&behind);
        self.last_possible = last_possible;
        (fate, behind)
    }

    /// Evaluates a round.
    pub(crate) fn look(&mut self, round: &Round) -> Fate {
        let is_next = self.seen.is_some_and(|(directory, version)| {
            let missed = round.version.0.wrapping_sub(version.0);
            directory == round.directory && (0..=1).contains(&missed)
        });
        let is_safe = self.last_possible.is_some_and(|last| round.version >= last);
        self.seen = Some((round.directory, round.version));
        if !self.is_open() {
            return Fate::NotCounted;
        }
        if let Some(counted_in) = self.counted_in {
            // Nobody enters two rounds with one call.
            return if round.version == counted_in { Fate::Counted } else { Fate::Unknown };
        }
        let is_named = self.names.iter().any(|name| round.names.contains(name));
        // A round that counts a znode follows no other round that has counted it.
        if is_named && (is_next || self.names.len() == 1) {
            self.counted_in = Some(round.version);
            return Fate::Counted;
        }
        if !is_next {
            return Fate::Unknown;
        }
        if is_safe {
            self.names.clear();
        }
        Fate::NotCounted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "member-old";
    const NEW: &str = "member-new";

    fn round(version: i32, names: &[&str]) -> Round {
        let names = names.iter().map(|name| (*name).into()).collect();
        Round { directory: Zxid(7), version: Version(version), names }
    }

    /// Returns the past of a participant that has seen this version, and then lost its znode.
    fn lost_after(version: i32) -> Past {
        let mut past = Past::default();
        assert_eq!(past.look(&round(version, &["member-x"])), Fate::NotCounted);
        past.lose(OLD.into());
        past
    }

    /// Evaluates a round that nothing has changed during the survey.
    fn survey(past: &mut Past, round: Round, has_deleted: bool) -> Fate {
        past.survey(Some(round.clone()), round, has_deleted).0
    }

    #[test]
    fn a_round_that_names_the_old_znode_has_counted_it() {
        for version in [3, 4] {
            assert_eq!(survey(&mut lost_after(3), round(version, &[OLD]), false), Fate::Counted);
        }
        let mut past = lost_after(3);
        assert_eq!(survey(&mut past, round(3, &[]), false), Fate::NotCounted);
        assert_eq!(past.look(&round(4, &["member-x", OLD])), Fate::Counted);
    }

    #[test]
    fn a_round_that_was_missed_may_have_counted_the_old_znode() {
        assert_eq!(survey(&mut lost_after(3), round(5, &["member-x"]), false), Fate::Unknown);
        let other = Round { directory: Zxid(8), ..round(3, &[]) };
        assert_eq!(survey(&mut lost_after(3), other, false), Fate::Unknown);
        let mut unseen = Past::default();
        unseen.lose(OLD.into());
        assert_eq!(survey(&mut unseen.clone(), round(3, &[]), false), Fate::Unknown);
        // It still existed, so a round that had counted it would not be over.
        assert_eq!(survey(&mut unseen, round(3, &[]), true), Fate::NotCounted);
    }

    /// The znode that was deleted ends its round, and the next one may be formed before anybody looks.
    #[test]
    fn a_round_that_ends_with_the_deletion_has_counted_the_old_znode() {
        let unseen = || {
            let mut past = Past::default();
            past.lose(OLD.into());
            past
        };
        let next = || round(4, &["member-x"]);
        let fate = |before, behind| unseen().survey(before, behind, true);
        let (counted, in_round) = fate(Some(round(3, &[OLD])), next());
        assert_eq!((counted, in_round.version), (Fate::Counted, Version(3)));
        assert_eq!(fate(Some(round(3, &[])), round(4, &[OLD])).0, Fate::Counted);
        assert_eq!(fate(Some(round(3, &[])), next()).0, Fate::NotCounted);
        assert_eq!(fate(Some(round(2, &[])), next()).0, Fate::Unknown);
        assert_eq!(fate(None, next()).0, Fate::Unknown);
        let other = Round { directory: Zxid(8), ..next() };
        assert_eq!(fate(Some(round(3, &[])), other).0, Fate::Unknown);
    }

    #[test]
    fn the_old_znode_matters_until_the_next_round() {
        let mut past = lost_after(3);
        assert_eq!(survey(&mut past, round(4, &["member-x"]), false), Fate::NotCounted);
        assert!(past.is_open());
        assert_eq!(past.look(&round(5, &["member-y"])), Fate::NotCounted);
        assert!(!past.is_open());
        assert_eq!(past.look(&round(9, &["member-y"])), Fate::NotCounted);
    }

    #[test]
    fn nobody_enters_two_rounds_at_once() {
        let mut past = lost_after(3);
        assert_eq!(survey(&mut past, round(3, &[]), false), Fate::NotCounted);
        assert_eq!(past.look(&round(4, &[OLD])), Fate::Counted);
        past.lose(NEW.into());
        assert_eq!(survey(&mut past.clone(), round(4, &[OLD]), true), Fate::Counted);
        assert_eq!(survey(&mut past, round(5, &[NEW]), false), Fate::Unknown);
    }
}
