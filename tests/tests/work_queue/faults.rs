//! Ends of sessions, administrators, refusals and servers that remove empty directories.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Acl, CloseOutcome, ErrorCode, FailedAction, LockState, LostReason, Permissions, RecipeError,
    WorkQueueError,
};
use zk_tests::scene::{FIRST, SECOND, at_op, session, settle, spawn};
use zk_tests::work_queue::{
    ENTRIES, LEASES, PUTS, check_clean, children, drain, put_all, queue, start_taking, take, text,
    world,
};
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{Action, Until};

#[test]
fn an_item_whose_taker_expires_is_delivered_again_and_not_acknowledged_by_the_first() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let first = take(&queue(&client)).await;
        let lost = spawn(first.lost());
        let taker = start_taking(&world, &queue(&other)).await;
        world.server.expire(session(&client));
        sleep_ms(1_000).await;
        assert_eq!(lost.await.expect("no panic"), LostReason::SessionExpired);
        assert_eq!(first.state(), LockState::Lost(LostReason::SessionExpired));
        let second = taker.await.expect("no panic").expect("the item has returned");
        let refused = first.ack().await.unwrap_err();
        assert_eq!(refused, WorkQueueError::LeaseLost(LostReason::SessionExpired));
        second.ack().await.expect("the lease is held");
        // The renewed session works.
        put_all(&queue(&client), &["b"]).await;
        assert_eq!(drain(&queue(&client)).await, ["b"]);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_taker_whose_client_ends_with_its_session_is_told_so() {
    run(async {
        let world = world();
        let client = world.client_with(FIRST, |builder| builder.renew_after_expiry(false)).await;
        let taker = start_taking(&world, &queue(&client)).await;
        world.server.expire(session(&client));
        let refused = taker.await.expect("no panic").unwrap_err();
        assert_eq!(refused, WorkQueueError::Recipe(RecipeError::SessionExpired));
        let refused = queue(&client).take().await.unwrap_err();
        assert_eq!(refused, WorkQueueError::Recipe(RecipeError::SessionExpired));
    });
}

/// The taker learns nothing about the end of its session before it acknowledges the item.
#[test]
fn an_ack_after_an_expiry_that_nobody_has_reported_deletes_nothing() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let first = take(&queue(&client)).await;
        world.server.expire(session(&client));
        let second = take(&queue(&other)).await;
        let refused = first.ack().await.unwrap_err();
        assert_eq!(refused, WorkQueueError::LeaseLost(LostReason::SessionExpired));
        second.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The reply to an ack is lost, and then the session ends.
#[test]
fn an_ack_that_the_end_of_the_session_interrupts_is_definite_if_the_item_is_there() {
    let cuts = [
        Action::CutBefore,
        Action::CutAfter,
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::After(Duration::from_millis(100))),
    ];
    for cut in cuts {
        run(async {
            let world = world();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            put_all(&queue(&other), &["a"]).await;
            let item = take(&queue(&client)).await;
            let ended = session(&client);
            let fault = at_op(ended, OpCode::MULTI, cut.clone());
            world.server.inject(fault.refuse_for(Duration::from_millis(300)));
            let ack = spawn(item.ack());
            settle().await;
            world.server.expire(ended);
            let acked = ack.await.expect("no panic");
            let left = drain(&queue(&other)).await;
            let lost = WorkQueueError::LeaseLost(LostReason::SessionExpired);
            let item = format!("{ENTRIES}/entry-100-0000000000");
            let unknown = WorkQueueError::Unknown { item };
            if cut == Action::CutAfter {
                assert_eq!(acked, Err(unknown), "{cut:?}");
                assert!(left.is_empty(), "{cut:?}");
            } else if left.is_empty() {
                assert_eq!(acked, Err(unknown), "{cut:?}");
            } else {
                assert_eq!((acked, &left[..]), (Err(lost), &["a".to_owned()][..]), "{cut:?}");
            }
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// A consumer has taken and acknowledged the item before its producer can look.
#[test]
fn a_put_that_the_end_of_the_session_interrupts_is_complete_exactly_once() {
    let cuts = [
        Action::CutBefore,
        Action::CutAfter,
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::Reads(1)),
        Action::LateCommit(Until::After(Duration::from_millis(100))),
    ];
    for cut in cuts {
        for expires_at_once in [false, true] {
            run(async {
                let world = world();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                put_all(&queue(&client), &["before"]).await;
                sleep_ms(10).await;
                let ended = session(&client);
                let fault = at_op(ended, OpCode::MULTI, cut.clone());
                world.server.inject(fault.refuse_for(Duration::from_millis(300)));
                let put = {
                    let queue = queue(&client);
                    spawn(async move { queue.put("a").await })
                };
                settle().await;
                if !expires_at_once {
                    sleep_ms(200).await;
                }
                let mut taken = drain(&queue(&other)).await;
                world.server.expire(ended);
                put.await.expect("no panic").expect("it can be put");
                taken.extend(drain(&queue(&other)).await);
                sleep_ms(2_000).await;
                taken.extend(drain(&queue(&other)).await);
                assert_eq!(taken, ["before", "a"], "{cut:?}\n{}", world.trace());
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
}

#[test]
fn a_taker_whose_session_expires_while_it_waits_goes_on_behind_the_others() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let expiring = start_taking(&world, &queue(&client)).await;
        let next = start_taking(&world, &queue(&other)).await;
        world.server.expire(session(&client));
        sleep_ms(1_000).await;
        put_all(&queue(&other), &["a"]).await;
        sleep_ms(100).await;
        assert!(!expiring.is_finished());
        let item = next.await.expect("no panic").expect("there is an item");
        item.ack().await.expect("the lease is held");
        put_all(&queue(&other), &["b"]).await;
        let item = expiring.await.expect("no panic").expect("there is an item");
        assert_eq!(text(&item), "b");
        item.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_item_that_an_administrator_deletes_is_reported_by_the_ack() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["a"]).await;
        let item = take(&queue(&client)).await;
        let path = item.path().to_owned();
        assert!(world.server.admin_delete(&path));
        assert_eq!(item.ack().await, Err(WorkQueueError::ItemGone { item: path }));
        check_clean(&world, &[&client]).await;
    });
}

/// The event of the deletion has not arrived when the item is acknowledged, so only the check in the
/// multi shows that the lease is lost.
#[test]
fn a_lease_that_an_administrator_deletes_is_lost_even_if_no_event_has_arrived() {
    run(async {
        for event_arrives in [false, true] {
            let world = world();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            put_all(&queue(&client), &["a"]).await;
            let item = take(&queue(&client)).await;
            if event_arrives {
                // The lease is watched.
                sleep_ms(200).await;
            }
            assert!(world.server.admin_delete(&item.path().replace(ENTRIES, LEASES)));
            if event_arrives {
                sleep_ms(100).await;
                assert_eq!(item.state(), LockState::Lost(LostReason::ZnodeDeleted));
            }
            let refused = item.ack().await;
            assert_eq!(refused, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
            assert_eq!(drain(&queue(&other)).await, ["a"]);
            check_clean(&world, &[&client, &other]).await;
        }
    });
}

#[test]
fn a_queue_whose_directories_an_administrator_deletes_goes_on() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&client), &["a", "b"]).await;
        let item = take(&queue(&client)).await;
        for directory in [ENTRIES, LEASES] {
            for name in children(&world, directory) {
                assert!(world.server.admin_delete(&format!("{directory}/{name}")));
            }
            assert!(world.server.admin_delete(directory));
        }
        let refused = item.ack().await;
        assert_eq!(refused, Err(WorkQueueError::LeaseLost(LostReason::ZnodeDeleted)));
        let taker = start_taking(&world, &queue(&other)).await;
        put_all(&queue(&client), &["c"]).await;
        let item = taker.await.expect("no panic").expect("there is an item");
        assert_eq!(text(&item), "c");
        item.ack().await.expect("the lease is held");
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_taker_that_waits_survives_the_removal_of_empty_directories() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        for item in ["a", "b"] {
            let taker = start_taking(&world, &queue(&other)).await;
            put_all(&queue(&client), &[item]).await;
            let taken = taker.await.expect("no panic").expect("there is an item");
            taken.ack().await.expect("the lease is held");
            sleep_ms(100).await;
            let waiting = start_taking(&world, &queue(&other)).await;
            world.server.reap();
            sleep_ms(100).await;
            world.server.reap();
            assert!(world.server.stat(ENTRIES).is_none(), "it is an empty container");
            put_all(&queue(&client), &["again"]).await;
            settle().await;
            let taken = waiting.await.expect("no panic").expect("there is an item");
            assert_eq!(text(&taken), "again");
            taken.ack().await.expect("the lease is held");
        }
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_item_whose_ack_was_dropped_returns_once_the_ack_has_left_nothing() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let first = take(&queue(&client)).await;
        sleep_ms(100).await;
        // The server creates the pin, and its replies take long. Meanwhile, it executes requests.
        let late = Action::Delay(Duration::from_secs(5));
        world.server.inject(at_op(session(&client), OpCode::CREATE2, late));
        let dropped = tokio::time::timeout(Duration::from_secs(1), first.ack().into_future());
        assert!(dropped.await.is_err(), "the reply is late");
        let before = world.server.requests().len();
        let second = take(&queue(&other)).await;
        second.ack().await.expect("no pin is in the way");
        let requests = world.server.requests().split_off(before);
        let multis =
            requests.iter().filter(|it| it.op == OpCode::MULTI && it.session == session(&other));
        assert_eq!(multis.count(), 1, "the ack was not refused");
        settle().await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_ack_whose_lease_is_lost_never_deletes_the_item_of_the_next_taker() {
    run(async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        let first = take(&queue(&client)).await;
        let status = first.status();
        sleep_ms(100).await;
        let next = start_taking(&world, &queue(&other)).await;
        // The session outlives an election that the lease does not, and the caller is polled late.
        world.server.elect(Duration::from_secs(12));
        let mut ack = Box::pin(first.ack().into_future());
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut ack).await.is_err());
        sleep_ms(19_000).await;
        assert_eq!(status.state(), Some(LockState::Lost(LostReason::DeadlinePassed)));
        let is_next = next.is_finished();
        let acked = ack.await;
        assert!(!(is_next && acked.is_ok()), "the other taker has the item");
        if acked.is_ok() {
            assert_eq!(children(&world, ENTRIES), [""; 0]);
            next.abort();
        } else {
            let item = next.await.expect("no panic").expect("the item has returned");
            item.ack().await.expect("the lease is held");
        }
        sleep_ms(1_000).await;
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn a_client_closes_at_once_although_nobody_awaits_an_ack() {
    for is_lost in [false, true] {
        run(async {
            let world = world();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            put_all(&queue(&other), &["a"]).await;
            let item = take(&queue(&client)).await;
            sleep_ms(100).await;
            if is_lost {
                world.server.elect(Duration::from_secs(12));
            } else {
                let late = Action::Delay(Duration::from_millis(500));
                world.server.inject(at_op(session(&client), OpCode::CREATE2, late));
            }
            let mut ack = Box::pin(item.ack().into_future());
            assert!(tokio::time::timeout(Duration::from_millis(100), &mut ack).await.is_err());
            sleep_ms(if is_lost { 20_000 } else { 100 }).await;
            let closed = tokio::time::timeout(Duration::from_secs(2), client.close()).await;
            assert_eq!(closed, Ok(CloseOutcome::Closed), "{is_lost}");
            drop(ack);
            assert_eq!(drain(&queue(&other)).await, ["a"]);
            check_clean(&world, &[&other]).await;
        });
    }
}

#[test]
fn a_refusal_names_what_was_refused_and_leaves_nothing() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["a"]).await;
        drop(take(&queue(&client)).await);
        sleep_ms(100).await;
        let without = |permission: Permissions| {
            let all = Permissions::ALL.0 & !permission.0;
            vec![Acl::new(Permissions(all), "world", "anyone")]
        };
        let refused = |action, path: &str| {
            let code = ErrorCode::NO_AUTH;
            Err(RecipeError::Refused { code, action, path: path.into() }.into())
        };
        let path_of_refused_put = async || {
            let refused = queue(&client).put("b").await.expect_err("it is refused");
            let WorkQueueError::Recipe(RecipeError::Refused { action, path, .. }) = &refused else {
                panic!("{refused}")
            };
            assert_eq!(*action, FailedAction::Create);
            let message = refused.to_string();
            (path.clone(), message)
        };
        let set = async |path: &str, acl| {
            client.set_acl(path, acl, None).await.expect("the list may be changed");
        };
        set(ENTRIES, without(Permissions::CREATE)).await;
        let (path, message) = path_of_refused_put().await;
        assert_eq!(path, format!("{ENTRIES}/entry-100-"));
        assert!(message.contains(&format!("permission CREATE on {ENTRIES:?}")), "{message}");
        set(ENTRIES, Acl::open()).await;
        set(PUTS, without(Permissions::CREATE)).await;
        let (path, message) = path_of_refused_put().await;
        assert!(path.starts_with(&format!("{PUTS}/")), "{path}");
        assert!(message.contains(&format!("permission CREATE on {PUTS:?}")), "{message}");
        set(PUTS, Acl::open()).await;
        set(ENTRIES, without(Permissions::READ)).await;
        let taken = queue(&client).take().await.map(|item| text(&item));
        assert_eq!(taken, refused(FailedAction::List, ENTRIES).map(|()| String::new()));
        set(ENTRIES, Acl::open()).await;
        set(LEASES, without(Permissions::READ)).await;
        let taken = queue(&client).take().await.map(|item| text(&item));
        assert_eq!(taken, refused(FailedAction::List, LEASES).map(|()| String::new()));
        set(LEASES, Acl::open()).await;
        set(ENTRIES, without(Permissions::DELETE)).await;
        let item = take(&queue(&client)).await;
        let path = item.path().to_owned();
        assert_eq!(item.ack().await, refused(FailedAction::Delete, &path));
        set(ENTRIES, Acl::open()).await;
        set(LEASES, without(Permissions::CREATE)).await;
        let taken = queue(&client).take().await.map(|item| text(&item));
        let lease = path.replace(ENTRIES, LEASES);
        assert_eq!(taken, refused(FailedAction::Create, &lease).map(|()| String::new()));
        set(LEASES, Acl::open()).await;
        assert_eq!(drain(&queue(&client)).await, ["a"]);
        check_clean(&world, &[&client]).await;
    });
}

/// Servers answer a put with codes that may pass or may not.
#[test]
fn a_put_ends_in_every_case_in_which_a_server_refuses_it_once_or_always() {
    for code in zk_tests::scene::CODES {
        for is_always in [false, true] {
            run(async {
                let world = world();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                put_all(&queue(&client), &["before"]).await;
                sleep_ms(10).await;
                for _ in 0..(if is_always { 30 } else { 1 }) {
                    let fault = at_op(session(&client), OpCode::MULTI, Action::Error(code));
                    world.server.inject(fault);
                }
                let put = queue(&client).put("a");
                let put = tokio::time::timeout(Duration::from_secs(90), put).await;
                world.server.clear_faults();
                sleep_ms(20_000).await;
                let taken = drain(&queue(&other)).await;
                match put {
                    Ok(Ok(())) => assert_eq!(taken, ["before", "a"], "{code}"),
                    Ok(Err(_)) | Err(_) => assert_eq!(taken, ["before"], "{code}"),
                }
                check_clean(&world, &[&client, &other]).await;
            });
        }
    }
}

/// The error is that of the server, and the connection was not lost.
#[test]
fn a_server_that_goes_on_failing_is_named_by_the_ack() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        put_all(&queue(&client), &["a"]).await;
        let leased = take(&queue(&client)).await;
        let id = session(&client);
        for _ in 0..100 {
            world.server.inject(at_op(id, OpCode::CREATE2, Action::Error(ErrorCode::SYSTEM_ERROR)));
        }
        match leased.ack().await {
            Err(WorkQueueError::Recipe(RecipeError::Refused { code, action, path })) => {
                let expected = (ErrorCode::SYSTEM_ERROR, FailedAction::Create);
                assert_eq!((code, action), expected);
                assert!(path.starts_with(ENTRIES), "{path}");
            }
            other => panic!("{other:?}"),
        }
        world.server.clear_faults();
        // Takers pass over an item that was not acknowledged for a second.
        sleep_ms(2_000).await;
        assert_eq!(drain(&queue(&client)).await, ["a"], "it was not acknowledged");
        check_clean(&world, &[&client]).await;
    });
}
