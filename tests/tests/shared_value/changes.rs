//! Following a value and a number through their changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{Acl, RecipeError, ValueError, Versioned};
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND, partition, poll_times, session};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{ServerConfig, ServerVersion};

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

/// Servers from 3.8.4 and 3.9.2 tell those who may no longer read the value nothing, not even of the
/// changes that follow when they may read it again.
#[test]
fn a_permission_that_is_taken_away_is_reported_and_no_change_is_lost_when_it_is_back() {
    run(async {
        let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
        let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let client = world.client(FIRST).await;
        create(&world, "0");
        let mut changes = value(&client).changes();
        assert_eq!(text(changes.next().await.expect("it can be read")).as_deref(), Some("0"));
        owner.set_acl(PATH, Acl::creator_all(), None).await.expect("everyone may");
        value(&owner).set("1").await.expect("the owner may");
        let noticed = tokio::time::timeout(Duration::from_secs(40), changes.next()).await;
        let error = noticed.expect("it is checked").expect_err("it may not be read");
        assert!(matches!(error, RecipeError::Refused { .. }), "{error}");
        owner.set_acl(PATH, Acl::open(), None).await.expect("the owner may");
        assert_eq!(text(changes.next().await.expect("it can be read")).as_deref(), Some("1"));

        // It is hidden and shown again before it is checked.
        owner.set_acl(PATH, Acl::creator_all(), None).await.expect("everyone may");
        value(&owner).set("2").await.expect("the owner may");
        owner.set_acl(PATH, Acl::open(), None).await.expect("the owner may");
        let noticed = tokio::time::timeout(Duration::from_secs(40), changes.next()).await;
        let found = noticed.expect("it is checked").expect("it can be read");
        assert_eq!(text(found).as_deref(), Some("2"));
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
        let malformed = changes.next().await.expect_err("it is not a number");
        assert!(matches!(malformed, ValueError::Malformed { .. }), "{malformed}");
        world.server.admin_set_data(PATH, b"3");
        assert_eq!(changes.next().await, Ok(Some(3)));
        client.close().await;
        let stopped = changes.next().await.expect_err("the client has stopped");
        assert_eq!(stopped, ValueError::Recipe(RecipeError::Closed));
    });
}

/// The numbers that a stream reports never decrease, although its session moves between members
/// that lag, and ends.
#[test]
fn changes_never_go_back_when_the_session_moves_between_members_that_lag() {
    let mut reports = 0;
    for seed in 0..40 {
        run(async {
            let mut random = SplitMix64::new(seed);
            let world = World::lagging(seed);
            create(&world, "0");
            let member = Arc::new(AtomicUsize::new(0));
            let client = world.moving_client(FIRST, &member).await;
            let mut changes = counter(&client).changes();
            assert_eq!(changes.next().await, Ok(Some(0)), "its own server has it");
            let (mut number, mut last) = (0, 0);
            for _ in 0..100 {
                match random.below(6) {
                    0..3 => {
                        number += 1;
                        world.server.admin_set_data(PATH, number.to_string().as_bytes());
                    }
                    3..5 => {
                        member.store(random.below(3) as usize, Ordering::SeqCst);
                        world.server.disconnect_all();
                    }
                    _ if random.below(8) == 0 => {
                        client.session_id().into_iter().for_each(|own| world.server.expire(own));
                    }
                    _ => {}
                }
                let time = Duration::from_millis(random.below(200));
                while let Ok(report) = tokio::time::timeout(time, changes.next()).await {
                    let seen = report.expect("it can be read").expect("it exists");
                    assert!(seen >= last, "{seen} behind {last}\n{}", world.trace());
                    last = seen;
                    reports += 1;
                }
            }
            sleep_ms(10_000).await;
            while last != number {
                last = changes.next().await.expect("it can be read").expect("it exists");
            }
        });
    }
    assert!(reports > 400, "{reports} reports");
}
