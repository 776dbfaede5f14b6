//! Lists that flights share: which reply completes which flight, and what is known if no reply
//! arrives.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{
    CreateMode, CreateRequest, ErrorCode, EventType, NameList, Request, Response, Zxid,
};

use super::peer::{Pair, SESSION, config, sync, watch};
use crate::error::{OpError, Outcome, Target};
use crate::machine::{Event, Flight, Operation, Reply, SessionState, Token};

const LOST: OpError = OpError::connection_loss(Outcome::Unknown);
const NOT_SENT: OpError = OpError::connection_loss(Outcome::NotApplied);

fn create(path: &str) -> Operation {
    Operation::new(Request::Create(CreateRequest {
        path: path.into(),
        data: Some(Bytes::new()),
        acl: vec![],
        mode: CreateMode::EphemeralSequential,
        with_stat: false,
    }))
}

fn list(path: &str) -> Operation {
    Operation::shared_list(path.into())
}

fn names(names: &[&str]) -> Response {
    Response::GetChildren(names.iter().collect())
}

/// Describes what the server has received: `+` is a create, and `?` is a list.
fn sent(requests: &[(i32, Request)]) -> String {
    let letter = |request: &Request| match request {
        Request::Create(_) => '+',
        Request::GetChildren(read) if !read.watch => '?',
        Request::Sync(_) => 's',
        other => panic!("{other:?}"),
    };
    requests.iter().map(|(_, request)| letter(request)).collect()
}

fn created() -> Result<Response, ErrorCode> {
    Ok(Response::Create("/d/c".into()))
}

/// Returns the tokens of completed flights, in the order of completion.
fn answered(pair: &Pair) -> Vec<Token> {
    let token = |event: &Event| match event {
        Event::Reply { token, .. } => Some(*token),
        _ => None,
    };
    pair.events.iter().filter_map(token).collect()
}

#[track_caller]
fn children(reply: &Reply) -> &NameList {
    match reply.results.last() {
        Some(Ok(Response::GetChildren(names))) => names,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_number_of_flights_submitted_at_once_takes_two_lists() {
    let mut pair = Pair::connected();
    let tokens: Vec<_> = (0..50).map(|_| pair.submit(vec![create("/d/c"), list("/d")])).collect();
    pair.flush();
    let requests = pair.requests();
    assert_eq!(sent(&requests), format!("+?{}", "+".repeat(49)));
    for (xid, request) in &requests {
        let is_list = matches!(request, Request::GetChildren(_));
        pair.reply(*xid, if is_list { Ok(names(&["first"])) } else { created() });
    }
    // The first flight got a list of its own, requested in the same write.
    assert_eq!(answered(&pair), tokens[..1]);
    let again = pair.requests();
    assert_eq!(sent(&again), "?");
    let text: NameList = ["a", "b"].into_iter().collect();
    pair.reply(again[0].0, Ok(Response::GetChildren(text)));
    assert_eq!(answered(&pair), tokens);
    assert!(pair.requests().is_empty());

    let first = pair.answer(tokens[0]);
    assert_eq!(first.results, [Ok(Response::Create("/d/c".into())), Ok(names(&["first"]))]);
    let replies: Vec<_> = tokens[1..].iter().map(|token| pair.answer(*token)).collect();
    for reply in &replies {
        assert_eq!(children(reply), &["a", "b"].into_iter().collect());
        assert_eq!(reply.connection, 1);
        // All replies share the same bytes.
        let [one, other] = [&replies[0], reply].map(|reply| children(reply).iter().next().unwrap());
        assert!(std::ptr::eq(one, other));
    }
}

#[test]
fn a_list_is_never_answered_by_a_request_that_was_sent_before_it_was_asked_for() {
    let mut pair = Pair::connected();
    let first = pair.submit(vec![list("/d")]);
    pair.flush();
    let (xid, _) = pair.request().unwrap();
    // The server has read the list, which does not include the znode of the next flight.
    let second = pair.submit(vec![create("/d/c"), list("/d")]);
    pair.flush();
    let (create_xid, _) = pair.request().unwrap();
    assert!(pair.request().is_none());
    pair.reply(xid, Ok(names(&[])));
    assert_eq!(answered(&pair), [first]);
    // A flight submitted while the next list is in flight waits for the one after that.
    let (again, _) = pair.request().unwrap();
    let third = pair.submit(vec![list("/d")]);
    pair.reply(create_xid, created());
    pair.reply(again, Ok(names(&["c"])));
    assert_eq!(children(&pair.answer(second)), &["c"].into_iter().collect());
    let (last, _) = pair.request().unwrap();
    pair.reply(last, Ok(names(&["c", "d"])));
    assert_eq!(children(&pair.answer(third)).len(), 2);
    // Now no list is in flight, so the next one is requested at once.
    pair.submit(vec![create("/d/c"), list("/d")]);
    pair.flush();
    assert_eq!(sent(&pair.requests()), "+?");
}

#[test]
fn other_paths_and_lists_that_are_not_shared_are_sent_as_ever() {
    let mut pair = Pair::connected();
    let plain = || {
        let read = jute_codec::ReadRequest { path: "/d".into(), watch: false };
        Operation::new(Request::GetChildren(read))
    };
    let mut watching = watch(7, Request::GetChildren, "/d");
    watching.is_shared = true;
    pair.submit(vec![list("/d"), plain(), list("/e"), watching]);
    pair.flush();
    assert_eq!(pair.requests().len(), 4);
}

#[test]
fn one_flight_may_ask_twice_and_stands_on_its_own_results() {
    let mut pair = Pair::connected();
    let token = pair.submit(vec![list("/d"), create("/d/c"), list("/d")]);
    pair.flush();
    let requests = pair.requests();
    assert_eq!(sent(&requests), "?+");
    pair.reply(requests[0].0, Ok(names(&[])));
    pair.reply(requests[1].0, created());
    let (xid, _) = pair.request().unwrap();
    pair.reply(xid, Ok(names(&["c"])));
    let results = pair.answer(token).results;
    assert_eq!(results, [Ok(names(&[])), created().map_err(OpError::server), Ok(names(&["c"]))]);
}

#[test]
fn the_answers_stand_at_the_place_of_the_reply_in_the_order_of_the_server() {
    let mut pair = Pair::connected();
    let watching = pair.submit(vec![watch(7, Request::GetData, "/d/c")]);
    pair.submit(vec![list("/d")]);
    let shared = [pair.submit(vec![list("/d")]), pair.submit(vec![list("/d")])];
    pair.flush();
    let requests = pair.requests();
    pair.reply(requests[0].0, Ok(super::peer::data()));
    pair.reply(requests[1].0, Ok(names(&[])));
    pair.answer(watching);
    pair.events.clear();
    let (xid, _) = pair.request().unwrap();
    pair.event(Zxid::NONE, EventType::NODE_DELETED, "/d/c");
    let behind = pair.submit(vec![sync("/a")]);
    pair.reply(xid, Ok(names(&[])));
    let (xid, _) = pair.request().unwrap();
    pair.reply(xid, Ok(Response::Sync("/a".into())));
    assert!(matches!(pair.events[0], Event::Watch { .. }), "{:?}", pair.events);
    assert_eq!(answered(&pair), [shared[0], shared[1], behind]);
}

#[test]
fn an_error_and_a_reply_that_is_too_long_are_shared_too() {
    let long: Vec<_> = (0..1000).map(|n| format!("name-{n}")).collect();
    let long = Response::GetChildren(long.iter().collect());
    for answer in [Ok(long), Err(ErrorCode::NO_NODE)] {
        let is_expected = |error: OpError| match &answer {
            Ok(_) => matches!(error, OpError::ResponseTooLarge { .. }),
            Err(code) => error.server_code() == Some(*code),
        };
        let mut pair = Pair::connected();
        let first = pair.submit(vec![list("/d")]);
        let others = [pair.submit(vec![list("/d")]), pair.submit(vec![list("/d")])];
        pair.flush();
        let (xid, _) = pair.request().unwrap();
        pair.reply(xid, answer.clone());
        assert!(is_expected(pair.error(first)));
        assert_eq!(answered(&pair), []);
        let (xid, _) = pair.request().unwrap();
        pair.reply(xid, answer.clone());
        for token in others {
            assert!(is_expected(pair.error(token)));
        }
    }
}

#[test]
fn a_connection_that_ends_says_of_each_operation_what_is_known() {
    // The phases of two flights: nothing was sent; all was sent; the first list is complete; the
    // second list was sent; the second list is complete.
    let cases = [
        [vec![NOT_SENT; 2], vec![NOT_SENT; 2]],
        [vec![LOST; 2], vec![LOST, NOT_SENT]],
        [vec![], vec![LOST, NOT_SENT]],
        [vec![], vec![LOST; 2]],
        [vec![], vec![]],
    ];
    for (phase, expected) in cases.into_iter().enumerate() {
        let mut pair = Pair::connected();
        let tokens = [(); 2].map(|()| pair.submit(vec![create("/d/c"), list("/d")]));
        if phase > 0 {
            pair.flush();
        }
        let requests = pair.requests();
        if phase > 1 {
            pair.reply(requests[0].0, created());
            // In phase 2 the next list is encoded, but the transport does not accept it.
            pair.takes_all = phase > 2;
            pair.reply(requests[1].0, Ok(names(&[])));
        }
        if phase == 4 {
            pair.reply(requests[2].0, created());
            let (xid, _) = pair.request().unwrap();
            pair.reply(xid, Ok(names(&[])));
        }
        pair.cut();
        for (token, expected) in tokens.into_iter().zip(expected) {
            let results = pair.answer(token).results;
            let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            assert_eq!(errors, expected, "phase {phase}");
        }
        assert_eq!(answered(&pair), [], "each once");
        // None of these requests affects the next connection.
        pair.connect(SESSION);
        assert!(pair.requests().is_empty());
        let next = pair.submit(vec![list("/d")]);
        pair.flush();
        let (xid, _) = pair.request().unwrap();
        pair.reply(xid, Ok(names(&[])));
        pair.answer(next);
    }
}

#[test]
fn nobody_is_left_behind_when_a_shared_list_says_that_the_session_is_over() {
    for code in [ErrorCode::SESSION_EXPIRED, ErrorCode::SESSION_MOVED] {
        let mut pair = Pair::connected();
        let tokens = [(); 3].map(|()| pair.submit(vec![list("/d")]));
        pair.flush();
        let (xid, _) = pair.request().unwrap();
        pair.reply(xid, Err(code));
        assert_eq!(pair.session.status().state, SessionState::Suspended);
        pair.answer(tokens[0]);
        for token in &tokens[1..] {
            assert_eq!(pair.error(*token), NOT_SENT);
        }
    }
}

#[test]
fn a_list_that_nobody_waits_for_any_more_is_not_sent() {
    let mut pair = Pair::connected();
    pair.submit(vec![list("/d")]);
    let cancelled = pair.submit(vec![create("/d/c"), list("/d"), list("/d")]);
    let soon = Some(pair.now + Duration::from_millis(10));
    let flight = Flight { operations: vec![list("/d")], session: None, deadline: soon };
    let late = pair.submit_flight(flight);
    let recalled = pair.submit(vec![list("/d")]);
    pair.flush();
    let requests = pair.requests();
    assert_eq!(sent(&requests), "?+");
    pair.session.cancel(pair.now, cancelled);
    pair.session.recall(pair.now, recalled);
    pair.drain();
    // No request was sent for these two operations.
    let reply = pair.answer(recalled);
    assert_eq!(
        (reply.results, reply.connection),
        (vec![Err(OpError::Recalled { target: Target::UNKNOWN })], 0)
    );
    pair.sleep(Duration::from_millis(10));
    assert_eq!(pair.error(late), OpError::timed_out(Outcome::NotApplied));
    pair.reply(requests[0].0, Ok(names(&[])));
    pair.reply(requests[1].0, created());
    assert!(pair.requests().is_empty());
    assert_eq!(answered(&pair).len(), 1);
}

#[test]
fn a_flight_that_was_sent_in_part_is_not_recalled_and_one_that_leaves_takes_no_other_along() {
    let mut pair = Pair::connected();
    pair.submit(vec![list("/d")]);
    let [kept, cancelled] = [(); 2].map(|()| pair.submit(vec![create("/d/c"), list("/d")]));
    pair.flush();
    let requests = pair.requests();
    pair.session.recall(pair.now, kept);
    pair.session.cancel(pair.now, cancelled);
    pair.drain();
    for (xid, request) in &requests {
        let is_list = matches!(request, Request::GetChildren(_));
        pair.reply(*xid, if is_list { Ok(names(&[])) } else { created() });
    }
    let (xid, _) = pair.request().unwrap();
    // A flight whose list was requested cannot be recalled either.
    pair.session.recall(pair.now, kept);
    pair.drain();
    pair.reply(xid, Ok(names(&["c"])));
    assert_eq!(children(&pair.answer(kept)).len(), 1);
    assert!(pair.requests().is_empty());
}

#[test]
fn a_flight_that_is_not_sent_because_of_its_length_leaves_no_list_behind() {
    let mut pair = Pair::connected();
    let long = "/x".repeat(3000);
    let token = pair.submit(vec![list("/d"), list("/d"), sync(&long)]);
    for result in pair.answer(token).results {
        assert!(matches!(result, Err(OpError::RequestTooLarge { .. })), "{result:?}");
    }
    pair.submit(vec![list("/d")]);
    pair.flush();
    assert_eq!(sent(&pair.requests()), "?");
}

#[test]
fn a_close_refuses_what_was_not_sent_and_answers_the_rest() {
    let mut pair = Pair::connected();
    pair.submit(vec![list("/d")]);
    let token = pair.submit(vec![create("/d/c"), list("/d")]);
    pair.flush();
    let requests = pair.requests();
    pair.session.close(pair.now);
    pair.drain();
    pair.reply(requests[0].0, Ok(names(&[])));
    pair.reply(requests[1].0, created());
    let closed = OpError::closed(Outcome::NotApplied);
    assert_eq!(pair.answer(token).results, [created().map_err(OpError::server), Err(closed)]);
    pair.flush();
    let last: Vec<_> = pair.requests().into_iter().map(|(_, request)| request).collect();
    assert_eq!(last, [Request::CloseSession]);
}

#[test]
fn flights_that_wait_for_a_connection_share_their_lists_when_it_comes() {
    let mut pair = Pair::new(config());
    let tokens: Vec<_> = (0..10).map(|_| pair.submit(vec![create("/d/c"), list("/d")])).collect();
    pair.connect(SESSION);
    let requests = pair.requests();
    assert_eq!(sent(&requests), format!("+?{}", "+".repeat(9)));
    for (xid, request) in &requests {
        let is_list = matches!(request, Request::GetChildren(_));
        pair.reply(*xid, if is_list { Ok(names(&[])) } else { created() });
    }
    let (xid, _) = pair.request().unwrap();
    pair.reply(xid, Ok(names(&[])));
    assert_eq!(answered(&pair), tokens);
}
