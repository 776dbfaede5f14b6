//! A busy connection is kept, and one that only receives events is not.

use std::time::Duration;

use bytes::BytesMut;
use jute_codec::{
    ErrorCode, EventType, KeeperState, Record, ReplyHeader, Request, Response, WatcherEvent, Zxid,
    encode_frame, xid,
};

use super::peer::{Pair, SESSION, TIMEOUT, config, get, long_reply, sync};
use crate::machine::{SessionConfig, SessionState};

const SECOND: Duration = Duration::from_secs(1);
/// Two thirds of the session timeout.
const READ_TIMEOUT: Duration = Duration::from_secs(6);
/// Length of a part. Three parts per read timeout are three times the required progress.
const CHUNK: usize = 16 * 1024;

fn pair(response_limit: usize) -> Pair {
    let mut pair = Pair::new(SessionConfig { response_limit, ..config() });
    pair.connect(SESSION);
    pair
}

fn is_connected(pair: &Pair) -> bool {
    pair.session.status().state == SessionState::Connected
}

/// Requests a long reply, and waits until a ping is sent after the request.
fn asked(pair: &mut Pair) -> i32 {
    pair.submit(vec![get("/long")]);
    pair.flush();
    pair.sleep(TIMEOUT / 3);
    pair.flush();
    let requests = pair.requests();
    assert_eq!(requests[1].1, Request::Ping);
    requests[0].0
}

#[test]
fn a_ping_is_not_due_while_a_reply_ahead_of_it_arrives() {
    for response_limit in [1 << 20, 4096] {
        let mut pair = pair(response_limit);
        let xid = asked(&mut pair);
        let frame = long_reply(xid, 900_000);
        for part in frame.chunks(CHUNK) {
            pair.sleep(READ_TIMEOUT / 3);
            assert!(is_connected(&pair), "limit {response_limit}");
            pair.receive_part(part);
            pair.flush();
        }
        // No other reply is ahead of the ping now.
        pair.sleep(READ_TIMEOUT - SECOND);
        assert!(is_connected(&pair), "limit {response_limit}");
        pair.sleep(SECOND);
        assert!(!is_connected(&pair), "limit {response_limit}");
    }
}

#[test]
fn replies_ahead_of_a_ping_are_progress_and_those_behind_it_are_not() {
    let mut pair = Pair::connected();
    let tokens: Vec<_> = (0..8).map(|_| pair.submit(vec![sync("/a")])).collect();
    pair.flush();
    pair.sleep(TIMEOUT / 3);
    pair.flush();
    let requests = pair.requests();
    assert_eq!((requests.len(), &requests[8].1), (9, &Request::Ping));
    for ((xid, _), token) in requests.iter().zip(tokens) {
        pair.sleep(READ_TIMEOUT / 3);
        pair.reply(*xid, Ok(Response::Sync("/a".into())));
        assert!(pair.answer(token).results[0].is_ok());
    }
    let due = pair.now + READ_TIMEOUT;
    while is_connected(&pair) {
        pair.submit(vec![sync("/a")]);
        pair.flush();
        for (xid, request) in pair.requests() {
            if matches!(request, Request::Sync(_)) {
                pair.reply(xid, Ok(Response::Sync("/a".into())));
            }
        }
        pair.sleep(SECOND);
        assert!(pair.now <= due, "the ping was never answered");
    }
    assert_eq!(pair.now, due);
}

#[test]
fn events_are_no_progress_and_neither_are_the_parts_of_one() {
    for is_whole in [true, false] {
        let mut pair = pair(1 << 20);
        let sent = pair.now + TIMEOUT / 3;
        asked(&mut pair);
        let mut frame = BytesMut::new();
        encode_frame(&mut frame, usize::MAX, |out| {
            ReplyHeader { xid: xid::NOTIFICATION, zxid: Zxid::NONE, err: ErrorCode::OK }
                .encode(out);
            let path = "/x".repeat(400_000).into();
            let kind = EventType::NODE_CREATED;
            let state = KeeperState::SYNC_CONNECTED;
            WatcherEvent { kind, state, path }.encode(out);
        })
        .unwrap();
        let mut parts = frame.chunks(100_000);
        while is_connected(&pair) {
            if is_whole {
                pair.event(Zxid::NONE, EventType::NODE_CREATED, "/a");
            } else {
                pair.receive_part(parts.next().unwrap());
            }
            pair.sleep(SECOND);
        }
        assert_eq!(pair.now, sent + READ_TIMEOUT, "whole: {is_whole}");
    }
}

#[test]
fn a_reply_that_trickles_ends_the_connection() {
    for response_limit in [1 << 20, 4096] {
        let mut pair = pair(response_limit);
        let sent = pair.now + TIMEOUT / 3;
        let xid = asked(&mut pair);
        let frame = long_reply(xid, 900_000);
        let mut parts = frame.chunks(CHUNK / 6 - 100);
        while is_connected(&pair) {
            pair.receive_part(parts.next().unwrap());
            pair.sleep(SECOND);
        }
        assert!(pair.now <= sent + READ_TIMEOUT + SECOND, "{:?}", pair.now);
    }
}

/// Bytes prove that the peer is alive, however few there are.
#[test]
fn silence_counts_from_the_last_byte() {
    let mut pair = pair(1 << 20);
    let xid = asked(&mut pair);
    let frame = long_reply(xid, 900_000);
    pair.receive_part(&frame[..100]);
    pair.sleep(READ_TIMEOUT - SECOND);
    assert!(is_connected(&pair));
    let mut pair = Pair::connected();
    pair.sleep(SECOND);
    pair.receive_part(&[0]);
    pair.sleep(READ_TIMEOUT - SECOND / 2);
    // The ping of the third second must be answered by the ninth second.
    assert!(is_connected(&pair));
}
