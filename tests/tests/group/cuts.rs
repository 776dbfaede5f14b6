//! Every single cut and every pair of cuts of a member, and of a client that watches.

use std::time::Duration;

use zk_recipes::{GroupChange, Released, SessionId};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::{check_clean, create_directory, group, is_member, join, stored};

/// The session of the client whose connections are cut, which is the same in every world.
fn first() -> Option<SessionId> {
    Some(session_of_first(FIRST))
}

fn one(data: &str) -> Vec<(String, String)> {
    vec![("a".to_owned(), data.to_owned())]
}

#[test]
fn a_member_survives_every_pair_of_cuts() {
    for is_there in [true, false] {
        let name = if is_there { "a member" } else { "a member of a new group" };
        let mut enumeration = Enumeration::new(name, first()).without_pairs_if(!is_there);
        enumeration.run(&|faults| {
            run(async {
                let world = World::new();
                if is_there {
                    create_directory(&world);
                }
                let client = world.client(FIRST).await;
                world.inject(faults);
                let membership = join(&client, "a", "1").await;
                assert_eq!(stored(&world), one("1"), "{}", world.trace());
                assert!(is_member(&membership));
                membership.set_data("2").await.expect("it may be written");
                assert_eq!(stored(&world), one("2"), "{}", world.trace());
                let released = membership.leave().await.expect("it may be deleted");
                assert_eq!(released, Released::Released, "\n{}", world.trace());
                assert!(stored(&world).is_empty(), "{}", world.trace());
                check_clean(&world, &[&client]).await;
                world.ran()
            })
        });
        assert!(enumeration.is_complete(30, 300), "{enumeration:?}");
    }
}

/// An administrator deletes the znode, and the session expires, while the connection is cut.
#[test]
fn a_member_that_rejoins_survives_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("a member that rejoins", first()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client(FIRST).await;
            let membership = join(&client, "a", "1").await;
            world.inject(faults);
            assert!(world.server.admin_delete(&crate::path("a")));
            sleep_ms(3_000).await;
            assert!(is_member(&membership), "{}", world.trace());
            assert_eq!(stored(&world), one("1"), "{}", world.trace());
            membership.set_data("2").await.expect("it may be written");
            assert_eq!(stored(&world), one("2"), "{}", world.trace());
            drop(membership);
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 400), "{enumeration:?}");
}

/// The changes are those of the ensemble, in any case: whatever is cut, each is reported once, and
/// the end is the same.
#[test]
fn a_watch_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("a watch", first());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_directory(&world);
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            let a = join(&other, "a", "1").await;
            world.inject(faults);
            let mut watch = group(&client).watch();
            let next = async |watch: &mut zk_recipes::GroupWatch| {
                let change = watch.next_within(Duration::from_secs(10)).await;
                crate::said(&change.unwrap_or_else(|e| panic!("{e}\n{}", world.trace())))
            };
            assert_eq!(next(&mut watch).await, "joined a 1");
            let b = join(&other, "b", "1").await;
            assert_eq!(next(&mut watch).await, "joined b 1");
            a.set_data("2").await.expect("it may be written");
            assert_eq!(next(&mut watch).await, "changed a 2");
            b.leave().await.expect("it may be deleted");
            assert_eq!(next(&mut watch).await, "left b 1");
            let quiet = watch.next_within(Duration::from_secs(2)).await;
            assert!(quiet.is_err(), "{quiet:?}\n{}", world.trace());
            drop((a, watch));
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 300), "{enumeration:?}");
}

/// The session expires while the znode is deleted and created again, and connections are cut.
#[test]
fn a_watch_whose_session_expires_survives_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("a watch that expires", None).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_directory(&world);
            let client = world.client(FIRST).await;
            let other = world.client(SECOND).await;
            let owner = other.session_id().expect("connected");
            let path = crate::path("a");
            world.server.admin_create(&path, b"1", Some(owner));
            let mut watch = group(&client).watch();
            let joined = watch.next().await.expect("it may be read");
            world.inject(faults);
            world.server.expire(client.session_id().expect("connected"));
            assert!(world.server.admin_delete(&path));
            world.server.admin_create(&path, b"1", Some(owner));
            let mut said = Vec::new();
            while let Ok(change) = watch.next_within(Duration::from_secs(5)).await {
                let (GroupChange::Joined(member) | GroupChange::Left(member)) = &change else {
                    panic!("{change:?}\n{}", world.trace())
                };
                let GroupChange::Joined(known) = &joined else { panic!("{joined:?}") };
                let is_old = member.czxid == known.czxid;
                assert_eq!(is_old, matches!(change, GroupChange::Left(_)), "{}", world.trace());
                said.push(crate::said(&change));
            }
            assert_eq!(said, ["left a 1", "joined a 1"], "{}", world.trace());
            assert!(world.server.admin_delete(&path));
            drop(watch);
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(15, 100), "{enumeration:?}");
}
