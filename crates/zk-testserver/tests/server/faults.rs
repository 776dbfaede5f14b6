//! Each fault fires once and does what its documentation says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, EventType, OpCode, Request, Response, SessionId, Zxid};
use zk_testserver::{
    Action, At, CutOff, Fault, Outcome, Reception, ServerConfig, TestServer, Until,
};

use crate::client::*;

/// Starts a server and a session, with a fault at the next create.
async fn scene(action: Action) -> (TestServer, Client) {
    let server = start();
    let client = Client::new(&server).await;
    server.inject(Fault::new(At::op(OpCode::CREATE), action));
    (server, client)
}

fn outcome(server: &TestServer) -> Outcome {
    server.requests().last().expect("a request was recorded").outcome
}

#[tokio::test(start_paused = true)]
async fn cut_before_delivers_earlier_replies_only() {
    let (server, mut client) = scene(Action::CutBefore).await;
    let mut bytes = encode(1, &exists("/", false));
    bytes.extend_from_slice(&encode(2, &create("/a", CreateMode::Persistent)));
    bytes.extend_from_slice(&encode(3, &create("/b", CreateMode::Persistent)));
    client.write(&bytes).await;
    let Got::Reply(header, _) = client.next(OpCode::EXISTS).await else { panic!() };
    assert_eq!(header.xid, 1);
    client.assert_eof().await;
    assert_eq!(server.children("/").unwrap(), ["zookeeper"]);
    assert_eq!(outcome(&server), Outcome::Dropped);
    assert_eq!(server.pending_faults(), []);
}

#[tokio::test(start_paused = true)]
async fn cut_after_applies_and_delivers_events() {
    let (server, mut client) = scene(Action::CutAfter).await;
    client.code(&exists("/a", true)).await;
    client.send(&create("/a", CreateMode::Persistent)).await;
    assert_eq!(client.event().await.0, EventType::NODE_CREATED);
    client.assert_eof().await;
    assert_eq!(server.children("/").unwrap(), ["a", "zookeeper"]);
    assert_eq!(outcome(&server), Outcome::AppliedUnanswered(ErrorCode::OK));
}

#[tokio::test(start_paused = true)]
async fn reply_is_cut_at_the_byte() {
    for length in [0, 3, 4, 11, 25] {
        let (server, mut client) = scene(Action::CutAtReplyByte(length)).await;
        client.send(&create("/a", CreateMode::Persistent)).await;
        assert_eq!(client.rest().await.len(), length);
        assert_eq!(server.children("/").unwrap().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn late_commit_of_a_read_is_a_cut_after_it() {
    let server = start();
    let mut client = Client::new(&server).await;
    let fault = Action::LateCommit(Until::NextWrite);
    server.inject(Fault::new(At::op(OpCode::EXISTS), fault));
    client.send(&exists("/", false)).await;
    client.assert_eof().await;
    assert_eq!(outcome(&server), Outcome::AppliedUnanswered(ErrorCode::OK));
}

#[tokio::test(start_paused = true)]
async fn expire_ends_the_session_instead() {
    let (server, mut client) = scene(Action::Expire).await;
    client.send(&create("/a", CreateMode::Persistent)).await;
    client.assert_eof().await;
    assert!(server.sessions().is_empty());
    assert_eq!(server.children("/").unwrap(), ["zookeeper"]);
    let mut again = Client::raw(&server);
    let request = handshake(client.session, &client.password, Zxid(0));
    assert_eq!(again.connect(request).await.unwrap().timeout_ms, 0);
}

#[tokio::test(start_paused = true)]
async fn delay_holds_back_all_later_output_in_order() {
    let (server, mut client) = scene(Action::Delay(Duration::from_secs(3))).await;
    let started = server.requests().len();
    let mut bytes = encode(1, &create("/a", CreateMode::Persistent));
    bytes.extend_from_slice(&encode(2, &exists("/a", false)));
    client.write(&bytes).await;
    sleep(Duration::from_millis(2999)).await;
    assert_eq!(server.requests().len() - started, 2, "both requests are processed at once");
    let early = tokio::time::timeout(Duration::ZERO, client.next(OpCode::CREATE)).await;
    assert!(early.is_err(), "{early:?}");
    for (xid, op) in [(1, OpCode::CREATE), (2, OpCode::EXISTS)] {
        let Got::Reply(header, _) = client.next(op).await else { panic!() };
        assert_eq!(header.xid, xid);
    }
    client.ok(&Request::Ping).await;
}

#[tokio::test(start_paused = true)]
async fn frozen_connection_stays_silent_past_the_end_of_its_session() {
    let (server, mut client) = scene(Action::Freeze).await;
    client.send(&create("/a", CreateMode::Persistent)).await;
    client.send(&Request::Ping).await;
    let silence = tokio::time::timeout(Duration::from_secs(60), client.next(OpCode::CREATE)).await;
    assert!(silence.is_err(), "{silence:?}");
    assert!(server.sessions().is_empty(), "no request renewed the session");
    assert_eq!(server.children("/").unwrap(), ["zookeeper"]);
    server.disconnect_all();
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn error_is_sent_without_processing_the_request() {
    let (server, mut client) = scene(Action::Error(ErrorCode::THROTTLED_OP)).await;
    let (header, result) = client.call_full(&create("/a", CreateMode::Persistent)).await;
    assert_eq!((header.zxid, result), (Zxid(1), Err(ErrorCode::THROTTLED_OP)));
    assert_eq!(client.code(&create("/a", CreateMode::Persistent)).await, ErrorCode::OK);
    assert_eq!(server.requests()[0].outcome, Outcome::Refused(ErrorCode::THROTTLED_OP));
}

#[tokio::test(start_paused = true)]
async fn error_is_sent_although_the_request_was_processed() {
    let reported = ErrorCode::OPERATION_TIMEOUT;
    let (server, mut client) = scene(Action::ErrorAfter(reported)).await;
    client.code(&exists("/a", true)).await;
    client.send(&create("/a", CreateMode::Persistent)).await;
    assert_eq!(client.event().await.0, EventType::NODE_CREATED);
    let Got::Reply(header, response) = client.next(OpCode::CREATE).await else { panic!() };
    assert_eq!((header.zxid, header.err, response), (Zxid(2), reported, None));
    assert_eq!(server.children("/").unwrap(), ["a", "zookeeper"]);
    assert_eq!(outcome(&server), Outcome::Misreported { result: ErrorCode::OK, reported });
    server.inject(Fault::new(At::op(OpCode::CREATE), Action::Error(ErrorCode::THROTTLED_OP)));
    for expected in [ErrorCode::THROTTLED_OP, ErrorCode::NODE_EXISTS] {
        assert_eq!(client.code(&create("/a", CreateMode::Persistent)).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_cut_before_after_and_inside() {
    for (action, whole, part) in [
        (Action::CutBefore, false, 0),
        (Action::CutAfter, true, 0),
        (Action::CutAtReplyByte(7), false, 7),
        (Action::Expire, false, 0),
    ] {
        let server = start();
        let mut client = Client::new(&server).await;
        client.code(&exists("/a", true)).await;
        server.inject(Fault::new(At::event(0), action.clone()));
        server.admin_create("/a", b"", None);
        if whole {
            assert_eq!(client.event().await.0, EventType::NODE_CREATED);
        }
        assert_eq!(client.rest().await.len(), part, "{action:?}");
        assert_eq!(server.sessions().is_empty(), action == Action::Expire);
    }
}

#[tokio::test(start_paused = true)]
async fn handshakes_fail_too() {
    let server = start();
    for (action, sessions) in [(Action::CutBefore, 0), (Action::CutAfter, 1)] {
        server.inject(Fault::new(At::connect(0), action));
        assert_eq!(
            Client::raw(&server).connect(handshake(SessionId::NONE, &[], Zxid(0))).await,
            None
        );
        assert_eq!(server.sessions().len(), sessions);
    }
    server.inject(Fault::new(At::connect(1), Action::SwapSession));
    let client = Client::new(&server).await;
    let mut again = Client::raw(&server);
    let request = handshake(client.session, &client.password, Zxid(0));
    let response = again.connect(request.clone()).await.unwrap();
    assert!(![SessionId::NONE, client.session].contains(&response.session_id));
    server.inject(Fault::new(At::connect(0), Action::Expire));
    assert_eq!(Client::raw(&server).connect(request).await.unwrap().session_id, SessionId::NONE);
}

#[tokio::test(start_paused = true)]
async fn filters_count_what_they_match() {
    let server = start();
    let mut client = Client::new(&server).await;
    let at = At::op(OpCode::EXISTS).of_session(client.session).below("/zoo").after(1);
    let fault = Fault::new(at, Action::CutBefore);
    server.inject(fault.clone());
    let mut other = Client::new(&server).await;
    for _ in 0..3 {
        other.ok(&exists("/zookeeper", false)).await;
        client.ok(&exists("/", false)).await;
        client.ok(&get_data("/zookeeper", false)).await;
    }
    client.ok(&exists("/zookeeper", false)).await;
    assert_eq!(server.pending_faults(), [fault]);
    client.send(&exists("/zookeeper", false)).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn pings_count_only_if_the_filter_names_them() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.inject(Fault::new(At::request(0), Action::CutBefore));
    assert_eq!(client.ok(&Request::Ping).await, Response::Empty);
    server.clear_faults();
    server.inject(Fault::new(At::op(OpCode::PING), Action::CutBefore));
    client.ok(&exists("/", false)).await;
    client.send(&Request::Ping).await;
    client.assert_eof().await;
}

#[tokio::test(start_paused = true)]
async fn connections_are_refused_after_a_fault() {
    let server = start();
    let mut client = Client::new(&server).await;
    let fault = Fault::new(At::request(0), Action::CutAfter);
    server.inject(fault.refuse_for(Duration::from_secs(2)));
    client.send(&exists("/", false)).await;
    client.assert_eof().await;
    let connector = server.connector();
    for refused in [server.connect(), connector("any host").await] {
        let refused = refused.map(drop).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    sleep(Duration::from_secs(2)).await;
    assert!(connector("any host").await.is_ok());
    Client::resume(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_connections_lasts_for_the_longest_time_or_until_it_is_ended() {
    let server = start();
    server.refuse_for(Duration::from_secs(60));
    server.refuse_for(Duration::from_secs(1));
    sleep(Duration::from_secs(2)).await;
    assert!(server.connect().is_err());
    server.refuse_for(Duration::ZERO);
    assert!(server.connect().is_ok());
}

#[tokio::test(start_paused = true)]
async fn faults_in_a_row_strike_one_after_the_other() {
    let server = start();
    let mut client = Client::new(&server).await;
    let refused = |code| Fault::new(At::op(OpCode::EXISTS).after(1), Action::Error(code));
    let row = [refused(ErrorCode::THROTTLED_OP), refused(ErrorCode::OPERATION_TIMEOUT)];
    server.inject_in_turn(row.clone());
    assert_eq!(server.pending_faults(), row);
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(client.code(&exists("/", false)).await);
    }
    let (ok, throttled, late) =
        (ErrorCode::OK, ErrorCode::THROTTLED_OP, ErrorCode::OPERATION_TIMEOUT);
    // The second one counts only what follows the first one.
    assert_eq!(codes, [ok, throttled, ok, late, ok]);
    assert_eq!(server.pending_faults(), []);
    server.inject_in_turn([]);
    assert_eq!(server.pending_faults(), []);
}

#[tokio::test(start_paused = true)]
async fn a_function_decides_what_strikes_a_request() {
    let server = start();
    let mut client = Client::new(&server).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    server.inject_by(move |session, op, paths| {
        let mut seen = seen.lock().unwrap();
        seen.push((session, op, paths.join(" ")));
        (seen.len() == 2).then_some(Action::Error(ErrorCode::THROTTLED_OP))
    });
    let mut codes = vec![client.code(&exists("/", false)).await];
    client.ok(&Request::Ping).await;
    codes.push(client.code(&get_data("/zookeeper", false)).await);
    server.inject(Fault::new(At::request(0), Action::Error(ErrorCode::OPERATION_TIMEOUT)));
    codes.push(client.code(&exists("/", false)).await);
    let expected = [ErrorCode::OK, ErrorCode::THROTTLED_OP, ErrorCode::OPERATION_TIMEOUT];
    assert_eq!(codes, expected, "what is armed has precedence");
    server.clear_faults();
    client.ok(&exists("/", false)).await;
    let of = |op, path: &str| (client.session, op, path.to_owned());
    let requests =
        [of(OpCode::EXISTS, "/"), of(OpCode::GET_DATA, "/zookeeper"), of(OpCode::EXISTS, "/")];
    assert_eq!(*asked.lock().unwrap(), requests, "neither pings, nor what follows the end");
}

#[tokio::test(start_paused = true)]
async fn administrator_writes_are_ordinary_transactions() {
    let server = start();
    let mut client = Client::new(&server).await;
    client.code(&exists("/a", true)).await;
    server.admin_create("/a", b"1", Some(client.session));
    assert_eq!(client.event().await, (EventType::NODE_CREATED, "/a".to_owned()));
    client.ok(&get_data("/a", true)).await;
    server.admin_set_data("/a", b"2");
    assert_eq!(client.event().await.0, EventType::NODE_DATA_CHANGED);
    assert_eq!(server.data("/a").as_deref(), Some(&b"2"[..]));
    assert_eq!(server.ephemerals(), [("/a".to_owned(), client.session)]);
    assert!(server.admin_delete("/a"));
    assert!(!server.admin_delete("/a"));
    assert_eq!(server.zxid(), Zxid(5));
}

/// The server adds these durations to its own time.
#[tokio::test(start_paused = true)]
async fn durations_without_end_do_not_stop_the_clock_of_the_server() {
    const EVER: Duration = Duration::MAX;
    let cut_off = CutOff { notices_after: EVER, unreported: Duration::ZERO };
    let at_create = |action| Fault::new(At::op(OpCode::CREATE), action);
    for number in 0..9 {
        let server = TestServer::start(ServerConfig::default().members(3).lag(EVER));
        let mut witness = Client::new(&server).await;
        let mut client = Client::new(&server.member(1)).await;
        match number {
            0 => server.refuse_for(EVER),
            1 => server.throttle_for(EVER),
            2 => server.set_reception_for(Reception::BlackHole, EVER),
            3 => server.pause_connection(client.session, EVER),
            4 => server.cut_off(client.session, cut_off),
            5 => server.inject(at_create(Action::CutAfter).refuse_for(EVER)),
            6 => server.inject(at_create(Action::Delay(EVER))),
            7 => server.inject(at_create(Action::LateCommit(Until::After(EVER)))),
            _ => server.inject(at_create(Action::CutOff(cut_off))),
        }
        client.send(&create("/a", CreateMode::Persistent)).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(server.pending_faults(), [], "{number}");
        // Both sessions are silent, so the server must end them at their timeout.
        witness.assert_eof().await;
        assert_eq!(server.sessions(), [], "{number}");
        // Nothing else is due now, and the server must still notice that a new session expires.
        sleep(Duration::from_secs(1)).await;
        server.set_reception(Reception::Open);
        if server.connect().is_ok() {
            Client::new(&server).await.assert_eof().await;
        }
    }
}

#[test]
#[should_panic(expected = "a handshake has no filter")]
fn a_handshake_cannot_be_narrowed() {
    let _ = At::connect(0).below("/zoo");
}
