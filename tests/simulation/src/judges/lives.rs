//! When znodes existed, by what the servers have committed.

use std::collections::BTreeMap;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::CommitRecord;

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
