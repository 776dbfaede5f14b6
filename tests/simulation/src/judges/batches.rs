//! A cache that follows many znodes reads them with few requests after a gap.

use std::time::Duration;

use jute_codec::{OpCode, SessionId};

use super::Case;
use crate::program::Job;
use crate::program::values::TREE;

/// For how long requests after a gap are counted. A cache begins with a barrier.
const AFTER_GAP: Duration = Duration::from_secs(1);
/// How many single reads each follower may send in that time, and how many more for each write of the
/// tree: what changes meanwhile is read by itself.
const SINGLE_MAX: usize = 30;
const SINGLE_OF_WRITE: usize = 3;

const READS: [OpCode; 3] = [OpCode::GET_DATA, OpCode::GET_CHILDREN, OpCode::GET_CHILDREN2];
const WRITES: [OpCode; 4] = [OpCode::CREATE, OpCode::CREATE2, OpCode::DELETE, OpCode::SET_DATA];

/// A request for something in the tree.
type Asked<'a> = (SessionId, Duration, OpCode, &'a str);

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    if !case.plan.kinds.is_wide {
        return Vec::new();
    }
    let asked = case.requests.iter().filter_map(|request| {
        let path = request.path.as_deref().filter(|path| path.starts_with(TREE))?;
        Some((request.session, request.at, request.op, path))
    });
    let followers = |session: SessionId| {
        let tasks = case.sessions.get(&session).and_then(|it| case.program.clients.get(*it));
        // A task that changes the tree follows it for a moment now and then.
        let follows = |jobs: &&Vec<Job>| jobs.iter().any(|it| [Job::Cache, Job::Tree].contains(it));
        tasks.map_or(1, |tasks| tasks.iter().filter(follows).count().max(1))
    };
    judge_reads(&asked.collect::<Vec<_>>(), followers)
}

fn judge_reads(asked: &[Asked<'_>], followers: impl Fn(SessionId) -> usize) -> Vec<String> {
    let gaps = asked.iter().filter(|(_, _, op, path)| *op == OpCode::SYNC && *path == TREE);
    let broken = gaps.filter_map(|(session, from, ..)| {
        let after = asked.iter().filter(|(_, at, ..)| (*from..*from + AFTER_GAP).contains(at));
        let (mut reads, mut writes) = (0, 0);
        for (other, _, op, _) in after {
            reads += usize::from(other == session && READS.contains(op));
            writes += usize::from(WRITES.contains(op));
        }
        let most = (SINGLE_MAX + SINGLE_OF_WRITE * writes) * followers(*session);
        (reads > most).then(|| format!("{reads} single reads of {session} after {from:?}"))
    });
    broken.take(1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_for_each_znode_after_a_gap_is_seen() {
        let count = |reads: u64, writes: u64, op| {
            let one = |op, ms, path| (SessionId(1), Duration::from_millis(ms), op, path);
            let mut asked = vec![one(OpCode::SYNC, 100, TREE)];
            asked.extend((0..reads).map(|it| one(op, 101 + it, "/tree/w")));
            asked.extend((0..writes).map(|it| one(OpCode::SET_DATA, 101 + it, "/tree/1")));
            judge_reads(&asked, |_| 1).len()
        };
        assert_eq!(count(60, 0, OpCode::GET_DATA), 1);
        assert_eq!(count(60, 10, OpCode::GET_DATA), 0, "they may have changed");
        assert_eq!(count(60, 0, OpCode::MULTI_READ), 0);
        assert_eq!(count(30, 0, OpCode::GET_DATA), 0);
    }
}
