//! No call ends with an error that its page does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::ErrorCode;

use super::users::{Used, Users};
use crate::history::{End, Event, Failure, Id, What};
use crate::program::identities::CHANGE;
use crate::program::newer::{NEWER, NEWEST};
use crate::program::settled;
use crate::world::faults::REFUSALS;
use crate::world::plan::{FaultKind, Plan};

/// The calls of operations without a recipe, which report what the connection does.
const OPERATIONS: [&str; 13] = [
    "get_data",
    "create",
    "delete",
    "set_data",
    "sync",
    "transaction",
    "commit_in",
    "read_and_watch",
    CHANGE,
    NEWER[0],
    NEWER[1],
    NEWER[2],
    NEWEST,
];

/// Servers that look for empty containers so often remove one before its first child comes.
const REAPED_AT_ONCE: Duration = Duration::from_millis(100);

/// The longest round trip of a write with which a session of this length has a lease.
const PROMPT_MAX: Duration = Duration::from_millis(20);
const PROMPT_SESSION_MIN: Duration = Duration::from_secs(4);

/// The faults of servers that refuse requests.
const REFUSING: [FaultKind; 4] =
    [FaultKind::Refusal, FaultKind::Throttle, FaultKind::Overload, FaultKind::Stampede];

/// The calls that try again for as long as servers fail, because nobody else can give up for the caller
/// what it has.
const NEVER_GIVE_UP: [&str; 3] = ["release", "downgrade", "close_presence"];

/// Returns how the promise was broken.
pub fn judge(events: &[Event], plan: &Plan, deleted: &BTreeSet<String>) -> Vec<String> {
    let rules = Rules {
        are_refused: plan.may_forbid() || has(plan, &REFUSING),
        are_forbidden: plan.may_forbid(),
        are_cut: !plan.faults.is_empty() || plan.closes_connections(),
        are_exhausted: has(plan, &[FaultKind::SequenceEnd]),
        is_limited: plan.outstanding.is_some(),
        is_steady: plan.is_steady,
        is_prompt: plan.is_steady
            && plan.round_trip_max() <= PROMPT_MAX
            && [plan.kinds.session, plan.session_timeout_max]
                .iter()
                .all(|session| session.is_none_or(|session| session >= PROMPT_SESSION_MIN)),
        are_old: plan.closes_connections(),
        are_reaped: plan.reap_interval < REAPED_AT_ONCE,
        are_tampered: !deleted.is_empty() || has(plan, &[FaultKind::Stranger]),
    };
    judge_by(events, rules, |client, name, code| match code {
        // Whoever may not read is told so.
        ErrorCode::NO_AUTH => plan.is_blind(client),
        // Recipes wait for a server that accepts writes.
        ErrorCode::NOT_READ_ONLY => plan.is_reader(client) && OPERATIONS.contains(&name),
        _ => false,
    })
}

fn has(plan: &Plan, kinds: &[FaultKind]) -> bool {
    kinds.iter().any(|kind| plan.faults.contains(kind))
}

/// What may happen in a world.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    /// Servers refuse requests although nothing is wrong with them.
    are_refused: bool,
    /// They also do so with NO_AUTH.
    are_forbidden: bool,
    /// Connections may end.
    are_cut: bool,
    /// Sequence numbers come to their end.
    are_exhausted: bool,
    /// Clients permit few requests.
    is_limited: bool,
    /// Nothing goes wrong and nothing is slow, so a lock that is held is not lost.
    is_steady: bool,
    /// In addition, commits are prompt enough for a lease of any session.
    is_prompt: bool,
    /// Servers do not know the newer operations.
    are_old: bool,
    /// Servers remove directories that are empty for a moment, again and again.
    are_reaped: bool,
    /// Strangers change what recipes use.
    are_tampered: bool,
}

/// The last argument says whether a call of this client and this name may be refused with this code.
fn judge_by(
    events: &[Event],
    rules: Rules,
    may_refuse: impl Fn(usize, &str, ErrorCode) -> bool,
) -> Vec<String> {
    let mut calls: BTreeMap<Id, (&str, bool, Option<Used>, &Event)> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut users = Users::default();
    for event in events {
        users.see(event);
        match &event.what {
            What::Begun { call, name, timeout, .. } => {
                let client = event.who.map(|who| users.of(who));
                calls.insert(*call, (name, timeout.is_some(), client, event));
            }
            What::Ended { call, end: End::Failed(failure) } => {
                let Some((name, has_timeout, client, begun)) = calls.get(call) else { continue };
                let is_over = client.is_some_and(|it| is_of_end(&users, it, name, failure));
                let is_refused = matches!((failure, begun.who), (Failure::Refused(code), Some(who))
                    if may_refuse(who.client, name, ErrorCode(*code)));
                if !is_over && !is_refused && !rules.allow(name, *has_timeout, failure) {
                    violations.push(format!("a call has failed with {failure:?}: {begun}"));
                }
            }
            What::LostForNothing { lock } => {
                let at = event.at;
                violations.push(format!("{lock} was lost before its grant at {at:?}, for nothing"));
            }
            _ => {}
        }
    }
    violations
}

/// Returns whether a call may fail like this because its client has ended.
fn is_of_end(users: &Users, client: Used, name: &str, failure: &Failure) -> bool {
    let has_stopped = users.stopped_at(client).is_some();
    match failure {
        Failure::Closed => users.is_ending(client),
        // There is no other session in which the call could go on.
        Failure::SessionExpired => has_stopped,
        Failure::Lost => {
            // The end of a client is that of its locks.
            if name == "downgrade" {
                return users.is_ending(client);
            }
            has_stopped && ["observe", "lead", "leader", "set_permits"].contains(&name)
        }
        Failure::Undecided => has_stopped && ["put", "put_within"].contains(&name),
        _ => false,
    }
}

impl Rules {
    fn allow(self, name: &str, has_timeout: bool, failure: &Failure) -> bool {
        let is_operation = OPERATIONS.contains(&name);
        match failure {
            // A try has a timeout of its own.
            Failure::TimedOut => has_timeout || ["try_acquire", "try_take"].contains(&name),
            // A client that moves to another server waits for its replies.
            Failure::ConnectionLoss => is_operation && self.are_cut,
            Failure::SessionExpired => {
                // Rounds and changes of a barrier whose outcome the next session cannot know, and
                // operations that belong to one session.
                let of_session = [
                    "enter",
                    "close_barrier",
                    "open_barrier",
                    "create_settled",
                    "commit_under",
                    settled::WRITE,
                ];
                is_operation || of_session.contains(&name) || name == "hand_over"
            }
            // These codes say that a later request may be applied.
            Failure::Refused(code)
                if NEVER_GIVE_UP.contains(&name) && REFUSALS.contains(&ErrorCode(*code)) =>
            {
                false
            }
            Failure::Refused(code) => {
                let is_answer = [ErrorCode::NO_NODE, ErrorCode::NODE_EXISTS, ErrorCode::NOT_EMPTY]
                    .contains(&ErrorCode(*code));
                // The judge of trees knows whether others had changed what the call concerns.
                let is_beaten = match name {
                    "delete_tree" => ErrorCode(*code) == ErrorCode::NOT_EMPTY,
                    "ensure" => ErrorCode(*code) == ErrorCode::NO_NODE,
                    settled::WRITE => is_answer || ErrorCode(*code) == ErrorCode::BAD_VERSION,
                    settled::READ => ErrorCode(*code) == ErrorCode::NO_NODE,
                    _ => false,
                };
                // A taker passes over an item with children that it cannot remove.
                let passes_over = ["take", "take_batch", "try_take"].contains(&name);
                if passes_over && ErrorCode(*code) == ErrorCode::NOT_EMPTY {
                    return false;
                }
                // An acquire gives up after several directories that were gone at once.
                let is_reaped = self.are_reaped && ErrorCode(*code) == ErrorCode::NO_NODE;
                let is_excused = self.are_refused || self.are_tampered || is_reaped;
                (is_operation && is_answer) || is_beaten || is_excused
            }
            Failure::Lost if name == "downgrade" && self.is_steady => false,
            Failure::Lost => {
                // A caller that is stopped learns of the grant of its lock after the loss.
                let of_guard = [
                    "acquire",
                    "try_acquire",
                    "validate",
                    "release",
                    "ack",
                    "downgrade",
                    "transaction",
                    "commit_under",
                    "run_body",
                ];
                // Another session has taken the id while the member was absent.
                of_guard.contains(&name)
                    || ["set_member", "leave_group"].contains(&name)
                    // Others have deleted the place of a taker again and again.
                    || (self.are_tampered && ["take", "take_batch", "try_take"].contains(&name))
            }
            Failure::NoLease if self.is_prompt => false,
            Failure::NoLease => ["acquire", "try_acquire", "run_body", "lead"].contains(&name),
            Failure::Undecided => {
                // The session of the others may have ended before the outcome was known.
                // Others have set a list twice before it was known.
                ["ack", "add", "set", "update", settled::WRITE].contains(&name)
                    || (["put", "put_within"].contains(&name) && self.are_refused)
            }
            // Another member has the id, or another presence the path.
            // Or another call has deleted the znode and created it again.
            Failure::Changed => {
                // An item that a taker may not read does not count as none.
                let is_forbidden = self.are_forbidden && name == "try_take";
                self.are_tampered
                    || is_forbidden
                    || ["join", "begin", settled::WRITE].contains(&name)
            }
            // Nobody need have created the directory above the lock.
            Failure::NoRoot => ["acquire", "try_acquire", "commit_under"].contains(&name),
            Failure::Unfinished => name == "hand_over",
            Failure::Exhausted => self.are_exhausted,
            // Only calls without a recipe wait in that queue.
            Failure::Full => (is_operation && self.is_limited) || name == "put_within",
            Failure::Unsupported => self.are_old && (NEWER.contains(&name) || name == NEWEST),
            // The client is not one that ends.
            Failure::Closed | Failure::Other(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zk_testserver::ServerVersion;

    use super::*;
    use crate::draw::Draw;
    use crate::judges::tests::history;
    use crate::program::ends::EndKind;

    fn count(name: &'static str, timeout: Option<u64>, failure: Failure, rules: Rules) -> usize {
        let timeout = timeout.map(Duration::from_secs);
        let begun = What::Begun { call: 1, name, on: "/a".to_owned(), timeout };
        let ended = What::Ended { call: 1, end: End::Failed(failure) };
        judge_by(&history(vec![begun, ended]), rules, |_, _, _| false).len()
    }

    #[test]
    fn errors_that_no_page_names_are_seen() {
        let calm = Rules::default();
        assert_eq!(count("acquire", None, Failure::TimedOut, calm), 1);
        assert_eq!(count("acquire", Some(1), Failure::TimedOut, calm), 0);
        assert_eq!(count("acquire", None, Failure::ConnectionLoss, calm), 1);
        assert_eq!(count("create", None, Failure::ConnectionLoss, calm), 1);
        let cut = Rules { are_cut: true, ..Rules::default() };
        assert_eq!(count("create", None, Failure::ConnectionLoss, cut), 0);
        assert_eq!(count("put", None, Failure::Undecided, calm), 1);
        assert_eq!(count("add", None, Failure::Undecided, calm), 0);
        assert_eq!(count("put", None, Failure::Closed, calm), 1);
        assert_eq!(count("put", None, Failure::Lost, calm), 1);
        assert_eq!(count("put", None, Failure::Other(String::new()), calm), 1);
    }

    #[test]
    fn a_loss_while_nothing_goes_wrong_is_seen() {
        let count = |whats| judge_by(&history(whats), Rules::default(), |_, _, _| false).len();
        assert_eq!(count(vec![What::LostForNothing { lock: "/a".to_owned() }]), 1);
        assert_eq!(count(vec![What::Calm]), 0);
    }

    #[test]
    fn old_servers_cut_connections_without_a_fault() {
        for (version, count) in [(ServerVersion::V3_5, 0), (ServerVersion::V3_6, 1)] {
            let plan = Plan { version, faults: Vec::new(), ..Plan::draw(&mut Draw::new(1)) };
            let (on, name) = ("/a".to_owned(), "create");
            let begun = What::Begun { call: 1, name, on, timeout: None };
            let ended = What::Ended { call: 1, end: End::Failed(Failure::ConnectionLoss) };
            let found = judge(&history(vec![begun, ended]), &plan, &BTreeSet::new());
            assert_eq!(found.len(), count, "{version:?}: {found:?}");
        }
    }

    #[test]
    fn a_call_of_a_client_that_has_ended_fails_until_its_task_has_another_one() {
        let failed = |before: Vec<What>, failure: Failure| {
            let begun =
                What::Begun { call: 1, name: "acquire", on: "/a".to_owned(), timeout: None };
            let end = What::Ended { call: 1, end: End::Failed(failure) };
            let all = before.into_iter().chain([begun, end]).collect();
            judge_by(&history(all), Rules::default(), |_, _, _| false).len()
        };
        let ending = |life| What::Ending { kind: EndKind::Close, life };
        let stopped = || What::Stopped { life: 0 };
        let renewed = || What::Renewed { life: 1 };
        let closed = |before| failed(before, Failure::Closed);
        assert_eq!(failed(vec![ending(0)], Failure::SessionExpired), 1);
        assert_eq!(failed(vec![stopped()], Failure::SessionExpired), 0);
        assert_eq!(failed(vec![stopped(), renewed()], Failure::SessionExpired), 1);
        assert_eq!(failed(vec![stopped()], Failure::Undecided), 1);
        assert_eq!(closed(vec![ending(0)]), 0);
        assert_eq!(closed(vec![ending(0), renewed()]), 1);
        assert_eq!(closed(vec![ending(0), renewed(), ending(1)]), 0);
        assert_eq!(closed(vec![ending(0), ending(1), renewed()]), 0);
        assert_eq!(closed(vec![ending(0), What::GoesOn { life: 0 }]), 1);
        let again = vec![ending(0), ending(1), What::GoesOn { life: 1 }];
        assert_eq!(closed(again), 0, "it uses the first client for long");
    }

    #[test]
    fn refusals_are_seen_unless_the_world_refuses() {
        let throttled = Failure::Refused(ErrorCode::THROTTLED_OP.0);
        let refusing = Rules { are_refused: true, ..Rules::default() };
        assert_eq!(count("acquire", None, throttled.clone(), Rules::default()), 1);
        assert_eq!(count("acquire", None, throttled.clone(), refusing), 0);
        assert_eq!(count("release", None, throttled, refusing), 1, "it never gives up");
        let forbidden = Failure::Refused(ErrorCode::NO_AUTH.0);
        assert_eq!(count("release", None, forbidden, refusing), 0);
    }

    #[test]
    fn a_downgrade_that_loses_a_lock_is_seen_if_nothing_goes_wrong() {
        let steady = Rules { is_steady: true, ..Rules::default() };
        assert_eq!(count("downgrade", None, Failure::Lost, steady), 1);
        assert_eq!(count("downgrade", None, Failure::Lost, Rules::default()), 0);
        let begun = What::Begun { call: 1, name: "downgrade", on: "/rw".to_owned(), timeout: None };
        let ended = What::Ended { call: 1, end: End::Failed(Failure::Lost) };
        let ending = What::Ending { kind: EndKind::Close, life: 0 };
        let all = history(vec![begun, ending, ended]);
        assert_eq!(judge_by(&all, steady, |_, _, _| false).len(), 0, "its client ends");
    }

    #[test]
    fn a_missing_lease_is_no_reason_where_commits_are_prompt() {
        let prompt = Rules { is_prompt: true, ..Rules::default() };
        assert_eq!(count("acquire", None, Failure::NoLease, prompt), 1);
        assert_eq!(count("acquire", None, Failure::NoLease, Rules::default()), 0);
    }

    #[test]
    fn limits_that_nobody_has_reached_are_seen() {
        let limited = Rules { are_exhausted: true, is_limited: true, ..Rules::default() };
        assert_eq!(count("acquire", None, Failure::Exhausted, Rules::default()), 1);
        assert_eq!(count("acquire", None, Failure::Exhausted, limited), 0);
        assert_eq!(count("create", None, Failure::Full, Rules::default()), 1);
        assert_eq!(count("create", None, Failure::Full, limited), 0);
        assert_eq!(count("acquire", None, Failure::Full, limited), 1, "recipes may use more");
    }

    #[test]
    fn only_old_servers_do_not_know_newer_operations() {
        let old = Rules { are_old: true, ..Rules::default() };
        let unknown = Failure::Unsupported;
        assert_eq!(count(NEWEST, None, unknown.clone(), old), 0);
        assert_eq!(count(NEWEST, None, unknown.clone(), Rules::default()), 1);
        assert_eq!(count("create", None, unknown, old), 1);
    }

    #[test]
    fn changes_by_others_are_seen_unless_there_are_others() {
        let tampered = Rules { are_tampered: true, ..Rules::default() };
        assert_eq!(count("ack", None, Failure::Changed, Rules::default()), 1);
        assert_eq!(count("ack", None, Failure::Changed, tampered), 0);
        assert_eq!(count("take", None, Failure::Lost, Rules::default()), 1);
        assert_eq!(count("take", None, Failure::Lost, tampered), 0);
        let refused = |code: ErrorCode| count("take", None, Failure::Refused(code.0), tampered);
        assert_eq!((refused(ErrorCode::NOT_EMPTY), refused(ErrorCode::NO_NODE)), (1, 0));
    }
}
