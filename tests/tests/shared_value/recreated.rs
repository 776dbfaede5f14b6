//! A znode that is deleted and created again has the same versions, and is another value.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::ValueError;
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, CutOff};

use crate::{PATH, check_clean, create, value};

/// Deletes the znode and creates another one.
fn recreate(world: &World, data: &str) {
    assert!(world.server.admin_delete(PATH), "it exists");
    world.server.admin_create(PATH, data.as_bytes(), None);
}

#[test]
fn a_value_of_an_earlier_znode_is_a_conflict_although_the_version_is_the_same() {
    for writes in 0..3 {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, "same");
            let value = value(&client);
            let write = |_| world.server.admin_set_data(PATH, b"same");
            (0..writes).for_each(write);
            let old = value.get().await.expect("it can be read");
            recreate(&world, "same");
            (0..writes).for_each(write);
            let new = value.get().await.expect("it can be read");
            assert_eq!((old.version(), old.bytes()), (new.version(), new.bytes()));
            assert_ne!(old, new);
            assert_eq!(value.compare_and_set(&old, "x").await, Err(ValueError::Conflict));
            assert_eq!(value.get().await, Ok(new.clone()), "nothing was written");
            value.compare_and_set(&new, "y").await.expect("it is the value");
            check_clean(&world, &[&client]).await;
        });
    }
}

#[test]
fn a_znode_that_is_created_again_between_the_read_and_the_write_is_reported() {
    for is_update in [false, true] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, "old");
            let value = value(&client);
            let old = value.get().await.expect("it can be read");
            let pause = Action::Pause(Duration::from_millis(500));
            world.server.inject(at_op(session(&client), OpCode::MULTI, pause));
            let writing = spawn({
                let (value, old) = (value.clone(), old.clone());
                async move {
                    match is_update {
                        true => value.update(|_| "x".into()).await,
                        false => value.compare_and_set(&old, "x").await,
                    }
                }
            });
            sleep_ms(100).await;
            recreate(&world, "new");
            let written = match writing.await.expect("no panic") {
                Err(ValueError::Recreated { written }) => written,
                other => panic!("{other:?}\n{}", world.trace()),
            };
            assert!(written.czxid() > old.czxid());
            assert_eq!(value.get().await, Ok(written), "this is what was written");
            check_clean(&world, &[&client]).await;
        });
    }
}

/// Another client has read the value at a server that is ahead of the one of this client.
#[test]
fn a_read_of_an_older_znode_or_version_is_no_conflict() {
    for is_recreated in [false, true] {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            create(&world, "old");
            let (mine, theirs) = (value(&client), value(&other));
            mine.get().await.expect("it can be read");
            let notices_after = Duration::from_secs(2);
            let cut_off = CutOff { notices_after, unreported: Duration::ZERO };
            world.server.cut_off(session(&client), cut_off);
            match is_recreated {
                true => recreate(&world, "new"),
                false => world.server.admin_set_data(PATH, b"new"),
            }
            let read = theirs.get().await.expect("it can be read");
            assert_eq!(read.bytes(), "new");
            mine.compare_and_set(&read, "x").await.expect("it is the newest value");
            check_clean(&world, &[&client, &other]).await;
        });
    }
}

/// The session ends before the outcome of a write is known, and the znode that is found afterwards
/// is another one with the old version: the write must not be repeated on that one.
#[test]
fn a_lost_write_is_not_repeated_on_another_znode() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "old");
        let value = value(&client);
        let old = value.get().await.expect("it can be read");
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Expire));
        let writing = spawn({
            let (value, old) = (value.clone(), old.clone());
            async move { value.compare_and_set(&old, "x").await }
        });
        world.until("the session ends", |_| world.server.pending_faults().is_empty()).await;
        recreate(&world, "new");
        let result = writing.await.expect("no panic");
        let is_harmless = match &result {
            Err(ValueError::Undecided { found: Some(found), .. }) => found.bytes() == "new",
            Err(ValueError::Recreated { .. }) => false,
            other => matches!(other, Err(ValueError::Conflict)),
        };
        assert!(is_harmless, "{result:?}\n{}", world.trace());
        assert_eq!(world.server.data(PATH).as_deref(), Some(b"new".as_slice()));
        check_clean(&world, &[&client]).await;
    });
}
