//! Leases with a limit: a taker that hangs loses its item although its session lives, and an
//! acknowledgement that is late never touches the lease of the next taker.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, LockState, LostReason, Stopped, WorkQueue, WorkQueueError};
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::work_queue::{
    LEASES, QUEUE, check_clean, children, drain, put_all, queue, start_taking, take, text, world,
};
use zk_tests::world::{run, run_within, sleep_ms};
use zk_testserver::{Action, Until};

const LIMIT_MS: u64 = 60_000;
const HELD_TOO_LONG: LostReason = LostReason::HeldTooLong;

fn limited(client: &Client) -> WorkQueue {
    WorkQueue::builder(client, QUEUE)
        .map(|builder| builder.watch_check(None).redelivery_delay(Duration::ZERO))
        .and_then(|builder| builder.lease_for(Duration::from_millis(LIMIT_MS)).build())
        .expect("the options are legal")
}

#[test]
fn a_taker_that_hangs_loses_its_item_at_the_limit_and_learns_it() {
    run_within(Duration::from_secs(600), async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a"]).await;
        // Nobody polls anything of this item.
        let hung = take(&limited(&client)).await;
        let lost = spawn(hung.lost());
        let next = start_taking(&world, &queue(&other)).await;
        sleep_ms(LIMIT_MS - 200).await;
        assert!(!next.is_finished() && !lost.is_finished());
        assert_ne!(hung.state(), LockState::Lost(HELD_TOO_LONG));
        sleep_ms(300).await;
        assert!(next.is_finished(), "the item has not returned\n{}", world.trace());
        assert_eq!(hung.state(), LockState::Lost(HELD_TOO_LONG));
        assert_eq!(lost.await.expect("no panic"), HELD_TOO_LONG);
        assert_eq!(hung.ack().await, Err(WorkQueueError::LeaseLost(HELD_TOO_LONG)));
        let item = next.await.expect("no panic").expect("there is an item");
        item.ack().await.expect("the lease is held");
        assert_eq!(queue(&other).length().await, Ok(0));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// The task that has the item never runs again, and neither does its guard.
#[test]
fn a_leaked_item_returns_at_the_limit_and_without_one_never() {
    run_within(Duration::from_secs(3_600), async {
        let world = world();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        put_all(&queue(&other), &["a", "b"]).await;
        std::mem::forget(take(&limited(&client)).await);
        std::mem::forget(take(&queue(&client)).await);
        sleep_ms(10 * LIMIT_MS).await;
        assert_eq!(drain(&queue(&other)).await, ["a"]);
        assert_eq!(children(&world, LEASES).len(), 1);
        client.close().await;
        sleep_ms(1_000).await;
        assert_eq!(drain(&queue(&other)).await, ["b"]);
        check_clean(&world, &[&other]).await;
    });
}

#[test]
fn an_item_that_is_acknowledged_in_time_is_not_affected() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let jobs = limited(&client);
        put_all(&jobs, &["a", "b"]).await;
        let (a, b) = (take(&jobs).await, take(&jobs).await);
        a.ack().await.expect("the lease is held");
        sleep_ms(LIMIT_MS - 500).await;
        b.ack().await.expect("the lease is held");
        assert_eq!(jobs.length().await, Ok(0));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_body_that_works_on_an_item_ends_with_the_lease() {
    run_within(Duration::from_secs(600), async {
        let world = world();
        let client = world.client(FIRST).await;
        let jobs = limited(&client);
        put_all(&jobs, &["a", "b", "c"]).await;
        let (done, late, deleted) = (take(&jobs).await, take(&jobs).await, take(&jobs).await);
        assert_eq!(done.run(async { 17 }).await, Ok(17));
        done.ack().await.expect("a body leaves the lease as it is");

        let lease = children(&world, LEASES).pop().expect("two items are leased");
        assert!(world.server.admin_delete(&format!("{LEASES}/{lease}")));
        let stopped = deleted.run(sleep_ms(LIMIT_MS)).await;
        assert_eq!(stopped, Err(Stopped::Lost(LostReason::ZnodeDeleted)));

        let stopped = late.run(sleep_ms(2 * LIMIT_MS)).await.map_err(WorkQueueError::from);
        assert_eq!(stopped, Err(WorkQueueError::LeaseLost(HELD_TOO_LONG)));
        drop((late, deleted));
        assert_eq!(drain(&jobs).await, ["b", "c"]);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn the_time_that_remains_of_an_item_ends_with_the_session_lease_or_the_limit() {
    run_within(Duration::from_secs(600), async {
        let world = world().leased();
        let client = world.client(FIRST).await;
        let (jobs, free) = (limited(&client), queue(&client));
        put_all(&jobs, &["a", "b"]).await;
        let (limited, unlimited) = (take(&jobs).await, take(&free).await);
        sleep_ms(LIMIT_MS - 2_000).await;
        let left = unlimited.remaining().expect("the session has a lease");
        assert!(left > Duration::from_secs(3), "{left:?}");
        assert_eq!(limited.remaining(), Some(Duration::from_secs(2)));
        sleep_ms(2_000).await;
        assert_eq!(limited.remaining(), Some(Duration::ZERO));
        assert!(unlimited.remaining() > Some(Duration::from_secs(3)));
        unlimited.ack().await.expect("the lease is held");
        drop(limited);
        drain(&free).await;
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn an_item_proves_its_lease() {
    run_within(Duration::from_secs(600), async {
        let world = world();
        let client = world.client(FIRST).await;
        let jobs = queue(&client);
        put_all(&jobs, &["a", "b"]).await;
        let (item, lost) = (take(&jobs).await, take(&jobs).await);
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::CutAfter));
        item.validate().await.expect("the lease is held");
        assert_eq!(item.session(), session(&client));
        let (status, lost_status) = (item.status(), lost.status());
        assert!(status.is_held());
        let lease = children(&world, LEASES).pop().expect("two items are leased");
        assert!(world.server.admin_delete(&format!("{LEASES}/{lease}")));
        let refused = WorkQueueError::LeaseLost(LostReason::ZnodeDeleted);
        assert_eq!(lost.validate().await, Err(refused));
        assert_eq!(lost_status.state(), Some(LockState::Lost(LostReason::ZnodeDeleted)));
        world.server.disconnect_all();
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Freeze));
        let late = item.validate().timeout(Duration::from_millis(500)).await;
        assert!(
            late.expect_err("no server answers").to_string().starts_with("timed out after 500ms")
        );
        item.ack().await.expect("the lease is what it was");
        assert_eq!(status.state(), None);
        drop(lost);
        drain(&jobs).await;
        check_clean(&world, &[&client]).await;
    });
}

/// The multi of an acknowledgement is interrupted shortly before the limit, and another taker gets
/// the item at the limit. Both leases have the same name.
#[test]
fn an_ack_that_the_limit_interrupts_never_deletes_the_item_of_the_next_taker() {
    let faults = [
        Action::Error(jute_codec::ErrorCode::THROTTLED_OP),
        Action::CutBefore,
        Action::CutAfter,
        Action::LateCommit(Until::NextWrite),
        Action::LateCommit(Until::After(Duration::from_millis(100))),
    ];
    let (mut acked, mut lost) = (0, 0);
    for fault in faults {
        for before_ms in [10, 50, 100, 150, 190, 290] {
            for outage_ms in [0, 100, 400] {
                run_within(Duration::from_secs(600), async {
                    let world = world();
                    let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                    put_all(&queue(&other), &["a"]).await;
                    let item = take(&limited(&client)).await;
                    let next = start_taking(&world, &queue(&other)).await;
                    sleep_ms(LIMIT_MS - 50 - before_ms).await;
                    let fault = at_op(session(&client), OpCode::MULTI, fault.clone());
                    world.server.inject(fault.refuse_for(Duration::from_millis(outage_ms)));
                    let result = spawn(item.ack());
                    sleep_ms(5_000).await;
                    let context = format!("{before_ms} ms before, {outage_ms} ms of outage");
                    assert!(result.is_finished(), "{context}\n{}", world.trace());
                    let result = result.await.expect("no panic");
                    let delivered = next.is_finished();
                    if delivered {
                        lost += 1;
                        let item = next.await.expect("no panic").expect("there is an item");
                        assert_eq!(text(&item), "a");
                        let refused = WorkQueueError::LeaseLost(HELD_TOO_LONG);
                        assert_eq!(result, Err(refused), "{context}\n{}", world.trace());
                        item.ack().await.expect("nobody has deleted the item");
                    } else {
                        acked += 1;
                        let is_known = result == Ok(())
                            || matches!(result, Err(WorkQueueError::Unknown { .. }));
                        assert!(is_known, "{context}: {result:?}\n{}", world.trace());
                        next.abort();
                        let _ = next.await;
                    }
                    assert_eq!(queue(&other).length().await, Ok(0), "{context}");
                    check_clean(&world, &[&client, &other]).await;
                });
            }
        }
    }
    assert!(acked > 20 && lost > 20, "{acked} acknowledged, {lost} lost");
}
