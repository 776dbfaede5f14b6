//! Quotas: the number of znodes and bytes below a path.
//!
//! A znode `/zookeeper/quota/<path>/zookeeper_limits` sets a quota. Next to it, in
//! `zookeeper_stats`, the server maintains the count. Updating the count is not a transaction: it
//! changes the data of that znode, and nothing in its stat except the length. Only hard limits are
//! enforced, and only if the configuration says so.

use bytes::Bytes;
use jute_codec::{ErrorCode, EventType};

use crate::config::ServerConfig;
use crate::path;
use crate::tree::{Change, Tree};

/// Checks a write against the hard limits of the closest quota. As on real servers, the counts do
/// not include earlier operations of the same multi.
pub(crate) fn check(
    tree: &Tree,
    config: &ServerConfig,
    path: &str,
    bytes: i64,
    count: i64,
) -> Result<(), ErrorCode> {
    if !config.enforce_quota {
        return Ok(());
    }
    let Some(subject) = closest(tree, path) else { return Ok(()) };
    let Some(limits) = tree.get(&format!("{QUOTAS}{subject}{LIMITS}")) else { return Ok(()) };
    let limits = String::from_utf8_lossy(limits.data.as_deref().unwrap_or_default());
    let limit = |name: &str| number(&limits, name).filter(|limit| *limit > -1);
    let Some((used_count, used_bytes)) = read(tree, subject) else { return Ok(()) };
    // A change of zero never exceeds a limit, even if the limit was exceeded before.
    let exceeds = |used: i64, change: i64, limit: Option<i64>| {
        change != 0 && limit.is_some_and(|limit| used + change > limit)
    };
    if exceeds(used_count, count, limit("countHardLimit"))
        || exceeds(used_bytes, bytes, limit("byteHardLimit"))
    {
        return Err(ErrorCode::QUOTA_EXCEEDED);
    }
    Ok(())
}

/// Returns the closest path with a quota: the path itself or an ancestor.
fn closest<'a>(tree: &Tree, path: &'a str) -> Option<&'a str> {
    let has_quota = |above: &&str| tree.get(&format!("{QUOTAS}{above}{LIMITS}")).is_some();
    path::ancestry(path).find(has_quota).filter(|path| *path != "/")
}

/// Returns a number from a list such as `count=3,bytes=-1=;byteHardLimit=100`.
fn number(list: &str, name: &str) -> Option<i64> {
    let mut pairs = list.split([',', ';']).filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    value.trim_end_matches('=').parse().ok()
}

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
    let Some(subject) = closest(tree, &change.path) else { return };
    let Some((count, bytes)) = read(tree, subject) else { return };
    let created = match change.event {
        EventType::NODE_CREATED => 1,
        EventType::NODE_DELETED => -1,
        _ => 0,
    };
    write(tree, subject, (count + created, bytes + change.bytes));
}

/// Returns the current count, or `None` if no znode stores it. Fields that are not
/// numbers read as zero.
fn read(tree: &Tree, subject: &str) -> Option<(i64, i64)> {
    let stats = tree.get(&format!("{QUOTAS}{subject}{STATS}"))?;
    let text = String::from_utf8_lossy(stats.data.as_deref().unwrap_or_default());
    let number = |name: &str| number(&text, name).unwrap_or(0);
    Some((number("count"), number("bytes")))
}

fn write(tree: &mut Tree, subject: &str, (count, bytes): (i64, i64)) {
    if let Some(stats) = tree.get_mut(&format!("{QUOTAS}{subject}{STATS}")) {
        stats.data = Some(Bytes::from(format!("count={count},bytes={bytes}")));
    }
}

const QUOTAS: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";
