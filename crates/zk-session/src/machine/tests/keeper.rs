//! ClickHouse Keeper: another session for each connection, no lease, and fewer operations.

use bytestring::ByteString;
use jute_codec::{CreateMode, CreateRequest, ErrorCode, MultiOp, Request};

use super::peer::{Pair, SESSION, TIMEOUT, config, get};
use crate::error::{OpError, Outcome};
use crate::machine::cause::DisconnectCause;
use crate::machine::status::{Change, EndCause, SessionState};
use crate::machine::{Event, Lease, Operation, SessionConfig};
use crate::types::SessionId;

const NEXT: SessionId = SessionId(SESSION.0 + 1);

fn connected(config: SessionConfig) -> Pair {
    let mut pair = Pair::new(config);
    pair.open();
    pair.handshake();
    pair.answer_as_keeper(0, SESSION);
    pair
}

fn create(mode: CreateMode) -> CreateRequest {
    CreateRequest { path: "/a".into(), data: None, acl: vec![], mode, with_stat: true }
}

#[test]
fn the_offered_session_is_adopted_and_the_old_one_has_ended() {
    let mut pair = connected(config());
    pair.cut();
    pair.changes();
    let waiting = pair.submit(vec![get("/a")]);
    pair.open();
    assert_eq!(pair.handshake().session_id, SESSION, "the server may be a ZooKeeper now");
    pair.answer_as_keeper(0, NEXT);
    let session = SESSION;
    assert_eq!(
        pair.changes(),
        [
            Change::Ended { session, cause: EndCause::Swapped },
            Change::Connected { session: NEXT, connection: 2, resumed: false },
        ]
    );
    assert_eq!(pair.error(waiting), OpError::session_expired(Outcome::NotApplied));
    assert_eq!(pair.session.status().session, Some(NEXT), "no session is left behind");
    assert!(pair.session.status().has_left_session(), "the old one lives");
    pair.submit(vec![get("/a")]);
    pair.flush();
    assert_eq!(pair.requests().len(), 1, "the connection is used");
}

#[test]
fn a_session_with_a_password_is_not_adopted_in_place_of_another() {
    let mut pair = connected(config());
    pair.cut();
    pair.open();
    pair.handshake();
    // This one may be the session of another client.
    pair.answer_handshake(NEXT, TIMEOUT);
    assert_eq!(pair.session.status().session, None);
}

#[test]
fn without_renewal_or_while_it_closes_the_client_adopts_nothing() {
    let mut pair = connected(SessionConfig { renew: false, ..config() });
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_as_keeper(0, NEXT);
    assert_eq!(pair.session.status().state, SessionState::Expired);

    let mut pair = connected(config());
    pair.cut();
    pair.open();
    pair.session.close(pair.now);
    pair.handshake();
    pair.answer_as_keeper(0, NEXT);
    let session = SESSION;
    let ended = Change::Ended { session, cause: EndCause::Swapped };
    assert!(pair.changes().contains(&ended), "nobody has closed the old session");
    assert_eq!(pair.session.status().state, SessionState::Closed);
}

#[test]
fn the_next_session_takes_the_place_of_one_that_was_given_up() {
    let mut pair = connected(config());
    pair.cut();
    pair.sleep(TIMEOUT * 4);
    let ended = Change::Ended { session: SESSION, cause: EndCause::GaveUp };
    assert!(pair.changes().contains(&ended));
    pair.events.clear();
    pair.open();
    assert_eq!(pair.handshake().session_id, SESSION, "it would be closed");
    assert!(!pair.session.status().has_left_session(), "it may still be closed");
    pair.answer_as_keeper(0, NEXT);
    assert_eq!(pair.session.status().session, Some(NEXT));
    assert!(pair.session.status().has_left_session(), "nobody can close it");
}

#[test]
fn a_keeper_without_a_leader_ends_no_session() {
    let mut pair = connected(config());
    pair.cut();
    pair.changes();
    pair.open();
    pair.handshake();
    pair.answer_as_keeper(42, SessionId(-1));
    assert_eq!(pair.changes(), []);
    let refused = Event::Disconnect(DisconnectCause::SessionRefused);
    assert!(pair.events.contains(&refused));
    assert_eq!(pair.session.status().session, Some(SESSION));

    let mut pair = Pair::new(config());
    pair.open();
    pair.handshake();
    pair.answer_as_keeper(42, SessionId(-1));
    assert_eq!(pair.session.status().session, None);
}

#[test]
fn there_is_no_lease_until_a_zookeeper_has_opened_a_session() {
    let lease = Some(Lease::default());
    let mut pair = connected(SessionConfig { lease, ..config() });
    assert!(!pair.session.status().can_be_leased);
    assert_eq!(pair.session.terms().lease(), "none, the server is a ClickHouse Keeper");
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_as_keeper(0, NEXT);
    assert!(!pair.session.status().can_be_leased, "nor in the session that was offered");
    pair.cut();
    pair.open();
    pair.handshake();
    pair.answer_expired();
    pair.connect(SESSION);
    assert!(pair.session.status().can_be_leased);
}

#[test]
fn an_operation_that_keepers_may_lack_is_refused_and_not_sent() {
    let mut pair = connected(config());
    let lacking = [
        Request::Create(create(CreateMode::Container)),
        Request::Multi(vec![MultiOp::Create(create(CreateMode::Container))]),
        Request::GetAllChildrenNumber(ByteString::from_static("/a")),
    ];
    for request in lacking {
        let token = pair.submit(vec![Operation::new(request)]);
        let error = pair.error(token);
        assert_eq!(error.server_code(), Some(ErrorCode::UNIMPLEMENTED));
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    for request in [
        Request::Create(create(CreateMode::EphemeralSequential)),
        Request::Multi(vec![MultiOp::Create(create(CreateMode::Ephemeral))]),
    ] {
        pair.submit(vec![Operation::new(request)]);
        pair.flush();
        assert_eq!(pair.requests().len(), 1);
    }
}
