//! Views of a lock for those who do not own it.

use zk_recipes::kind::Kind;
use zk_recipes::{AtRiskPolicy, LockState, LostReason};
use zk_tests::scene::{partition, session};
use zk_tests::world::{World, run, sleep_ms};

use crate::{FIRST, Locks, Way, check_clean, for_every_kind, release};

fn follows<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = way.hold(&Locks::new(&client)).await;
        let status = guard.status();
        let copy = status.clone();
        assert_eq!((status.state(), copy.state()), (Some(LockState::Held), Some(LockState::Held)));
        assert!(status.is_held());
        sleep_ms(200).await;
        partition(&world, 500);
        sleep_ms(1).await;
        assert_eq!(status.state(), Some(LockState::AtRisk), "{}", way.name);
        assert!(!copy.is_held());
        sleep_ms(3_000).await;
        assert!(copy.is_held());
        world.server.expire(session(&client));
        guard.lost().await;
        // As long as the guard is there.
        let lost = LockState::Lost(LostReason::SessionExpired);
        assert_eq!((status.state(), guard.state()), (Some(lost), lost), "{}", way.name);
        drop(guard);
        assert_eq!((status.state(), copy.state()), (None, None), "{}", way.name);
        assert!(format!("{status:?}").contains("None"));
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_view_says_what_the_guard_says_and_ends_with_it() {
    for_every_kind!(follows);
}

/// At once: the delete is not even sent.
fn ends<K: Kind>(way: &Way<K>) {
    for is_dropped in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = way.hold(&Locks::new(&client)).await;
            let (status, path) = (guard.status(), guard.path().to_owned());
            let body = guard.run(std::future::pending::<()>()).stop_at_risk();
            drop(body);
            if is_dropped {
                drop(guard);
                assert_eq!(status.state(), None, "{}", way.name);
            } else {
                let releasing = guard.release();
                assert_eq!(status.state(), None, "{}", way.name);
                releasing.await.expect("it can be deleted");
            }
            assert!(!status.is_held());
            world.until("it is gone", |server| server.stat(&path).is_none()).await;
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_view_ends_when_the_release_begins() {
    for_every_kind!(ends);
}

fn keeps_nothing<K: Kind>(way: &Way<K>) {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = way.hold(&Locks::with(&client, AtRiskPolicy::TreatAsLost)).await;
        let status = guard.status();
        drop(client);
        sleep_ms(20_000).await;
        assert!(status.is_held(), "{}: the guard keeps the session", way.name);
        drop(guard);
        world.until("the session is closed", |server| server.sessions().is_empty()).await;
        assert_eq!(status.state(), None);
    });
}

#[test]
fn a_view_keeps_nothing_alive() {
    for_every_kind!(keeps_nothing);
}

#[test]
fn a_view_of_a_writer_ends_with_its_downgrade() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let writing = Locks::new(&client).rw.write().await.expect("nobody else wants it");
        let status = writing.status();
        let reading = writing.downgrade().await.expect("it is held");
        assert_eq!(status.state(), None);
        assert!(reading.status().is_held());
        release(reading).await;
        check_clean(&world, &[&client]).await;
    });
}
