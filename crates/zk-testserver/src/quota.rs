//! Quotas: the number of znodes and bytes below a path.
//!
//! A znode `/zookeeper/quota/<path>/zookeeper_limits` sets a quota. Next to it, in
//! `zookeeper_stats`, the server maintains the count. Updating the count is not a transaction: it
//! changes the data of that znode, and nothing in its stat except the length. Limits are not
//! enforced, as on real servers without `enforceQuota`.

use bytes::Bytes;
use jute_codec::EventType;

use crate::path;
use crate::tree::{Change, Tree};

/// Updates the counts after a change.
pub(crate) fn account(tree: &mut Tree, change: &Change) {
    if tree.get(QUOTAS).is_none_or(|quotas| quotas.children.is_empty()) {
        return;
    }
    if change.event == EventType::NODE_CREATED
        && let Some(subject) = change.path.strip_prefix(QUOTAS)
        && let Some(subject) = subject.strip_suffix(STATS)
    {
        let usage = tree.usage(subject);
        write(tree, subject, usage);
    }
    let has_quota = |above: &&str| tree.get(&format!("{QUOTAS}{above}{LIMITS}")).is_some();
    let Some(subject) = path::ancestry(&change.path).find(has_quota).filter(|path| *path != "/")
    else {
        return;
    };
    let Some((count, bytes)) = read(tree, subject) else { return };
    let created = match change.event {
        EventType::NODE_CREATED => 1,
        EventType::NODE_DELETED => -1,
        _ => 0,
    };
    write(tree, subject, (count + created, bytes + change.bytes));
}

/// Returns the current count, or `None` if there is no znode for the count. Fields that are not
/// numbers read as zero.
fn read(tree: &Tree, subject: &str) -> Option<(i64, i64)> {
    let stats = tree.get(&format!("{QUOTAS}{subject}{STATS}"))?;
    let text = String::from_utf8_lossy(stats.data.as_deref().unwrap_or_default());
    let number = |name: &str| {
        let value = text.split(',').find_map(|part| part.strip_prefix(name));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    Some((number("count="), number("bytes=")))
}

fn write(tree: &mut Tree, subject: &str, (count, bytes): (i64, i64)) {
    if let Some(stats) = tree.get_mut(&format!("{QUOTAS}{subject}{STATS}")) {
        stats.data = Some(Bytes::from(format!("count={count},bytes={bytes}")));
    }
}

const QUOTAS: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";
