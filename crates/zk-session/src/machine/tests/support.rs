//! Operations that a server may not know.

use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{AuthPacket, ErrorCode, EventType, Request, Response, Zxid, xid};

use super::peer::{Pair, SESSION, TIMEOUT, config, data, get, host, sync};
use crate::error::{OpError, Outcome};
use crate::machine::{AuthChange, Event, Lease, Operation, SessionConfig, Token};

const SECOND: Duration = Duration::from_secs(1);

fn newer() -> Operation {
    Operation::new(Request::GetAllChildrenNumber(ByteString::from_static("/a")))
}

fn is_unsupported(error: &OpError) -> bool {
    error.server_code() == Some(ErrorCode::UNIMPLEMENTED)
}

fn is_unanswered(pair: &Pair, token: Token) -> bool {
    !pair
        .events
        .iter()
        .any(|event| matches!(event, Event::Reply { token: other, .. } if *other == token))
}

/// The server replies that it does not know an operation, and hangs up.
fn refuse(pair: &mut Pair, xid: i32) {
    pair.reply_at(xid, Zxid::NONE, Err(ErrorCode::UNIMPLEMENTED));
}

fn sent(pair: &mut Pair) -> Vec<(i32, Request)> {
    pair.flush();
    pair.requests()
}

#[test]
fn the_first_request_of_a_newer_operation_is_alone_in_flight() {
    let mut pair = Pair::connected();
    let (first, probe, last) =
        (pair.submit(vec![get("/a")]), pair.submit(vec![newer()]), pair.submit(vec![get("/b")]));
    let requests = sent(&mut pair);
    assert_eq!(requests.len(), 1, "the newer operation waits for the reply: {requests:?}");
    pair.reply(requests[0].0, Ok(data()));
    assert_eq!(pair.answer(first).results, [Ok(data())]);

    let requests = sent(&mut pair);
    assert!(matches!(requests.as_slice(), [(_, Request::GetAllChildrenNumber(_))]), "{requests:?}");
    pair.reply(requests[0].0, Ok(Response::GetAllChildrenNumber(7)));
    assert_eq!(pair.answer(probe).results, [Ok(Response::GetAllChildrenNumber(7))]);

    let requests = sent(&mut pair);
    pair.reply(requests[0].0, Ok(data()));
    assert_eq!(pair.answer(last).results, [Ok(data())]);

    // The server knows the operation, so further requests are pipelined.
    pair.submit(vec![newer()]);
    pair.submit(vec![newer()]);
    pair.submit(vec![get("/c")]);
    assert_eq!(sent(&mut pair).len(), 3);
}

#[test]
fn an_unknown_operation_costs_no_other_request() {
    let mut pair = Pair::connected();
    let (before, probe, behind) =
        (pair.submit(vec![get("/a")]), pair.submit(vec![newer()]), pair.submit(vec![get("/b")]));
    let requests = sent(&mut pair);
    pair.reply(requests[0].0, Ok(data()));
    let requests = sent(&mut pair);
    refuse(&mut pair, requests[0].0);
    let error = pair.error(probe);
    assert!(is_unsupported(&error), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(pair.answer(before).results, [Ok(data())]);
    assert!(is_unanswered(&pair, behind), "it waits for the next connection");

    pair.connect(SESSION);
    let requests = sent(&mut pair);
    assert_eq!(requests.len(), 1, "{requests:?}");
    pair.reply(requests[0].0, Ok(data()));
    let reply = pair.answer(behind);
    assert_eq!((reply.connection, reply.results), (2, vec![Ok(data())]));
}

/// What arrives after the server has closed the connection can cost the client the reply.
#[test]
fn neither_a_renewal_nor_a_ping_nor_credentials_are_sent_beside_a_newer_operation() {
    let mut pair = Pair::new(SessionConfig { lease: Some(Lease::default()), ..config() });
    pair.connect(SESSION);
    pair.session.set_lease_needed(pair.now, true);
    pair.submit(vec![newer()]);
    let requests = sent(&mut pair);
    let [(probe, Request::GetAllChildrenNumber(_))] = &requests[..] else { panic!("{requests:?}") };
    let packet = AuthPacket { scheme: "digest".into(), auth: Some("a:b".into()) };
    let change = AuthChange { packets: vec![packet], replaces: false };
    pair.session.change_auth(pair.now, Token(900), change);
    // A third of the session timeout, and more than an interval of the renewals.
    pair.sleep(TIMEOUT / 3 + SECOND);
    let requests = sent(&mut pair);
    assert!(requests.is_empty(), "{requests:?}");
    pair.reply(*probe, Ok(Response::GetAllChildrenNumber(7)));
    let requests = sent(&mut pair);
    let [(xid::PING, _), (xid::AUTH, _), (xid::PING, _), (_, Request::Multi(_))] = &requests[..]
    else {
        panic!("{requests:?}")
    };
}

#[test]
fn a_server_that_takes_its_time_with_a_newer_operation_gets_the_second_ping() {
    let mut pair = Pair::connected();
    pair.submit(vec![newer()]);
    sent(&mut pair);
    pair.sleep(TIMEOUT / 3 + SECOND);
    assert!(sent(&mut pair).is_empty());
    // Events alone do not show that the server gets what the client sends.
    pair.event(Zxid(9), EventType::NODE_CREATED, "/a");
    pair.sleep(TIMEOUT / 3);
    let requests = sent(&mut pair);
    assert!(matches!(requests.as_slice(), [(xid::PING, _)]), "{requests:?}");
}

#[test]
fn a_refusal_that_overtakes_other_replies_is_still_that_of_its_request() {
    let mut pair = Pair::connected();
    // A create has no probe, because the oldest supported servers know it.
    let (lost, unknown) = (pair.submit(vec![sync("/a")]), pair.submit(vec![get("/b")]));
    let requests = sent(&mut pair);
    refuse(&mut pair, requests[1].0);
    assert!(is_unsupported(&pair.error(unknown)));
    let error = pair.error(lost);
    assert!(error.is_connection_loss() && error.outcome() == Outcome::Unknown, "{error}");
    pair.connect(SESSION);
}

#[test]
fn an_operation_that_a_server_does_not_know_is_not_sent_to_it_again() {
    let mut pair = Pair::connected();
    pair.submit(vec![newer()]);
    let requests = sent(&mut pair);
    refuse(&mut pair, requests[0].0);
    pair.connect(SESSION);
    let (again, other) = (pair.submit(vec![newer()]), pair.submit(vec![get("/a")]));
    assert!(is_unsupported(&pair.error(again)));
    let requests = sent(&mut pair);
    assert!(matches!(requests.as_slice(), [(_, Request::GetData(_))]), "{requests:?}");
    pair.reply(requests[0].0, Ok(data()));
    assert_eq!((pair.answer(other).connection, pair.session.status().connection), (2, 2));
}

#[test]
fn another_server_is_asked_again() {
    let mut config = config();
    config.hosts = vec![host("old"), host("new")];
    let mut pair = Pair::new(config);
    pair.connect(SESSION);
    let token = pair.submit(vec![newer()]);
    let requests = sent(&mut pair);
    refuse(&mut pair, requests[0].0);
    assert!(is_unsupported(&pair.error(token)));
    // The next server in turn is the other one.
    pair.connect(SESSION);
    let token = pair.submit(vec![newer()]);
    let requests = sent(&mut pair);
    pair.reply(requests[0].0, Ok(Response::GetAllChildrenNumber(7)));
    assert!(pair.answer(token).results[0].is_ok());
}

#[test]
fn an_operation_that_no_server_knows_is_no_failure_of_the_servers() {
    let mut config = config();
    config.hosts = ["a", "b", "c"].map(host).to_vec();
    let mut pair = Pair::new(config);
    pair.connect(SESSION);
    let newer = [
        Request::GetAllChildrenNumber(ByteString::from_static("/a")),
        Request::GetEphemerals(Some(ByteString::from_static("/a"))),
        Request::WhoAmI,
    ];
    for (count, request) in newer.iter().flat_map(|it| [it; 3]).enumerate() {
        let token = pair.submit(vec![Operation::new(request.clone())]);
        let requests = sent(&mut pair);
        refuse(&mut pair, requests[0].0);
        let result = pair.named_answer(token).results.remove(0);
        assert!(is_unsupported(&result.expect_err("no server knows it")));
        assert_eq!(pair.session.failures(), 0, "after {count}");
        let cut_at = pair.now;
        pair.connect(SESSION);
        // The budget for attempts holds.
        assert!(count > 4 || pair.now == cut_at, "after {count}");
    }
    pair.cut();
    assert_eq!(pair.session.failures(), 1);
}

#[test]
fn an_operation_that_is_switched_off_costs_no_connection() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![newer()]);
    let requests = sent(&mut pair);
    pair.reply_at(requests[0].0, Zxid(7), Err(ErrorCode::UNIMPLEMENTED));
    assert!(is_unsupported(&pair.error(token)));
    assert_eq!(pair.session.status().connection, 1);
    assert!(pair.take(|event| matches!(event, Event::Disconnect(_))).is_none());
    let token = pair.submit(vec![get("/a")]);
    let requests = sent(&mut pair);
    pair.reply(requests[0].0, Ok(data()));
    assert_eq!(pair.answer(token).results, [Ok(data())]);
}

#[test]
fn a_probe_that_is_cut_does_not_block_the_next_connection() {
    let mut pair = Pair::connected();
    let probe = pair.submit(vec![newer()]);
    sent(&mut pair);
    pair.cut();
    assert!(pair.error(probe).is_connection_loss());
    pair.connect(SESSION);
    let token = pair.submit(vec![get("/a")]);
    let requests = sent(&mut pair);
    pair.reply(requests[0].0, Ok(data()));
    assert_eq!(pair.answer(token).results, [Ok(data())]);
}
