//! Connections that are lost, and whether their sessions survive.

use std::time::Duration;

use jute_codec::{ErrorCode, EventType, NameList, Request, Response, Stat, Zxid, xid};

use super::peer::{Pair, SESSION, TIMEOUT, config, data, host, opened, sync, watch, write};
use crate::error::{OpError, Outcome};
use crate::machine::inflight::write_of_nothing;
use crate::machine::{
    Change, DisconnectCause, EndCause, Event, SessionConfig, SessionState, WatchNumber,
};
use crate::types::SessionId;

#[test]
fn a_resume_presents_id_password_and_zxid() {
    let mut pair = Pair::new(config());
    let first = pair.connect(SESSION);
    assert_eq!((first.session_id, first.last_zxid_seen), (SessionId::NONE, Zxid(0)));
    assert_eq!(first.read_only, Some(false), "locks need a server that accepts writes");
    pair.cut();
    let second = pair.connect(SESSION);
    assert_eq!(second.session_id, SESSION);
    assert_eq!(second.password, format!("password of {SESSION}"));
    assert_eq!(second.timeout_ms, first.timeout_ms, "always the requested timeout");
    let session = SESSION;
    assert_eq!(
        pair.changes(),
        [
            Change::Connected { session, connection: 1, resumed: false },
            Change::Suspended { session },
            Change::Connected { session, connection: 2, resumed: true },
        ]
    );
}

/// Registers one watch of each kind, while the server is at zxid 3.
fn with_watches() -> Pair {
    let mut pair = Pair::connected();
    pair.submit(vec![
        watch(1, Request::GetData, "/data"),
        watch(2, Request::Exists, "/exist"),
        watch(3, Request::GetChildren, "/child"),
    ]);
    pair.flush();
    let answers =
        [Ok(data()), Err(ErrorCode::NO_NODE), Ok(Response::GetChildren(NameList::default()))];
    for ((xid, _), answer) in pair.requests().into_iter().zip(answers) {
        pair.reply(xid, answer);
    }
    pair
}

#[test]
fn watches_are_restored_before_requests_with_the_zxid_of_the_disconnect() {
    let mut pair = with_watches();
    pair.cut();
    pair.submit(vec![sync("/a")]);
    pair.connect(SESSION);
    let requests = pair.requests();
    let (-8, Request::SetWatches(watches)) = &requests[0] else { panic!("{requests:?}") };
    assert_eq!(watches.relative_zxid, Zxid(3));
    assert_eq!((&*watches.data, &*watches.exist), (&["/data".into()][..], &["/exist".into()][..]));
    assert_eq!(&*watches.child, ["/child"]);
    assert!(matches!(requests[1].1, Request::Sync(_)));
}

#[test]
fn the_zxid_stays_frozen_until_the_watches_are_acknowledged() {
    let mut pair = with_watches();
    pair.cut();
    pair.submit(vec![sync("/a")]);
    pair.connect(SESSION);
    // The connection is lost before the reply to SetWatches arrives. If the zxid had advanced with
    // other replies, a change of the first gap could be missed.
    pair.session.seen.reply(Zxid(99));
    pair.cut();
    pair.connect(SESSION);
    let requests = pair.requests();
    assert!(
        matches!(&requests[0].1, Request::SetWatches(watches) if watches.relative_zxid == Zxid(3)),
        "{requests:?}"
    );
    pair.reply_at(xid::SET_WATCHES, Zxid(99), Ok(Response::Empty));
    pair.cut();
    pair.connect(SESSION);
    let requests = pair.requests();
    assert!(
        matches!(&requests[0].1, Request::SetWatches(watches) if watches.relative_zxid == Zxid(99))
    );
}

#[test]
fn a_watch_that_fired_during_the_gap_is_not_restored_again() {
    let mut pair = with_watches();
    pair.cut();
    pair.connect(SESSION);
    pair.event(Zxid::NONE, EventType::NODE_DELETED, "/data");
    assert!(
        pair.take(
            |event| matches!(event, Event::Watch { id, .. } if id.number == WatchNumber::FIRST)
        )
        .is_some()
    );
    pair.reply_at(xid::SET_WATCHES, Zxid(4), Ok(Response::Empty));
    pair.cut();
    pair.connect(SESSION);
    let requests = pair.requests();
    assert!(matches!(&requests[0].1, Request::SetWatches(watches) if watches.data.is_empty()));
}

#[test]
fn the_answer_that_a_session_is_gone_ends_everything_of_it() {
    let mut pair = with_watches();
    pair.cut();
    let waiting = pair.submit(vec![sync("/a")]);
    pair.changes();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    assert_eq!(pair.error(waiting), OpError::session_expired(Outcome::NotApplied));
    assert_eq!(pair.session.watch_count(), 0);
    let session = SESSION;
    assert_eq!(pair.changes(), [Change::Ended { session, cause: EndCause::Expired }]);
    // The next session is opened at once, without any state of the previous session.
    let before = pair.now;
    let request = pair.connect(SessionId(SESSION.0 + 1));
    assert_eq!((request.session_id, request.last_zxid_seen), (SessionId::NONE, Zxid(0)));
    assert_eq!(pair.now, before);
    assert_eq!(pair.session.status().session, Some(SessionId(SESSION.0 + 1)));
    assert!(pair.requests().is_empty(), "no watch survives its session");
}

#[test]
fn a_session_that_comes_back_under_another_id_has_expired() {
    let mut pair = Pair::connected();
    pair.cut();
    pair.changes();
    pair.open();
    pair.handshake();
    pair.answer_handshake(SessionId(SESSION.0 + 7), TIMEOUT);
    let session = SESSION;
    assert_eq!(pair.changes(), [Change::Ended { session, cause: EndCause::Swapped }]);
    assert_eq!(pair.connect(SessionId(SESSION.0 + 8)).session_id, SessionId::NONE);
}

#[test]
fn without_renewal_the_client_stops_at_expiry() {
    let mut pair = Pair::new(SessionConfig { renew: false, ..config() });
    pair.connect(SESSION);
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    assert_eq!(pair.session.status().state, SessionState::Expired);
    assert_eq!(pair.session.poll_timeout(), None);
    let token = pair.submit(vec![sync("/a")]);
    assert_eq!(pair.error(token), OpError::session_expired(Outcome::NotApplied));
}

#[test]
fn credentials_go_first_on_every_connection_and_requests_wait_for_their_answer() {
    let auth = jute_codec::AuthPacket { scheme: "digest".into(), auth: Some("u:p".into()) };
    let mut pair = Pair::new(SessionConfig { auth: vec![auth], ..config() });
    for _ in 0..2 {
        pair.submit(vec![sync("/a")]);
        pair.connect(SESSION);
        let requests = pair.requests();
        assert!(matches!(&requests[..], [(xid::AUTH, Request::Auth(_))]), "{requests:?}");
        pair.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
        let requests = pair.requests();
        assert!(matches!(&requests[..], [(1.., Request::Sync(_))]), "{requests:?}");
        pair.cut();
    }
}

#[test]
fn refused_credentials_are_final() {
    let auth = jute_codec::AuthPacket { scheme: "digest".into(), auth: None };
    let mut pair = Pair::new(SessionConfig { auth: vec![auth], ..config() });
    let waiting = pair.submit(vec![sync("/a")]);
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Err(ErrorCode::AUTH_FAILED));
    assert_eq!(pair.error(waiting), OpError::AuthFailed);
    assert_eq!(pair.session.status().state, SessionState::AuthFailed);
    let late = pair.submit(vec![sync("/a")]);
    assert_eq!(pair.error(late), OpError::AuthFailed);
    pair.sleep(TIMEOUT * 10);
    assert!(pair.take(|event| matches!(event, Event::Connect(_))).is_none());
}

/// Only one code says that the credentials are wrong; another server may accept them after the others.
#[test]
fn an_auth_packet_that_is_refused_for_another_reason_goes_to_the_next_server() {
    let auth = jute_codec::AuthPacket { scheme: "digest".into(), auth: Some("u:p".into()) };
    let mut pair = Pair::new(SessionConfig { auth: vec![auth], ..config() });
    for code in [ErrorCode::THROTTLED_OP, ErrorCode::SYSTEM_ERROR, ErrorCode(-999)] {
        pair.connect(SESSION);
        pair.reply_at(xid::AUTH, Zxid(0), Err(code));
        let told = Event::Disconnect(DisconnectCause::AuthRefused(code));
        assert!(pair.take(|event| *event == told).is_some());
    }
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_close_is_sent_behind_what_was_asked_for_and_confirmed() {
    let mut pair = Pair::connected();
    let before = pair.submit(vec![sync("/a")]);
    pair.session.close(pair.now);
    assert_eq!(
        pair.session.status().state,
        SessionState::Closed,
        "before a byte of the request is sent"
    );
    pair.drain();
    pair.flush();
    let late = pair.submit(vec![sync("/b")]);
    assert_eq!(pair.error(late), OpError::closed(Outcome::NotApplied));
    let requests = pair.requests();
    assert!(matches!(&requests[..], [(_, Request::Sync(_)), (_, Request::CloseSession)]));
    pair.reply(requests[0].0, Ok(Response::Sync("/a".into())));
    assert!(pair.answer(before).results[0].is_ok());
    pair.reply(requests[1].0, Ok(Response::Empty));
    let session = SESSION;
    assert!(pair.changes().contains(&Change::Ended { session, cause: EndCause::Closed }));
    assert_eq!(pair.session.poll_timeout(), None);
}

#[test]
fn a_close_survives_a_lost_connection_but_does_not_wait_for_ever() {
    let mut pair = Pair::connected();
    pair.session.close(pair.now);
    pair.drain();
    pair.flush();
    pair.cut();
    pair.connect(SESSION);
    assert!(matches!(&pair.requests()[..], [(_, Request::CloseSession)]));
    pair.cut();
    pair.sleep(TIMEOUT);
    let session = SESSION;
    assert!(pair.changes().contains(&Change::Ended { session, cause: EndCause::Abandoned }));
    assert_eq!(pair.session.poll_timeout(), None);
}

/// The pauses after failures would keep the client away for longer than each list lasts.
#[test]
fn a_list_of_servers_that_changes_all_the_time_does_not_keep_the_client_away() {
    let mut pair = Pair::connected();
    for change in 0..100 {
        let host = crate::host::Host { name: format!("zk{change}"), port: 2181 };
        pair.session.set_hosts(pair.now, vec![host]);
        let begin = pair.now;
        pair.connect(SESSION);
        let pause = pair.now.saturating_since(begin);
        assert!(pause <= Duration::from_secs(1), "{pause:?} after change {change}");
        pair.sleep(Duration::from_millis(500));
    }
    assert!(pair.now.since_start() > Duration::from_secs(80), "the attempts are spaced");
}

/// Servers without a quorum hang up during a resume, and are asked again without a session.
#[test]
fn a_server_that_has_left_the_list_is_not_asked_without_a_session() {
    let hosts = vec![host("zk1"), host("zk2")];
    let mut pair = Pair::new(SessionConfig { hosts, read_only: true, ..config() });
    pair.connect(SESSION);
    pair.cut();
    let server = opened(&mut pair);
    pair.handshake();
    pair.cut();
    pair.session.set_hosts(pair.now, vec![host("zk3")]);
    pair.drain();
    assert_eq!(opened(&mut pair), host("zk3"), "{server:?} has left the list");
    assert_eq!(pair.handshake().session_id, SESSION);
}

fn says_expired(pair: &mut Pair) {
    pair.open();
    assert_eq!(pair.handshake().session_id, SESSION);
    pair.answer_expired();
}

/// It was deposed before the session was opened, and the create may still be on its way to another
/// server.
#[test]
fn a_leader_that_does_not_know_the_session_does_not_end_it_before_a_reply_or_its_timeout() {
    let requested = || {
        let mut pair = Pair::connected();
        pair.submit(vec![sync("/a")]);
        pair.flush();
        let (xid, _) = pair.request().expect("it is sent");
        pair.changes();
        (pair, xid)
    };
    let ended = [Change::Ended { session: SESSION, cause: EndCause::Expired }];
    let (mut pair, _) = requested();
    pair.cut();
    pair.changes();
    says_expired(&mut pair);
    let cause = Event::Disconnect(DisconnectCause::SessionTooNew);
    assert!(pair.take(|event| *event == cause).is_some(), "{:?}", pair.events);
    assert_eq!(pair.changes(), []);
    assert_eq!(pair.connect(SESSION).session_id, SESSION);

    // Its timeout begins with the request.
    for (since, expected) in [(TIMEOUT - Duration::from_secs(1), &[][..]), (TIMEOUT, &ended[..])] {
        let (mut pair, _) = requested();
        pair.cut();
        pair.changes();
        pair.open();
        pair.handshake();
        pair.now = pair.now + since;
        pair.answer_expired();
        assert_eq!(pair.changes(), expected, "after {since:?}");
    }

    // A server that does not know the session refuses a client that has seen a later state.
    let (mut pair, xid) = requested();
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    pair.cut();
    pair.changes();
    says_expired(&mut pair);
    assert_eq!(pair.changes(), ended);
}

/// A server that lags resumes the session, because it asks the leader, and its replies show a state
/// from before the session was opened. A committed write is later.
#[test]
fn only_a_write_or_the_server_that_has_opened_the_session_shows_that_others_know_it() {
    let (synced, written) = (Response::Sync("/a".into()), Response::SetData(Stat::default()));
    for (request, response, is_believed) in [(sync("/a"), synced, false), (write(1), written, true)]
    {
        let mut pair = Pair::connected();
        pair.cut();
        pair.connect(SESSION);
        pair.submit(vec![request]);
        pair.flush();
        let (xid, _) = pair.request().expect("it is sent");
        pair.reply(xid, Ok(response));
        pair.cut();
        pair.changes();
        says_expired(&mut pair);
        assert_eq!(!pair.changes().is_empty(), is_believed);
    }
}

/// It has lost contact with the others before the session was opened.
#[test]
fn a_read_only_server_that_does_not_know_the_session_does_not_end_it() {
    let mut pair = Pair::new(SessionConfig { read_only: true, ..config() });
    pair.connect(SESSION);
    pair.cut();
    pair.changes();
    pair.open();
    assert_eq!(pair.handshake().session_id, SESSION);
    pair.answer_read_only(SessionId::NONE, Duration::ZERO);
    assert_eq!(pair.changes(), []);
    let cause = Event::Disconnect(DisconnectCause::SessionUnknown);
    assert!(pair.take(|event| *event == cause).is_some(), "{:?}", pair.events);
    // It is asked once more, without a session, and serves reads.
    pair.open();
    assert_eq!(pair.handshake().session_id, SessionId::NONE);
    pair.answer_read_only(SessionId(7), TIMEOUT);
    let status = pair.session.status();
    assert_eq!((status.state, status.session), (SessionState::ConnectedReadOnly, Some(SESSION)));
    pair.cut();
    assert_eq!(pair.connect(SESSION).session_id, SESSION);
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_read_only_server_that_does_not_know_a_session_that_is_being_closed_has_not_closed_it() {
    let mut pair = Pair::new(SessionConfig { read_only: true, ..config() });
    pair.connect(SESSION);
    pair.cut();
    pair.changes();
    pair.open();
    pair.handshake();
    pair.session.close(pair.now);
    pair.drain();
    pair.answer_read_only(SessionId::NONE, Duration::ZERO);
    let ended = Change::Ended { session: SESSION, cause: EndCause::Closed };
    let changes = pair.changes();
    assert!(!changes.iter().any(|change| matches!(change, Change::Ended { .. })), "{changes:?}");
    let request = pair.connect(SESSION);
    assert_eq!((request.session_id, request.read_only), (SESSION, Some(false)));
    pair.flush();
    let requests = pair.requests();
    let [(xid, Request::CloseSession)] = requests[..] else { panic!("{requests:?}") };
    pair.reply(xid, Ok(Response::Empty));
    assert!(pair.changes().contains(&ended));
}

/// A ping at a closed connection could discard the reply.
#[test]
fn no_ping_follows_a_close() {
    let mut pair = Pair::connected();
    pair.session.close(pair.now);
    pair.drain();
    pair.flush();
    assert!(matches!(&pair.requests()[..], [(_, Request::CloseSession)]));
    pair.sleep(TIMEOUT / 2);
    pair.flush();
    assert_eq!(pair.requests(), []);
}

#[test]
fn a_close_that_is_refused_is_no_end_and_goes_to_the_next_server() {
    let mut pair = Pair::connected();
    pair.session.close(pair.now);
    pair.drain();
    let ended = |cause| Change::Ended { session: SESSION, cause };
    for code in [ErrorCode::THROTTLED_OP, ErrorCode::SYSTEM_ERROR, ErrorCode::SESSION_MOVED] {
        pair.flush();
        let requests = pair.requests();
        assert!(matches!(&requests[..], [(_, Request::CloseSession)]), "{requests:?}");
        pair.reply(requests[0].0, Err(code));
        assert!(!pair.changes().iter().any(|change| matches!(change, Change::Ended { .. })));
        pair.connect(SESSION);
    }
    pair.flush();
    let requests = pair.requests();
    pair.reply(requests[0].0, Err(ErrorCode::SESSION_EXPIRED));
    assert!(pair.changes().contains(&ended(EndCause::Closed)));
    assert_eq!(pair.session.poll_timeout(), None);
}

#[test]
fn a_session_that_was_given_up_is_closed_before_the_next_is_opened() {
    let mut pair = Pair::connected();
    pair.cut();
    pair.changes();
    // No server is reached for so long that the session must have expired.
    for _ in 0..1000 {
        if pair.changes().iter().any(|change| matches!(change, Change::Ended { .. })) {
            break;
        }
        let at = pair.session.poll_timeout().unwrap();
        pair.sleep(at.saturating_since(pair.now));
        pair.events.retain(|event| !matches!(event, Event::Connect(_)));
        pair.session.handle_disconnected(pair.now);
        pair.drain();
    }
    assert!(pair.now.since_start() >= TIMEOUT * 2);
    assert_eq!(pair.session.status().state, SessionState::Connecting);
    let waiting = pair.submit(vec![sync("/a")]);
    // The session is still alive, so the machine closes it, which deletes its ephemeral znodes.
    let request = pair.connect(SESSION);
    assert_eq!(request.session_id, SESSION);
    let requests = pair.requests();
    assert!(matches!(&requests[..], [(_, Request::CloseSession)]), "{requests:?}");
    pair.reply(requests[0].0, Ok(Response::Empty));
    assert_eq!(pair.connect(SessionId(SESSION.0 + 1)).session_id, SessionId::NONE);
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert_eq!(pair.answer(waiting).session, Some(SessionId(SESSION.0 + 1)));
}

#[test]
fn a_server_that_ends_every_connection_is_not_hammered() {
    // The connection ends before the reply, or right after it.
    for answers in [false, true] {
        let mut pair = Pair::new(config());
        let mut attempts = Vec::new();
        while pair.now.since_start() < Duration::from_secs(100) {
            pair.open();
            attempts.push(pair.now.since_start());
            if answers {
                pair.handshake();
                pair.answer_handshake(SESSION, TIMEOUT);
            }
            pair.cut();
        }
        let late = attempts.iter().filter(|at| at.as_secs() >= 10).count();
        assert!(late <= 90, "{late} attempts in 90 s");
        assert!(attempts.len() - late <= 15, "{} attempts in 10 s", attempts.len() - late);
    }
}

/// Returns how long the machine waits before the next attempt after the connection has ended.
fn pause_after_a_cut(pair: &mut Pair) -> Duration {
    let before = pair.now;
    pair.cut();
    pair.open();
    pair.now.saturating_since(before)
}

#[test]
fn only_a_connection_that_has_served_for_a_while_makes_the_next_attempt_immediate() {
    const IMMEDIATE: Duration = Duration::from_millis(50);
    let second = Duration::from_secs(1);
    let mut pair = with_watches();
    // Each case says what the server does, and whether that proves the connection. The server is
    // silent; it only restores watches; it replies to a request too early; it replies late enough
    // but does not restore the watches; or it does everything.
    for (watches, request, lasts, is_of_use) in [
        (false, false, second * 5, false),
        (true, false, second * 5, false),
        (true, true, second * 49 / 10, false),
        (false, true, second * 5, false),
        (true, true, second * 5, true),
    ] {
        for _ in 0..3 {
            pause_after_a_cut(&mut pair);
        }
        pair.handshake();
        pair.answer_handshake(SESSION, TIMEOUT);
        pair.requests();
        if watches {
            pair.reply_at(xid::SET_WATCHES, Zxid(3), Ok(Response::Empty));
        }
        if request {
            let token = pair.submit(vec![sync("/a")]);
            pair.flush();
            let (xid, _) = pair.requests()[0].clone();
            if watches {
                pair.reply(xid, Ok(Response::Sync("/a".into())));
                assert!(pair.answer(token).results[0].is_ok());
            }
        }
        pair.sleep(lasts);
        assert_eq!(pair.session.status().state, SessionState::Connected);
        let pause = pause_after_a_cut(&mut pair);
        assert_eq!(pause <= IMMEDIATE, is_of_use, "{watches} {request} {lasts:?}: {pause:?}");
    }
}

#[test]
fn a_server_that_refuses_to_restore_watches_is_backed_off_from_and_the_cause_is_told() {
    let mut pair = with_watches();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        pauses.push(pause_after_a_cut(&mut pair));
        pair.handshake();
        pair.answer_handshake(SESSION, TIMEOUT);
        pair.requests();
        pair.events.clear();
        pair.reply_at(xid::SET_WATCHES, Zxid(3), Err(ErrorCode::THROTTLED_OP));
        let told = DisconnectCause::SetWatches(ErrorCode::THROTTLED_OP);
        assert!(pair.take(|event| *event == Event::Disconnect(told.clone())).is_some());
    }
    assert!(pauses[7] >= Duration::from_secs(1), "{pauses:?}");
}

/// Takes what the machine sends first on a new connection, and replies to nothing.
fn first_request(pair: &mut Pair) -> Option<(i32, Request)> {
    pair.flush();
    pair.any_request()
}

/// A server that lags behind an event resumes the session, because no zxid in a reply covers the
/// event. Its first request makes it catch up, before watches are compared with its state.
#[test]
fn a_server_catches_up_with_what_events_have_told_before_anything_else() {
    let mut pair = with_watches();
    pair.event(Zxid::NONE, EventType::NODE_DELETED, "/data");
    for _ in 0..2 {
        pair.cut();
        pair.submit(vec![sync("/a")]);
        pair.connect(SESSION);
        let (_, request) = first_request(&mut pair).expect("a request");
        assert_eq!(request, write_of_nothing(), "the reply to the last one was lost");
        assert!(matches!(
            pair.requests()[..],
            [(-8, Request::SetWatches(_)), (_, Request::Sync(_))]
        ));
    }
    // Replies that follow an event on its connection cover it.
    pair.cut();
    pair.connect(SESSION);
    let requests = pair.requests();
    assert!(!requests.is_empty(), "the watches are restored");
    pair.cut();
    pair.connect(SESSION);
    let (_, request) = first_request(&mut pair).expect("a request");
    assert!(matches!(request, Request::SetWatches(_)), "{request:?}");
}

/// What an earlier session has seen may be as new as the next session, and the zxid of the
/// transaction that creates a session is unknown. A client that was told of nothing is not ahead.
#[test]
fn a_later_session_without_a_reply_is_resumed_by_a_server_that_catches_up() {
    let mut pair = Pair::connected();
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(first_request(&mut pair), None);
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    pair.connect(SessionId(0x200));
    assert_eq!(first_request(&mut pair), None, "a new session has seen its own transaction");
    pair.cut();
    pair.connect(SessionId(0x200));
    let request = first_request(&mut pair).map(|(_, request)| request);
    assert_eq!(request, Some(write_of_nothing()));
}

/// Receives an event, and connects to another server.
fn move_after_event(pair: &mut Pair) {
    pair.event(Zxid::NONE, EventType::NODE_DELETED, "/data");
    pair.cut();
    pair.connect(SESSION);
}

#[test]
fn a_server_that_does_not_catch_up_is_left() {
    let mut pair = Pair::connected();
    move_after_event(&mut pair);
    let (xid, _) = first_request(&mut pair).expect("a write");
    pair.reply(xid, Err(ErrorCode::THROTTLED_OP));
    let left = pair.take(|event| matches!(event, Event::Disconnect(DisconnectCause::CatchUp(_))));
    assert!(left.is_some());
    pair.connect(SESSION);
    assert!(
        matches!(first_request(&mut pair), Some((_, request)) if request == write_of_nothing()),
        "nothing is proven"
    );
    // A server that does not know the request closes the connection, and would do so each time.
    pair.cut();
    pair.connect(SESSION);
    let (xid, _) = first_request(&mut pair).expect("a write");
    pair.reply_at(xid, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
    pair.connect(SESSION);
    assert_eq!(first_request(&mut pair), None);
}
