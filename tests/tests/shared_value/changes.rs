//! Following a value and a number through their changes.

use std::time::Duration;

use zk_recipes::{RecipeError, ValueError, Versioned};
use zk_tests::scene::{FIRST, SECOND, partition, poll_times, session};
use zk_tests::world::{Enumeration, World, run};

use crate::{PATH, check_clean, counter, create, first_session, value};

fn text(value: Option<Versioned>) -> Option<String> {
    value.map(|value| String::from_utf8(value.bytes().to_vec()).expect("the tests write text"))
}

#[test]
fn the_current_value_is_first_and_the_last_one_is_always_reported() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut changes = value(&client).changes();
        assert_eq!(text(changes.next().await.expect("it can be read")), None);
        create(&world, "0");
        assert_eq!(text(changes.next().await.expect("it can be read")).as_deref(), Some("0"));
        let theirs = value(&other);
        for number in 1..=20 {
            theirs.set(number.to_string()).await.expect("it can be written");
        }
        let mut seen = Vec::new();
        while seen.last().map(String::as_str) != Some("20") {
            seen.extend(text(changes.next().await.expect("it can be read")));
        }
        assert!(world.server.admin_delete(PATH));
        assert_eq!(text(changes.next().await.expect("it can be read")), None);
        let idle = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
        idle.expect_err("nothing changes");
        drop(changes);
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn changes_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("changes", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
            create(&world, "0");
            world.inject(faults);
            let mut changes = counter(&client).changes();
            assert_eq!(changes.next().await, Ok(Some(0)));
            let theirs = counter(&other);
            for sum in 1..=2 {
                assert_eq!(theirs.add(1).await, Ok(sum));
                // A connection that was lost is known to be by now, and so may be the change.
                while changes.next().await.expect("it can be read") != Some(sum) {}
            }
            drop(changes);
            check_clean(&world, &[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 60), "{enumeration:?}");
}

#[test]
fn a_change_during_an_outage_or_in_another_session_is_reported() {
    run(async {
        for outage_ms in [1_000, 30_000] {
            let world = World::new();
            let client = world.client(FIRST).await;
            create(&world, "0");
            let before = session(&client);
            let mut changes = counter(&client).changes();
            assert_eq!(changes.next().await, Ok(Some(0)));
            partition(&world, outage_ms);
            world.server.admin_set_data(PATH, b"17");
            assert_eq!(changes.next().await, Ok(Some(17)), "\n{}", world.trace());
            assert_eq!(session(&client) == before, outage_ms == 1_000);
            world.server.admin_set_data(PATH, b"18");
            assert_eq!(changes.next().await, Ok(Some(18)), "\n{}", world.trace());
        }
    });
}

#[test]
fn a_wait_for_a_change_that_was_dropped_loses_nothing() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "0");
        let mut changes = counter(&client).changes();
        for polls in 0..10 {
            let polled = poll_times(changes.next(), polls % 4, || {});
            let _ = tokio::time::timeout(Duration::from_millis(5), polled).await;
            world.server.admin_set_data(PATH, polls.to_string().as_bytes());
            while changes.next().await != Ok(Some(i64::try_from(polls).expect("small"))) {}
        }
    });
}

#[test]
fn data_that_is_no_number_is_reported_and_the_next_change_too() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create(&world, "x");
        let mut changes = counter(&client).changes();
        let malformed = changes.next().await.expect_err("it is no number");
        assert!(matches!(malformed, ValueError::Malformed { .. }), "{malformed}");
        world.server.admin_set_data(PATH, b"3");
        assert_eq!(changes.next().await, Ok(Some(3)));
        client.close().await;
        let stopped = changes.next().await.expect_err("the client has stopped");
        assert_eq!(stopped, ValueError::Recipe(RecipeError::Closed));
    });
}
