//! Servers that have lost their leader, or are paused.

use std::time::Duration;

use jute_codec::{CreateMode, ErrorCode, OpCode, Request, Response};
use zk_testserver::{Action, At, CutOff, Fault, Outcome, TestServer};

use crate::client::*;

const SECOND: Duration = Duration::from_secs(1);

fn cut_off(notices_after: u32, unreported: Duration) -> CutOff {
    CutOff { notices_after: SECOND * notices_after, unreported }
}

/// Starts two sessions with a timeout of 10 s. The first one owns an ephemeral.
async fn scene() -> (TestServer, Client, Client) {
    let server = start();
    let mut client = Client::new(&server).await;
    client.create("/mine", CreateMode::Ephemeral).await.expect("the path is free");
    let other = Client::new(&server).await;
    (server, client, other)
}

/// Pings once a second until the connection is closed. Returns the number of replies.
async fn pings(client: &mut Client) -> usize {
    for answered in 0.. {
        client.send(&Request::Ping).await;
        if client.next(OpCode::PING).await == Got::Eof {
            return answered;
        }
        sleep(SECOND).await;
    }
    unreachable!("the loop has no end")
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
        unreachable!("the loop has no end")
    };
    let (answered, ended) = tokio::join!(pings(&mut client), ended);
    assert_eq!(answered, 15);
    // The session ends 10 s after the create, rounded up to a tick of 2 s. The test checks half a
    // second after each full second.
    assert_eq!(ended, 12);
    assert_eq!(server.sessions(), [other.session]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_off_follower_serves_old_reads_and_no_writes() {
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
async fn activity_that_was_not_reported_to_the_leader_does_not_renew_a_session() {
    // The session ends 10 s after a ping at 2.2 s or after one at 1.9 s, rounded up to a tick.
    for (unreported, ended) in [(0, 14), (100, 14), (101, 12), (2_000, 12)] {
        let server = start();
        let mut client = Client::new(&server).await;
        for ms in [1_900, 300] {
            sleep(Duration::from_millis(ms)).await;
            client.ok(&Request::Ping).await;
        }
        sleep(Duration::from_millis(100)).await;
        server.cut_off(client.session, cut_off(60, Duration::from_millis(unreported)));
        sleep(SECOND * ended - Duration::from_millis(2_301)).await;
        assert_eq!(server.sessions().len(), 1, "{unreported} ms unreported");
        sleep(Duration::from_millis(2)).await;
        assert_eq!(server.sessions().len(), 0, "{unreported} ms unreported");
    }
}

/// The reply to a resume always comes from the leader, so this activity is never unreported.
#[tokio::test(start_paused = true)]
async fn resuming_a_session_always_reaches_the_leader() {
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
async fn a_cut_off_session_continues_on_another_server() {
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
async fn a_paused_follower_processes_its_input_after_the_pause() {
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
    assert!(!is_told, "the paused follower does not even forward events");
    assert_eq!(client.event().await.1, "/prompt");
    assert!(matches!(client.next(OpCode::CREATE).await, Got::Reply(_, Some(Response::Create(_)))));
    let request = server.requests().pop().expect("the request was processed");
    assert_eq!((request.path.as_deref(), request.at), (Some("/late"), SECOND * 3));
    // The request renewed the session when it was processed, at 3 s.
    sleep(Duration::from_millis(10_900)).await;
    assert!(server.sessions().contains(&client.session));
    sleep(Duration::from_millis(200)).await;
    assert!(!server.sessions().contains(&client.session));
}

#[tokio::test(start_paused = true)]
async fn the_leader_expires_the_session_of_a_paused_follower() {
    let (server, mut client, _other) = scene().await;
    server.pause_connection(client.session, SECOND * 20);
    client.send(&Request::Ping).await;
    sleep(SECOND * 12 + Duration::from_millis(1)).await;
    assert_eq!(server.stat("/mine"), None);
    assert_eq!(client.rest().await.len(), 0, "the server sent no reply");
}

#[tokio::test(start_paused = true)]
async fn a_paused_server_expires_sessions_before_it_processes_requests() {
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

/// The request arrives during the pause. Nothing else is due for seconds after the pause: the next
/// deadline is the expiry of a session.
#[tokio::test(start_paused = true)]
async fn a_paused_server_processes_requests_as_soon_as_its_pause_ends() {
    let server = start();
    let mut client = Client::new(&server).await;
    server.pause(SECOND);
    client.ok(&exists("/", false)).await;
    assert_eq!(server.requests()[0].at, SECOND);
}

#[tokio::test(start_paused = true)]
async fn requests_processed_after_a_pause_across_the_cut_do_not_renew_the_session() {
    let (server, mut client, _other) = scene().await;
    server.pause_connection(client.session, SECOND * 3);
    server.cut_off(client.session, cut_off(5, Duration::ZERO));
    assert_eq!(pings(&mut client).await, 2, "the pings at 3 s and at 4 s");
    sleep(SECOND * 8).await;
    assert_eq!(server.stat("/mine"), None);
}

#[tokio::test(start_paused = true)]
async fn cut_off_and_pause_are_faults_too() {
    let server = start();
    let mut client = Client::new(&server).await;
    let at = |nth| At::op(OpCode::PING).after(nth);
    server.inject(Fault::new(at(0), Action::Pause(SECOND * 2)));
    server.inject(Fault::new(at(1), Action::CutOff(cut_off(5, Duration::ZERO))));
    client.ok(&Request::Ping).await;
    client.ok(&exists("/", false)).await;
    assert_eq!(server.requests()[0].at, SECOND * 2);
    assert_eq!(
        server.pending_faults().len(),
        0,
        "the ping counts twice, because it is processed again after the pause"
    );
    client.send(&create("/a", CreateMode::Persistent)).await;
    assert_eq!(pings(&mut client).await, 5);
    assert_eq!(server.stat("/a"), None);
}

/// The client disconnects while its server is paused. Its requests have already arrived.
#[tokio::test(start_paused = true)]
async fn a_paused_server_processes_requests_of_a_client_that_has_disconnected() {
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
        let stat = server.stat("/late").expect("the create was processed");
        assert_eq!(stat.ephemeral_owner, session, "whole server: {is_whole}");
        // After that, the connection is closed, and its watches are gone.
        assert_eq!(server.watch_count(), 0);
        sleep(SECOND * 60).await;
        assert_eq!((server.stat("/late"), server.sessions()), (None, vec![]));
    }
}

/// During the pause, the session has moved to another server, so this server refuses its requests.
#[tokio::test(start_paused = true)]
async fn a_paused_server_refuses_requests_of_a_session_that_has_moved() {
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
