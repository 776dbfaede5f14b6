//! When znodes existed, by what the servers have committed.

use std::collections::BTreeMap;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::CommitRecord;

use crate::program::queue::QUEUE;

/// When a znode was created, and when it was deleted.
pub(super) type Life = (i64, Option<i64>);

/// Returns the lives of all znodes, in their order.
pub(super) fn lives(commits: &[CommitRecord]) -> BTreeMap<&str, Vec<Life>> {
    let mut all: BTreeMap<&str, Vec<Life>> = BTreeMap::new();
    for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
        let (Some(path), zxid) = (commit.path.as_deref(), commit.zxid.0) else { continue };
        match commit.op {
            OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => {
                all.entry(path).or_default().push((zxid, None));
            }
            OpCode::DELETE | OpCode::DELETE_CONTAINER | OpCode::CLOSE_SESSION => {
                if let Some(life) = all.get_mut(path).and_then(|lives| lives.last_mut()) {
                    life.1 = Some(zxid);
                }
            }
            _ => {}
        }
    }
    all
}

/// Which session has created or deleted the znode of a path with a transaction.
pub(super) type Authors<'a> = BTreeMap<(&'a str, i64), SessionId>;

/// Returns who has created and deleted the znodes of the queue.
pub(super) fn authors(commits: &[CommitRecord]) -> Authors<'_> {
    let of_queue = format!("{QUEUE}/");
    let is_applied = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK
            && [OpCode::CREATE, OpCode::CREATE2, OpCode::DELETE].contains(&commit.op)
    };
    let applied = commits.iter().filter(is_applied);
    let of_paths = applied.filter_map(|it| Some(((it.path.as_deref()?, it.zxid.0), it.session)));
    of_paths.filter(|((path, _), _)| path.starts_with(&of_queue)).collect()
}
