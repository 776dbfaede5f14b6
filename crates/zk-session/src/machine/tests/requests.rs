//! Requests, their replies, and what is known when no reply arrives.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jute_codec::{
    CheckRequest, DataReply, ErrorCode, EventType, MultiOp, MultiResult, NameList, OpCode,
    ReadRequest, Request, Response, SetDataRequest, Stat, Version, Zxid, encode_frame,
};
use proptest::prelude::*;

use super::peer::{OWNER, Pair, SESSION, TIMEOUT, config, data, get, sync, watch};
use crate::error::{OpError, Outcome, Target};
use crate::machine::{
    Change, EndCause, Event, Flight, Operation, SessionConfig, SessionState, Token, WatchId,
    WatchNumber,
};
use crate::types::SessionId;

const LOST: OpError = OpError::connection_loss(Outcome::Unknown);
const NOT_SENT: OpError = OpError::connection_loss(Outcome::NotApplied);

#[test]
fn flights_are_sent_in_the_order_of_calls_and_answered_as_units() {
    let mut pair = Pair::connected();
    let first = pair.submit(vec![get("/a"), get("/b")]);
    let second = pair.submit(vec![get("/c")]);
    pair.flush();
    let requests = pair.requests();
    let paths: Vec<_> = requests
        .iter()
        .map(|(_, request)| match request {
            Request::GetData(read) => read.path.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(paths, ["/a", "/b", "/c"]);
    pair.reply(requests[0].0, Ok(data()));
    assert!(pair.take(|event| matches!(event, Event::Reply { .. })).is_none());
    pair.reply(requests[1].0, Err(ErrorCode::NO_NODE));
    let reply = pair.named_answer(first);
    let refused = OpError::server(ErrorCode::NO_NODE).about(Target::new(OpCode::GET_DATA, "/b"));
    assert_eq!(reply.results, [Ok(data()), Err(refused)]);
    assert_eq!((reply.session, reply.connection), (Some(SESSION), 1));
    pair.reply(requests[2].0, Ok(data()));
    assert_eq!(pair.answer(second).results, [Ok(data())]);
}

#[test]
fn a_request_is_unknown_once_its_last_byte_has_left_and_not_applied_before() {
    let mut frame = BytesMut::new();
    encode_frame(&mut frame, 99, |out| {
        use jute_codec::Record as _;
        jute_codec::RequestHeader { xid: 1, op: OpCode::SYNC }.encode(out);
        Request::Sync("/a".into()).encode(out);
    })
    .unwrap();
    for taken in 0..=frame.len() {
        let mut pair = Pair::connected();
        let token = pair.submit(vec![sync("/a")]);
        assert_eq!(pair.unsent.len(), frame.len());
        pair.transmit(taken);
        pair.cut();
        let expected = if taken == frame.len() { LOST } else { NOT_SENT };
        assert_eq!(pair.error(token), expected, "{taken} bytes taken");
    }
}

#[test]
fn what_stands_behind_a_lost_request_does_not_overtake_it() {
    let mut pair = Pair::connected();
    let first = pair.submit(vec![sync("/a")]);
    pair.flush();
    let second = pair.submit(vec![sync("/b")]);
    pair.cut();
    assert_eq!((pair.error(first), pair.error(second)), (LOST, NOT_SENT));
    let third = pair.submit(vec![sync("/c")]);
    pair.connect(SESSION);
    let requests = pair.requests();
    assert_eq!(requests.len(), 1, "only what was submitted after the loss: {requests:?}");
    pair.reply(requests[0].0, Ok(Response::Sync("/c".into())));
    assert_eq!(pair.answer(third).connection, 2);
}

#[test]
fn a_reply_out_of_order_ends_the_connection() {
    for wrong in [0, 7, i32::MAX, -3] {
        let mut pair = Pair::connected();
        let token = pair.submit(vec![sync("/a"), sync("/b")]);
        pair.flush();
        pair.reply(wrong, Ok(Response::Sync("/a".into())));
        assert_eq!(pair.answer(token).results, [Err(LOST), Err(LOST)], "xid {wrong}");
        assert_eq!(pair.session.status().state, SessionState::Suspended);
    }
}

#[test]
fn xids_go_on_over_connections_and_wrap_around_the_reserved_ones() {
    let mut pair = Pair::connected();
    pair.session.next_xid = i32::MAX - 1;
    let mut xids = Vec::new();
    for _ in 0..4 {
        pair.submit(vec![sync("/a")]);
        pair.flush();
        xids.push(pair.requests()[0].0);
        pair.cut();
        pair.connect(SESSION);
    }
    assert_eq!(xids, [i32::MAX - 1, i32::MAX, 1, 2]);
}

#[test]
fn only_ordinary_replies_count_as_seen() {
    let mut pair = Pair::connected();
    pair.submit(vec![sync("/a"), sync("/b"), sync("/c")]);
    pair.flush();
    let xids: Vec<_> = pair.requests().iter().map(|(xid, _)| *xid).collect();
    pair.reply_at(xids[0], Zxid(50), Ok(Response::Sync("/a".into())));
    pair.event(Zxid(90), EventType::NODE_CREATED, "/a");
    pair.event(Zxid::NONE, EventType::NODE_CREATED, "/a");
    pair.reply_at(xids[1], Zxid(40), Err(ErrorCode::NO_NODE));
    // The connection ends with this reply.
    pair.reply_at(xids[2], Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
    assert_eq!(pair.connect(SESSION).last_zxid_seen, Zxid(50));
}

#[test]
fn requests_without_a_connection_wait_for_one_in_their_order() {
    let mut pair = Pair::new(config());
    let tokens = [pair.submit(vec![sync("/a")]), pair.submit(vec![sync("/b")])];
    pair.connect(SESSION);
    let requests = pair.requests();
    assert_eq!(requests.len(), 2);
    for ((xid, request), token) in requests.into_iter().zip(tokens) {
        let Request::Sync(path) = request else { panic!("{request:?}") };
        pair.reply(xid, Ok(Response::Sync(path.clone())));
        assert_eq!(pair.answer(token).results, [Ok(Response::Sync(path))]);
    }
}

#[test]
fn a_flight_of_another_session_is_not_sent() {
    let mut pair = Pair::connected();
    let session = Some(SessionId(SESSION.0 + 1));
    let flight = Flight { operations: vec![sync("/a")], session, deadline: None };
    let token = pair.submit_flight(flight);
    assert_eq!(pair.error(token), OpError::session_expired(Outcome::NotApplied));
    pair.flush();
    assert!(pair.requests().is_empty());
}

#[test]
fn cancelled_and_recalled_requests_are_not_sent_if_they_were_not() {
    let mut pair = Pair::new(config());
    let [cancelled, recalled, kept] = ["/a", "/b", "/c"].map(|path| pair.submit(vec![sync(path)]));
    pair.session.cancel(pair.now, cancelled);
    pair.session.recall(pair.now, recalled);
    pair.drain();
    assert_eq!(pair.error(recalled), OpError::Recalled { target: Target::UNKNOWN });
    pair.connect(SESSION);
    let requests = pair.requests();
    assert_eq!(requests.len(), 1);
    // A flight that was sent completes as usual.
    pair.session.recall(pair.now, kept);
    pair.reply(requests[0].0, Ok(Response::Sync("/c".into())));
    assert_eq!(pair.answer(kept).results.len(), 1);
    assert!(pair.take(|event| matches!(event, Event::Reply { .. })).is_none());
}

#[test]
fn a_flight_is_never_sent_after_its_deadline_even_if_the_timer_is_late() {
    let flight = |deadline| Flight { operations: vec![get("/a")], session: None, deadline };
    let mut pair = Pair::connected();
    let late = pair.submit_flight(flight(Some(pair.now)));
    assert_eq!(pair.error(late), OpError::timed_out(Outcome::NotApplied));
    pair.flush();
    assert!(pair.requests().is_empty());
    // One that waits for a connection, which is there at the moment of the deadline.
    pair.cut();
    pair.open();
    pair.handshake();
    let deadline = pair.now + Duration::from_millis(100);
    let waiting = pair.submit_flight(flight(Some(deadline)));
    let other = pair.submit(vec![get("/b")]);
    pair.now = deadline;
    pair.answer_handshake(SESSION, TIMEOUT);
    pair.flush();
    let sent = pair.requests();
    let [(xid, Request::GetData(read))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(read.path, "/b");
    pair.reply(*xid, Ok(data()));
    assert_eq!(pair.answer(other).results, [Ok(data())]);
    pair.sleep(Duration::from_millis(1));
    assert_eq!(pair.error(waiting), OpError::timed_out(Outcome::NotApplied));
}

#[test]
fn a_deadline_ends_the_wait_and_not_the_connection() {
    let mut pair = Pair::connected();
    let soon = Some(pair.now + Duration::from_millis(100));
    let flight = |path| Flight { operations: vec![sync(path)], session: None, deadline: soon };
    let sent = pair.submit_flight(flight("/a"));
    pair.flush();
    pair.sleep(Duration::from_millis(100));
    assert_eq!(pair.error(sent), OpError::timed_out(Outcome::Unknown));
    // Its reply still arrives and is matched, but nobody receives it.
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert_eq!(pair.session.status().state, SessionState::Connected);

    pair.cut();
    let deadline = Some(pair.now + Duration::from_millis(1));
    let flight = Flight { operations: vec![sync("/b")], session: None, deadline };
    let waiting = pair.submit_flight(flight);
    pair.sleep(Duration::from_millis(1));
    assert_eq!(pair.error(waiting), OpError::timed_out(Outcome::NotApplied));
    pair.connect(SESSION);
    assert!(pair.requests().is_empty());
}

#[test]
fn an_oversized_reply_fails_its_own_request_only() {
    let mut pair = Pair::connected();
    let big = pair.submit(vec![get("/big")]);
    let small = pair.submit(vec![get("/small")]);
    pair.flush();
    let requests = pair.requests();
    let data = Some(Bytes::from(vec![0; 10_000]));
    let reply = DataReply { data, stat: Stat::default() };
    pair.reply_at(requests[0].0, Zxid(77), Ok(Response::GetData(reply)));
    assert!(matches!(pair.error(big), OpError::ResponseTooLarge { length, .. } if length > 10_000));
    pair.reply(requests[1].0, Ok(super::peer::data()));
    assert_eq!(pair.answer(small).results, [Ok(super::peer::data())]);
    pair.cut();
    assert_eq!(pair.connect(SESSION).last_zxid_seen, Zxid(77), "the header of its reply counts");
}

#[test]
fn an_oversized_request_fails_before_anything_of_its_flight_is_sent() {
    // A server may not know the second one.
    for first in [sync("/a"), Operation::new(Request::WhoAmI)] {
        let mut pair = Pair::connected();
        let data = Some(Bytes::from(vec![0; 5000]));
        let request =
            Request::SetData(SetDataRequest { path: "/a".into(), data, version: Version::ANY });
        let token = pair.submit(vec![first, Operation::new(request)]);
        let reply = pair.answer(token);
        for result in reply.results {
            let is_too_large = matches!(result, Err(OpError::RequestTooLarge { limit: 4096, .. }));
            assert!(is_too_large, "{result:?}");
        }
        pair.flush();
        assert!(pair.requests().is_empty());
        let next = pair.submit(vec![sync("/b")]);
        pair.flush();
        let (xid, _) = pair.requests()[0].clone();
        pair.reply(xid, Ok(Response::Sync("/b".into())));
        assert!(pair.answer(next).results[0].is_ok());
    }
}

#[test]
fn too_many_requests_are_refused_and_counted_down_again() {
    let mut pair = Pair::new(config());
    let tokens: Vec<_> = (0..100).map(|_| pair.submit(vec![sync("/a")])).collect();
    let refused = pair.submit(vec![sync("/a")]);
    assert_eq!(pair.error(refused), OpError::QueueFull { waiting: 100, target: Target::UNKNOWN });
    pair.session.cancel(pair.now, tokens[0]);
    pair.submit(vec![sync("/a")]);
    assert!(pair.take(|event| matches!(event, Event::Reply { .. })).is_none());
}

#[test]
fn uncounted_flights_take_no_place_and_need_none() {
    let mut pair = Pair::new(SessionConfig { outstanding_limit: 1, ..config() });
    let uncounted = |pair: &mut Pair, number: u64| {
        let flight = Flight { operations: vec![sync("/a"); 2], session: None, deadline: None };
        pair.session.submit_uncounted(pair.now, Token(number), OWNER, flight);
        pair.drain();
    };
    uncounted(&mut pair, 1000);
    pair.submit(vec![sync("/a")]);
    let refused = pair.submit(vec![sync("/a")]);
    uncounted(&mut pair, 1001);
    assert_eq!(pair.error(refused), OpError::QueueFull { waiting: 1, target: Target::UNKNOWN });
    pair.connect(SESSION);
    let requests = pair.requests();
    assert_eq!(requests.len(), 5);
    for (xid, _) in requests {
        pair.reply(xid, Ok(Response::Sync("/a".into())));
    }
    assert_eq!(pair.events.iter().filter(|event| matches!(event, Event::Reply { .. })).count(), 3);
    // The only place is free again.
    pair.submit(vec![sync("/a")]);
    let refused = pair.submit(vec![sync("/a")]);
    assert_eq!(pair.error(refused), OpError::QueueFull { waiting: 1, target: Target::UNKNOWN });
}

#[test]
fn a_broken_reply_fails_its_own_request_only() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![get("/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    // The reply to a sync is too short for data and metadata.
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert!(matches!(pair.error(token), OpError::Undecodable { .. }));
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_negative_length_ends_the_connection() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![sync("/a")]);
    pair.flush();
    pair.receive(&[0xff, 0xff, 0xff, 0xff]);
    assert_eq!(pair.error(token), LOST);
}

#[test]
fn a_moved_session_is_a_lost_connection_and_no_expiry() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![sync("/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Err(ErrorCode::SESSION_MOVED));
    assert_eq!(pair.error(token), LOST);
    assert_eq!(pair.session.status().session, Some(SESSION));
    assert_eq!(pair.session.status().state, SessionState::Suspended);
}

/// A read, its reply, and the events that the resulting watch waits for.
type WatchCase = (fn(ReadRequest) -> Request, Result<Response, ErrorCode>, &'static [EventType]);

#[test]
fn watches_are_registered_by_what_the_server_registers() {
    let cases: [WatchCase; 6] = [
        (Request::Exists, Ok(Response::Exists(Stat::default())), &[EventType::NODE_DELETED]),
        (Request::Exists, Err(ErrorCode::NO_NODE), &[EventType::NODE_CREATED]),
        (Request::Exists, Err(ErrorCode::NO_AUTH), &[]),
        (Request::GetData, Ok(data()), &[EventType::NODE_DATA_CHANGED]),
        (Request::GetData, Err(ErrorCode::NO_NODE), &[]),
        (
            Request::GetChildren,
            Ok(Response::GetChildren(NameList::default())),
            &[EventType::NODE_CHILDREN_CHANGED, EventType::NODE_DELETED],
        ),
    ];
    for (request, response, fired_by) in cases {
        for kind in [
            EventType::NODE_CREATED,
            EventType::NODE_DELETED,
            EventType::NODE_DATA_CHANGED,
            EventType::NODE_CHILDREN_CHANGED,
        ] {
            let mut pair = Pair::connected();
            pair.submit(vec![watch(7, request, "/a")]);
            pair.flush();
            let (xid, _) = pair.requests()[0].clone();
            pair.reply(xid, response.clone());
            assert_eq!(pair.session.watch_count(), usize::from(!fired_by.is_empty()));
            pair.event(Zxid::NONE, kind, "/a");
            let id = WatchId { owner: OWNER, number: WatchNumber::new(7).unwrap() };
            let fired = pair.take(|event| matches!(event, Event::Watch { id: i, .. } if *i == id));
            // A data watch also covers creation. The server then removes the watch, and so does the
            // client. A deletion before the creation is not one of this znode: it answers a child watch
            // that was set again.
            let is_data = matches!(response, Ok(Response::Exists(_) | Response::GetData(_)));
            let is_changed = kind == EventType::NODE_DATA_CHANGED;
            let expected = fired_by.contains(&kind)
                || is_data && kind != EventType::NODE_CHILDREN_CHANGED
                || fired_by.contains(&EventType::NODE_CREATED) && is_changed;
            assert_eq!(fired.is_some(), expected, "{response:?} {kind:?}");
        }
    }
}

#[test]
fn reply_and_event_in_one_segment_come_out_in_the_order_of_the_server() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![watch(7, Request::GetData, "/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    pair.reply(xid, Ok(data()));
    pair.event(Zxid::NONE, EventType::NODE_DELETED, "/a");
    let order: Vec<_> = pair
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Reply { token: t, .. } => Some(t.0 == token.0),
            Event::Watch { .. } => Some(false),
            _ => None,
        })
        .collect();
    assert_eq!(order, [true, false]);
}

proptest! {
    #[test]
    fn whatever_a_server_sends_is_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0_usize..300,
    ) {
        let mut pair = Pair::connected();
        pair.submit(vec![watch(1, Request::GetData, "/a"), sync("/b")]);
        pair.flush();
        for part in [&bytes[..cut.min(bytes.len())], &bytes[cut.min(bytes.len())..]] {
            let mut part = BytesMut::from(part);
            pair.session.handle_bytes(pair.now, &mut part);
            pair.drain();
        }
        pair.cut();
        // The session continues.
        pair.connect(SESSION);
        prop_assert_eq!(pair.session.status().state, SessionState::Connected);
    }
}

#[test]
fn a_multi_refused_because_the_session_has_moved_is_a_lost_connection_and_was_not_applied() {
    let check = || MultiOp::Check(CheckRequest { path: "/a".into(), version: Version::ANY });
    let mut pair = Pair::connected();
    let token = pair.submit(vec![Operation::new(Request::Multi(vec![check(), check()]))]);
    let behind = pair.submit(vec![sync("/a")]);
    pair.flush();
    let (xid, _) = pair.requests()[0].clone();
    let results = [ErrorCode::SESSION_MOVED, ErrorCode::RUNTIME_INCONSISTENCY];
    pair.reply(xid, Ok(Response::Multi(results.map(MultiResult::Error).to_vec())));
    assert_eq!(pair.error(token), NOT_SENT);
    // Whether the server executes the other requests is unknown. The session may be alive
    // elsewhere.
    assert_eq!(pair.error(behind), LOST);
    assert_eq!(pair.session.status().state, SessionState::Suspended);
    assert_eq!(pair.session.status().session, Some(SESSION));
    assert_eq!(pair.connect(SESSION).session_id, SESSION);
    assert_eq!(pair.session.status().state, SessionState::Connected);
}

#[test]
fn a_refusal_because_the_session_has_expired_ends_the_connection_also_inside_a_multi() {
    let check = MultiOp::Check(CheckRequest { path: "/a".into(), version: Version::ANY });
    let multi = Operation::new(Request::Multi(vec![check]));
    let expired = MultiResult::Error(ErrorCode::SESSION_EXPIRED);
    for (operation, answer) in [
        (sync("/a"), Err(ErrorCode::SESSION_EXPIRED)),
        // The header of a multi's reply always says OK.
        (multi, Ok(Response::Multi(vec![expired]))),
    ] {
        let mut pair = Pair::connected();
        let token = pair.submit(vec![operation]);
        pair.flush();
        let (xid, _) = pair.requests()[0].clone();
        pair.reply(xid, answer);
        assert_eq!(pair.error(token), OpError::session_expired(Outcome::NotApplied));
        // The next server shows whether the session is really over.
        assert_eq!(pair.session.status().state, SessionState::Suspended);
        pair.open();
        assert_eq!(pair.handshake().session_id, SESSION);
        pair.answer_expired();
        let session = SESSION;
        assert!(pair.changes().contains(&Change::Ended { session, cause: EndCause::Expired }));
    }
}
