//! The client on a paused clock: the shipped driver, the in-process server, in-memory pipes, and
//! faults at exact places.

mod busy;
mod chroot;
mod combined;
mod deadlines;
mod ensemble;
mod follow_ensemble;
mod hand_over;
mod health;
mod host_source;
mod hosts;
mod leftovers;
mod links;
mod queued;
mod read_only;
mod rooted;
mod terms;
mod thread;
mod uplink;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use jute_codec::{ErrorCode, OpCode};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::task::JoinSet;
use zk_recipes::{Acl, Client, Clock, CreateOptions};
use zk_session::{
    CloseOutcome, ConnectError, CreateMode, FailureCause, Multi, MultiError, OpError, Outcome,
    SessionState, WatchEnded,
};
use zk_tests::bare::Bare as _;
use zk_tests::meter::Pace;
use zk_tests::target::remove;
use zk_tests::world::{self, SESSION_TIMEOUT, World, run, runtime, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig, ServerVersion, Until};

const UNKNOWN: OpError = OpError::connection_loss(Outcome::Unknown);

fn at_op(op: OpCode, action: Action) -> Fault {
    Fault::new(At::op(op), action)
}

async fn connected(client: &Client) {
    let mut states = client.states();
    while states.current().state != SessionState::Connected {
        states.next().await.expect("the client continues");
    }
}

#[test]
fn heartbeats_keep_an_idle_session_for_hours() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.expect("the lock is free");
        // This is less than the time limit of a run, but more than ten session timeouts.
        sleep_ms(110_000).await;
        assert_eq!(client.session_id(), session);
        assert_eq!(client.status().connection, 1);
        assert!(world.server.stat("/e").is_some());
    });
}

#[test]
fn every_cut_inside_a_reply_leaves_the_outcome_unknown() {
    run(async {
        for bytes in 0..120 {
            let world = World::new();
            let client = world.client(1).await;
            world.server.inject(at_op(OpCode::CREATE2, Action::CutAtReplyByte(bytes)));
            let created = client.create("/a", "x", CreateMode::Persistent).await;
            // The reply consists of its length, the header, the path with its length, and the stat.
            let is_whole = bytes >= 4 + 16 + 4 + 2 + 68;
            match created {
                Ok(_) => assert!(is_whole, "{bytes} bytes are no reply"),
                Err(error) => {
                    assert!(!is_whole && error.clone().bare() == UNKNOWN, "{bytes} bytes: {error}")
                }
            }
            assert!(world.server.stat("/a").is_some());
            assert!(client.exists("/a").await.expect("the session continues").is_some());
        }
    });
}

#[test]
fn a_request_cut_before_and_one_cut_after_look_alike_and_say_so() {
    run(async {
        for (action, is_applied) in [(Action::CutBefore, false), (Action::CutAfter, true)] {
            let world = World::new();
            let client = world.client(1).await;
            world.server.inject(at_op(OpCode::CREATE2, action));
            let created = client.create("/a", "x", CreateMode::Persistent).await;
            assert_eq!(created.map(drop).bare(), Err(UNKNOWN));
            assert_eq!(client.exists("/a").await.map(|stat| stat.is_some()), Ok(is_applied));
        }
    });
}

#[test]
fn an_answer_never_goes_to_another_request_even_when_a_commit_comes_late() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_op(OpCode::CREATE2, Action::LateCommit(Until::NextWrite)));
        let created = client.create("/late", "", CreateMode::Persistent).await;
        assert_eq!(created.map(drop).bare(), Err(UNKNOWN));
        assert_eq!(client.exists("/late").await, Ok(None), "a bare read does not see it");
        // A server replies by session and xid. If the xid had been used again, this would be `Ok`.
        let deleted = client.delete("/missing", None).await.bare();
        assert_eq!(deleted, Err(OpError::server(ErrorCode::NO_NODE)));
        assert!(client.exists("/late").await.expect("the session continues").is_some());
        world.check_history();
    });
}

#[test]
fn a_black_hole_is_left_in_time_and_the_session_survives() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.expect("the lock is free");
        world.server.inject(at_op(OpCode::SYNC, Action::Freeze));
        assert_eq!(client.sync("/").await.bare(), Err(UNKNOWN));
        client.sync("/").await.expect("the next connection works");
        assert_eq!(client.session_id(), session);
        assert_eq!(client.status().connection, 2);
        assert!(world.server.stat("/e").is_some());
    });
}

#[test]
fn a_task_that_did_not_run_does_not_blame_the_server() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        sleep_ms(5_000).await;
        // The runtime is blocked. Pings and the read timeout were due long before.
        tokio::time::advance(Duration::from_secs(25)).await;
        connected(&client).await;
        let failure = client.last_failure().expect("the connection was given up");
        let FailureCause::NotRun(stall) = failure.cause else { panic!("{failure}") };
        assert!(stall > Duration::from_secs(20), "{stall:?}");
        // A server that is silent while the task runs is still one.
        world.server.inject(at_op(OpCode::SYNC, Action::Freeze));
        client.sync("/").await.expect_err("the server does not answer");
        let failure = client.last_failure().expect("the connection was given up");
        assert!(matches!(failure.cause, FailureCause::Disconnected(_)), "{failure}");
    });
}

#[test]
fn expiry_ends_what_belonged_to_the_session_and_another_one_opens() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id().expect("connected");
        client.create("/e", "", CreateMode::Ephemeral).await.expect("the lock is free");
        let (_, mut watcher) = client.get_data_and_watch("/e").await.expect("it exists");
        world.server.expire(session);
        let ended = watcher.changed().await;
        // A server may or may not send the events of the session's own ephemerals.
        assert!(ended.is_ok() || ended == Err(WatchEnded::SessionExpired));
        let mut states = client.states();
        while client.session_id().is_none_or(|now| now == session) {
            states.next().await.expect("the client continues");
        }
        connected(&client).await;
        assert_eq!(client.exists("/e").await, Ok(None));
    });
}

#[test]
fn a_commit_for_one_session_is_never_sent_in_the_next() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let first = client.session_id().expect("connected");
        let create = |path: &str| Multi::new().create(path, "", CreateMode::Persistent);
        client.commit_in(first, create("/first")).await.expect("it is the session");
        world.server.expire(first);
        // The operation waits for a connection when the session ends.
        sleep_ms(1).await;
        let waiting = client.commit_in(first, create("/a"));
        let over = MultiError::Op(OpError::session_expired(Outcome::NotApplied));
        assert_eq!(over.outcome(), Outcome::NotApplied);
        assert_eq!(waiting.await.bare(), Err(over.clone()));
        // The client has no session, or another one.
        assert_eq!(client.commit_in(first, create("/b")).await.bare(), Err(over.clone()));
        connected(&client).await;
        assert_eq!(client.commit_in(first, create("/c")).await.bare(), Err(over));
        let second = client.session_id().expect("connected");
        client.commit_in(second, create("/second")).await.expect("it is the session");
        let children = world.server.children("/").expect("the root exists");
        assert!(["a", "b", "c"].iter().all(|name| !children.iter().any(|child| child == name)));
    });
}

#[test]
fn a_swapped_session_is_never_taken_for_the_old_one() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id();
        world.server.inject(Fault::new(At::connect(0), Action::SwapSession));
        world.server.disconnect_all();
        let mut states = client.states();
        while client.session_id() == session {
            states.next().await.expect("the client continues");
        }
        connected(&client).await;
        client.sync("/").await.expect("the new session works");
        assert_ne!(client.session_id(), session);
    });
}

#[test]
fn requests_wait_for_a_connection_and_cancelled_ones_never_leave() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.refuse_for(Duration::from_secs(2));
        world.server.disconnect_all();
        sleep_ms(100).await;
        assert_eq!(client.state(), SessionState::Suspended);
        let cancelled = client.create("/cancelled", "", CreateMode::Persistent);
        let kept = client.create("/kept", "", CreateMode::Persistent);
        sleep_ms(100).await;
        drop(cancelled);
        kept.await.expect("the session survives two seconds");
        assert_eq!(client.exists("/cancelled").await, Ok(None));
    });
}

#[test]
fn a_session_without_any_server_is_given_up_and_buried() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let session = client.session_id();
        client.create("/e", "", CreateMode::Ephemeral).await.expect("the lock is free");
        world.server.refuse_for(SESSION_TIMEOUT * 3);
        world.server.disconnect_all();
        let (waiting, ()) = tokio::join!(client.exists("/e"), sleep_ms(1));
        assert_eq!(waiting.bare(), Err(OpError::session_expired(Outcome::NotApplied)));
        assert_eq!(client.session_id(), None);
        connected(&client).await;
        assert_ne!(client.session_id(), session);
        assert_eq!(client.exists("/e").await, Ok(None));
    });
}

#[test]
fn close_is_confirmed_and_drop_of_the_last_handle_closes_too() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/e", "", CreateMode::Ephemeral).await.expect("the lock is free");
        assert_eq!(client.close().await, CloseOutcome::Closed);
        assert!(world.server.stat("/e").is_none());
        assert_eq!(client.close().await, CloseOutcome::Closed, "and again");
        assert_eq!(client.sync("/").await.bare(), Err(OpError::closed(Outcome::NotApplied)));

        let client = world.client(2).await;
        let clone = client.clone();
        drop(client);
        sleep_ms(1_000).await;
        assert_eq!(world.server.sessions().len(), 1, "a clone is a handle");
        drop(clone);
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
    });
}

#[test]
fn a_close_without_a_server_ends_after_one_session_timeout_and_says_so() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.refuse_for(SESSION_TIMEOUT * 2);
        world.server.disconnect_all();
        sleep_ms(100).await;
        assert_eq!(client.close().await, CloseOutcome::Abandoned);
        assert_eq!(client.close().await, CloseOutcome::Abandoned, "and again");
        assert!(client.now().since_start() <= SESSION_TIMEOUT + Duration::from_secs(1));
    });
}

#[test]
fn a_client_without_a_server_says_what_it_tried_and_what_went_wrong() {
    run(async {
        let refused = Client::builder("nowhere:1,elsewhere:2")
            .clock(Clock::tokio())
            .transport(|_| async {
                Err::<DuplexStream, _>(io::ErrorKind::ConnectionRefused.into())
            })
            .connect_within(Duration::from_secs(5))
            .connect()
            .await;
        let Err(error @ ConnectError::TimedOut { .. }) = refused else { panic!("{refused:?}") };
        let text = error.to_string();
        assert!(text.contains("nowhere:1,elsewhere:2") && text.contains("refused"), "{text}");
    });
}

#[test]
fn a_missing_chroot_is_created_even_when_the_connection_is_cut() {
    run(async {
        for nth in 0..3 {
            for action in [Action::CutBefore, Action::CutAfter] {
                let world = World::new();
                world.server.inject(Fault::new(At::request(nth), action));
                let client = Client::builder("in-process/a/b")
                    .clock(Clock::tokio())
                    .transport(world.server.connector())
                    .connect()
                    .await
                    .expect("the cut is survived");
                client.create("/c", "", CreateMode::Persistent).await.expect("the lock is free");
                assert!(world.server.stat("/a/b/c").is_some());
            }
        }
    });
}

/// Servers of both kinds: up to 3.8.3, they test the existence of a znode for everyone.
#[test]
fn a_chroot_that_may_not_be_read_is_not_created_again() {
    for version in [ServerVersion::V3_8, ServerVersion::V3_9] {
        run(async {
            let world = World::with(ServerConfig::default().version(version));
            let owner = world.client_with(1, |builder| builder.auth("digest", "a:b")).await;
            for path in ["/a", "/a/b"] {
                let closed = CreateOptions::from(CreateMode::Persistent).acl(Acl::creator_all());
                owner.create(path, "", closed).await.expect("nothing goes wrong");
            }
            world.server.clear_requests();
            let stranger = || {
                let transport = world.server.connector();
                Client::builder("in-process/a/b").clock(Clock::tokio()).transport(transport)
            };
            let waits = stranger().connect().await.expect("it exists");
            let starts = stranger().start().expect("the options are legal");
            for client in [waits, starts] {
                client.sync("/").await.expect("it is connected");
            }
            let requests = world.server.requests();
            let is_create = |op| matches!(op, OpCode::CREATE | OpCode::CREATE2);
            assert!(!requests.iter().any(|request| is_create(request.op)), "{requests:?}");
        });
    }
}

#[test]
fn fifty_thousand_watches_are_restored_and_fire() {
    run(async {
        let world = World::new().pace(Pace::CALM.beside(50_000));
        let client = world.client(1).await;
        let pending: Vec<_> =
            (0..50_000).map(|n| client.exists_and_watch(&format!("/watched/{n}"))).collect();
        let mut watchers = Vec::new();
        for op in pending {
            watchers.push(op.await.expect("nothing goes wrong").1);
        }
        world.server.disconnect_all();
        sleep_ms(10).await;
        connected(&client).await;
        client.sync("/").await.expect("connected");
        assert_eq!(world.server.watch_count(), 50_000);
        world.server.admin_create("/watched", b"", None);
        world.server.admin_create("/watched/49999", b"", None);
        let event = watchers.pop().expect("it is the last").changed().await;
        assert_eq!(event.map(|event| event.path.to_string()), Ok("/watched/49999".into()));
    });
}

#[test]
fn a_request_that_outlives_its_runtime_may_have_been_applied() {
    let runtime = runtime();
    let (world, client, created) = runtime.block_on(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_op(OpCode::CREATE2, Action::Delay(Duration::from_secs(1))));
        let created = client.create("/a", "x", CreateMode::Persistent);
        sleep_ms(1).await;
        (world, client, created)
    });
    drop(runtime);
    assert!(world.server.stat("/a").is_some());
    let error = world::runtime().block_on(created).expect_err("no task is left to reply");
    assert_eq!(error, OpError::closed(Outcome::Unknown));
    // Requests from now on are certainly not sent.
    let error = world::runtime().block_on(client.delete("/a", None)).expect_err("likewise");
    assert_eq!(error.bare(), OpError::closed(Outcome::NotApplied));
}

/// A stream that sends nothing until it is flushed, and whose flush takes a while.
struct Buffered {
    stream: DuplexStream,
    buffer: BytesMut,
    is_waiting: bool,
}

impl AsyncRead for Buffered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Buffered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_waiting = !this.is_waiting;
        if this.is_waiting {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        while !this.buffer.is_empty() {
            let sent = ready!(Pin::new(&mut this.stream).poll_write(cx, &this.buffer))?;
            this.buffer.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_transport_that_takes_its_time_to_flush_is_flushed() {
    run(async {
        let world = World::new();
        let server = world.server.clone();
        let client = world
            .client_with(1, |builder| {
                builder.transport(move |_| {
                    let connection = server.connect();
                    async move {
                        let stream = connection?;
                        Ok(Buffered { stream, buffer: BytesMut::new(), is_waiting: false })
                    }
                })
            })
            .await;
        client.create("/a", "x", CreateMode::Persistent).await.expect("it arrives");
    });
}

/// Activity of a client on its connection.
#[derive(Debug, Default)]
struct Turns {
    /// When the client was woken and tried to read.
    looks: Vec<tokio::time::Instant>,
    /// Number of bytes of each write.
    writes: Vec<usize>,
}

/// A stream that records how it is used.
struct Recorded {
    stream: DuplexStream,
    turns: Arc<Mutex<Turns>>,
    /// Number of bytes that the stream accepts at a time.
    takes: usize,
}

impl AsyncRead for Recorded {
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        lock(&self.turns).looks.push(tokio::time::Instant::now());
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (bytes, _) = bytes.split_at(bytes.len().min(self.takes));
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            lock(&self.turns).writes.push(count);
        }
        written
    }

    zk_tests::flush_and_shut_down_through!(stream);
}

fn lock(turns: &Mutex<Turns>) -> MutexGuard<'_, Turns> {
    turns.lock().expect("no thread panics while it has the lock")
}

/// Connects a client, and returns it with the record of its activity from now on.
async fn recorded(world: &World, takes: usize) -> (Client, Arc<Mutex<Turns>>) {
    let turns = Arc::new(Mutex::new(Turns::default()));
    let (server, all) = (world.server.clone(), Arc::clone(&turns));
    let client = world.client_with(1, |builder| {
        builder.transport(move |_| {
            let turns = Arc::clone(&all);
            let stream = server.connect().map(|stream| Recorded { stream, turns, takes });
            std::future::ready(stream)
        })
    });
    let client = client.await;
    sleep_ms(1).await;
    *lock(&turns) = Turns::default();
    (client, turns)
}

#[test]
fn an_idle_session_wakes_for_its_pings_and_for_nothing_else() {
    run(async {
        let world = World::new();
        let (client, turns) = recorded(&world, usize::MAX).await;
        sleep_ms(90_000).await;
        let Turns { looks, writes } = std::mem::take(&mut *lock(&turns));
        let mut times = looks.clone();
        times.dedup();
        // The session timeout is too short for a lease, so the client sends a ping after every
        // third of it.
        assert_eq!(times.len(), 26, "woken at {times:?}");
        for pair in times.windows(2) {
            let late = (pair[1] - pair[0]).saturating_sub(SESSION_TIMEOUT / 3);
            assert!(late <= Duration::from_millis(1), "tokio counts in milliseconds: {times:?}");
        }
        assert_eq!(writes, [4 + 8; 26], "a ping is a length, an xid and an opcode");
        // The client reads twice for the timer and twice for the reply, each time until nothing is
        // left to do.
        assert!(looks.len() <= 5 * times.len(), "{} looks for {} pings", looks.len(), times.len());
        assert_eq!(client.state(), SessionState::Connected);
    });
}

#[test]
fn requests_of_one_turn_leave_in_one_write() {
    run(async {
        let world = World::new();
        let (client, turns) = recorded(&world, usize::MAX).await;
        let asked: Vec<_> = (0..100).map(|_| client.exists("/")).collect();
        for asked in asked {
            assert!(asked.await.expect("the root can be read").is_some());
        }
        // Each request consists of a length, an xid, an opcode, a path with its length, and a flag
        // for no watch.
        assert_eq!(lock(&turns).writes, [100 * (4 + 8 + 5 + 1)]);
    });
}

#[test]
fn a_transport_that_takes_few_bytes_at_a_time_gets_all_of_them_in_order() {
    run(async {
        for takes in [1, 7, 1000] {
            let world = World::new();
            let (client, turns) = recorded(&world, takes).await;
            let mut asked = Vec::new();
            for index in 0..200 {
                let data = index.to_string().repeat(index % 50);
                asked.push(client.create(&format!("/{index}"), data, CreateMode::Persistent));
                // Some requests are submitted while others are in flight.
                if index % 20 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            for asked in asked {
                asked.await.expect("the lock is free");
            }
            for index in 0..200 {
                let data = world.server.data(&format!("/{index}")).expect("it was created");
                assert_eq!(data, index.to_string().repeat(index % 50).as_bytes());
            }
            assert!(lock(&turns).writes.iter().all(|count| *count <= takes));
        }
    });
}

/// Many callers that retry at once when they are refused must not keep the client's task from
/// sending.
#[test]
fn requests_leave_while_others_are_refused() {
    const ENOUGH: usize = 500_000;
    const OUTSTANDING: usize = 300;
    run(async {
        let world = World::new().pace(Pace::CALM.beside(2 * OUTSTANDING));
        let client = world.client_with(1, |builder| builder.outstanding_limit(OUTSTANDING)).await;
        let (answered, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut asking = JoinSet::new();
        for _ in 0..1000 {
            let (client, answered, refused) = (client.clone(), answered.clone(), refused.clone());
            asking.spawn(async move {
                while answered.load(Relaxed) == 0 && refused.load(Relaxed) < ENOUGH {
                    let counter =
                        if client.exists("/").await.is_ok() { &answered } else { &refused };
                    counter.fetch_add(1, Relaxed);
                    tokio::task::yield_now().await;
                }
            });
        }
        asking.join_all().await;
        let refused = refused.load(Relaxed);
        assert!(refused < ENOUGH / 5, "{refused} were refused before one was answered");
    });
}

/// The clean-up of a test on an ensemble runs while servers still return from the last fault.
#[test]
fn what_a_test_leaves_is_removed_although_connections_are_lost() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        for path in ["/test", "/test/a", "/test/a/b", "/test/c"] {
            world.server.admin_create(path, b"", None);
        }
        for op in [OpCode::GET_CHILDREN, OpCode::DELETE, OpCode::DELETE] {
            world.server.inject(at_op(op, Action::CutAfter));
        }
        remove(&client, "/test").await.expect("the server returns");
        assert!(world.server.stat("/test").is_none(), "{}", world.trace());
    });
}
