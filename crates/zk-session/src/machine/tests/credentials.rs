//! Credentials that change while the machine runs.

use std::time::Duration;

use jute_codec::{AuthPacket, ErrorCode, Request, Response, Zxid, xid};

use super::peer::{Pair, SESSION, config, sync};
use crate::error::{AuthError, Outcome};
use crate::machine::{AuthChange, DisconnectCause, Event, SessionConfig, SessionState, Token};

const SECOND: Duration = Duration::from_secs(1);

fn packet(credentials: &'static str) -> AuthPacket {
    AuthPacket { scheme: "digest".into(), auth: Some(credentials.into()) }
}

/// The changes of the credentials, as a client makes them.
trait Changes {
    fn change(&mut self, token: u64, credentials: &[&'static str], replaces: bool);
    fn result(&mut self, token: u64) -> Option<Result<(), AuthError>>;
    /// The credentials that the server has received, and the number of other requests.
    fn sent(&mut self) -> (Vec<AuthPacket>, usize);
    fn accept(&mut self);
    fn refuse(&mut self, code: ErrorCode);
}

impl Changes for Pair {
    fn change(&mut self, token: u64, credentials: &[&'static str], replaces: bool) {
        let packets = credentials.iter().copied().map(packet).collect();
        self.session.change_auth(self.now, Token(token), AuthChange { packets, replaces });
        self.drain();
        self.flush();
    }

    fn result(&mut self, token: u64) -> Option<Result<(), AuthError>> {
        let is_it = |event: &Event| matches!(event, Event::AuthChanged { token: Token(it), .. } if *it == token);
        match self.take(is_it) {
            Some(Event::AuthChanged { result, .. }) => Some(result),
            _ => None,
        }
    }

    fn sent(&mut self) -> (Vec<AuthPacket>, usize) {
        let requests = self.requests();
        let all = requests.len();
        let packets: Vec<_> = requests
            .into_iter()
            .filter_map(
                |(_, request)| if let Request::Auth(it) = request { Some(it) } else { None },
            )
            .collect();
        let others = all - packets.len();
        (packets, others)
    }

    fn accept(&mut self) {
        self.reply_at(xid::AUTH, Zxid(0), Ok(Response::Empty));
    }

    fn refuse(&mut self, code: ErrorCode) {
        self.reply_at(xid::AUTH, Zxid(0), Err(code));
    }
}

#[test]
fn added_credentials_precede_later_requests_and_are_sent_on_every_connection() {
    let mut pair = Pair::new(SessionConfig { auth: vec![packet("a:1")], ..config() });
    pair.connect(SESSION);
    pair.accept();
    pair.requests();
    pair.change(900, &["b:2"], false);
    pair.submit(vec![sync("/a")]);
    pair.flush();
    let requests = pair.requests();
    assert!(matches!(&requests[..], [(xid::AUTH, Request::Auth(_)), (_, Request::Sync(_))]));
    assert_eq!(pair.result(900), None, "no server has accepted them");
    pair.accept();
    assert_eq!(pair.result(900), Some(Ok(())));
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.sent(), (vec![packet("a:1"), packet("b:2")], 0));
}

#[test]
fn replaced_credentials_are_not_sent_any_more() {
    let mut pair = Pair::new(SessionConfig { auth: vec![packet("a:1")], ..config() });
    pair.connect(SESSION);
    pair.accept();
    pair.requests();
    pair.change(900, &["b:2", "c:3"], true);
    pair.accept();
    // Only a part is accepted, so the old ones count until the rest is.
    assert_eq!(pair.result(900), None);
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, [packet("b:2"), packet("c:3")]);
    pair.accept();
    pair.accept();
    assert_eq!(pair.result(900), Some(Ok(())));
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, [packet("b:2"), packet("c:3")]);
    pair.accept();
    pair.accept();
    pair.change(901, &[], true);
    assert_eq!(pair.result(901), Some(Ok(())));
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, []);
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_refused_change_costs_a_connection_and_neither_the_session_nor_the_old_credentials() {
    for base in [vec![], vec![packet("a:1")]] {
        let mut pair = Pair::new(SessionConfig { auth: base.clone(), ..config() });
        pair.connect(SESSION);
        if !base.is_empty() {
            pair.accept();
        }
        pair.requests();
        pair.change(900, &["b:2"], true);
        pair.change(901, &["c:3"], false);
        pair.refuse(ErrorCode::AUTH_FAILED);
        assert_eq!(pair.result(900), Some(Err(AuthError::Refused)));
        assert_eq!(pair.session.status().state, SessionState::Suspended);
        let told = Event::Disconnect(DisconnectCause::AuthRefused(ErrorCode::AUTH_FAILED));
        assert!(pair.take(|event| *event == told).is_some());
        pair.connect(SESSION);
        let mut expected = base;
        expected.push(packet("c:3"));
        assert_eq!(pair.sent().0, expected);
        for _ in &expected {
            assert_eq!(pair.result(901), None);
            pair.accept();
        }
        assert_eq!(pair.result(901), Some(Ok(())));
        assert_eq!(pair.session.status().state, SessionState::Connected);
    }
}

/// Servers may refuse old credentials before the client has others.
#[test]
fn credentials_that_are_about_to_be_replaced_are_not_sent_on_the_next_connection() {
    let mut pair = Pair::new(SessionConfig { auth: vec![packet("a:1")], ..config() });
    pair.connect(SESSION);
    pair.accept();
    pair.cut();
    pair.change(900, &["b:2"], true);
    pair.submit(vec![sync("/a")]);
    pair.connect(SESSION);
    assert_eq!(pair.sent(), (vec![packet("b:2")], 0), "nothing else precedes the reply");
    pair.accept();
    assert_eq!(pair.result(900), Some(Ok(())));
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_change_whose_connections_end_is_given_up() {
    for code in [None, Some(ErrorCode::THROTTLED_OP)] {
        let mut pair = Pair::connected();
        pair.change(900, &["b:2"], false);
        for connection in 1..=5 {
            assert_eq!(pair.result(900), None, "after {} connections", connection - 1);
            assert!(pair.sent().0.contains(&packet("b:2")));
            match code {
                None => pair.cut(),
                Some(code) => pair.refuse(code),
            }
            if connection < 5 {
                pair.connect(SESSION);
            }
        }
        assert_eq!(pair.result(900), Some(Err(AuthError::Unanswered { connections: 5 })));
        pair.connect(SESSION);
        assert_eq!(pair.sent().0, []);
        assert_eq!(pair.session.status().state, SessionState::Connected);
    }
}

/// A distant server answers the credentials a round trip after the handshake.
#[test]
fn the_time_for_a_handshake_begins_again_for_the_credentials() {
    for late in [false, true] {
        let time = SECOND;
        let mut pair = Pair::new(SessionConfig {
            auth: vec![packet("a:1")],
            connect_timeout: time,
            ..config()
        });
        pair.open();
        pair.handshake();
        pair.sleep(time * 4 / 5);
        pair.answer_handshake(SESSION, SECOND * 10);
        pair.sleep(time * if late { 6 } else { 4 } / 5);
        if late {
            let cause = pair.take(|event| matches!(event, Event::Disconnect(_)));
            assert_eq!(cause, Some(Event::Disconnect(DisconnectCause::NoAuthReply(time))));
        } else {
            pair.accept();
            assert_eq!(pair.session.status().state, SessionState::Connected);
        }
    }
}

#[test]
fn changes_are_bounded_and_end_with_the_client() {
    let mut pair = Pair::connected();
    for token in 0..16 {
        pair.change(1000 + token, &["b:2"], false);
    }
    pair.change(2000, &["b:2"], false);
    assert_eq!(pair.result(2000), Some(Err(AuthError::TooMany { pending: 16 })));
    assert_eq!(pair.result(1000), None);
    pair.accept();
    assert_eq!(pair.result(1000), Some(Ok(())));
    pair.change(2001, &["b:2"; 64], false);
    assert!(matches!(pair.result(2001), Some(Err(AuthError::TooMany { .. }))));
    pair.session.close(pair.now);
    pair.drain();
    pair.change(2002, &["b:2"], false);
    assert_eq!(pair.result(2002), Some(Err(AuthError::Closed)));
    pair.cut();
    pair.sleep(super::peer::TIMEOUT * 3);
    assert_eq!(pair.result(1001), Some(Err(AuthError::Closed)));
}

#[test]
fn an_auth_reply_that_nobody_asked_for_ends_the_connection() {
    let mut pair = Pair::connected();
    pair.accept();
    let told = Event::Disconnect(DisconnectCause::Xid(xid::AUTH));
    assert!(pair.take(|event| *event == told).is_some());
}

#[test]
fn a_change_that_no_server_has_is_withdrawn_at_its_deadline() {
    let timed_out = |outcome| Some(Err(AuthError::TimedOut { outcome }));
    let mut pair = Pair::new(SessionConfig { auth: vec![packet("a:1")], ..config() });
    pair.change(900, &["b:2"], true);
    pair.change(901, &["c:3"], false);
    pair.session.set_deadline(pair.now, Token(900), pair.now + SECOND * 9);
    pair.session.set_deadline(pair.now, Token(900), pair.now + SECOND);
    pair.sleep(SECOND - Duration::from_millis(1));
    assert_eq!(pair.result(900), None);
    pair.sleep(Duration::from_millis(1));
    assert_eq!(pair.result(900), timed_out(Outcome::NotApplied));
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, [packet("a:1"), packet("c:3")], "nothing is replaced");
    pair.accept();
    pair.accept();
    assert_eq!(pair.result(901), Some(Ok(())));

    // A server gets them, and its connection ends before it has answered.
    pair.change(902, &["d:4"], false);
    pair.session.set_deadline(pair.now, Token(902), pair.now + SECOND);
    pair.requests();
    pair.cut();
    pair.sleep(SECOND);
    assert_eq!(pair.result(902), timed_out(Outcome::NotApplied));
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, [packet("a:1"), packet("c:3")]);
}

#[test]
fn a_change_that_a_server_has_goes_on_after_its_deadline() {
    let mut pair = Pair::connected();
    pair.change(900, &["a:1"], false);
    pair.session.set_deadline(pair.now, Token(900), pair.now + SECOND);
    pair.requests();
    pair.sleep(SECOND);
    let outcome = Outcome::Unknown;
    assert_eq!(pair.result(900), Some(Err(AuthError::TimedOut { outcome })));
    assert_ne!(pair.session.poll_timeout(), Some(pair.now), "the deadline is gone");
    pair.accept();
    pair.cut();
    pair.connect(SESSION);
    assert_eq!(pair.sent().0, [packet("a:1")], "it is on the connection, so it must be on all");
}
