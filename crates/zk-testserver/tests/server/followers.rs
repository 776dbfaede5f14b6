//! Servers that have lost their leader, or stand still.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, OpCode, Request, Response};
use zk_testserver::{Action, At, CutOff, Fault, Filter, Outcome, TestServer};

use crate::client::*;

const SECOND: Duration = Duration::from_secs(1);

fn cut_off(notices_after: u32, unlearned: Duration) -> CutOff {
    CutOff { notices_after: SECOND * notices_after, unlearned }
}

/// Two sessions of 10 s; the first has an ephemeral.
async fn scene() -> (TestServer, Client, Client) {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/mine", CreateMode::Ephemeral).await.expect("the path is free");
    let other = Client::new(&server).await;
    (server, client, other)
}

/// Answers to pings, one a second, until the connection ends.
async fn pings(client: &mut Client) -> usize {
    for answered in 0.. {
        client.send(&Request::Ping).await;
        if client.next(OpCode::PING).await == Got::Eof {
            return answered;
        }
        sleep(SECOND).await;
    }
    unreachable!("there are numbers enough")
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_follower_acknowledges_until_it_notices_and_the_session_ends_meanwhile() {
    let (server, mut client, mut other) = scene().await;
    sleep(SECOND / 2).await;
    server.cut_off(client.session, cut_off(15, Duration::ZERO));
    let ended = async {
        for second in 0.. {
            if server.stat("/mine").is_none() {
                return second;
            }
            other.ok(&Request::Ping).await;
            sleep(SECOND).await;
        }
        unreachable!("there are numbers enough")
    };
    let (answered, ended) = tokio::join!(pings(&mut client), ended);
    assert_eq!(answered, 15);
    // 10 s from the create, rounded up to a tick of 2 s, and seen at half a second.
    assert_eq!(ended, 12);
    assert_eq!(server.sessions(), [other.session]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_follower_answers_from_the_past_and_no_write() {
    let (server, mut client, mut other) = scene().await;
    server.cut_off(client.session, cut_off(5, Duration::ZERO));
    other.create("/new", CreateMode::Persistent).await.unwrap();
    server.admin_delete("/mine");
    client.ok(&exists("/mine", true)).await;
    assert_eq!(client.code(&exists("/new", true)).await, ErrorCode::NO_NODE);
    client.send(&create("/write", CreateMode::Persistent)).await;
    client.send(&Request::Sync("/".into())).await;
    client.ok(&Request::Ping).await;
    assert_eq!(server.stat("/write"), None);
    other.create("/newer", CreateMode::Persistent).await.unwrap();
    assert_eq!(server.watch_count(), 0);
    client.assert_eof().await;
    let outcomes: Vec<Outcome> = server
        .requests()
        .into_iter()
        .filter(|request| {
            matches!(request.op, OpCode::SYNC) || request.path == Some("/write".into())
        })
        .map(|request| request.outcome)
        .collect();
    assert_eq!(outcomes, [Outcome::Dropped; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_has_not_learned_does_not_keep_a_session() {
    // 10 s from a ping at 2.2 s, or else from one at 1.9 s: at the end of a tick.
    for (unlearned, ended) in [(0, 14), (100, 14), (101, 12), (2_000, 12)] {
        let server = start();
        let mut client = Client::new(&server).await;
        for ms in [1_900, 300] {
            sleep(Duration::from_millis(ms)).await;
            client.ok(&Request::Ping).await;
        }
        sleep(Duration::from_millis(100)).await;
        server.cut_off(client.session, cut_off(60, Duration::from_millis(unlearned)));
        sleep(SECOND * ended - Duration::from_millis(2_301)).await;
        assert_eq!(server.sessions().len(), 1, "{unlearned} ms unlearned");
        sleep(Duration::from_millis(2)).await;
        assert_eq!(server.sessions().len(), 0, "{unlearned} ms unlearned");
    }
}

/// The leader has answered it.
#[tokio::test(start_paused = true)]
async fn a_resume_is_never_unlearned() {
    let (server, client, _other) = scene().await;
    sleep(Duration::from_millis(2_500)).await;
    let client = Client::resume(&server, &client).await;
    server.cut_off(client.session, cut_off(60, SECOND * 2));
    sleep(Duration::from_millis(11_400)).await;
    assert!(server.sessions().contains(&client.session), "12.5 s, rounded up to a tick");
    sleep(Duration::from_millis(200)).await;
    assert!(!server.sessions().contains(&client.session));
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_session_goes_on_at_another_server() {
    let (server, client, _other) = scene().await;
    server.cut_off(client.session, cut_off(60, Duration::ZERO));
    let mut again = Client::resume(&server, &client).await;
    again.create("/write", CreateMode::Persistent).await.unwrap();
    for _ in 0..20 {
        sleep(SECOND).await;
        again.ok(&Request::Ping).await;
    }
    assert!(server.stat("/mine").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_stands_still_does_afterwards_what_has_arrived() {
    let (server, mut client, mut other) = scene().await;
    client.code(&exists("/prompt", true)).await;
    server.pause_connection(client.session, SECOND * 3);
    client.send(&create("/late", CreateMode::Persistent)).await;
    sleep(SECOND * 2).await;
    other.create("/prompt", CreateMode::Persistent).await.unwrap();
    assert_eq!(server.stat("/late"), None);
    sleep(SECOND * 99 / 100).await;
    other.ok(&Request::Ping).await;
    assert_eq!(server.requests().last().map(|request| request.at), Some(SECOND * 2));
    let is_told = tokio::time::timeout(Duration::from_millis(5), client.event()).await.is_ok();
    assert!(!is_told, "not even an event of the leader's is passed on");
    assert_eq!(client.event().await.1, "/prompt");
    assert!(matches!(client.next(OpCode::CREATE).await, Got::Reply(_, Some(Response::Create(_)))));
    let request = server.requests().pop().expect("it was looked at");
    assert_eq!((request.path.as_deref(), request.at), (Some("/late"), SECOND * 3));
    // It was heard of when the request was looked at, at 3 s.
    sleep(Duration::from_millis(10_900)).await;
    assert!(server.sessions().contains(&client.session));
    sleep(Duration::from_millis(200)).await;
    assert!(!server.sessions().contains(&client.session));
}

#[tokio::test(start_paused = true)]
async fn the_leader_ends_the_session_of_a_follower_that_stands_still() {
    let (server, mut client, _other) = scene().await;
    server.pause_connection(client.session, SECOND * 20);
    client.send(&Request::Ping).await;
    sleep(SECOND * 12 + Duration::from_millis(1)).await;
    assert_eq!(server.stat("/mine"), None);
    assert_eq!(client.rest().await.len(), 0, "nothing was answered");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stands_still_looks_at_the_time_first() {
    for (pause, is_alive) in [(11, true), (12, false)] {
        let (server, mut client, _other) = scene().await;
        server.pause(SECOND * pause);
        sleep(SECOND).await;
        client.send(&Request::Ping).await;
        sleep(SECOND * (pause - 1) + Duration::from_millis(1)).await;
        assert_eq!(server.sessions().contains(&client.session), is_alive);
        assert_eq!(client.next(OpCode::PING).await != Got::Eof, is_alive);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_straddles_the_cut_lets_late_requests_count_for_nothing() {
    let (server, mut client, _other) = scene().await;
    server.pause_connection(client.session, SECOND * 3);
    server.cut_off(client.session, cut_off(5, Duration::ZERO));
    assert_eq!(pings(&mut client).await, 2, "at 3 s and at 4 s");
    sleep(SECOND * 8).await;
    assert_eq!(server.stat("/mine"), None);
}

#[tokio::test(start_paused = true)]
async fn both_are_faults_too() {
    let server = start();
    let mut client = Client::new(&server).await;
    let filter = Filter { op: Some(OpCode::PING), ..Filter::default() };
    let at = |nth| At::Request { nth, filter: filter.clone() };
    server.inject(Fault::new(at(0), Action::Pause(SECOND * 2)));
    server.inject(Fault::new(at(1), Action::CutOff(cut_off(5, Duration::ZERO))));
    client.ok(&Request::Ping).await;
    client.ok(&exists("/", false)).await;
    assert_eq!(server.requests()[0].at, SECOND * 2);
    assert_eq!(server.pending_faults().len(), 0, "the ping counts twice: it was looked at twice");
    client.send(&create("/a", CreateMode::Persistent)).await;
    assert_eq!(pings(&mut client).await, 5);
    assert_eq!(server.stat("/a"), None);
}

/// The client goes away while its server stands still: what it had sent has arrived all the same.
#[tokio::test(start_paused = true)]
async fn a_paused_server_does_what_was_sent_by_a_client_that_has_left() {
    for is_whole in [false, true] {
        let server = start();
        let mut client = Client::new(&server).await;
        let session = client.session;
        if is_whole {
            server.pause(SECOND * 2);
        } else {
            server.pause_connection(session, SECOND * 2);
        }
        client.send(&create("/late", CreateMode::Ephemeral)).await;
        sleep(Duration::from_millis(1)).await;
        drop(client);
        sleep(SECOND).await;
        assert_eq!(server.stat("/late"), None);
        sleep(SECOND + Duration::from_millis(1)).await;
        let stat = server.stat("/late").expect("it was processed");
        assert_eq!(stat.ephemeral_owner, session, "whole server: {is_whole}");
        // The connection is gone then, and so is all that belonged to it.
        assert_eq!(server.watch_count(), 0);
        sleep(SECOND * 60).await;
        assert_eq!((server.stat("/late"), server.sessions()), (None, vec![]));
    }
}

/// The session has moved to another server meanwhile, so what was sent to this one is refused.
#[tokio::test(start_paused = true)]
async fn a_paused_server_does_nothing_for_a_session_that_has_moved() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.pause_connection(client.session, SECOND * 3);
    client.send(&create("/late", CreateMode::Ephemeral)).await;
    sleep(Duration::from_millis(1)).await;
    client.hang_up();
    let mut resumed = Client::resume(&server, &client).await;
    sleep(SECOND * 4).await;
    resumed.ok(&Request::Ping).await;
    assert_eq!(server.stat("/late"), None);
}
