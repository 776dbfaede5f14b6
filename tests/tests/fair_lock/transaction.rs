//! Transactions of a guard, which are committed only while the lock is held.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jute_codec::{OpCode, SessionId, Zxid};
use zk_recipes::{
    Acl, Client, CreateMode, ErrorCode, FairLock, Guard, LockError, LockState, LostReason, Multi,
    MultiOutcome, OpError, Outcome, Permissions, Target, TransactionError, Version,
};
use zk_tests::bare::{Bare as _, not_committed};
use zk_tests::case::LOCK;
use zk_tests::world::{SESSION_TIMEOUT, World, cuts_at_request, run, sleep_ms};
use zk_testserver::{Action, RequestRecord, ServerConfig};

use crate::{
    FIRST, SECOND, at_op, create_directory, delete_directory, granted, holder, partition, queue_up,
    release, requests_of, session, spawn,
};

/// The znode that the lock protects. Its version counts the transactions that were applied.
const RESOURCE: &str = "/resource";

const LOSS: TransactionError = TransactionError::Op(OpError::connection_loss(Outcome::Unknown));

/// Creates the znode that the lock protects, and connects a client that acquires the lock.
async fn writer(world: &World) -> (Client, Guard) {
    world.server.admin_create(RESOURCE, b"", None);
    holder(world, FIRST).await
}

/// Returns a transaction that would succeed each time it is sent, from any client.
fn write(data: &'static str) -> Multi {
    Multi::new().set_data(RESOURCE, data, None)
}

fn applied(world: &World) -> i32 {
    world.server.stat(RESOURCE).expect("no test deletes it").version.0
}

fn multis(world: &World, session: SessionId) -> Vec<RequestRecord> {
    let requests = world.server.requests().into_iter();
    requests.filter(|request| request.session == session && request.op == OpCode::MULTI).collect()
}

fn is_lost(guard: &Guard) -> bool {
    matches!(guard.state(), LockState::Lost(_))
}

#[test]
fn a_transaction_is_one_request_with_an_outcome_for_each_operation() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        world.server.clear_requests();
        let before = world.server.zxid();
        let multi = Multi::new()
            .check(RESOURCE, Some(Version(0)))
            .create("/resource/a", "", CreateMode::Persistent)
            .set_data(RESOURCE, "x", Some(Version(0)))
            .delete("/resource/a", None);
        let outcomes = guard.transaction(multi).await.expect("the lock is held");
        let [checked, created, data_set, deleted] = outcomes.as_slice() else {
            panic!("{outcomes:?}");
        };
        assert_eq!((checked, deleted), (&MultiOutcome::Checked, &MultiOutcome::Deleted));
        assert!(matches!(created, MultiOutcome::Created { path, .. } if path == "/resource/a"));
        assert!(matches!(data_set, MultiOutcome::DataSet(stat) if stat.version == Version(1)));
        assert_eq!(guard.transaction(Multi::new()).await, Ok(vec![]));
        assert_eq!(multis(&world, session(&client)).len(), 2);
        assert_eq!(requests_of(&world, session(&client)).len(), 2, "{}", world.trace());
        assert_eq!(world.server.zxid(), Zxid(before.0 + 2));
        assert_eq!(guard.state(), LockState::Held);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_transaction_may_release_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &World::lock(&other)).await;
        let last = write("last").delete(guard.path(), None);
        assert_eq!(guard.transaction(last).await.map(|outcomes| outcomes.len()), Ok(2));
        let next = granted(waiter).await;
        let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
        assert_eq!(guard.transaction(write("late")).await, Err(lost));
        assert_eq!(applied(&world), 1);
        drop((guard, next));
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn the_refusal_of_an_operation_names_its_index_and_nothing_is_applied() {
    for failing in 0..4 {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let multi = (0..4).fold(Multi::new(), |multi, index| match index == failing {
                true => multi.delete(RESOURCE, Some(Version(99))),
                false => multi.create("/n-", "", CreateMode::PersistentSequential),
            });
            let error = guard.transaction(multi).await.expect_err("the version is another");
            let code = ErrorCode::BAD_VERSION;
            let target = Target::new(OpCode::DELETE, RESOURCE);
            assert_eq!(error, TransactionError::Refused { index: failing, code, target });
            assert_eq!(error.outcome(), Outcome::NotApplied);
            let children = world.server.children("/").expect("the root exists");
            assert!(children.iter().all(|name| !name.starts_with("n-")), "{children:?}");
            assert_eq!(guard.state(), LockState::Held);
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The failing operation reports `NO_NODE` too, which says nothing about the lock.
#[test]
fn a_missing_znode_of_the_callers_is_not_taken_for_the_loss_of_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        let refused = not_committed(1, ErrorCode::NO_NODE);
        let multi = write("x").check("/missing", None);
        assert_eq!(guard.transaction(multi).await.bare(), Err(refused));
        assert_eq!((guard.state(), applied(&world)), (LockState::Held, 0));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The late writer believes that it holds the lock, and a later holder has written.
#[test]
fn a_late_holder_changes_nothing() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        let other = world.client(SECOND).await;
        let waiter = queue_up(&world, &World::lock(&other)).await;
        // The znode is not watched yet, so the first holder gets no event.
        assert!(world.server.admin_delete(guard.path()));
        let next = granted(waiter).await;
        next.transaction(write("second")).await.expect("the lock is held");
        assert_eq!(guard.state(), LockState::Held, "it does not know\n{}", world.trace());
        let woken = spawn(guard.lost());
        // The operation of the transaction would fail too, but the check of the lock comes first.
        let late = write("first").check("/missing", None);
        let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
        assert_eq!(guard.transaction(late).await, Err(lost.clone()));
        assert_eq!(guard.transaction(write("first")).await, Err(lost));
        assert_eq!(world.server.data(RESOURCE).as_deref(), Some(&b"second"[..]));
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
        assert_eq!(woken.await.expect("the task does not panic"), LostReason::ZnodeDeleted);
        assert_eq!(multis(&world, session(&client)).len(), 1, "a lost guard sends nothing");
        release(next).await;
        drop(guard);
        world.check_clean(&[&client, &other]).await;
    });
}

/// The next contender has another name, even in a directory that was deleted and created again.
#[test]
fn a_directory_made_again_does_not_revive_a_lost_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        delete_directory(&world);
        make_directory_again(&world);
        let next = World::lock(&client).acquire().await.expect("the lock is free");
        let lost = TransactionError::Lost(LostReason::ZnodeDeleted);
        assert_eq!(guard.transaction(write("late")).await, Err(lost));
        assert_eq!(applied(&world), 0);
        assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
        next.transaction(write("in time")).await.expect("the lock is held");
        drop((guard, next));
        world.check_clean(&[&client]).await;
    });
}

fn make_directory_again(world: &World) {
    assert!(world.server.admin_delete("/locks"));
    create_directory(world);
}

/// The client learns of the end of its session in different ways, or not at all: the connection is
/// closed, delayed or frozen, or the session expires when the transaction arrives.
#[test]
fn the_end_of_the_session_between_acquire_and_commit_changes_nothing() {
    for way in ["closed", "delayed", "frozen", "refused"] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let first = session(&client);
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::lock(&other)).await;
            let keep_in_the_dark = match way {
                "closed" => None,
                "delayed" => Some(Action::Delay(Duration::from_secs(3))),
                _ => Some(Action::Freeze),
            };
            if let Some(action) = keep_in_the_dark {
                world.server.inject(at_op(first, OpCode::EXISTS, action));
                let read = spawn(client.exists(RESOURCE));
                sleep_ms(10).await;
                assert!(!read.is_finished() && world.server.pending_faults().is_empty());
                read.abort();
            }
            if way == "refused" {
                world.server.inject(at_op(first, OpCode::MULTI, Action::Expire));
            } else {
                world.server.expire(first);
            }
            let error = if way == "closed" || way == "refused" {
                guard.transaction(write("first")).await
            } else {
                // Another client holds the lock, has written, and continues.
                let next = granted(waiter).await;
                next.transaction(write("second")).await.expect("the lock is held");
                assert_eq!(guard.state(), LockState::Held, "{way}: it cannot know");
                let error = guard.transaction(write("first")).await;
                assert_eq!(next.state(), LockState::Held);
                error
            }
            .expect_err("the session is over")
            .bare();
            assert!(
                error == LOSS || error == TransactionError::Lost(LostReason::SessionExpired),
                "{way}: {error}"
            );
            sleep_ms(30_000).await;
            let written = world.server.data(RESOURCE).expect("it exists");
            assert!(written != "first", "{way}\n{}", world.trace());
            assert!(is_lost(&guard), "{way}");
            // The client has a new session, in which it has sent no request of the old session.
            assert_ne!(session(&client), first);
            assert_eq!(multis(&world, session(&client)), [], "{way}");
            drop(guard);
        });
    }
}

#[test]
fn a_transaction_is_never_sent_in_the_next_session() {
    for is_known in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let first = session(&client);
            partition(&world, 500);
            sleep_ms(10).await;
            // The transaction waits for a connection, and the session ends before the client
            // reconnects.
            let waiting = guard.transaction(write("late"));
            world.server.expire(first);
            let lost = TransactionError::Lost(LostReason::SessionExpired);
            if is_known {
                drop(waiting);
                sleep_ms(5_000).await;
                assert_ne!(session(&client), first);
                assert_eq!(guard.transaction(write("late")).await, Err(lost));
            } else {
                assert_eq!(waiting.await, Err(lost));
            }
            sleep_ms(5_000).await;
            assert_ne!(session(&client), first);
            let is_multi = |request: &RequestRecord| request.op == OpCode::MULTI;
            assert!(!world.server.requests().iter().any(is_multi), "{}", world.trace());
            assert_eq!(applied(&world), 0);
            assert_eq!(guard.state(), LockState::Lost(LostReason::SessionExpired));
            // In the same process, the next session can acquire the lock and write.
            let next = World::lock(&client).acquire().await.expect("the lock is free");
            next.transaction(write("next")).await.expect("the lock is held");
            assert_eq!(applied(&world), 1);
            drop((guard, next));
            world.check_clean(&[&client]).await;
        });
    }
}

/// The transaction begins at each turn of the scheduler around the moment at which the client
/// learns that its session is over. Before it, the request waits for a connection. After it, the
/// guard is lost.
#[test]
fn a_transaction_that_crosses_the_end_of_the_session_is_not_sent_in_the_next() {
    let (mut before, mut after) = (0, 0);
    let mut ended_at = None;
    for (early_ms, turns) in (0..3).flat_map(|ms| (0..40).map(move |turns| (ms, turns))) {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            world.server.expire(session(&client));
            match ended_at {
                None => {
                    guard.lost().await;
                    ended_at = Some(client.now());
                }
                Some(at) => {
                    let left = at.saturating_since(client.now()).as_millis() as u64;
                    sleep_ms(left.saturating_sub(early_ms)).await;
                }
            }
            let calling = spawn(async move {
                for _ in 0..turns {
                    turn().await;
                }
                let is_known = is_lost(&guard);
                let error = guard.transaction(write("late")).await.expect_err("it is over");
                (is_known, error, guard)
            });
            let (is_known, error, guard) = calling.await.expect("the task does not panic");
            *if is_known { &mut after } else { &mut before } += 1;
            let lost = TransactionError::Lost(LostReason::SessionExpired);
            let error = error.bare();
            assert!(error == lost || error == LOSS, "{early_ms} ms early, {turns} turns: {error}");
            sleep_ms(1_000).await;
            assert_ne!(client.session_id(), Some(guard.session()));
            let sent = multis(&world, session(&client));
            assert!(
                sent.is_empty() && applied(&world) == 0,
                "{early_ms} ms early, {turns} turns\n{}",
                world.trace()
            );
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
    assert!(before > 0 && after > 0, "{before} came before the end, and {after} after it");
}

/// Runs the tasks that are ready now, and no others, unlike `yield_now`.
async fn turn() {
    let mut is_over = false;
    std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[test]
fn a_lost_connection_leaves_a_doubt_and_nothing_is_repeated() {
    for kind in 0..cuts_at_request(None, 0).len() {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let fault = cuts_at_request(Some(session(&client)), 0).swap_remove(kind);
            let is_applied = fault.action != Action::CutBefore;
            world.server.inject(fault.clone());
            let unique = Multi::new().create("/once", "", CreateMode::Persistent);
            let once = unique.append(write("x"));
            assert_eq!(guard.transaction(once.clone()).await.bare(), Err(LOSS), "{fault:?}");
            assert_eq!(LOSS.outcome(), Outcome::Unknown);
            assert!(world.server.pending_faults().is_empty());
            assert_eq!(guard.state(), LockState::AtRisk, "{fault:?}");
            sleep_ms(2_000).await;
            // The two multis are the lost transaction, and the proof after the resume.
            assert_eq!(multis(&world, session(&client)).len(), 2, "{fault:?}\n{}", world.trace());
            assert_eq!(applied(&world), i32::from(is_applied), "{fault:?}");
            assert_eq!(guard.state(), LockState::Held);
            // The caller may repeat the transaction, because it creates a unique name.
            let repeated = guard.transaction(once).await.map(|outcomes| outcomes.len()).bare();
            let exists = not_committed(0, ErrorCode::NODE_EXISTS);
            assert_eq!(repeated, if is_applied { Err(exists) } else { Ok(2) }, "{fault:?}");
            assert_eq!(applied(&world), 1);
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}

/// The outcome of the transaction stays unknown, although the lock is certainly lost.
#[test]
fn a_doubt_outlives_the_lock() {
    for action in [Action::CutAfter, Action::CutBefore, Action::Freeze] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            world.server.inject(at_op(session(&client), OpCode::MULTI, action.clone()));
            let pending = guard.transaction(write("x"));
            sleep_ms(1).await;
            world.server.refuse_for(Duration::from_secs(60));
            let closing = async {
                client.close().await;
                assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
            };
            let (unknown, ()) = tokio::join!(pending, closing);
            assert_eq!(unknown.bare(), Err(LOSS), "{action:?}");
            assert_eq!(applied(&world), i32::from(action == Action::CutAfter));
        });
    }
}

#[test]
fn what_was_committed_is_told_though_the_lock_is_lost_meanwhile() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        let slow = Action::Delay(Duration::from_millis(500));
        world.server.inject(at_op(session(&client), OpCode::MULTI, slow));
        let pending = guard.transaction(write("x"));
        let closing = async {
            sleep_ms(10).await;
            assert_eq!(applied(&world), 1);
            client.close().await;
        };
        let (committed, ()) = tokio::join!(pending, closing);
        assert_eq!(committed.map(|outcomes| outcomes.len()), Ok(1));
        assert_eq!(guard.state(), LockState::Lost(LostReason::Closed));
    });
}

/// The process is paused, and the first thing it does afterwards is to commit.
#[test]
fn a_pause_beyond_the_deadline_sends_nothing() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        sleep_ms(200).await;
        let pending = {
            let mut jump = pin!(tokio::time::advance(SESSION_TIMEOUT));
            assert!(jump.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let pending = guard.transaction(write("late"));
            jump.await;
            pending
        };
        let lost = TransactionError::Lost(LostReason::DeadlinePassed);
        assert_eq!(pending.await, Err(lost));
        sleep_ms(5_000).await;
        assert_eq!(multis(&world, session(&client)), [], "{}", world.trace());
        assert_eq!(applied(&world), 0);
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

/// After a shorter pause the lock is only at risk, and the ensemble decides.
#[test]
fn a_pause_within_the_deadline_is_decided_by_the_ensemble() {
    for is_gone in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let pause = SESSION_TIMEOUT - Duration::from_millis(100);
            let pending = {
                let mut jump = pin!(tokio::time::advance(pause));
                assert!(jump.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                if is_gone {
                    world.server.expire(session(&client));
                }
                assert_eq!(guard.state(), LockState::AtRisk);
                guard.transaction(write("x"))
            };
            let committed = pending.await;
            if is_gone {
                let error = committed.expect_err("it is lost");
                let lost = TransactionError::Lost(LostReason::SessionExpired);
                let error = error.bare();
                assert!(error == lost || error == LOSS, "{error}");
                sleep_ms(1_000).await;
                assert!(is_lost(&guard));
            } else {
                assert_eq!(committed.map(|outcomes| outcomes.len()), Ok(1));
            }
            assert_eq!(applied(&world), i32::from(!is_gone));
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn at_risk_a_transaction_waits_for_the_next_connection() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        partition(&world, 500);
        sleep_ms(10).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        let committed = guard.transaction(write("x")).await;
        assert_eq!(committed.map(|outcomes| outcomes.len()), Ok(1), "{}", world.trace());
        assert_eq!(applied(&world), 1);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

/// The session lives longer than the guard deadline, because servers count in ticks, and the znode
/// still exists when the client reconnects. Requests that waited for the connection were discarded
/// when the lock was lost.
#[test]
fn what_waits_for_a_connection_is_taken_back_when_the_lock_is_lost() {
    run(async {
        let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
        let (client, guard) = writer(&world).await;
        partition(&world, 10_500);
        sleep_ms(10).await;
        let lost = TransactionError::Lost(LostReason::DeadlinePassed);
        assert_eq!(guard.transaction(write("late")).await, Err(lost));
        assert!(world.server.stat(guard.path()).is_some(), "it was not the ensemble that said so");
        sleep_ms(20_000).await;
        assert_eq!(client.session_id(), Some(guard.session()), "the session lives");
        assert_eq!((multis(&world, session(&client)).len(), applied(&world)), (0, 0));
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_dropped_transaction_that_was_not_sent_is_never_sent() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        partition(&world, 500);
        sleep_ms(10).await;
        drop(guard.transaction(write("x")));
        sleep_ms(3_000).await;
        assert_eq!(guard.state(), LockState::Held);
        assert_eq!(applied(&world), 0);
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn transactions_and_requests_of_the_client_are_sent_in_the_order_of_calls() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world).await;
        let first = guard.transaction(write("first"));
        let between = client.get_data(RESOURCE);
        let second = guard.transaction(write("second"));
        // The futures are awaited in the opposite order.
        assert_eq!(second.await.map(|outcomes| outcomes.len()), Ok(1));
        assert_eq!(between.await.expect("it exists").0, "first");
        assert_eq!(first.await.map(|outcomes| outcomes.len()), Ok(1));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_closed_client_has_lost_the_lock() {
    for is_queued in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            let lost = TransactionError::Lost(LostReason::Closed);
            if is_queued {
                partition(&world, 500);
                sleep_ms(10).await;
                let pending = guard.transaction(write("x"));
                client.close().await;
                assert_eq!(pending.await, Err(lost.clone()));
            }
            client.close().await;
            assert_eq!(guard.transaction(write("x")).await, Err(lost));
            assert_eq!(applied(&world), 0);
            assert_eq!(guard.release().await, Err(LockError::Closed));
        });
    }
}

#[test]
fn each_answer_to_the_request_as_a_whole_says_what_is_known() {
    use Outcome::{NotApplied, Unknown};
    let op = |error| TransactionError::Op(error);
    let server = |code| op(OpError::server(code));
    let expired = TransactionError::Lost(LostReason::SessionExpired);
    for (code, error, outcome) in [
        (ErrorCode::THROTTLED_OP, server(ErrorCode::THROTTLED_OP), NotApplied),
        (ErrorCode::NOT_READ_ONLY, server(ErrorCode::NOT_READ_ONLY), NotApplied),
        (
            ErrorCode::UNIMPLEMENTED,
            op(OpError::Unsupported { target: Target::default() }),
            NotApplied,
        ),
        (ErrorCode::REQUEST_TIMEOUT, server(ErrorCode::REQUEST_TIMEOUT), Unknown),
        (ErrorCode::SYSTEM_ERROR, server(ErrorCode::SYSTEM_ERROR), Unknown),
        (ErrorCode(-999), server(ErrorCode(-999)), Unknown),
        (ErrorCode::SESSION_MOVED, LOSS, Unknown),
        (ErrorCode::SESSION_EXPIRED, expired, NotApplied),
    ] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world).await;
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            let failed = guard.transaction(write("x")).await.expect_err("a fault was injected");
            let failed = failed.bare();
            assert_eq!((&failed, failed.outcome()), (&error, outcome), "{code}");
            assert_eq!(is_lost(&guard), matches!(failed, TransactionError::Lost(_)), "{code}");
            sleep_ms(2_000).await;
            assert_eq!(applied(&world), 0, "{code}: it was repeated\n{}", world.trace());
            drop(guard);
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn what_cannot_be_sent_is_refused_at_once() {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client_with(FIRST, |builder| builder.outstanding_limit(2)).await;
        let guard = World::lock(&client).acquire().await.expect("the lock is free");
        sleep_ms(200).await;
        let invalid = guard.transaction(write("x").delete("no path", None)).await;
        assert!(
            matches!(&invalid, Err(TransactionError::Op(OpError::InvalidPath { path, .. })) if path == "no path"),
            "{invalid:?}"
        );
        let long = guard.transaction(Multi::new().set_data(RESOURCE, vec![0; 2 << 20], None)).await;
        let too_large = matches!(long, Err(TransactionError::Op(OpError::RequestTooLarge { .. })));
        assert!(too_large, "{long:?}");
        partition(&world, 500);
        sleep_ms(10).await;
        let waiting = [client.exists("/"), client.exists("/")];
        let full = guard.transaction(write("x")).await;
        assert!(matches!(full, Err(TransactionError::Op(OpError::QueueFull { .. }))), "{full:?}");
        for error in [invalid, long, full] {
            assert_eq!(error.expect_err("refused").outcome(), Outcome::NotApplied);
        }
        for read in waiting {
            read.await.expect("it is answered");
        }
        assert_eq!(applied(&world), 0);
        drop(guard);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_check_that_is_not_allowed_is_no_loss() {
    run(async {
        let world = World::new();
        world.server.admin_create(RESOURCE, b"", None);
        let client = world.client(FIRST).await;
        let acl = vec![Acl::new(Permissions::DELETE, "world", "anyone")];
        let lock = FairLock::builder(&client, LOCK).expect("the path is valid").acl(acl);
        let lock = lock.watch_check(None).build().expect("the options are legal");
        let guard = lock.acquire().await.expect("the lock is free");
        let refused = TransactionError::CheckRefused {
            code: ErrorCode::NO_AUTH,
            path: guard.path().to_owned(),
        };
        assert_eq!(refused.outcome(), Outcome::NotApplied);
        assert_eq!(guard.transaction(write("x")).await, Err(refused));
        assert_eq!((guard.state(), applied(&world)), (LockState::Held, 0));
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}
