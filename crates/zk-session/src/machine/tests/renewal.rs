//! The writes that renew a lease: when they are sent, and when they are not.

use std::time::Duration;

use jute_codec::{ErrorCode, MultiResult, Request, Response, SetDataRequest, Stat, Version, xid};

use super::peer::{Pair, SESSION, config};
use crate::machine::inflight::write_of_nothing;
use crate::machine::{Lease, Operation, SessionState};

const TIMEOUT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
/// A twentieth of the session timeout.
const INTERVAL: Duration = Duration::from_millis(1500);
/// An eighth of a tick, extended in case our clock is fast.
const FIRST: Duration = Duration::from_micros(262_500);

fn connected() -> Pair {
    let mut config = config();
    config.session_timeout = TIMEOUT;
    config.give_up = TIMEOUT * 2;
    config.lease = Some(Lease::default());
    let mut pair = Pair::new(config);
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, TIMEOUT);
    pair
}

fn passed() -> Result<Response, ErrorCode> {
    Ok(Response::Multi(vec![MultiResult::Check]))
}

/// Lets time pass, with a server that replies to pings at once, and to renewals with `answer`.
/// Returns the times at which renewals were sent, counted from the start.
fn serve(
    pair: &mut Pair,
    time: Duration,
    answer: Option<Result<Response, ErrorCode>>,
) -> Vec<Duration> {
    let begin = pair.now;
    let end = begin + time;
    let mut renewals = vec![];
    let mut was_ping = false;
    while pair.now < end {
        pair.sleep(Duration::from_micros(500));
        pair.flush();
        for (xid, request) in pair.requests() {
            if xid == xid::PING {
                pair.pong();
                was_ping = true;
                continue;
            }
            assert_eq!(request, write_of_nothing());
            assert!(was_ping, "a ping precedes it");
            renewals.push(pair.now.saturating_since(begin));
            if let Some(answer) = answer.clone() {
                pair.reply(xid, answer);
            }
        }
        was_ping = false;
    }
    renewals
}

fn left(pair: &Pair) -> Option<Duration> {
    pair.session.status().lease_deadline().map(|end| end.saturating_since(pair.now))
}

#[test]
fn a_lease_is_renewed_each_interval_as_long_as_it_is_needed() {
    let mut pair = connected();
    assert_eq!(serve(&mut pair, SECOND * 20, Some(passed())), [], "no lock needs it");
    pair.session.set_lease_needed(pair.now, true);
    // The lease from the creation of the session has 8.5 s left, enough for a bridge of frequent
    // writes.
    let first = serve(&mut pair, SECOND * 10, Some(passed()));
    assert!(first.first() > Some(&FIRST) && first.first() < Some(&(SECOND)), "{first:?}");
    assert!(left(&pair) > Some(SECOND * 19), "{:?}", left(&pair));
    let later = serve(&mut pair, SECOND * 60, Some(passed()));
    assert!((40..=41).contains(&later.len()), "{} in a minute", later.len());
    assert!(left(&pair) > Some(SECOND * 19), "{:?}", left(&pair));
    pair.session.set_lease_needed(pair.now, false);
    assert_eq!(serve(&mut pair, SECOND * 60, Some(passed())), [], "no lock needs it any more");
    assert_eq!(pair.session.status().lapses, 0, "no lock has lost it");
}

#[test]
fn a_refused_renewal_renews_nothing_and_is_not_repeated_at_once() {
    let mut pair = connected();
    pair.session.set_lease_needed(pair.now, true);
    let refused = serve(&mut pair, SECOND * 9, Some(Err(ErrorCode::UNIMPLEMENTED)));
    assert!(refused.len() <= 9, "{refused:?}");
    assert!(left(&pair) < Some(SECOND * 20), "the lease is that from the creation");
    // A failed check is a transaction like any other.
    let error = Response::Multi(vec![MultiResult::Error(ErrorCode::NO_AUTH)]);
    serve(&mut pair, SECOND * 15, Some(Ok(error)));
    assert!(left(&pair) > Some(SECOND * 19), "{:?}", left(&pair));
    // A server that no longer serves the session is abandoned.
    let moved = Response::Multi(vec![MultiResult::Error(ErrorCode::SESSION_MOVED)]);
    serve(&mut pair, SECOND * 2, Some(Ok(moved)));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}

#[test]
fn renewals_that_are_refused_for_a_long_time_become_rare() {
    let mut pair = connected();
    pair.session.set_lease_needed(pair.now, true);
    let refuse = || Some(Err(ErrorCode::THROTTLED_OP));
    serve(&mut pair, SECOND * 30, refuse());
    let later = serve(&mut pair, SECOND * 60, refuse());
    assert!((11..=12).contains(&later.len()), "{} in a minute", later.len());
    // The first one that is accepted ends the pauses.
    let accepted = serve(&mut pair, SECOND * 20, Some(passed()));
    assert!(accepted.first() <= Some(&(SECOND * 5)), "{accepted:?}");
    assert!(left(&pair) > Some(SECOND * 19), "{:?}", left(&pair));
    // So does another connection.
    serve(&mut pair, SECOND * 30, refuse());
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, TIMEOUT);
    let resumed = serve(&mut pair, SECOND * 3, Some(passed()));
    assert!(!resumed.is_empty(), "no renewal on the new connection");
}

#[test]
fn there_is_no_second_renewal_before_the_first_is_answered() {
    let mut pair = connected();
    pair.session.set_relied_on(pair.now, true);
    pair.session.set_lease_needed(pair.now, true);
    let sent = serve(&mut pair, SECOND * 20, None);
    assert_eq!(sent.len(), 1, "{sent:?}");
    // Replies to pings do not replace a renewal: the lease ends when it would have ended without
    // them.
    assert_eq!(pair.session.status().lapses, 0);
    serve(&mut pair, SECOND * 10, None);
    assert_eq!(pair.session.status().lapses, 1);
}

#[test]
fn another_write_takes_the_place_of_a_renewal() {
    let mut pair = connected();
    pair.session.set_lease_needed(pair.now, true);
    for _ in 0..30 {
        let set = SetDataRequest { path: "/a".into(), data: None, version: Version::ANY };
        pair.submit(vec![Operation::new(Request::SetData(set))]);
        pair.flush();
        let (xid, _) = pair.request().expect("it was sent");
        pair.reply(xid, Ok(Response::SetData(Stat::default())));
        assert_eq!(serve(&mut pair, SECOND, Some(passed())), []);
    }
    assert!(left(&pair) > Some(SECOND * 19), "{:?}", left(&pair));
    // A write that fails does not replace a renewal.
    let set = SetDataRequest { path: "/b".into(), data: None, version: Version::ANY };
    pair.submit(vec![Operation::new(Request::SetData(set))]);
    pair.flush();
    let (xid, _) = pair.request().expect("it was sent");
    pair.reply(xid, Err(ErrorCode::NO_NODE));
    assert_eq!(serve(&mut pair, SECOND, Some(passed())).len(), 1);
}

#[test]
fn a_session_that_is_being_closed_or_has_no_connection_is_not_renewed() {
    let mut pair = connected();
    pair.session.set_lease_needed(pair.now, true);
    pair.cut();
    assert_eq!(serve(&mut pair, SECOND * 5, Some(passed())), []);
    let mut pair = connected();
    pair.session.set_lease_needed(pair.now, true);
    pair.session.close(pair.now);
    pair.flush();
    for _ in 0..100 {
        pair.sleep(INTERVAL / 10);
        pair.flush();
        let all = pair.requests();
        assert!(all.iter().all(|(_, request)| *request != write_of_nothing()), "{all:?}");
    }
}

/// Until a lock needs the lease, pings suffice, so the newest acknowledgement may be older than two
/// intervals of the writes. A lock that begins then must not be at risk for a moment.
#[test]
fn an_acknowledgement_is_not_overdue_because_a_lock_begins_to_need_the_lease() {
    for idle in 0..20 {
        let mut pair = connected();
        serve(&mut pair, SECOND * idle / 2, Some(passed()));
        pair.session.set_lease_needed(pair.now, true);
        for _ in 0..30 {
            assert!(
                pair.session.status().risk_deadline() > Some(pair.now),
                "idle for {idle} / 2 s"
            );
            serve(&mut pair, SECOND / 5, Some(passed()));
        }
    }
    // A server that has been silent for long does not get more time.
    let mut pair = connected();
    let sent = pair.session.status().acknowledged.expect("the session is open");
    pair.sleep(SECOND * 19);
    pair.session.set_lease_needed(pair.now, true);
    assert_eq!(pair.session.status().risk_deadline(), Some(sent + TIMEOUT * 2 / 3));
}
