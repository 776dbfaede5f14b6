//! Heartbeats, silence, and how long a session can be trusted.

use std::time::Duration;

use jute_codec::{EventType, Request, Response, Stat, Zxid, xid};

use super::peer::{Pair, SESSION, TIMEOUT, config, sync, write};
use crate::host::Host;
use crate::machine::{Change, DisconnectCause, Event, SessionConfig, SessionState};
use crate::types::SessionId;

fn pings(pair: &mut Pair) -> usize {
    pair.flush();
    pair.requests().iter().filter(|(xid, _)| *xid == xid::PING).count()
}

#[test]
fn pings_go_by_the_schedule_whatever_else_is_sent() {
    let mut pair = Pair::connected();
    let mut count = 0;
    for _ in 0..90 {
        pair.submit(vec![sync("/a")]);
        pair.sleep(TIMEOUT / 30);
        pair.flush();
        for (xid, request) in pair.requests() {
            match request {
                Request::Ping => {
                    count += 1;
                    pair.pong();
                }
                _ => pair.reply(xid, Ok(Response::Sync("/a".into()))),
            }
        }
    }
    assert_eq!(count, 9, "one per third of the timeout");
    assert_eq!(pair.session.status().connection, 1);
}

#[test]
fn silence_of_two_thirds_of_the_timeout_ends_the_connection() {
    let mut pair = Pair::connected();
    pair.sleep(TIMEOUT * 2 / 3 - Duration::from_millis(1));
    assert_eq!(pair.session.status().state, SessionState::Connected);
    pair.sleep(Duration::from_millis(1));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
    assert!(pair.take(|event| matches!(event, Event::Disconnect(_))).is_some());
}

#[test]
fn events_alone_do_not_keep_a_connection() {
    let mut pair = Pair::connected();
    for _ in 0..12 {
        pair.sleep(TIMEOUT / 10);
        if pair.session.status().state == SessionState::Connected {
            pair.event(Zxid::NONE, EventType::NODE_CREATED, "/a");
        }
    }
    assert_eq!(pair.session.status().state, SessionState::Suspended, "no ping was answered");
}

#[test]
fn the_guard_deadline_counts_from_the_sending_of_the_newest_acknowledged_request() {
    let mut pair = Pair::connected();
    assert_eq!(pair.session.status().guard_deadline(), Some(pair.now + TIMEOUT));
    pair.sleep(Duration::from_secs(1));
    pair.submit(vec![sync("/a")]);
    let sent = pair.now;
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    pair.sleep(Duration::from_secs(1));
    // An event is not an acknowledgement.
    pair.event(Zxid::NONE, EventType::NODE_CREATED, "/a");
    assert!(pair.session.status().guard_deadline() < Some(sent + TIMEOUT));
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert_eq!(pair.session.status().guard_deadline(), Some(sent + TIMEOUT));
}

#[test]
fn a_resume_is_no_proof_and_a_deadline_that_has_passed_is_not_forgotten() {
    let mut pair = Pair::connected();
    let deadline = pair.session.status().guard_deadline();
    pair.cut();
    pair.sleep(TIMEOUT / 2);
    pair.events.clear();
    pair.session.handle_disconnected(pair.now);
    pair.drain();
    pair.connect(SESSION);
    assert_eq!(pair.session.status().guard_deadline(), deadline);
    assert!(pair.session.status().is_alive(pair.now));
    pair.cut();
    pair.changes();
    pair.sleep(TIMEOUT / 2);
    let session = SESSION;
    assert_eq!(pair.changes(), [Change::Lapsed { session }]);
    assert_eq!(pair.session.status().lapses, 1);
    // The session is resumed and alive again, but the lapse remains counted.
    pair.events.clear();
    pair.session.handle_disconnected(pair.now);
    pair.drain();
    pair.connect(SESSION);
    assert!(!pair.session.status().is_alive(pair.now));
    assert_eq!(pings(&mut pair), 0);
    pair.sleep(TIMEOUT / 3);
    pair.flush();
    pair.pong();
    assert!(pair.session.status().is_alive(pair.now));
    assert_eq!(pair.session.status().lapses, 1);
}

#[test]
fn after_a_pause_bytes_count_before_deadlines_and_nothing_old_is_believed() {
    let mut pair = Pair::connected();
    pair.submit(vec![sync("/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    // The process is suspended and no timer runs. The reply waits in the socket.
    pair.now = pair.now + TIMEOUT * 3 / 2;
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert_eq!(pair.session.status().state, SessionState::Connected, "it was heard just now");
    assert_eq!(pair.session.status().lapses, 1, "but the answer is old");
    assert!(!pair.session.status().is_alive(pair.now));
}

#[test]
fn the_timeout_that_a_server_grants_rules_everything() {
    let mut pair = Pair::new(config());
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, Duration::from_secs(3));
    assert_eq!(pair.session.status().timeout, Duration::from_secs(3));
    pair.sleep(Duration::from_secs(1));
    assert_eq!(pings(&mut pair), 1);
    pair.sleep(Duration::from_secs(1));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_left() {
    let mut pair = Pair::new(config());
    pair.open();
    pair.sleep(Duration::from_secs(3));
    assert!(pair.take(|event| matches!(event, Event::Disconnect(_))).is_some());
    pair.connect(SESSION);
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_resume_with_another_timeout_extends_no_deadline() {
    for granted in [TIMEOUT * 2, TIMEOUT / 3] {
        let mut pair = Pair::connected();
        let connected = pair.now;
        pair.cut();
        pair.open();
        pair.handshake();
        pair.answer_handshake(SESSION, granted);
        // Nothing was acknowledged since the session was created, so the timeout granted then
        // applies, or the one granted now if that is shorter.
        let deadline = connected + granted.min(TIMEOUT);
        assert_eq!(pair.session.status().guard_deadline(), Some(deadline));
        assert_eq!(pair.session.status().timeout, granted.min(TIMEOUT));
        pair.sleep(deadline.saturating_since(pair.now));
        assert_eq!(pair.session.status().lapses, 1);
    }
}

fn reply_to_sync(pair: &mut Pair) {
    pair.submit(vec![sync("/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Ok(Response::Sync("/a".into())));
}

#[test]
fn a_timeout_longer_than_the_one_of_the_creation_never_counts() {
    // The next leader uses the timeout in the transaction that created the session.
    let mut pair = Pair::connected();
    reply_to_sync(&mut pair);
    for granted in [TIMEOUT * 2, TIMEOUT / 3, TIMEOUT * 3] {
        pair.cut();
        pair.open();
        pair.handshake();
        pair.answer_handshake(SESSION, granted);
        let counts = granted.min(TIMEOUT);
        assert_eq!(pair.session.status().timeout, counts);
        let sent = pair.now;
        reply_to_sync(&mut pair);
        assert_eq!(pair.session.status().guard_deadline(), Some(sent + counts));
        pair.sleep(counts / 3 - Duration::from_millis(1));
        assert_eq!(pings(&mut pair), 0);
        pair.sleep(Duration::from_millis(1));
        assert_eq!(pings(&mut pair), 1);
        pair.sleep(counts / 3);
        assert_eq!(pair.session.status().state, SessionState::Suspended, "{granted:?}");
        pair.session.handle_disconnected(pair.now);
        pair.drain();
        pair.events.clear();
        pair.connect(SESSION);
    }
    // The next session has a timeout of its own.
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    pair.open();
    pair.handshake();
    pair.answer_handshake(SessionId(SESSION.0 + 1), TIMEOUT * 2);
    assert_eq!(pair.session.status().timeout, TIMEOUT * 2);
}

#[test]
fn one_server_gets_no_more_than_its_share_of_a_timeout_that_was_cut_down() {
    let mut config = config();
    config.hosts.push(config.hosts[0].clone());
    let mut pair = Pair::new(config);
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, Duration::from_secs(4));
    pair.cut();
    pair.events.clear();
    pair.open();
    // The server does not reply. Half of the timeout is left for the other server.
    pair.sleep(Duration::from_secs(2));
    assert!(pair.take(|event| matches!(event, Event::Disconnect(_))).is_some());
}

/// Makes the next attempt, to which the server does not reply. Returns the time limit of the
/// attempt.
fn time_of_next_attempt(pair: &mut Pair) -> Duration {
    pair.open();
    pair.received.clear();
    pair.session.attempt().time()
}

#[test]
fn an_attempt_has_its_share_of_what_is_left_and_the_configured_time_when_nothing_is() {
    let ms = Duration::from_millis;
    let mut config = config();
    config.hosts = (1..=3).map(|port| Host { name: "zk".into(), port }).collect();
    config.connect_timeout = ms(8_000);
    let mut pair = Pair::new(config);
    assert_eq!(time_of_next_attempt(&mut pair), ms(8_000), "there is no session");
    let created = pair.now;
    pair.answer_handshake(SESSION, TIMEOUT);
    pair.cut();
    // The remaining time is shared by three servers, then by two. The last one gets half of it.
    for (left, server) in [(3, 1), (2, 2), (2, 3), (3, 1)] {
        let time = time_of_next_attempt(&mut pair);
        let rest = (created + TIMEOUT).saturating_since(pair.now);
        assert_eq!(time, (rest / left).max(ms(500)), "server {server}, {rest:?} left");
        pair.sleep(time);
        let told = DisconnectCause::NoHandshake(time);
        assert!(pair.take(|event| *event == Event::Disconnect(told.clone())).is_some());
    }
    // Near the end of the session each attempt gets half a second, and after the end the configured
    // time.
    let mut shortest = ms(8_000);
    while pair.now <= created + TIMEOUT {
        let time = time_of_next_attempt(&mut pair);
        shortest = shortest.min(time);
        pair.sleep(time);
    }
    assert_eq!(shortest, ms(500));
    assert_eq!(time_of_next_attempt(&mut pair), ms(8_000), "there is nothing to save");
}

#[test]
fn a_session_is_not_given_up_before_it_can_have_ended() {
    let mut pair = Pair::new(config());
    pair.open();
    pair.handshake();
    pair.answer_handshake(SESSION, TIMEOUT * 3);
    pair.cut();
    pair.changes();
    for _ in 0..26 {
        pair.sleep(Duration::from_secs(1));
        assert_eq!(pair.session.status().session, Some(SESSION));
    }
    pair.sleep(Duration::from_secs(1));
    assert_eq!(pair.session.status().session, None);
}

const LONG: usize = 1_000_000;

fn with_long_requests() -> Pair {
    let mut pair = Pair::new(SessionConfig { request_limit: LONG * 2, ..config() });
    pair.connect(SESSION);
    pair
}

#[test]
fn a_request_counts_as_sent_when_the_transport_gets_its_last_byte() {
    let mut pair = with_long_requests();
    let created = pair.now;
    pair.submit(vec![write(LONG)]);
    pair.submit(vec![sync("/a")]);
    pair.sleep(TIMEOUT / 3);
    // All but the last byte of the ping, which is ahead of the sync.
    let rest = pair.unsent.len() - LONG / 2 - 1;
    pair.transmit(LONG / 2);
    pair.sleep(TIMEOUT / 9);
    let first = pair.now;
    pair.transmit(rest);
    pair.sleep(TIMEOUT / 9);
    let second = pair.now;
    pair.flush();
    let requests = pair.requests();
    let deadlines = requests.into_iter().map(|(xid, request)| {
        match request {
            Request::SetData(_) => pair.reply(xid, Ok(Response::SetData(Stat::default()))),
            Request::Sync(_) => pair.reply(xid, Ok(Response::Sync("/a".into()))),
            Request::Ping => pair.pong(),
            other => panic!("{other:?}"),
        }
        pair.session.status().guard_deadline()
    });
    let deadlines: Vec<_> = deadlines.collect();
    assert!(created < first && first < second);
    assert_eq!(deadlines, [first, second, second].map(|sent| Some(sent + TIMEOUT)));
}

/// Transmits as a transport with a full buffer does, of which the peer takes this many bytes each
/// second. Returns for how many seconds the connection lives, at most `most`.
fn drip(pair: &mut Pair, bytes: usize, most: usize) -> usize {
    for second in 0..most {
        pair.sleep(Duration::from_secs(1));
        if pair.session.status().state != SessionState::Connected {
            return second + 1;
        }
        pair.session.handle_blocked();
        pair.transmit(bytes.min(pair.unsent.len()));
    }
    most
}

#[test]
fn bytes_that_a_full_transport_takes_are_progress_but_not_for_ever() {
    let limit = TIMEOUT.as_secs() as usize * 2 / 3;
    // The first ping is behind the first write, and counts as overdue from 4 MiB after it.
    let mut pair = with_long_requests();
    for _ in 0..40 {
        pair.submit(vec![write(LONG)]);
    }
    let lived = drip(&mut pair, 100_000, 400);
    let until_it_counts = (LONG + 4 * 1024 * 1024) / 100_000 + 1;
    assert!(lived >= until_it_counts, "{lived} s");
    assert!(lived <= until_it_counts + 10 + limit, "{lived} s");
    // That is too slow.
    let mut pair = with_long_requests();
    pair.submit(vec![write(LONG)]);
    assert_eq!(drip(&mut pair, 16 * 1024 / limit - 1, 400), limit);
    // A transport that was never full may have buffered everything.
    let mut pair = Pair::connected();
    let lived = (1..400).find(|_| {
        pair.submit(vec![sync("/a")]);
        pair.flush();
        pair.sleep(Duration::from_secs(1));
        pair.session.status().state != SessionState::Connected
    });
    assert_eq!(lived, Some(limit));
}

#[test]
fn a_ping_waits_for_a_bounded_number_of_bytes_and_one_request() {
    let mut pair = Pair::connected();
    for _ in 0..90 {
        pair.submit(vec![write(4_000)]);
    }
    assert!(pair.unsent.len() > 60_000, "requests share a write");
    assert!(pair.unsent.len() < 64 * 1024 + 4_096, "{}", pair.unsent.len());
}
