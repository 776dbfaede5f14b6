//! Views of a lock for tasks that do not own the guard.

use zk_recipes::{AtRiskPolicy, LockState, LostReason};
use zk_tests::case::{Case, Writer};
use zk_tests::for_each_lock;
use zk_tests::scene::{FIRST, hold, partition, release, session};
use zk_tests::world::{World, run, sleep_ms};

for_each_lock! {
    #[test] locks: [
        a_view_says_what_the_guard_says_and_ends_with_it,
        a_view_ends_when_the_release_begins,
        a_view_keeps_nothing_alive,
    ]
}

fn a_view_says_what_the_guard_says_and_ends_with_it<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::of(&client)).await;
        let status = guard.status();
        let copy = status.clone();
        assert_eq!((status.state(), copy.state()), (Some(LockState::Held), Some(LockState::Held)));
        assert!(status.is_held());
        sleep_ms(200).await;
        partition(&world, 500);
        sleep_ms(1).await;
        assert_eq!(status.state(), Some(LockState::AtRisk));
        assert!(!copy.is_held());
        sleep_ms(3_000).await;
        assert!(copy.is_held());
        world.server.expire(session(&client));
        guard.lost().await;
        // The view reports the loss as long as the guard exists.
        let lost = LockState::Lost(LostReason::SessionExpired);
        assert_eq!((status.state(), guard.state()), (Some(lost), lost));
        drop(guard);
        assert_eq!((status.state(), copy.state()), (None, None));
        assert!(format!("{status:?}").contains("None"));
        world.check_clean(&[&client]).await;
    });
}

/// The view ends at once, before the delete is sent.
fn a_view_ends_when_the_release_begins<C: Case>() {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&C::of(&client)).await;
            let (status, path) = (guard.status(), guard.path().to_owned());
            let body = guard.run(std::future::pending::<()>()).stop_at_risk();
            drop(body);
            if is_dropped {
                drop(guard);
                assert_eq!(status.state(), None);
            } else {
                let releasing = guard.release();
                assert_eq!(status.state(), None);
                releasing.await.expect("its znode can be deleted");
            }
            assert!(!status.is_held());
            world.until("it is gone", |server| server.stat(&path).is_none()).await;
            world.check_clean(&[&client]).await;
        });
    }
}

fn a_view_keeps_nothing_alive<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&C::with(&client, |lock| lock.at_risk(AtRiskPolicy::TreatAsLost))).await;
        let status = guard.status();
        drop(client);
        sleep_ms(20_000).await;
        assert!(status.is_held(), "the guard keeps the session");
        drop(guard);
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
        assert_eq!(status.state(), None);
    });
}

#[test]
fn a_view_of_a_writer_ends_with_its_downgrade() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let writing = hold(&Writer::of(&client)).await;
        let status = writing.status();
        let reading = writing.downgrade().await.expect("the lock is held");
        assert_eq!(status.state(), None);
        assert!(reading.status().is_held());
        release(reading).await;
        world.check_clean(&[&client]).await;
    });
}
