//! Each operation that settles is applied as often as the callers were told, by the transactions that
//! they were told; and a read behind a barrier is not older than its call.

use std::collections::{BTreeMap, BTreeSet};

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::CommitRecord;

use crate::history::{Event, Told, What};
use crate::program::settled::SETTLED;

/// Number of digits that a server appends to the name of a sequential znode.
const DIGITS: usize = 10;

/// The operation, and the path that the caller has given.
type Key<'a> = (i32, &'a str);

/// Returns how the promise was broken.
pub fn judge(events: &[Event], commits: &[CommitRecord]) -> Vec<String> {
    let applied = applied(commits);
    let mut violations = judge_writes(events, &applied);
    violations.extend(judge_reads(events, &states(commits)));
    violations
}

/// Returns the operation of a commit, for all kinds of creates the same.
fn kind(op: OpCode) -> OpCode {
    if [OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL].contains(&op) {
        return OpCode::CREATE;
    }
    op
}

/// Returns the path that the caller of a create has given.
fn given(path: &str) -> &str {
    let Some(at) = path.len().checked_sub(DIGITS) else { return path };
    match path.split_at_checked(at) {
        Some((prefix, digits))
            if prefix.ends_with('-') && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            prefix
        }
        _ => path,
    }
}

/// Returns the zxids of what was applied to the znodes of these calls.
fn applied(commits: &[CommitRecord]) -> BTreeMap<Key<'_>, Vec<i64>> {
    let mut applied: BTreeMap<Key<'_>, Vec<i64>> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
        let Some(path) = commit.path.as_deref() else { continue };
        if path.strip_prefix(SETTLED).is_some_and(|rest| rest.starts_with('/')) {
            let key = (kind(commit.op).0, given(path));
            applied.entry(key).or_default().push(commit.zxid.0);
        }
    }
    applied
}

/// What the callers of one operation on one path know.
#[derive(Debug, Default)]
struct Known {
    applied: usize,
    unknown: usize,
    zxids: Vec<i64>,
}

fn judge_writes(events: &[Event], applied: &BTreeMap<Key<'_>, Vec<i64>>) -> Vec<String> {
    let mut known: BTreeMap<Key<'_>, Known> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        match &event.what {
            What::Settled { op, path, told, zxid } => {
                let known = known.entry((op.0, path)).or_default();
                match told {
                    Told::Applied => known.applied += 1,
                    Told::Unknown => known.unknown += 1,
                    Told::NotApplied => {}
                }
                known.zxids.extend(zxid);
            }
            What::OtherList { path, expected, found } => violations.push(format!(
                "the list of {path} was to be set for {expected:#x}, and is that of {found:#x}"
            )),
            What::InForce { path } if !applied.contains_key(&(OpCode::SET_ACL.0, path)) => {
                violations.push(format!("{path} is said to have a list that nobody has set"));
            }
            _ => {}
        }
    }
    for ((op, path), known) in &known {
        let zxids = applied.get(&(*op, *path)).map(Vec::as_slice).unwrap_or_default();
        let (name, count) = (OpCode(*op), zxids.len());
        if !(known.applied..=known.applied + known.unknown).contains(&count) {
            violations.push(format!(
                "{name} of {path} was applied {count} times; {} callers were told that theirs was, \
                 and {} that theirs may have been",
                known.applied, known.unknown
            ));
        }
        let unique: BTreeSet<i64> = known.zxids.iter().copied().collect();
        if unique.len() < known.zxids.len() {
            violations.push(format!("two callers were told of the same {name} of {path}"));
        }
        if let Some(other) = unique.iter().find(|zxid| !zxids.contains(zxid)) {
            violations.push(format!("a caller was told of {name} of {path} by {other:#x}"));
        }
    }
    violations
}

/// The states of a znode since these transactions: its czxid and its mzxid.
type States = Vec<(i64, Option<(i64, i64)>)>;

fn states(commits: &[CommitRecord]) -> BTreeMap<&str, States> {
    let mut states: BTreeMap<&str, States> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
        let (Some(path), zxid) = (commit.path.as_deref(), commit.zxid.0) else { continue };
        let of_path = states.entry(path).or_default();
        let before = of_path.last().and_then(|(_, state)| *state);
        match kind(commit.op) {
            OpCode::CREATE => of_path.push((zxid, Some((zxid, zxid)))),
            OpCode::SET_DATA => {
                of_path.push((zxid, before.map(|(created, _)| (created, zxid))));
            }
            OpCode::DELETE | OpCode::DELETE_CONTAINER | OpCode::CLOSE_SESSION => {
                of_path.push((zxid, None));
            }
            _ => {}
        }
    }
    states
}

fn judge_reads(events: &[Event], states: &BTreeMap<&str, States>) -> Vec<String> {
    let mut violations = Vec::new();
    for event in events {
        let What::Looked { path, from, to, state } = &event.what else { continue };
        let of_path = states.get(path.as_str()).map(Vec::as_slice).unwrap_or_default();
        let at_first = of_path.iter().rfind(|(since, _)| since <= from);
        let at_first = at_first.and_then(|(_, state)| *state);
        let later = of_path.iter().filter(|(since, _)| from < since && since <= to);
        let mut possible = later.map(|(_, state)| *state).chain([at_first]);
        if !possible.any(|other| other == *state) {
            violations.push(format!("it was not so since the barrier: {event}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::history;

    const SET: OpCode = OpCode::SET_DATA;

    fn settled(told: Told, zxid: Option<i64>) -> What {
        What::Settled { op: SET, path: "/settled/1".to_owned(), told, zxid }
    }

    fn writes(whats: Vec<What>, zxids: &[i64]) -> usize {
        let applied = BTreeMap::from([((SET.0, "/settled/1"), zxids.to_vec())]);
        judge_writes(&history(whats), &applied).len()
    }

    #[test]
    fn writes_that_were_applied_in_another_way_than_told_are_seen() {
        let applied = |zxid| settled(Told::Applied, zxid);
        assert_eq!(writes(vec![applied(Some(3)), applied(None)], &[3, 4]), 0);
        assert_eq!(writes(vec![applied(Some(3))], &[3, 4]), 1, "one was applied twice");
        assert_eq!(writes(vec![applied(None)], &[]), 1, "it was not applied");
        assert_eq!(writes(vec![settled(Told::NotApplied, None)], &[3]), 1);
        assert_eq!(writes(vec![settled(Told::Unknown, None)], &[3]), 0);
        assert_eq!(writes(vec![settled(Told::Unknown, None)], &[]), 0);
        assert_eq!(writes(vec![settled(Told::Unknown, None)], &[3, 4]), 1);
        assert_eq!(writes(vec![applied(Some(3)), applied(Some(3))], &[3, 4]), 1, "the same one");
        assert_eq!(writes(vec![applied(Some(5))], &[3]), 1, "by another transaction");
        let in_force = What::InForce { path: "/settled/1".to_owned() };
        assert_eq!(writes(vec![in_force], &[]), 1);
        let other = What::OtherList { path: "/settled/1".to_owned(), expected: 3, found: 4 };
        assert_eq!(writes(vec![other], &[]), 1);
    }

    #[test]
    fn the_number_of_a_sequential_znode_is_not_given_by_its_caller() {
        assert_eq!(given("/settled/own-7-0000000012"), "/settled/own-7-");
        assert_eq!(given("/settled/own-7-"), "/settled/own-7-");
        assert_eq!(given("/settled/1"), "/settled/1");
    }

    #[test]
    fn reads_that_are_older_than_their_barrier_are_seen() {
        let states = BTreeMap::from([(
            "/a",
            vec![(3, Some((3, 3))), (5, Some((3, 5))), (8, None), (9, Some((9, 9)))],
        )]);
        let count = |from, to, state| {
            let path = "/a".to_owned();
            judge_reads(&history(vec![What::Looked { path, from, to, state }]), &states).len()
        };
        assert_eq!(count(5, 6, Some((3, 5))), 0);
        assert_eq!(count(4, 6, Some((3, 3))), 0);
        assert_eq!(count(5, 9, None), 0);
        assert_eq!(count(1, 2, None), 0);
        assert_eq!(count(5, 6, Some((3, 3))), 1, "it is older");
        assert_eq!(count(9, 9, None), 1);
        assert_eq!(count(3, 4, Some((3, 5))), 1, "it is from the future");
    }
}
