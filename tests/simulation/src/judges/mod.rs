//! Judges: one for each promise. They know only what the callers were told, and what the servers
//! have received and committed.

pub mod access;
pub mod barrier;
pub mod batches;
pub mod blind;
pub mod cache;
pub mod calls;
pub mod checks;
pub mod cost;
pub mod counter;
pub mod deadlines;
pub mod ends;
pub mod exclusion;
mod facts;
pub mod far;
pub mod fencing;
pub mod group;
pub mod hosts;
pub mod leftovers;
pub mod liveness;
mod lives;
pub mod logs;
pub mod memory;
pub mod numbers;
pub mod offers;
pub mod outcomes;
pub mod owners;
pub mod patience;
pub mod pauses;
pub mod presence;
pub mod redelivery;
pub mod refused;
mod replaced;
pub mod settled;
pub mod stopped;
pub mod traffic;
pub mod tree;
pub mod turns;
mod users;
pub mod views;
pub mod work_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use jute_codec::{ErrorCode, SessionId};
use zk_testserver::{CommitRecord, Outcome, RequestRecord};

use crate::history::{Event, What};
use crate::program::Program;
use crate::world::link::Arrivals;
use crate::world::plan::Plan;

/// A run that has ended.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "a run creates it")]
pub struct Case<'a> {
    /// The world.
    pub plan: &'a Plan,
    /// The program.
    pub program: &'a Program,
    /// What the callers were told.
    pub events: &'a [Event],
    /// What the servers have received.
    pub requests: &'a [RequestRecord],
    /// What they have committed.
    pub commits: &'a [CommitRecord],
    /// The clients of the sessions.
    pub sessions: &'a BTreeMap<SessionId, usize>,
    /// How many bytes have arrived in each second, in both directions.
    pub traffic: &'a BTreeMap<u64, u64>,
    /// When replies have arrived.
    pub arrivals: &'a Arrivals,
    /// What an administrator has deleted.
    pub deleted: &'a BTreeSet<String>,
    /// A time in which no task runs.
    pub quiet: Range<Duration>,
    /// How many allocations were made in that time and are still live, without those that were freed.
    pub grown: i64,
}

impl Case<'_> {
    /// Returns when the reply to a request has reached the client, if it has.
    fn arrival(&self, request: &RequestRecord) -> Option<Duration> {
        let key = (*self.sessions.get(&request.session)?, request.xid);
        self.arrivals.get(&key)?.iter().find(|arrived| **arrived >= request.at).copied()
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a pair")]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// How it was broken.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.sentence)
    }
}

/// Returns all promises that a run has broken.
pub fn judge(case: &Case<'_>) -> Vec<Violation> {
    let Case { plan, program, events, requests, commits, traffic, deleted, quiet, grown, .. } =
        case;
    let found = [
        ("no task panics and no client spins", crashes(events)),
        ("a lock is held by one, and tokens grow", exclusion::judge(case)),
        ("what is protected stays so", access::judge(events, plan)),
        ("a lock is granted in turn", turns::judge(case)),
        ("each item is delivered, and to one taker at a time", work_queue::judge(events, deleted)),
        ("a queue tells of blocked items", work_queue::judge_blocked(events, commits, plan)),
        ("an acknowledgement meets no other", work_queue::judge_pins(case)),
        ("a queue is full at its limit", work_queue::judge_limit(events, commits, plan)),
        ("an item that was given back is left alone", redelivery::judge(events, plan)),
        ("a counter is the sum of its additions", counter::judge(events, deleted)),
        ("a cache follows the history to its end", cache::judge(case)),
        ("a barrier lets nobody pass too early", barrier::judge(events, commits, plan, deleted)),
        ("whoever follows is told the truth", views::judge(events, commits)),
        ("a group shows its history to its end", group::judge(events, commits)),
        ("a presence is where it says", presence::judge(events, commits)),
        ("a presence comes back", presence::judge_deletions(case)),
        ("nobody deletes what another one holds", owners::judge(events, commits)),
        ("a limited handle waits", outcomes::judge_limits(events, requests, plan)),
        ("a client takes the session of a Keeper", offers::judge(case)),
        ("the numbers of requests grow", numbers::judge(requests, plan)),
        ("a call ends with its timeout", deadlines::judge(events, plan)),
        ("only a holder commits", fencing::judge(events, commits)),
        ("a client that ends leaves the way free", ends::judge(case)),
        ("a client uses the servers of its list", hosts::judge(events)),
        ("nobody waits for a client that has ended", stopped::judge(events, plan)),
        ("a subtree is gone, and nothing beside it", tree::judge(case)),
        ("outcomes are honest", outcomes::judge(events, commits, requests)),
        ("a write that was not sent is not in doubt", outcomes::judge_unsent(events, plan)),
        ("a settled operation is applied as its caller was told", settled::judge(events, commits)),
        ("calls go on once the faults have stopped", liveness::judge(events)),
        ("calls end as their pages say", calls::judge(case)),
        ("requests are few when nothing happens", cost::judge(events, requests, program, quiet)),
        ("whoever waits far behind writes nothing", far::judge(events, requests)),
        ("whoever waits looks for missed changes", checks::judge(events, requests, plan)),
        ("whoever waits lists only changes", blind::judge(case)),
        ("what is refused becomes rarer", refused::judge(case)),
        ("a cache reads many znodes with few requests", batches::judge(case)),
        ("what was refused together comes back apart", pauses::judge(requests, plan)),
        ("memory does not grow when nothing happens", memory::judge(*grown, program)),
        ("bytes are few", traffic::judge(events, requests, traffic, plan, program, quiet)),
        ("the log is short, and warns only of trouble", logs::judge(case)),
        ("nothing is left after a close", leftovers::judge(events)),
    ];
    let violations = found.into_iter().flat_map(|(promise, sentences)| {
        sentences.into_iter().map(move |sentence| Violation { promise, sentence })
    });
    violations.collect()
}

fn crashes(events: &[Event]) -> Vec<String> {
    let crash = |event: &Event| match &event.what {
        What::Panicked(message) => Some(format!("a task has panicked at {message}")),
        What::Spinning => {
            Some(format!("a client sends, or a caller runs, without end at {:?}", event.at))
        }
        _ => None,
    };
    events.iter().filter_map(crash).collect()
}

/// Returns the error with which a server has answered a request because of a fault.
pub(crate) fn refusal(request: &RequestRecord) -> Option<ErrorCode> {
    match request.outcome {
        Outcome::Refused(code) | Outcome::Misreported { reported: code, .. } => Some(code),
        _ => None,
    }
}

/// Returns whether an administrator has deleted something at, above or below one of these paths.
fn is_tampered(deleted: &BTreeSet<String>, path: &str) -> bool {
    let is_below = |path: &str, other: &str| {
        path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    deleted.iter().any(|other| is_below(path, other) || is_below(other, path))
}

#[cfg(test)]
pub(crate) mod tests {
    use zk_recipes::{Client, Clock};
    use zk_session::Host;
    use zk_testserver::{ServerConfig, TestServer};

    use super::*;
    use crate::history::Who;
    use crate::logs::Log;

    /// Runs this on a server of its own, in virtual time.
    pub(crate) fn on_server<T>(run: impl AsyncFnOnce(TestServer) -> T) -> T {
        Log::accustom();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async { run(TestServer::start(ServerConfig::default())).await })
    }

    /// Connects a client to the server.
    pub(crate) async fn connect(server: &TestServer) -> Client {
        let server = server.clone();
        Client::builder("m0")
            .clock(Clock::tokio())
            .transport(move |_: Host| std::future::ready(server.connect()))
            .connect()
            .await
            .unwrap()
    }

    /// Returns a request that a server has recorded.
    pub(crate) fn request() -> RequestRecord {
        on_server(async |server| {
            let client = connect(&server).await;
            let _ = client.get_data("/").await;
            server.requests().pop().unwrap()
        })
    }

    /// Turns what has happened into events, a second apart.
    pub(crate) fn history(whats: Vec<What>) -> Vec<Event> {
        let who = Some(Who { client: 0, task: 0 });
        let seconds = 0_u64..;
        let events = seconds.zip(whats);
        events.map(|(second, what)| Event { at: Duration::from_secs(second), who, what }).collect()
    }

    #[test]
    fn panics_and_endless_loops_are_seen() {
        let events = history(vec![What::Panicked("x.rs:1: no".to_owned()), What::Spinning]);
        assert_eq!(crashes(&events).len(), 2);
        assert_eq!(crashes(&history(vec![What::Calm])), Vec::<String>::new());
    }

    #[test]
    fn a_path_is_tampered_with_above_and_below_it_but_not_beside_it() {
        let deleted = BTreeSet::from(["/locks/a/x-1".to_owned()]);
        assert!(is_tampered(&deleted, "/locks/a"));
        assert!(is_tampered(&deleted, "/locks/a/x-1/y"));
        assert!(!is_tampered(&deleted, "/locks/b"));
        assert!(!is_tampered(&deleted, "/locks/a/x-10"));
    }
}
