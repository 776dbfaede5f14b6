//! The znodes of holders at paths where an administrator has deleted one. Such a path may have another
//! znode later, about which all promises hold, except that a former holder may delete it: it does not
//! know that its own is gone, and the name says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{CommitRecord, RequestRecord};

/// A znode, by its path and by the transaction that has created it.
type Key<'a> = (&'a str, i64);

/// How the znodes have ended that were ever at such a path.
#[derive(Debug, Default)]
pub(super) struct Replaced<'a> {
    deleted: BTreeSet<&'a str>,
    ends: BTreeMap<Key<'a>, End>,
}

/// How a znode has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// An administrator has deleted it, or its session has ended.
    Excused,
    /// A client has deleted it at this time. `is_looked_at`: the session that had created it has read
    /// it right before, to find out whether it was its own, and has waited for the reply.
    Deleted { at: Duration, is_looked_at: bool },
}

impl<'a> Replaced<'a> {
    /// Looks at the paths of which an administrator has deleted a znode.
    pub(super) fn new(
        deleted: &'a BTreeSet<String>,
        commits: &'a [CommitRecord],
        requests: &'a [RequestRecord],
        arrival: impl Fn(&RequestRecord) -> Option<Duration>,
    ) -> Self {
        let deleted: BTreeSet<&str> = deleted.iter().map(String::as_str).collect();
        let mut of_path: BTreeMap<&str, Vec<&RequestRecord>> = BTreeMap::new();
        for request in requests {
            if let Some(path) = request.path.as_deref().filter(|path| deleted.contains(path)) {
                of_path.entry(path).or_default().push(request);
            }
        }
        let mut creators: BTreeMap<&str, (i64, SessionId)> = BTreeMap::new();
        let mut ends = BTreeMap::new();
        for commit in commits.iter().filter(|commit| commit.error == ErrorCode::OK) {
            let CommitRecord { zxid, session, op, path, .. } = commit;
            let Some(path) = path.as_deref().filter(|path| deleted.contains(path)) else {
                continue;
            };
            match *op {
                OpCode::CREATE | OpCode::CREATE2 => {
                    creators.insert(path, (zxid.0, *session));
                }
                OpCode::DELETE | OpCode::CLOSE_SESSION => {
                    let Some((token, creator)) = creators.remove(path) else { continue };
                    let is_of_client = *op == OpCode::DELETE && *session != SessionId::NONE;
                    let requests = of_path.get(path).map(Vec::as_slice).unwrap_or_default();
                    let found = is_of_client
                        .then(|| by_client(requests, token, zxid.0, &arrival))
                        .flatten();
                    let end = found.map_or(End::Excused, |(at, is_looked_at)| End::Deleted {
                        at,
                        is_looked_at: is_looked_at && *session == creator,
                    });
                    ends.insert((path, token), end);
                }
                _ => {}
            }
        }
        Self { deleted, ends }
    }

    /// An administrator has deleted these znodes, and nobody else any of these paths.
    #[cfg(test)]
    pub(super) fn by_hand(
        deleted: &'a BTreeSet<String>,
        znodes: impl Iterator<Item = Key<'a>>,
    ) -> Self {
        let deleted = deleted.iter().map(String::as_str).collect();
        Self { deleted, ends: znodes.map(|znode| (znode, End::Excused)).collect() }
    }

    /// Returns whether an administrator has deleted a znode at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.deleted.contains(path)
    }

    /// Returns whether an administrator, or somebody who could not know better, may have deleted the
    /// znode of a holder before this time.
    pub(super) fn is_excused(&self, path: &str, token: Option<i64>, until: Duration) -> bool {
        let Some(token) = token else { return self.has(path) };
        match self.ends.get(&(path, token)) {
            None => false,
            Some(End::Excused) => true,
            Some(End::Deleted { at, is_looked_at }) => *at <= until && !is_looked_at,
        }
    }
}

/// Returns when a client has deleted a znode of this path by this transaction, and whether the same
/// session has read it right before, behind a barrier, and knows the result. All these requests have the
/// path. A task may have sent a delete while another one of the same session was reading.
fn by_client(
    requests: &[&RequestRecord],
    token: i64,
    deleted: i64,
    arrival: impl Fn(&RequestRecord) -> Option<Duration>,
) -> Option<(Duration, bool)> {
    let has = |request: &RequestRecord, zxid: i64| request.zxid.is_some_and(|it| it.0 == zxid);
    let end = requests.iter().rposition(|request| has(request, deleted))?;
    let delete = *requests.get(end)?;
    let begin = requests.iter().position(|request| has(request, token)).unwrap_or(0);
    let since = requests.get(begin..end)?.iter().rev().filter(|it| it.session == delete.session);
    let last: Vec<&RequestRecord> = since.take(2).copied().collect();
    let is_looked_at = match last.as_slice() {
        [read, barrier] => {
            (read.op, barrier.op) == (OpCode::GET_DATA, OpCode::MULTI)
                && arrival(read).is_some_and(|arrived| arrived <= delete.at)
        }
        _ => false,
    };
    Some((delete.at, is_looked_at))
}

#[cfg(test)]
mod tests {
    use zk_recipes::CreateMode::Ephemeral;
    use zk_recipes::Multi;

    use super::*;
    use crate::judges::tests::{connect, on_server};

    const PATH: &str = "/lock";

    /// Returns whether the end of the second znode of a path is excused, before it and afterwards.
    fn excused(is_by_hand: bool, looks: bool, waits: bool, is_other: bool) -> (bool, bool) {
        on_server(async |server| {
            let (one, other) = (connect(&server).await, connect(&server).await);
            one.create(PATH, "", Ephemeral).await.unwrap();
            server.admin_delete(PATH);
            let token = one.create(PATH, "", Ephemeral).await.unwrap().stat.czxid.0;
            let by = if is_other { &other } else { &one };
            tokio::time::advance(Duration::from_secs(5)).await;
            if looks {
                by.commit(Multi::new().check(PATH, None)).await.unwrap();
                by.get_data(PATH).await.unwrap();
            }
            if is_by_hand {
                server.admin_delete(PATH);
            } else {
                by.delete(PATH, None).await.unwrap();
            }
            let (commits, requests) = (server.commits(), server.requests());
            let deleted = BTreeSet::from([PATH.to_owned()]);
            let round_trip = if waits { Duration::ZERO } else { Duration::from_secs(3) };
            let arrival = |request: &RequestRecord| Some(request.at + round_trip);
            let replaced = Replaced::new(&deleted, &commits, &requests, arrival);
            assert!(replaced.has(PATH) && !replaced.has("/other"));
            assert!(replaced.is_excused(PATH, None, Duration::ZERO), "it may be the first one");
            let is_excused =
                |seconds| replaced.is_excused(PATH, Some(token), Duration::from_secs(seconds));
            (is_excused(1), is_excused(60))
        })
    }

    #[test]
    fn a_znode_that_came_after_a_deletion_is_told_from_the_one_before() {
        assert_eq!(excused(true, false, true, false), (true, true), "by hand");
        let is_not_aware = (false, true);
        assert_eq!(excused(false, false, true, false), is_not_aware, "its first holder");
        assert_eq!(excused(false, false, true, true), is_not_aware);
        assert_eq!(
            excused(false, true, false, false),
            is_not_aware,
            "the read was of another task"
        );
        assert_eq!(excused(false, true, true, false), (false, false), "it has seen the other one");
        assert_eq!(excused(false, true, true, true), is_not_aware, "another session has seen it");
    }
}
