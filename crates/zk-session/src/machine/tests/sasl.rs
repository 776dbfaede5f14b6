//! Authentication with SASL: its order, its failures, and its limits.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    AuthPacket, ErrorCode, EventType, Request, Response, SaslToken, SessionId, Zxid, xid,
};

use super::peer::{Pair, SESSION, TIMEOUT, config, data, get, host, opened, sync};
use crate::error::{OpError, Outcome, SaslFailure};
use crate::machine::{
    Change, DisconnectCause, EndCause, Event, SaslInput, SaslStep, SessionConfig, SessionState,
};

fn sasl_config() -> SessionConfig {
    let auth = vec![AuthPacket { scheme: "digest".into(), auth: Some("u:p".into()) }];
    SessionConfig { sasl: true, auth, ..config() }
}

fn token(text: &'static str) -> SaslToken {
    SaslToken(Some(Bytes::from_static(text.as_bytes())))
}

/// A server with SASL, in addition to what it does without.
trait Server {
    /// Takes the input of the mechanism, and returns its next step to the machine.
    fn step(&mut self, expected: SaslInput, step: Result<SaslStep, SaslFailure>);
    /// Takes the SASL message that the server has received. Returns its xid.
    fn message(&mut self, expected: &SaslToken) -> i32;
    fn accept(&mut self, xid: i32, token: SaslToken);
    fn authenticate(&mut self);
    fn disconnect_cause(&mut self) -> DisconnectCause;
}

impl Server for Pair {
    #[track_caller]
    fn step(&mut self, expected: SaslInput, step: Result<SaslStep, SaslFailure>) {
        let input = self.take(|event| matches!(event, Event::Sasl(_)));
        assert_eq!(input, Some(Event::Sasl(expected)));
        self.session.handle_sasl(self.now, step);
        self.drain();
        self.flush();
    }

    #[track_caller]
    fn message(&mut self, expected: &SaslToken) -> i32 {
        let requests = self.requests();
        match &requests[..] {
            [(xid @ 1.., Request::Sasl(token))] if token == expected => *xid,
            _ => panic!("the server has received {requests:?}"),
        }
    }

    fn accept(&mut self, xid: i32, token: SaslToken) {
        self.reply_at(xid, Zxid(0), Ok(Response::Sasl(token)));
    }

    /// Runs an exchange of two messages.
    #[track_caller]
    fn authenticate(&mut self) {
        self.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
        let xid = self.message(&token("first"));
        self.accept(xid, token("challenge"));
        let challenge = SaslInput::Reply(token("challenge"));
        self.step(challenge, Ok(SaslStep::Send(token("proof"))));
        let xid = self.message(&token("proof"));
        self.accept(xid, SaslToken(None));
        self.step(SaslInput::Reply(SaslToken(None)), Ok(SaslStep::Done));
    }

    #[track_caller]
    fn disconnect_cause(&mut self) -> DisconnectCause {
        match self.take(|event| matches!(event, Event::Disconnect(_))) {
            Some(Event::Disconnect(cause)) => cause,
            _ => panic!("no disconnect among {:?}", self.events),
        }
    }
}

#[test]
fn sasl_precedes_everything_else_on_every_connection() {
    let mut pair = Pair::new(sasl_config());
    for _ in 0..2 {
        let waiting = pair.submit(vec![sync("/a")]);
        pair.connect(SESSION);
        assert_eq!(pair.requests(), [], "the mechanism has not replied");
        pair.authenticate();
        let requests = pair.requests();
        assert!(matches!(&requests[..], [(xid::AUTH, Request::Auth(_))]), "{requests:?}");
        pair.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
        let requests = pair.requests();
        let [(xid, Request::Sync(_))] = &requests[..] else { panic!("{requests:?}") };
        pair.reply(*xid, Ok(Response::Sync("/a".into())));
        pair.answer(waiting).results.remove(0).expect("the request is executed");
        pair.cut();
    }
}

#[test]
fn credentials_that_no_server_has_accepted_are_refused_for_good() {
    for code in [ErrorCode::AUTH_FAILED, ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH] {
        let mut pair = Pair::new(sasl_config());
        let waiting = pair.submit(vec![sync("/a")]);
        pair.connect(SESSION);
        pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
        let xid = pair.message(&token("first"));
        pair.reply_at(xid, Zxid(0), Err(code));
        assert_eq!(pair.error(waiting), OpError::AuthFailed);
        assert_eq!(pair.session.status().state, SessionState::AuthFailed);
        assert!(pair.changes().contains(&Change::AuthFailed));
        pair.sleep(TIMEOUT * 10);
        assert!(pair.take(|event| matches!(event, Event::Connect(_))).is_none());
    }
}

#[test]
fn a_server_that_refuses_proven_credentials_costs_a_connection_and_not_the_session() {
    for code in [ErrorCode::AUTH_FAILED, ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH] {
        let mut pair = Pair::new(SessionConfig { auth: vec![], ..sasl_config() });
        pair.connect(SESSION);
        pair.authenticate();
        pair.cut();
        pair.connect(SESSION);
        pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
        let xid = pair.message(&token("first"));
        pair.reply_at(xid, Zxid(0), Err(code));
        assert_eq!(pair.disconnect_cause(), DisconnectCause::SaslRefused(code));
        assert_eq!(pair.session.status().state, SessionState::Suspended);
        pair.connect(SESSION);
        pair.authenticate();
        assert_eq!(pair.session.status().state, SessionState::Connected);
    }
}

#[test]
fn a_failure_of_the_mechanism_costs_the_connection_and_is_tried_again() {
    let mut pair = Pair::new(SessionConfig { auth: vec![], ..sasl_config() });
    let waiting = pair.submit(vec![sync("/a")]);
    for _ in 0..3 {
        pair.connect(SESSION);
        pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
        let xid = pair.message(&token("first"));
        pair.accept(xid, SaslToken(None));
        let failure = SaslFailure::NotOffered;
        pair.step(SaslInput::Reply(SaslToken(None)), Err(failure.clone()));
        assert_eq!(pair.disconnect_cause(), DisconnectCause::Sasl(failure));
        assert_eq!(pair.requests(), [], "nothing is sent without authentication");
    }
    pair.connect(SESSION);
    pair.authenticate();
    let requests = pair.requests();
    assert!(matches!(&requests[..], [(_, Request::Sync(_))]), "{requests:?}");
    pair.reply(requests[0].0, Ok(Response::Sync("/a".into())));
    pair.answer(waiting).results.remove(0).expect("it waited for a server with SASL");
}

#[test]
fn an_exchange_that_does_not_end_is_given_up_without_a_ping() {
    let mut pair = Pair::new(SessionConfig {
        auth: vec![],
        connect_timeout: Duration::from_secs(5),
        ..sasl_config()
    });
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    pair.message(&token("first"));
    // A ping would be due after three seconds.
    pair.sleep(Duration::from_millis(4_999));
    pair.flush();
    assert_eq!(pair.requests(), [], "a server that requires SASL would refuse a ping");
    pair.sleep(Duration::from_millis(1));
    assert_eq!(pair.disconnect_cause(), DisconnectCause::NoSasl(Duration::from_secs(5)));
}

#[test]
fn an_exchange_without_end_is_given_up_after_ten_messages() {
    let mut pair = Pair::new(sasl_config());
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("more"))));
    for _ in 1..10 {
        let xid = pair.message(&token("more"));
        pair.accept(xid, token("more"));
        pair.step(SaslInput::Reply(token("more")), Ok(SaslStep::Send(token("more"))));
    }
    let xid = pair.message(&token("more"));
    pair.accept(xid, token("more"));
    pair.step(SaslInput::Reply(token("more")), Ok(SaslStep::Send(token("more"))));
    let cause = pair.disconnect_cause();
    assert_eq!(cause, DisconnectCause::Sasl(SaslFailure::TooManyRounds(10)));
}

#[test]
fn messages_of_an_exchange_prove_nothing_about_the_session() {
    let mut pair = Pair::new(SessionConfig { auth: vec![], ..sasl_config() });
    pair.connect(SESSION);
    pair.authenticate();
    pair.submit(vec![sync("/a")]);
    pair.flush();
    let xid = pair.requests()[0].0;
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    let acknowledged = pair.session.status().acknowledged;
    pair.cut();
    pair.sleep(Duration::from_secs(2));
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    let xid = pair.message(&token("first"));
    pair.accept(xid, token("challenge"));
    assert_eq!(pair.session.status().acknowledged, acknowledged);
}

#[test]
fn a_server_that_requires_sasl_is_final_for_a_client_without() {
    // Servers refuse even pings.
    let mut pair = Pair::connected();
    let token = pair.submit(vec![sync("/a")]);
    pair.flush();
    let requests = pair.requests();
    pair.reply(requests[0].0, Err(ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH));
    assert_eq!(pair.error(token), OpError::AuthFailed);
    assert_eq!(pair.session.status().state, SessionState::AuthFailed);

    let mut pair = Pair::connected();
    pair.sleep(TIMEOUT / 3);
    let required = ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
    pair.reply_at(xid::PING, Zxid(0), Err(required));
    assert_eq!(pair.session.status().state, SessionState::AuthFailed);
}

#[test]
fn a_session_that_was_given_up_is_closed_behind_sasl() {
    let mut pair = Pair::new(SessionConfig { auth: vec![], ..sasl_config() });
    pair.connect(SESSION);
    pair.authenticate();
    pair.cut();
    pair.sleep(TIMEOUT * 3);
    assert!(pair.changes().iter().any(|change| matches!(change, Change::Ended { .. })));
    pair.events.retain(|event| !matches!(event, Event::Connect(_)));
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.requests(), []);
    pair.authenticate();
    let requests = pair.requests();
    assert!(matches!(&requests[..], [(_, Request::CloseSession)]), "{requests:?}");
}

/// Two servers, the first of which the session was opened on. Its watch on `/a` is set.
fn with_two_servers() -> Pair {
    let hosts = vec![host("zk1"), host("zk2")];
    let mut pair = Pair::new(SessionConfig { hosts, auth: vec![], ..sasl_config() });
    pair.connect(SESSION);
    pair.authenticate();
    pair.submit(vec![get("/a")]);
    pair.flush();
    let requests = pair.requests();
    pair.reply(requests[0].0, Ok(data()));
    pair.cut();
    pair.changes();
    pair
}

#[test]
fn the_reply_of_a_server_that_has_proven_nothing_moves_no_zxid() {
    let mut pair = with_two_servers();
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    let xid = pair.message(&token("first"));
    let garbage = Response::Sasl(token("garbage"));
    pair.reply_at(xid, Zxid(0x7fff_ffff_ffff_0000), Ok(garbage));
    let failure = SaslFailure::OtherMechanism("DIGEST-MD5");
    pair.step(SaslInput::Reply(token("garbage")), Err(failure));
    let request = pair.connect(SESSION);
    assert_eq!(request.last_zxid_seen, pair.server_zxid, "a real server would refuse the other");
}

#[test]
fn an_event_from_a_server_that_has_proven_nothing_costs_its_connection() {
    let mut pair = with_two_servers();
    for round in 0..3 {
        pair.connect(SESSION);
        if round > 0 {
            pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
        }
        pair.event(Zxid(90), EventType::NODE_DELETED, "/a");
        assert_eq!(pair.disconnect_cause(), DisconnectCause::EarlyEvent);
        let told = |event: &Event| matches!(event, Event::Watch { .. });
        assert!(!pair.events.iter().any(told), "{:?}", pair.events);
        pair.events.retain(|event| !matches!(event, Event::Sasl(_)));
    }
}

#[test]
fn nothing_that_a_server_grants_counts_before_it_has_proven_itself() {
    let mut pair = with_two_servers();
    let before = pair.session.status();
    pair.open();
    pair.answer_handshake(SESSION, Duration::from_millis(1));
    assert_eq!(pair.session.status(), before, "neither the timeout nor the connection counts");
    assert_eq!(pair.session.terms().granted, TIMEOUT);
    pair.cut();
    pair.events.clear();
    // A first session is not adopted either.
    let mut pair = Pair::new(SessionConfig { auth: vec![], ..sasl_config() });
    pair.connect(SESSION);
    assert_eq!(pair.session.status().session, None);
    pair.authenticate();
    assert_eq!(pair.session.status().session, Some(SESSION));
}

#[test]
fn a_server_that_has_proven_nothing_ends_no_session() {
    for is_swapped in [false, true] {
        let mut pair = with_two_servers();
        let impostor = opened(&mut pair);
        pair.handshake();
        if is_swapped {
            pair.answer_handshake(SessionId(0x666), TIMEOUT);
        } else {
            pair.answer_expired();
        }
        assert_eq!(pair.changes(), [], "the session may be alive");
        if is_swapped {
            let garbage = SaslFailure::OtherMechanism("DIGEST-MD5");
            pair.step(SaslInput::Start, Err(garbage));
        } else {
            // The same server is asked for a new session, and does not authenticate there either.
            assert_eq!(opened(&mut pair), impostor);
            assert_eq!(pair.handshake().session_id, SessionId::NONE);
            pair.answer_handshake(SessionId(0x666), TIMEOUT);
            let garbage = SaslFailure::OtherMechanism("DIGEST-MD5");
            pair.step(SaslInput::Start, Err(garbage));
        }
        assert_eq!(pair.changes(), []);
        // The session is resumed by a server that proves itself.
        let request = pair.connect(SESSION);
        assert_eq!(request.session_id, SESSION);
        pair.authenticate();
        let status = pair.session.status();
        assert_eq!((status.session, status.state), (Some(SESSION), SessionState::Connected));
    }
}

#[test]
fn a_server_that_proves_itself_ends_an_expired_session_and_opens_the_next() {
    let mut pair = with_two_servers();
    let waiting = pair.submit(vec![sync("/a")]);
    let server = opened(&mut pair);
    pair.handshake();
    pair.answer_expired();
    assert_eq!(opened(&mut pair), server, "the server that has said so must prove itself");
    assert_eq!(pair.handshake().session_id, SessionId::NONE);
    pair.answer_handshake(SessionId(0x200), TIMEOUT);
    assert_eq!(pair.changes(), []);
    pair.authenticate();
    let changes = pair.changes();
    let ended = Change::Ended { session: SESSION, cause: EndCause::Expired };
    assert_eq!(changes[0], ended, "{changes:?}");
    assert!(matches!(changes[1], Change::Connected { session: SessionId(0x200), .. }));
    assert_eq!(pair.error(waiting), OpError::session_expired(Outcome::NotApplied));
}

/// It does not know sessions that were opened after it had lost contact with the others.
#[test]
fn a_read_only_server_ends_no_session_though_it_proves_itself() {
    for says_expired_first in [false, true] {
        let config = SessionConfig { read_only: true, auth: vec![], ..sasl_config() };
        let mut pair = Pair::new(config);
        pair.connect(SESSION);
        pair.authenticate();
        pair.cut();
        pair.changes();
        pair.open();
        pair.handshake();
        let cause = if says_expired_first {
            // The peer that says so need not be a server, and the next one at this address is
            // read-only.
            pair.answer_expired();
            DisconnectCause::ExpiryUnproven
        } else {
            pair.answer_read_only(SessionId::NONE, Duration::ZERO);
            DisconnectCause::SessionUnknown
        };
        assert_eq!(pair.disconnect_cause(), cause);
        pair.open();
        assert_eq!(pair.handshake().session_id, SessionId::NONE);
        pair.answer_read_only(SessionId(7), TIMEOUT);
        pair.authenticate();
        let changes = pair.changes();
        assert!(!changes.iter().any(|it| matches!(it, Change::Ended { .. })), "{changes:?}");
        let status = pair.session.status();
        let expected = (SessionState::ConnectedReadOnly, Some(SESSION));
        assert_eq!((status.state, status.session), expected);
    }
}

#[test]
fn a_refusal_to_authenticate_that_nobody_asked_for_stops_no_client() {
    let mut pair = with_two_servers();
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    pair.reply_at(xid::AUTH, Zxid(0), Err(ErrorCode::AUTH_FAILED));
    assert_eq!(pair.disconnect_cause(), DisconnectCause::Xid(xid::AUTH));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}

#[test]
fn a_server_that_does_not_know_sasl_costs_a_connection_with_a_pause() {
    let mut pair = with_two_servers();
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    let xid = pair.message(&token("first"));
    pair.reply_at(xid, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
    let refused = DisconnectCause::SaslRefused(ErrorCode::UNIMPLEMENTED);
    assert_eq!(pair.disconnect_cause(), refused);
}

#[test]
fn a_message_that_is_longer_than_any_mechanism_needs_is_not_waited_for() {
    let mut pair = Pair::new(SessionConfig { response_limit: 4 << 20, ..sasl_config() });
    pair.connect(SESSION);
    pair.step(SaslInput::Start, Ok(SaslStep::Send(token("first"))));
    pair.receive_part(&(1_u32 << 20).to_be_bytes());
    assert_eq!(pair.disconnect_cause(), DisconnectCause::TooLong(1 << 20));
}

#[test]
fn a_server_that_refuses_proven_auth_packets_costs_a_connection_and_not_the_session() {
    let auth = vec![AuthPacket { scheme: "digest".into(), auth: Some("u:p".into()) }];
    let mut pair = Pair::new(SessionConfig { auth, ..config() });
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
    pair.cut();
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Err(ErrorCode::AUTH_FAILED));
    let refused = DisconnectCause::AuthRefused(ErrorCode::AUTH_FAILED);
    assert_eq!(pair.disconnect_cause(), refused);
    assert_eq!(pair.session.status().state, SessionState::Suspended);
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn auth_packets_that_no_server_has_accepted_are_refused_for_good() {
    let auth = vec![AuthPacket { scheme: "digest".into(), auth: Some("u:p".into()) }];
    let mut pair = Pair::new(SessionConfig { auth, ..config() });
    pair.connect(SESSION);
    pair.reply_at(xid::AUTH, Zxid(0), Err(ErrorCode::AUTH_FAILED));
    assert_eq!(pair.session.status().state, SessionState::AuthFailed);
}

#[test]
fn a_server_that_requires_sasl_costs_a_connection_once_another_has_served_without() {
    let mut pair = Pair::connected();
    let served = pair.submit(vec![get("/a")]);
    pair.flush();
    let requests = pair.requests();
    pair.reply(requests[0].0, Ok(data()));
    assert!(pair.answer(served).results[0].is_ok());
    pair.cut();
    pair.connect(SESSION);
    let refused = pair.submit(vec![sync("/a")]);
    pair.flush();
    let (xid, _) = *pair.requests().last().expect("a request was sent");
    let code = ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH;
    pair.reply(xid, Err(code));
    assert_eq!(pair.disconnect_cause(), DisconnectCause::SaslRefused(code));
    assert_eq!(pair.error(refused), OpError::connection_loss(Outcome::NotApplied));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}
