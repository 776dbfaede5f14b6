//! How the session machine uses a lease.

use std::collections::VecDeque;
use std::time::Duration;

use jute_codec::{ErrorCode, Response, Stat, xid};

use super::peer::{Pair, SESSION, config, sync, write};
use crate::machine::{Change, DisconnectCause, Event, Lease, Operation, SessionState};
use crate::types::SessionId;

/// A session timeout that is long enough for a lease.
const TIMEOUT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn pings() -> Lease {
    Lease::pings(5, SECOND * 2)
}

fn ping_interval() -> Duration {
    pings().ping_interval(TIMEOUT).expect("there is a lease")
}

fn connected() -> Pair {
    let mut config = config();
    config.session_timeout = TIMEOUT;
    config.give_up = TIMEOUT * 2;
    config.lease = Some(pings());
    let mut pair = Pair::new(config);
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, TIMEOUT);
    pair
}

/// Lets time pass, with a server that replies to pings at once.
fn serve(pair: &mut Pair, time: Duration) -> usize {
    let end = pair.now + time;
    let mut pings = 0;
    while pair.now < end {
        pair.sleep(Duration::from_millis(10));
        pair.flush();
        for (xid, _) in pair.requests() {
            assert_eq!(xid, xid::PING);
            pair.pong();
            pings += 1;
        }
    }
    pings
}

/// Lets time pass, with a server that replies late to every ping, until `is_over` returns true. At
/// the end no ping is pending, provided that the connection survives.
fn serve_late(pair: &mut Pair, late: Duration, is_over: impl Fn(&Pair) -> bool) {
    let mut due = VecDeque::new();
    for _ in 0..20_000 {
        pair.sleep(SECOND / 100);
        let is_connected = pair.session.status().state == SessionState::Connected;
        let is_over = is_over(pair);
        if is_connected {
            pair.flush();
            due.extend(pair.requests().iter().map(|_| pair.now + late));
            while due.front().is_some_and(|at| is_over || *at <= pair.now) {
                due.pop_front();
                pair.pong();
            }
        }
        if is_over {
            return;
        }
    }
    panic!("it is never over");
}

fn resume(pair: &mut Pair, timeout: Duration) {
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, timeout);
}

fn answer(pair: &mut Pair, operation: Operation, result: Result<Response, ErrorCode>) {
    pair.submit(vec![operation]);
    pair.flush();
    let (xid, _) = pair.requests().pop().expect("it was sent");
    pair.reply(xid, result);
}

#[test]
fn a_lease_begins_with_the_session_and_is_kept_by_frequent_pings() {
    let mut pair = connected();
    let deadline = pair.session.status().guard_deadline();
    assert_eq!(deadline, Some(pair.now + TIMEOUT * 19 / 20));
    assert_eq!(pair.session.status().lease_deadline(), deadline);
    let pings = serve(&mut pair, Duration::from_secs(300));
    assert_eq!(pings, 140, "one every 2.13 s");
    let left = pair.session.status().lease_deadline().map(|at| at.saturating_since(pair.now));
    assert!(left > Some(SECOND * 5), "{left:?}");
    assert_eq!(pair.session.status().lapses, 0);
}

#[test]
fn an_acknowledgement_is_overdue_after_two_ping_intervals_but_never_after_the_guard_deadline() {
    let mut pair = connected();
    let sent = pair.now;
    assert_eq!(pair.session.status().risk_deadline(), Some(sent + ping_interval() * 2));
    serve(&mut pair, SECOND * 60);
    for _ in 0..20 {
        let status = pair.session.status();
        assert!(status.risk_deadline() <= status.guard_deadline());
        pair.sleep(SECOND / 2);
    }

    // The lease is nearly over, although an acknowledgement is quite recent.
    let mut pair = connected();
    serve(&mut pair, SECOND * 60);
    pair.cut();
    pair.sleep(SECOND * 5);
    pair.events.clear();
    pair.session.handle_disconnected(pair.now);
    pair.drain();
    resume(&mut pair, TIMEOUT);
    answer(&mut pair, sync("/a"), Ok(Response::Sync("/a".into())));
    let status = pair.session.status();
    assert!(status.is_alive(pair.now) && status.acknowledged == Some(pair.now));
    assert_eq!(status.risk_deadline(), status.guard_deadline());
}

#[test]
fn the_end_of_the_lease_ends_the_connection_and_a_resume_with_a_write_makes_a_new_one() {
    let mut pair = connected();
    pair.session.set_relied_on(pair.now, true);
    serve(&mut pair, SECOND * 60);
    pair.changes();
    // The server is never silent for long, but too slow for a lease.
    serve_late(&mut pair, SECOND * 3, |pair| pair.session.status().lapses > 0);
    let deadline = pair.session.status().lease_deadline().expect("it has ended");
    assert!(pair.now.saturating_since(deadline) < SECOND);
    let session = SESSION;
    assert_eq!(pair.changes(), [Change::Lapsed { session }, Change::Suspended { session }]);
    assert!(pair.take(|event| matches!(event, Event::Disconnect(_))).is_some());

    pair.open();
    pair.handshake();
    let sent = pair.now;
    pair.answer_handshake(SESSION, TIMEOUT);
    assert_eq!(pair.session.status().state, SessionState::Connected);
    // A sync proves nothing, and neither does a failed write, which may not have been proposed.
    answer(&mut pair, sync("/a"), Ok(Response::Sync("/a".into())));
    answer(&mut pair, write(0), Err(ErrorCode::NO_NODE));
    assert!(!pair.session.status().is_alive(pair.now));
    assert_eq!(pair.session.status().lease_deadline(), Some(deadline));
    answer(&mut pair, write(0), Ok(Response::SetData(Stat::default())));
    assert!(pair.session.status().is_alive(pair.now));
    assert_eq!(pair.session.status().lease_deadline(), Some(sent + TIMEOUT * 19 / 20));
    assert_eq!(pair.session.status().lapses, 1);
}

#[test]
fn a_connection_that_makes_no_lease_is_left_when_it_cannot_make_one_any_more() {
    let mut pair = connected();
    pair.cut();
    pair.sleep(TIMEOUT);
    pair.events.clear();
    pair.session.handle_disconnected(pair.now);
    pair.drain();
    resume(&mut pair, TIMEOUT);
    pair.changes();
    pair.session.set_relied_on(pair.now, true);
    let start = pair.now;
    serve_late(&mut pair, SECOND * 3, |pair| {
        pair.session.status().state != SessionState::Connected
    });
    let stood = pair.now.saturating_since(start);
    assert!((SECOND * 28..SECOND * 29).contains(&stood), "{stood:?}");
    assert_eq!(pair.session.status().state, SessionState::Suspended);
    assert_eq!(pair.session.status().lapses, 1, "only the first lapse counts");
}

/// Pings establish another lease eventually. The connection is kept until a lock needs a lease
/// sooner.
#[test]
fn a_connection_on_which_nobody_relies_outlives_its_lease() {
    let mut pair = connected();
    serve(&mut pair, SECOND * 60);
    serve_late(&mut pair, SECOND * 5, |pair| pair.session.status().lapses > 0);
    assert_eq!(pair.session.status().state, SessionState::Connected);
    let now = pair.now;
    pair.session.set_relied_on(now, true);
    pair.drain();
    assert_eq!(pair.session.status().state, SessionState::Suspended);

    let mut pair = connected();
    serve(&mut pair, SECOND * 60);
    serve_late(&mut pair, SECOND * 5, |pair| pair.session.status().lapses > 0);
    serve_late(&mut pair, SECOND / 10, |pair| pair.session.status().is_alive(pair.now));
    assert_eq!(pair.session.status().connection, 1);
    let now = pair.now;
    pair.session.set_relied_on(now, true);
    pair.drain();
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

/// A distant server needs most of the time for the handshake, and replies a round trip later.
#[test]
fn a_server_gets_as_long_for_its_first_reply_as_it_took_for_the_handshake() {
    for (tenths, is_in_time) in [(7, true), (9, false)] {
        let mut pair = connected();
        pair.session.set_relied_on(pair.now, true);
        pair.cut();
        pair.events.clear();
        pair.session.handle_disconnected(pair.now);
        pair.drain();
        pair.open();
        pair.handshake();
        let time = pair.session.attempt().time();
        pair.sleep(time * 8 / 10);
        pair.answer_handshake(SESSION, TIMEOUT);
        pair.changes();
        pair.sleep(time * tenths / 10);
        let cause = pair.take(|event| matches!(event, Event::Disconnect(_)));
        let expected = Event::Disconnect(DisconnectCause::NoReply(time));
        assert_eq!(cause, (!is_in_time).then_some(expected), "{tenths}");
    }
}

/// The limit on silence depends on whether locks currently rely on the lease.
#[test]
fn silence_is_borne_for_less_long_where_somebody_relies_on_the_lease() {
    let limit = ping_interval() * 2 + SECOND;
    for (is_relied_on, limit) in [(true, limit), (false, TIMEOUT * 2 / 3)] {
        let mut pair = connected();
        pair.session.set_relied_on(pair.now, is_relied_on);
        serve(&mut pair, SECOND * 60);
        pair.sleep(limit - ping_interval());
        assert_eq!(pair.session.status().state, SessionState::Connected, "{is_relied_on}");
        pair.sleep(ping_interval());
        assert_eq!(pair.session.status().state, SessionState::Suspended, "{is_relied_on}");
    }
    // A connection that has been silent for longer than the limit is dropped at once.
    let mut pair = connected();
    serve(&mut pair, SECOND * 60);
    pair.sleep(SECOND * 8);
    assert_eq!(pair.session.status().state, SessionState::Connected);
    pair.session.set_relied_on(pair.now, true);
    let now = pair.now;
    pair.session.handle_timeout(now);
    pair.drain();
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}

#[test]
fn a_deadline_that_has_passed_counts_once() {
    let mut pair = Pair::connected();
    let mut xids = vec![];
    for _ in 0..2 {
        pair.sleep(SECOND / 2);
        pair.submit(vec![sync("/a")]);
        pair.flush();
        xids.extend(pair.requests().pop().map(|(xid, _)| xid));
    }
    // The process is suspended. Both replies are old, and are processed one after the other.
    pair.now = pair.now + super::peer::TIMEOUT * 2;
    for xid in xids {
        pair.reply(xid, Ok(Response::Sync("/a".into())));
        assert_eq!(pair.session.status().lapses, 1);
    }
}

#[test]
fn the_timeout_that_a_resume_grants_decides_anew() {
    let mut pair = connected();
    let connected = pair.now;
    resume(&mut pair, SECOND * 25);
    let status = pair.session.status();
    assert_eq!(status.lease_deadline(), Some(connected + SECOND * 25 * 19 / 20));
    resume(&mut pair, SECOND * 40);
    assert_eq!(pair.session.status().lease_deadline(), status.lease_deadline());
    // The timeout is too short for a lease, so the session works as it does without a lease.
    resume(&mut pair, SECOND * 9);
    let status = pair.session.status();
    assert_eq!(status.lease_deadline(), None);
    assert_eq!(status.guard_deadline(), Some(connected + SECOND * 9));
    assert_eq!(status.risk_deadline(), Some(connected + SECOND * 6));
    // The timeout is long enough again, but earlier requests no longer count.
    resume(&mut pair, TIMEOUT);
    let sent = pair.session.status().acknowledged;
    assert_eq!(pair.session.status().lease_deadline(), None);
    answer(&mut pair, write(0), Ok(Response::SetData(Stat::default())));
    assert!(pair.session.status().acknowledged > sent || pair.now == connected);
    assert!(pair.session.status().lease_deadline() > Some(connected + SECOND * 28));
}

#[test]
fn the_next_session_begins_without_the_lease_of_the_last() {
    let mut pair = connected();
    serve(&mut pair, SECOND * 60);
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    assert_eq!(pair.session.status().guard_deadline(), None);
    pair.open();
    pair.handshake();
    let sent = pair.now;
    pair.answer_handshake(SessionId(SESSION.0 + 1), TIMEOUT);
    assert_eq!(pair.session.status().lease_deadline(), Some(sent + TIMEOUT * 19 / 20));
    assert_eq!(pair.session.status().lapses, 0);
}

#[test]
fn a_lease_does_not_count_with_more_than_the_timeout_of_the_creation() {
    let mut pair = connected();
    pair.cut();
    pair.open();
    let sent = pair.now;
    pair.handshake();
    pair.answer_handshake(SESSION, TIMEOUT * 4 / 3);
    let token = pair.submit(vec![write(0)]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Ok(Response::SetData(Stat::default())));
    assert!(pair.answer(token).results[0].is_ok());
    assert_eq!(pair.session.status().lease_deadline(), Some(sent + TIMEOUT * 19 / 20));
    assert_eq!(pair.session.status().overdue_from, Some(sent + ping_interval() * 2));
}
