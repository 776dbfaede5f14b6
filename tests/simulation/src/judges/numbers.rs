//! The requests of a session have growing numbers on all its connections, also after it was handed
//! over: servers match what they commit with requests by session and number.

use std::collections::BTreeMap;

use jute_codec::SessionId;
use zk_testserver::RequestRecord;

use crate::world::plan::Plan;

/// Returns how the promise was broken.
pub fn judge(requests: &[RequestRecord], plan: &Plan) -> Vec<String> {
    // Our servers number the sessions that they open without a quorum again and again.
    if plan.readers.is_some() {
        return Vec::new();
    }
    judge_numbers(requests.iter().map(|it| (it.session, it.connection, it.xid)))
}

/// Judges sessions, connections and numbers in the order of their requests. What an old connection
/// still held back arrives late.
fn judge_numbers(requests: impl Iterator<Item = (SessionId, u64, i32)>) -> Vec<String> {
    let mut last: BTreeMap<SessionId, (u64, i32)> = BTreeMap::new();
    let mut violations = Vec::new();
    // Pings and other requests that no caller has made have numbers below zero.
    for (session, connection, xid) in requests.filter(|(.., xid)| *xid > 0) {
        let before = last.get(&session).copied().unwrap_or_default();
        if connection < before.0 {
            continue;
        }
        if xid <= before.1 {
            let newest = before.1;
            violations.push(format!("{session} sends request {xid} after request {newest}"));
        }
        last.insert(session, (connection, xid));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_twice_is_seen() {
        let requests =
            [(1, 1, 1), (1, 1, 2), (2, 2, 1), (1, 3, 3), (1, 1, 3), (1, 3, -2), (1, 3, 4)];
        let all = |requests: &[(i64, u64, i32)]| {
            judge_numbers(requests.iter().map(|(of, on, xid)| (SessionId(*of), *on, *xid)))
        };
        assert_eq!(all(&requests), Vec::<String>::new());
        assert_eq!(all(&[(1, 1, 1), (1, 1, 2), (1, 2, 1)]).len(), 1);
        assert_eq!(all(&[(1, 1, 1), (1, 1, 1)]).len(), 1);
    }
}
