//! How many replies are requested before the first of them arrives.

use bytes::Bytes;
use jute_codec::{DataReply, ErrorCode, Request, Response, Stat};

use super::peer::{Pair, SESSION, TIMEOUT, config, get, long_reply, sync};
use crate::machine::downlink::EXPECTED_MAX;
use crate::machine::inflight::INFLIGHT_MAX;
use crate::machine::{Operation, SessionConfig};

const QUEUED: usize = 10_000;

fn pair() -> Pair {
    let limits = SessionConfig { outstanding_limit: 65_536, response_limit: 1 << 20, ..config() };
    let mut pair = Pair::new(limits);
    pair.connect(SESSION);
    pair
}

fn short() -> Result<Response, ErrorCode> {
    let data = Some(Bytes::from_static(&[0; 128]));
    Ok(Response::GetData(DataReply { data, stat: Stat::default() }))
}

/// Takes the requests that the server has received.
fn take(pair: &mut Pair, asked: &mut Vec<i32>) {
    pair.flush();
    asked.extend(pair.requests().into_iter().map(|(xid, _)| xid));
}

#[test]
fn a_link_that_is_slow_or_not_measured_is_asked_for_few_long_replies_and_takes_every_write() {
    let limits = SessionConfig { outstanding_limit: 65_536, response_limit: 1 << 20, ..config() };
    let mut pair = Pair::new(limits);
    pair.is_known_as_fast = false;
    pair.connect(SESSION);
    pair.submit(vec![get("/long")]);
    pair.submit(vec![get("/long")]);
    pair.submit(vec![sync("/a")]);
    let mut asked = vec![];
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 3);
    for _ in 0..QUEUED {
        pair.submit(vec![get("/long")]);
    }
    pair.submit(vec![sync("/a")]);
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 3, "a request never overtakes another");
    let receive = |pair: &mut Pair, reply: &[u8]| {
        let (first, rest) = reply.split_at(100);
        pair.receive_part(first);
        // A 25th of the session timeout is the limit.
        pair.sleep(TIMEOUT / 8);
        pair.receive(rest);
    };
    receive(&mut pair, &long_reply(asked[0], 1_000_000));
    receive(&mut pair, &long_reply(asked[1], 1_000_000));
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 4);
    pair.reply(asked[2], Ok(Response::Sync("/a".into())));
    pair.cut();
    pair.connect(SESSION);
    for _ in 0..QUEUED {
        pair.submit(vec![get("/long")]);
    }
    asked.clear();
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 1, "the next connection takes the same way");
}

#[test]
fn long_replies_are_requested_as_they_arrive() {
    const LENGTH: usize = 500_000;
    let most = EXPECTED_MAX as usize / LENGTH;
    let mut pair = pair();
    for _ in 0..QUEUED {
        pair.submit(vec![get("/long")]);
    }
    let mut asked = vec![];
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 4, "as many as fit while their length is unknown");
    for answered in 1..1000 {
        pair.receive(&long_reply(asked[answered - 1], LENGTH));
        pair.events.clear();
        take(&mut pair, &mut asked);
        let outstanding = asked.len() - answered;
        assert!(outstanding <= most && outstanding >= 3, "{answered}: {outstanding}");
        assert!(outstanding == most || answered < 30, "{answered}: {outstanding}");
    }
}

#[test]
fn short_replies_fill_the_connection_soon() {
    let mut pair = pair();
    for _ in 0..2 * QUEUED {
        pair.submit(vec![get("/short")]);
    }
    let mut asked = vec![];
    take(&mut pair, &mut asked);
    let mut reached = vec![];
    for answered in 1..100 {
        pair.reply(asked[answered - 1], short());
        take(&mut pair, &mut asked);
        reached.push(asked.len() - answered);
    }
    assert!(reached[33] >= 256, "{reached:?}");
    assert!(reached[62] == INFLIGHT_MAX, "{reached:?}");
    // A longer reply delays other requests only until it turns out to be an exception.
    pair.receive(&long_reply(asked[99], 500_000));
    take(&mut pair, &mut asked);
    assert!(asked.len() - 100 < INFLIGHT_MAX);
    for answered in 101..200 {
        pair.reply(asked[answered - 1], short());
    }
    take(&mut pair, &mut asked);
    assert_eq!(asked.len() - 199, INFLIGHT_MAX);
}

#[test]
fn each_kind_of_read_has_an_estimate_and_other_requests_are_short() {
    let mut pair = pair();
    let list = || {
        let read = jute_codec::ReadRequest { path: "/d".into(), watch: false };
        Operation::new(Request::GetChildren(read))
    };
    for _ in 0..64 {
        pair.submit(vec![get("/short")]);
    }
    let mut asked = vec![];
    take(&mut pair, &mut asked);
    for answered in 0..64 {
        pair.reply(asked[answered], short());
        take(&mut pair, &mut asked);
    }
    for _ in 0..1000 {
        pair.submit(vec![get("/short")]);
    }
    for _ in 0..1000 {
        pair.submit(vec![list()]);
    }
    asked.clear();
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 1003, "the length of lists is unknown");

    let mut pair = self::pair();
    for _ in 0..QUEUED {
        pair.submit(vec![sync("/a")]);
    }
    asked.clear();
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), INFLIGHT_MAX);
}

#[test]
fn pings_go_whatever_is_expected_and_a_lost_connection_expects_nothing() {
    let mut pair = pair();
    let submit = |pair: &mut Pair| {
        for _ in 0..100 {
            pair.submit(vec![get("/long")]);
        }
        pair.flush();
        assert_eq!(pair.requests().len(), 4);
    };
    submit(&mut pair);
    pair.sleep(TIMEOUT / 3);
    pair.flush();
    assert_eq!(pair.request().map(|(_, request)| request), Some(Request::Ping));
    pair.cut();
    pair.connect(SESSION);
    submit(&mut pair);
}

#[test]
fn a_flight_that_is_longer_than_the_budget_goes_when_nothing_is_in_flight() {
    let mut pair = pair();
    let long = vec![get("/long"); 100];
    pair.submit(long.clone());
    let behind = pair.submit(vec![sync("/a")]);
    let mut asked = vec![];
    take(&mut pair, &mut asked);
    assert_eq!(asked.len(), 100);
    for xid in &asked {
        pair.reply(*xid, short());
    }
    asked.clear();
    take(&mut pair, &mut asked);
    let xid = pair.session.next_xid - 1;
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert!(pair.answer(behind).results[0].is_ok());
}
