//! Tests of the judge of calls.

use std::time::Duration;

use zk_recipes::SlowCommits;
use zk_testserver::{Outcome, RequestRecord, ServerVersion};

use super::*;
use crate::draw::Draw;
use crate::judges::tests::{history, request};
use crate::program::ends::EndKind;

/// Lets a call on `/a` begin, and fail two seconds later.
fn call(name: &'static str, timeout: Option<u64>, had: Had, failure: Failure) -> [What; 3] {
    let timeout = timeout.map(Duration::from_secs);
    let begun = What::Begun { call: 1, name, on: "/a".to_owned(), timeout };
    let ended = What::Ended { call: 1, end: End::Failed(failure) };
    [begun, What::Failing { call: 1, had }, ended]
}

fn judged(whats: Vec<What>, rules: Rules, facts: &Facts<'_>) -> usize {
    judge_by(&history(whats), rules, facts, |_, _, _| false).len()
}

fn count(name: &'static str, timeout: Option<u64>, failure: Failure, rules: Rules) -> usize {
    let whats = call(name, timeout, Had::default(), failure).into();
    judged(whats, rules, &Facts::default())
}

/// Counts what is found of a call whose client had this, after this has happened.
fn count_with(name: &'static str, had: Had, failure: Failure, rules: Rules, before: What) -> usize {
    let [begun, failing, ended] = call(name, None, had, failure);
    let events = history(vec![begun, before, failing, ended]);
    let mut facts = Facts::default();
    events.iter().for_each(|event| facts.see(event));
    judge_by(&events, rules, &facts, |_, _, _| false).len()
}

/// Answers a request of `/a` with this code, while the call is under way.
fn answer(code: ErrorCode) -> RequestRecord {
    let mut record = request();
    (record.path, record.at) = (Some("/a".to_owned()), Duration::from_secs(1));
    record.outcome = Outcome::Applied(code);
    record
}

fn changed(record: &RequestRecord, change: impl FnOnce(&mut RequestRecord)) -> RequestRecord {
    let mut record = record.clone();
    change(&mut record);
    record
}

/// Counts what is found of a call after a server has answered the client of this number so.
fn count_answered(
    name: &'static str,
    failure: Failure,
    rules: Rules,
    client: usize,
    record: &RequestRecord,
) -> usize {
    let mut facts = Facts::default();
    facts.answer(Some(client), record);
    judged(call(name, None, Had::default(), failure).into(), rules, &facts)
}

fn kept() -> Had {
    Had { connection: Some(1), session: Some(SessionId(7)), calm_since: None }
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
    assert_eq!(count("put", None, Failure::Lost(LostReason::AtRisk), calm), 1);
    assert_eq!(count("put", None, Failure::Other(String::new()), calm), 1);
}

#[test]
fn a_loss_while_nothing_goes_wrong_is_seen() {
    let count = |whats| judged(whats, Rules::default(), &Facts::default());
    assert_eq!(count(vec![What::LostForNothing { lock: "/a".to_owned() }]), 1);
    assert_eq!(count(vec![What::Calm]), 0);
}

#[test]
fn a_timeout_before_its_time_is_seen_and_one_of_a_call_that_waits_for_nobody() {
    let calm =
        Rules { is_reached: true, longest: Some(Duration::from_secs(1)), ..Rules::default() };
    let timed_out = |name, timeout, rules| count(name, timeout, Failure::TimedOut, rules);
    assert_eq!(timed_out("release", Some(2), Rules::default()), 0);
    assert_eq!(timed_out("release", Some(3), Rules::default()), 1, "it had another second");
    assert_eq!(timed_out("try_acquire", None, Rules::default()), 1, "it has three seconds");
    assert_eq!(timed_out("release", Some(2), calm), 1);
    assert_eq!(timed_out("create", Some(2), calm), 1);
    assert_eq!(timed_out("acquire", Some(2), calm), 0, "others have the lock");
    let disturbed = Rules { is_reached: false, ..calm };
    let after = |seconds| {
        let had = Had { calm_since: Some(Duration::from_secs(seconds)), ..kept() };
        let mut whats = vec![What::Calm; 5];
        whats.extend(call("release", Some(2), had, Failure::TimedOut));
        judged(whats, disturbed, &Facts::default())
    };
    assert_eq!((after(5), after(6)), (1, 0));
}

#[test]
fn a_lost_connection_that_was_not_lost_is_seen() {
    let cut = Rules { are_cut: true, ..Rules::default() };
    let count = |had| {
        let whats = call("create", None, had, Failure::ConnectionLoss).into();
        judged(whats, cut, &Facts::default())
    };
    assert_eq!(count(Had { session: None, ..kept() }), 1);
    assert_eq!(count(Had { connection: None, ..kept() }), 0);
}

#[test]
fn the_end_of_a_session_that_lives_is_seen() {
    let undisturbed = Rules { is_undisturbed: true, ..Rules::default() };
    let count = |name, had, rules| {
        let whats = call(name, None, had, Failure::SessionExpired).into();
        judged(whats, rules, &Facts::default())
    };
    let over = Had { session: None, ..kept() };
    assert_eq!(count("create", kept(), Rules::default()), 1);
    assert_eq!(count("create", over, Rules::default()), 0);
    assert_eq!(count("create", over, undisturbed), 1, "nothing can have ended it");
    let bound = |session| {
        let bound = What::Bound { path: "/a".to_owned(), session };
        let failed = call("commit_in", None, kept(), Failure::SessionExpired);
        let whats = [bound].into_iter().chain(failed).collect();
        judged(whats, Rules::default(), &Facts::default())
    };
    assert_eq!((bound(SessionId(7)), bound(SessionId(6))), (1, 0));
}

#[test]
fn a_lock_that_is_lost_for_no_reason_is_seen() {
    let disturbed = Rules::default();
    let undisturbed = Rules { is_undisturbed: true, ..disturbed };
    let count = |name, reason, rules, before| {
        count_with(name, kept(), Failure::Lost(reason), rules, before)
    };
    let deleted = || What::Deleted { path: "/a/x".to_owned(), czxid: 7 };
    let expired = || What::LostSession { is_told: true, alive: None };
    for reason in [LostReason::AtRisk, LostReason::DeadlinePassed] {
        assert_eq!(count("validate", reason, undisturbed, deleted()), 1);
        assert_eq!(count("validate", reason, disturbed, What::Calm), 0);
    }
    let calm = Had { calm_since: Some(Duration::ZERO), ..kept() };
    let often = Rules { may_be_undisturbed: true, ..disturbed };
    let late = || Failure::Lost(LostReason::DeadlinePassed);
    assert_eq!(count_with("validate", calm, late(), often, What::Calm), 1);
    assert_eq!(count_with("validate", kept(), late(), often, What::Calm), 0);
    let old = Rules { are_old: true, ..undisturbed };
    assert_eq!(count("validate", LostReason::AtRisk, old, What::Calm), 0);
    let gone = LostReason::ZnodeDeleted;
    assert_eq!(count("validate", gone, undisturbed, deleted()), 0);
    assert_eq!(count("validate", gone, disturbed, What::Calm), 1);
    assert_eq!(count("validate", gone, disturbed, expired()), 0, "with its session");
    assert_eq!(count("take", gone, undisturbed, deleted()), 0);
    assert_eq!(count("take", LostReason::DeadlinePassed, disturbed, deleted()), 1);
    let ended = LostReason::SessionExpired;
    assert_eq!(count("release", ended, disturbed, expired()), 0);
    assert_eq!(count("release", ended, disturbed, What::Calm), 1);
    assert_eq!(count("release", ended, undisturbed, expired()), 1);
    let limited = Rules { are_limited: true, ..undisturbed };
    let long = LostReason::HeldTooLong;
    assert_eq!(count("ack", long, limited, What::Calm), 0);
    assert_eq!(count("ack", long, undisturbed, What::Calm), 1);
    assert_eq!(count("validate", LostReason::Released, disturbed, What::Calm), 1);
    assert_eq!(count("validate", LostReason::Closed, disturbed, What::Calm), 1);
}

#[test]
fn a_loss_of_the_session_before_the_guard_is_no_reason() {
    let lost = What::LostSession { is_told: true, alive: None };
    let failure = Failure::Lost(LostReason::SessionExpired);
    let whats = [lost, What::Calm].into_iter().chain(call("acquire", None, kept(), failure));
    let events = history(whats.collect());
    let mut facts = Facts::default();
    events.iter().for_each(|event| facts.see(event));
    assert_eq!(judge_by(&events, Rules::default(), &facts, |_, _, _| false).len(), 1);
}

#[test]
fn an_outcome_that_nothing_has_put_in_doubt_is_seen() {
    let rules = Rules { are_refused: true, ..Rules::default() };
    let doubt = |name, timeout, had| {
        let whats = call(name, timeout, had, Failure::Undecided).into();
        judged(whats, rules, &Facts::default())
    };
    for name in ["ack", "add", "put", settled::WRITE] {
        assert_eq!(doubt(name, None, kept()), 1, "{name}");
        assert_eq!(doubt(name, Some(2), kept()), 0, "{name}");
        assert_eq!(doubt(name, None, Had { connection: None, ..kept() }), 0, "{name}");
    }
    let refused = answer(ErrorCode::SYSTEM_ERROR);
    assert_eq!(count_answered("ack", Failure::Undecided, rules, 0, &refused), 0);
    let past_limit = Rules { are_limited: true, ..rules };
    for (name, count) in [("ack", 0), ("add", 1)] {
        let whats = call(name, None, kept(), Failure::Undecided).into();
        assert_eq!(judged(whats, past_limit, &Facts::default()), count, "{name}");
    }
}

#[test]
fn old_servers_cut_connections_without_a_fault() {
    for (version, count) in [(ServerVersion::V3_5, 0), (ServerVersion::V3_6, 1)] {
        let plan = Plan { version, faults: Vec::new(), ..Plan::draw(&mut Draw::new(1)) };
        let rules = Rules::of(&plan, &Program::draw(&mut Draw::new(1)), &BTreeSet::new());
        let whats = call("create", None, Had::default(), Failure::ConnectionLoss).into();
        assert_eq!(judged(whats, rules, &Facts::default()), count, "{version:?}");
    }
}

#[test]
fn only_faults_that_can_do_it_disturb_a_world() {
    let is_undisturbed = |faults: &[FaultKind]| {
        let at_once = Duration::ZERO;
        let plan = Plan::draw(&mut Draw::new(1));
        let plan = Plan { latency: at_once, jitter: at_once, commit: at_once, ..plan };
        let plan = Plan { lag: at_once, unapplied: at_once, leader_unapplied: at_once, ..plan };
        let plan = Plan { service: at_once, leases: None, faults: faults.to_vec(), ..plan };
        let plan = Plan { clock_rate: crate::world::plan::CLOCK_RATE, ..plan };
        let program = Program { moves: None, ..Program::draw(&mut Draw::new(1)) };
        Rules::of(&plan, &program, &BTreeSet::new()).is_undisturbed
    };
    assert!(is_undisturbed(&[]));
    assert!(is_undisturbed(&[FaultKind::Deletion, FaultKind::Stranger]));
    assert!(!is_undisturbed(&[FaultKind::Deletion, FaultKind::SlowCommits]));
}

#[test]
fn a_call_of_a_client_that_has_ended_fails_until_its_task_has_another_one() {
    let failed = |before: Vec<What>, failure: Failure| {
        let failed = call("acquire", None, Had::default(), failure);
        let all = before.into_iter().chain(failed).collect();
        judged(all, Rules::default(), &Facts::default())
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
    let lost = |before| failed(before, Failure::Lost(LostReason::Closed));
    assert_eq!((lost(vec![ending(0)]), lost(vec![ending(0), renewed()])), (0, 1));
}

#[test]
fn refusals_are_seen_unless_the_world_refuses_and_a_server_has_said_so() {
    let refusing = Rules { are_refused: true, ..Rules::default() };
    let code = ErrorCode::THROTTLED_OP;
    let (throttled, said) = (Failure::Refused(code.0), answer(code));
    let failed = |name, rules, client, said: &RequestRecord| {
        count_answered(name, throttled.clone(), rules, client, said)
    };
    assert_eq!(failed("acquire", Rules::default(), 0, &said), 1);
    assert_eq!(failed("acquire", refusing, 0, &said), 0);
    assert_eq!(failed("acquire", refusing, 0, &answer(ErrorCode::SYSTEM_ERROR)), 1);
    assert_eq!(failed("acquire", refusing, 1, &said), 1, "another client was told");
    let dropped = changed(&said, |said| said.outcome = Outcome::Dropped);
    assert_eq!(failed("acquire", refusing, 0, &dropped), 1);
    let late = changed(&said, |said| said.at = Duration::from_secs(9));
    assert_eq!(failed("acquire", refusing, 0, &late), 1);
    let other = changed(&said, |said| said.path = Some("/b".to_owned()));
    assert_eq!(failed("acquire", refusing, 0, &other), 0, "it has several");
    assert_eq!(failed("create", refusing, 0, &other), 1);
    assert_eq!(failed("release", refusing, 0, &said), 1, "it never gives up");
    let forbidden = Failure::Refused(ErrorCode::NO_AUTH.0);
    let said = answer(ErrorCode::NO_AUTH);
    assert_eq!(count_answered("release", forbidden, refusing, 0, &said), 0);
}

#[test]
fn an_answer_that_no_server_has_given_is_seen() {
    let missing = Failure::Refused(ErrorCode::NO_NODE.0);
    let said = answer(ErrorCode::NO_NODE);
    assert_eq!(count_answered("delete", missing.clone(), Rules::default(), 0, &said), 0);
    assert_eq!(count("delete", None, missing, Rules::default()), 1);
    assert_eq!(count_answered("acquire", Failure::NoRoot, Rules::default(), 0, &said), 0);
    assert_eq!(count("acquire", None, Failure::NoRoot, Rules::default()), 1);
    let taken = answer(ErrorCode::NODE_EXISTS);
    let join = |had, said: &RequestRecord| {
        let mut facts = Facts::default();
        facts.answer(Some(0), said);
        judged(call("join", None, had, Failure::Changed).into(), Rules::default(), &facts)
    };
    assert_eq!((join(kept(), &taken), join(kept(), &said)), (0, 1));
    assert_eq!(join(Had { connection: None, ..kept() }, &said), 0, "its create may be lost");
}

#[test]
fn a_downgrade_that_loses_a_lock_is_seen_if_nothing_goes_wrong() {
    let undisturbed = Rules { is_undisturbed: true, ..Rules::default() };
    let late = || Failure::Lost(LostReason::DeadlinePassed);
    assert_eq!(count("downgrade", None, late(), undisturbed), 1);
    assert_eq!(count("downgrade", None, late(), Rules::default()), 0);
    let closed = Failure::Lost(LostReason::Closed);
    let [begun, failing, ended] = call("downgrade", None, kept(), closed);
    let ending = What::Ending { kind: EndKind::Close, life: 0 };
    let whats = vec![begun, ending, failing, ended];
    assert_eq!(judged(whats, undisturbed, &Facts::default()), 0, "its client ends");
}

#[test]
fn a_missing_lease_is_no_reason_where_commits_are_prompt() {
    let ms = Duration::from_millis;
    let count = |commit, needed, is_undisturbed| {
        let rules = Rules { is_undisturbed, commit_max: ms(50), ..Rules::default() };
        let slow = SlowCommits::new(ms(commit), ms(4_000), ms(needed));
        count("acquire", None, Failure::NoLease(slow), rules)
    };
    assert_eq!((count(40, 4_500, true), count(60, 4_500, true)), (0, 1));
    assert_eq!((count(60, 4_500, false), count(60, 3_000, false)), (0, 0));
    assert_eq!((count(40, 3_600, true), count(40, 3_400, true)), (0, 1), "it is long enough");
}

#[test]
fn limits_that_nobody_has_reached_are_seen() {
    let exhausted = Rules { are_exhausted: true, ..Rules::default() };
    let count_after = |text: &str, rules| {
        let fault = What::Fault { number: 1, text: text.to_owned() };
        count_with("acquire", kept(), Failure::Exhausted, rules, fault)
    };
    assert_eq!(count_after("SequenceEnd: /a, after 5 more", exhausted), 0);
    assert_eq!(count_after("Cut: something", exhausted), 1);
    assert_eq!(count_after("SequenceEnd: /a, after 5 more", Rules::default()), 1);
    let limited = Rules { is_limited: true, ..Rules::default() };
    assert_eq!(count("create", None, Failure::Full, limited), 0);
    assert_eq!(count("acquire", None, Failure::Full, limited), 1, "recipes wait");
    assert_eq!(count("create", None, Failure::Full, Rules::default()), 1);
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
    let deleted = || What::Deleted { path: "/a/x".to_owned(), czxid: 7 };
    let count = |rules, before| count_with("ack", kept(), Failure::Changed, rules, before);
    assert_eq!(count(Rules::default(), deleted()), 1);
    assert_eq!(count(tampered, deleted()), 0);
    assert_eq!(count(tampered, What::Calm), 1, "they have not done anything yet");
    let stranger = What::Fault { number: 1, text: "Stranger: /a/config".to_owned() };
    assert_eq!(count(tampered, stranger), 0);
    let count = |rules, before| count_with("set_member", kept(), Failure::Taken, rules, before);
    let undisturbed = Rules { is_undisturbed: true, ..tampered };
    assert_eq!((count(undisturbed, deleted()), count(undisturbed, What::Calm)), (0, 1));
    let refused = |code: ErrorCode| {
        let record = answer(code);
        let mut facts = Facts::default();
        facts.answer(Some(0), &record);
        let events = history(vec![deleted()]);
        events.iter().for_each(|event| facts.see(event));
        let failed = call("take", None, kept(), Failure::Refused(code.0));
        judged(failed.into(), tampered, &facts)
    };
    assert_eq!((refused(ErrorCode::NOT_EMPTY), refused(ErrorCode::NO_NODE)), (1, 0));
}
