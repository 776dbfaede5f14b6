//! No call ends with an error that its page does not name, nor with one for which nothing has happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jute_codec::{ErrorCode, SessionId};
use zk_recipes::LostReason;

use super::Case;
use super::facts::Facts;
use super::users::{Used, Users};
use crate::history::{End, Event, Failure, Had, Id, What, Who};
use crate::program::identities::CHANGE;
use crate::program::newer::{NEWER, NEWEST};
use crate::program::settled;
use crate::program::{Job, Program, TASKS_MAX};
use crate::world::faults::{MISREPORTS, REFUSALS};
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

/// The calls that wait for nobody but the servers, beside the operations.
const PROMPT: [&str; 28] = [
    "ack",
    "add",
    "close_barrier",
    "close_presence",
    "commit_under",
    "create_settled",
    "delete_tree",
    "downgrade",
    "ensure",
    "get",
    "give_back",
    "leader",
    "leave_group",
    "members",
    "open_barrier",
    "put",
    "put_within",
    "release",
    "request_revocation",
    "set",
    "set_member",
    "set_permits",
    "set_presence",
    "try_take",
    "update",
    "validate",
    settled::READ,
    settled::WRITE,
];

/// The calls that report what a stream has met before.
const OF_STREAMS: [&str; 4] = ["changes", "complete", "next", "observe"];

/// The calls that may return a guard or a lease.
const GRANTING: [&str; 6] =
    ["acquire", "downgrade", "take", "take_batch", "try_acquire", "try_take"];
/// How many guards a task has at the same time at most.
const GUARDS_MAX: usize = 9;

/// A try without a timeout gives up after a session timeout, of which none is shorter.
const TRY_MIN: Duration = Duration::from_secs(3);
/// By how much earlier than its timeout a call may seem to have ended: timers count milliseconds.
const EARLY: Duration = Duration::from_millis(1);

/// Servers that look for empty containers so often remove one before its first child comes.
const REAPED_AT_ONCE: Duration = Duration::from_millis(100);

/// With which session timeout a lease begins in any case, in percent of the one that it needs. With a
/// shorter one, the writes of callers may move renewals so that none extends the lease in time.
const LEASE_MARGIN: u32 = 115;
/// By how much longer a commit may seem to take in a world in which nothing goes wrong.
const COMMIT_SLACK: Duration = Duration::from_millis(5);
/// The longest pause of a client or a recipe in a world without faults.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The faults of servers that refuse requests.
const REFUSING: [FaultKind; 5] = [
    FaultKind::Misreport,
    FaultKind::Overload,
    FaultKind::Refusal,
    FaultKind::Stampede,
    FaultKind::Throttle,
];

/// The faults that keep no client from its servers, and no server from the others. Rows and surprises
/// consist of the other kinds of their world.
const HARMLESS: [FaultKind; 7] = [
    FaultKind::Ambush,
    FaultKind::Deletion,
    FaultKind::Intruder,
    FaultKind::Row,
    FaultKind::SequenceEnd,
    FaultKind::Stranger,
    FaultKind::Surprise,
];

/// The calls that try again for as long as servers fail, because nobody else can give up for the caller
/// what it has.
const NEVER_GIVE_UP: [&str; 3] = ["release", "downgrade", "close_presence"];

/// Returns how the promise was broken.
pub fn judge(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, events, deleted, .. } = case;
    let rules = Rules::of(plan, program, deleted);
    judge_by(events, rules, &Facts::of(case), |client, name, code| match code {
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
    /// Nothing keeps a client from its servers and nothing is slow, so a session does not end before its
    /// client, and a lock is lost only if somebody deletes its znode.
    is_undisturbed: bool,
    /// Connections end all the same.
    are_old: bool,
    /// The same for a time in which nothing goes wrong.
    may_be_undisturbed: bool,
    /// How long a commit takes at most where nothing goes wrong.
    commit_max: Duration,
    /// Nothing keeps a client from its servers.
    is_reached: bool,
    /// How long a call takes at most that waits for nobody while nothing does so.
    longest: Option<Duration>,
    /// Servers remove directories that are empty for a moment, again and again.
    are_reaped: bool,
    /// Strangers change what recipes use.
    are_tampered: bool,
    /// Some leases of items end by themselves.
    are_limited: bool,
    /// Servers continue no sessions.
    are_replaced: bool,
}

impl Rules {
    fn of(plan: &Plan, program: &Program, deleted: &BTreeSet<String>) -> Self {
        let harmful = plan.faults.iter().filter(|kind| !HARMLESS.contains(kind));
        // A Keeper continues no session that was handed over.
        let stays = program.moves.is_none() && (plan.resumes() || program.ends.is_none());
        let is_reached = harmful.count() == 0 && stays;
        let may_be_undisturbed =
            stays && Plan { faults: Vec::new(), ..plan.clone() }.could_be_steady();
        let are_reaped = plan.reap_interval < REAPED_AT_ONCE;
        Self {
            are_refused: plan.may_forbid() || has(plan, &REFUSING),
            are_forbidden: plan.may_forbid(),
            are_cut: !plan.faults.is_empty() || plan.closes_connections(),
            are_exhausted: has(plan, &[FaultKind::SequenceEnd]),
            is_limited: plan.outstanding.is_some(),
            is_undisturbed: is_reached && may_be_undisturbed,
            may_be_undisturbed,
            are_old: plan.closes_connections(),
            commit_max: 2 * plan.round_trip_max() + COMMIT_SLACK,
            is_reached,
            longest: (stays && !are_reaped).then(|| {
                PAUSE_MAX
                    + 10 * plan.round_trip_max()
                    + 3 * plan.unapplied_max()
                    + plan.transfer_max(TASKS_MAX)
            }),
            are_reaped,
            are_tampered: !deleted.is_empty() || has(plan, &[FaultKind::Stranger]),
            are_limited: program.has(Job::Options),
            are_replaced: !plan.resumes(),
        }
    }
}

/// A call.
#[derive(Debug)]
struct Call<'a> {
    name: &'a str,
    on: &'a str,
    timeout: Option<Duration>,
    client: Option<Used>,
    begun: &'a Event,
    /// When the oldest of the guards may have begun that the task has.
    since: Duration,
    /// The session in which it is to be applied, if its caller has chosen one.
    bound: Option<SessionId>,
    had: Had,
}

/// The last argument says whether a call of this client and this name may be refused with this code.
fn judge_by(
    events: &[Event],
    rules: Rules,
    facts: &Facts<'_>,
    may_refuse: impl Fn(usize, &str, ErrorCode) -> bool,
) -> Vec<String> {
    let mut calls: BTreeMap<Id, Call<'_>> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut users = Users::default();
    let mut grants: BTreeMap<Who, VecDeque<Duration>> = BTreeMap::new();
    let mut bound: BTreeMap<&str, SessionId> = BTreeMap::new();
    for event in events {
        users.see(event);
        match &event.what {
            What::Bound { path, session } => drop(bound.insert(path, *session)),
            What::Begun { call, name, on, timeout } => {
                let client = event.who.map(|who| users.of(who));
                let mut since = event.at;
                if let Some(who) = event.who {
                    let grants = grants.entry(who).or_default();
                    if GRANTING.contains(name) {
                        grants.push_back(event.at);
                        grants.drain(..grants.len().saturating_sub(GUARDS_MAX));
                    }
                    since = grants.front().copied().unwrap_or(since);
                }
                let begun = Call {
                    name,
                    on,
                    timeout: *timeout,
                    client,
                    begun: event,
                    since,
                    bound: bound.get(on.as_str()).copied(),
                    had: Had::default(),
                };
                calls.insert(*call, begun);
            }
            What::Failing { call, had } => {
                if let Some(call) = calls.get_mut(call) {
                    call.had = *had;
                }
            }
            What::Ended { call: id, end } => {
                let Some(call) = calls.remove(id) else { continue };
                let End::Failed(failure) = end else { continue };
                let is_over =
                    call.client.is_some_and(|it| is_of_end(&users, it, call.name, failure));
                // A client without a server that accepts writes knows the answer.
                let is_answered = |code| {
                    code == ErrorCode::NOT_READ_ONLY || call.is_answered(facts, event.at, code)
                };
                let is_refused = matches!((failure, call.begun.who), (Failure::Refused(code), Some(who))
                    if may_refuse(who.client, call.name, ErrorCode(*code))
                        && is_answered(ErrorCode(*code)));
                if !is_over && !is_refused && !rules.allow(&call, event.at, facts, failure) {
                    let (at, begun) = (event.at, call.begun);
                    violations
                        .push(format!("at {at:?}, a call has failed with {failure:?}: {begun}"));
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
        // The end of a client is that of its locks.
        Failure::Closed | Failure::Lost(LostReason::Closed) => users.is_ending(client),
        // There is no other session in which the call could go on.
        Failure::SessionExpired | Failure::Lost(LostReason::SessionExpired) => has_stopped,
        Failure::Undecided => has_stopped && ["put", "put_within"].contains(&name),
        _ => false,
    }
}

impl Call<'_> {
    fn is_operation(&self) -> bool {
        OPERATIONS.contains(&self.name)
    }

    fn number(&self) -> Option<usize> {
        self.client.map(|(number, _)| number)
    }

    /// Returns whether a server has answered a request of the client with this code. An operation is
    /// one request, with its path.
    fn is_answered(&self, facts: &Facts<'_>, at: Duration, code: ErrorCode) -> bool {
        let from = match self.name {
            name if OF_STREAMS.contains(&name) => Duration::ZERO,
            // What was lost before is removed at once, and the caller is told how that has ended.
            "release" | "give_back" => self.since,
            _ => self.begun.at,
        };
        // A transaction of a guard begins with its contender.
        let path = (self.is_operation() && self.name != "transaction").then_some(self.on);
        facts.is_answered(self.number(), from, at, path, |it| it == code)
    }

    /// Returns whether the time of the call was over by then.
    fn is_over_by(&self, at: Duration) -> bool {
        let is_try = ["try_acquire", "try_take"].contains(&self.name);
        let least = self.timeout.or_else(|| is_try.then_some(TRY_MIN));
        least.is_some_and(|least| self.begun.at + least <= at + EARLY)
    }

    /// Returns whether its client has been connected since then, and nothing has gone wrong.
    fn is_calm_since(&self, since: Duration) -> bool {
        self.had.calm_since.is_some_and(|calm| calm <= since)
    }

    /// Returns whether its client may not know what has become of a request.
    fn may_be_in_doubt(&self, at: Duration, facts: &Facts<'_>) -> bool {
        let is_kept = self.had.connection.is_some() && self.had.session.is_some();
        let is_refused = facts.is_answered(self.number(), self.begun.at, at, None, |code| {
            [REFUSALS, MISREPORTS].concat().contains(&code) || code == ErrorCode::NO_AUTH
        });
        !is_kept || is_refused || self.is_over_by(at)
    }
}

impl Rules {
    fn allow(self, call: &Call<'_>, at: Duration, facts: &Facts<'_>, failure: &Failure) -> bool {
        let (name, is_operation) = (call.name, call.is_operation());
        let are_tampered = self.are_tampered && facts.is_tampered_by(at);
        match failure {
            Failure::TimedOut => {
                let is_prompt = is_operation || PROMPT.contains(&name);
                let is_reached = self.is_reached || call.is_calm_since(call.begun.at);
                let longest = self.longest.filter(|_| is_prompt && is_reached);
                call.is_over_by(at) && longest.is_none_or(|longest| at < call.begun.at + longest)
            }
            // A client that moves to another server waits for its replies.
            Failure::ConnectionLoss => {
                is_operation && self.are_cut && call.had.connection.is_none()
            }
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
                let is_bound = name == "commit_in" && call.bound != call.had.session;
                let has_ended = call.had.session.is_none() || is_bound;
                let may_end = is_operation || of_session.contains(&name) || name == "hand_over";
                may_end && has_ended && !self.is_undisturbed_since(call, call.begun.at)
            }
            // These codes say that a later request may be applied.
            Failure::Refused(code)
                if NEVER_GIVE_UP.contains(&name) && REFUSALS.contains(&ErrorCode(*code)) =>
            {
                false
            }
            Failure::Refused(code) => {
                let code = ErrorCode(*code);
                // After a lost reply, or one that leaves the outcome open, what is read says that a
                // version was not that one any more.
                let is_open = call.had.connection.is_none()
                    || MISREPORTS.iter().any(|code| call.is_answered(facts, at, *code));
                let is_read = name == settled::WRITE && code == ErrorCode::BAD_VERSION && is_open;
                (is_read || call.is_answered(facts, at, code))
                    && self.may_refuse(name, code, are_tampered)
            }
            Failure::Lost(reason) => self.may_lose(call, at, facts, *reason),
            // Another session has taken the id while the member was absent.
            Failure::Taken => {
                ["set_member", "leave_group"].contains(&name)
                    && (!self.is_undisturbed || facts.is_deleted_by(at))
            }
            Failure::NoLease(slow) => {
                // Nothing else may keep a lease from beginning where nothing goes wrong.
                let is_slow = slow.commit <= self.commit_max
                    && slow.timeout < slow.needed * LEASE_MARGIN / 100;
                let has_reason = is_slow || !self.is_undisturbed_since(call, call.since);
                has_reason && ["acquire", "try_acquire", "run_body", "lead"].contains(&name)
            }
            Failure::Undecided => {
                // The session of the others may have ended before the outcome was known.
                // Others have set a list twice before it was known.
                let may_be_undecided = ["ack", "add", "set", "update", settled::WRITE]
                    .contains(&name)
                    || (["put", "put_within"].contains(&name) && self.are_refused);
                // Its multi was sent, and the limit of the lease came before the reply.
                let is_past_limit = name == "ack" && self.are_limited;
                is_past_limit || (may_be_undecided && call.may_be_in_doubt(at, facts))
            }
            // Another member has the id, or another presence the path.
            // Or another call has deleted the znode and created it again.
            Failure::Changed => {
                // An item that a taker may not read does not count as none, also not for its next calls.
                let is_no_auth = |code| code == ErrorCode::NO_AUTH;
                let is_forbidden = name == "try_take"
                    && (self.are_forbidden
                        || facts.is_answered(call.number(), Duration::ZERO, at, None, is_no_auth));
                let is_there = ["join", "begin"].contains(&name)
                    && (call.is_answered(facts, at, ErrorCode::NODE_EXISTS)
                        || call.may_be_in_doubt(at, facts));
                are_tampered || is_forbidden || is_there || name == settled::WRITE
            }
            // Nobody need have created the directory above the lock.
            Failure::NoRoot => {
                ["acquire", "try_acquire", "commit_under"].contains(&name)
                    && call.is_answered(facts, at, ErrorCode::NO_NODE)
            }
            Failure::Unfinished => name == "hand_over",
            Failure::Exhausted => self.are_exhausted && facts.is_ended_by(at),
            // Only calls without a recipe wait in that queue.
            Failure::Full => (is_operation && self.is_limited) || name == "put_within",
            Failure::Unsupported => self.are_old && (NEWER.contains(&name) || name == NEWEST),
            // The client is not one that ends.
            Failure::Closed | Failure::Other(_) => false,
        }
    }

    /// Returns whether nothing keeps the client of a call from its servers, and nothing is slow, since
    /// then.
    fn is_undisturbed_since(self, call: &Call<'_>, since: Duration) -> bool {
        self.is_undisturbed || (self.may_be_undisturbed && call.is_calm_since(since))
    }

    /// Returns whether servers may give this answer to this call.
    fn may_refuse(self, name: &str, code: ErrorCode, are_tampered: bool) -> bool {
        let is_answer =
            [ErrorCode::NO_NODE, ErrorCode::NODE_EXISTS, ErrorCode::NOT_EMPTY].contains(&code);
        // The judge of trees knows whether others had changed what the call concerns.
        let is_beaten = match name {
            "delete_tree" => code == ErrorCode::NOT_EMPTY,
            "ensure" => code == ErrorCode::NO_NODE,
            settled::WRITE => is_answer || code == ErrorCode::BAD_VERSION,
            settled::READ => code == ErrorCode::NO_NODE,
            _ => false,
        };
        // A taker passes over an item with children that it cannot remove.
        let passes_over = ["take", "take_batch", "try_take"].contains(&name);
        if passes_over && code == ErrorCode::NOT_EMPTY {
            return false;
        }
        // An acquire gives up after several directories that were gone at once.
        let is_reaped = self.are_reaped && code == ErrorCode::NO_NODE;
        let is_excused = self.are_refused || are_tampered || is_reaped;
        (OPERATIONS.contains(&name) && is_answer) || is_beaten || is_excused
    }

    /// Returns whether a call may report that a lock, or a lease of an item, is lost for this reason.
    fn may_lose(
        self,
        call: &Call<'_>,
        at: Duration,
        facts: &Facts<'_>,
        reason: LostReason,
    ) -> bool {
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
        // Others have deleted the place of a taker again and again.
        let is_taker = ["take", "take_batch", "try_take"].contains(&call.name)
            && reason == LostReason::ZnodeDeleted;
        let is_session_lost = self.are_replaced
            || call.had.session.is_none()
            || facts.is_session_lost(call.since, at);
        let is_undisturbed = self.is_undisturbed_since(call, call.since);
        let has_reason = match reason {
            LostReason::AtRisk => !is_undisturbed || self.are_old,
            LostReason::DeadlinePassed => !is_undisturbed,
            LostReason::SessionExpired => !is_undisturbed && is_session_lost,
            LostReason::ZnodeDeleted => {
                facts.is_deleted_by(at) || (!is_undisturbed && is_session_lost)
            }
            LostReason::HeldTooLong => self.are_limited && call.name == "ack",
            // A guard that exists is not released, and the client is not one that ends.
            _ => false,
        };
        has_reason && (of_guard.contains(&call.name) || is_taker)
    }
}

#[cfg(test)]
mod tests;
