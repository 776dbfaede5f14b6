//! Caches that may not read something, or whose reply is too long: what is not known is not gone.

use std::time::Duration;

use zk_recipes::{Acl, Cache, CacheError, CacheEvent, Client, CreateMode, Permissions};
use zk_tests::meter::Pace;
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{ServerConfig, ServerVersion};

use crate::basics::described;
use crate::{actual, refuse_persistent_watches, settle, shown};

/// Forbids or permits everybody to read a znode and the list of its children.
async fn set_readable(client: &Client, path: &str, is_readable: bool) {
    let mut acl = Acl::open();
    if !is_readable {
        acl.iter_mut().for_each(|entry| entry.perms = Permissions::WRITE | Permissions::ADMIN);
    }
    client.set_acl(path, acl, None).await.unwrap();
}

#[track_caller]
fn check_unreadable(result: Result<(), CacheError>, unreadable: &str) {
    let Err(CacheError::Unreadable { path, error, .. }) = result else { panic!("{result:?}") };
    assert_eq!(path, unreadable, "{error}");
}

/// Waits, in virtual time, until the cache is complete. Returns what it reports until then.
async fn until_complete(cache: &mut Cache) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().map(String::as_str) != Some("Complete") {
        told.extend(described(&[cache.next().await.unwrap()]));
    }
    told
}

#[test]
fn a_list_that_has_become_too_long_removes_nothing_and_is_not_complete() {
    for is_old in [false, true] {
        run(async {
            let world = World::new().pace(Pace::CALM.beside(2_000));
            if is_old {
                refuse_persistent_watches(&world.server, 2);
            }
            let client = world.client_with(1, |builder| builder.response_limit(4_096)).await;
            world.server.admin_create("/t", b"", None);
            let child = |number: usize| format!("/t/{number:0100}");
            for number in 0..38 {
                world.server.admin_create(&child(number), b"", None);
            }
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            assert_eq!(cache.len(), 39);
            for number in 38..42 {
                world.server.admin_create(&child(number), b"", None);
            }
            world.server.disconnect_all();
            world.server.admin_delete(&child(0));
            world.server.admin_set_data(&child(1), b"new");
            world.server.admin_create(&child(42), b"", None);
            let events = settle(&mut cache, 900).await.unwrap();
            let told = described(&events);
            let (removed, changed) =
                (format!("removed {}", child(0)), format!("changed {}", child(1)));
            assert!(told.contains(&removed) && told.contains(&changed), "{told:?}");
            let is_removed = |event: &&CacheEvent| matches!(event, CacheEvent::Removed { .. });
            assert_eq!(events.iter().filter(is_removed).count(), 1, "{told:?}");
            assert!(events.iter().any(|event| matches!(event, CacheEvent::Unreadable { .. })));
            assert!(!cache.is_complete() && cache.len() >= 38, "{told:?}");
            check_unreadable(cache.complete().await, "/t");
            let mut fresh = Cache::tree(&client, "/t").build().unwrap();
            check_unreadable(fresh.complete().await, "/t");
            // Once the list fits, both caches notice by themselves.
            for number in 10..20 {
                world.server.admin_delete(&child(number));
            }
            for cache in [&mut cache, &mut fresh] {
                until_complete(cache).await;
                assert_eq!((cache.len(), cache.unreadable().count()), (33, 0));
            }
        });
    }
}

#[test]
fn a_path_that_may_not_be_read_is_an_error_that_names_it() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/t", "secret", CreateMode::Persistent).await.unwrap();
        client.create("/t/a", "", CreateMode::Persistent).await.unwrap();
        set_readable(&client, "/t", false).await;
        for accepts in [false, true] {
            let builder = Cache::tree(&client, "/t");
            let builder = if accepts { builder.accept_unreadable() } else { builder };
            let mut cache = builder.build().unwrap();
            for _ in 0..2 {
                check_unreadable(cache.complete().await, "/t");
                assert!(!cache.is_complete() && !cache.is_missing());
            }
            assert_eq!(cache.unreadable().count(), 1);
        }
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        check_unreadable(cache.complete().await, "/t");
        set_readable(&client, "/t", true).await;
        cache.complete().await.unwrap();
        assert_eq!(cache.len(), 2);
    });
}

#[test]
fn what_was_known_of_a_znode_stays_when_it_may_no_longer_be_read() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        for path in ["/t", "/t/a", "/t/a/x", "/t/b"] {
            client.create(path, path.to_owned(), CreateMode::Persistent).await.unwrap();
        }
        let mut strict = Cache::tree(&client, "/t").build().unwrap();
        let mut lenient = Cache::tree(&client, "/t").accept_unreadable().build().unwrap();
        strict.complete().await.unwrap();
        lenient.complete().await.unwrap();
        set_readable(&client, "/t/a", false).await;
        world.server.disconnect_all();
        world.server.admin_set_data("/t/a", b"new");
        world.server.admin_set_data("/t/a/x", b"new");
        for (cache, accepts) in [(&mut strict, false), (&mut lenient, true)] {
            let told = described(&settle(cache, 900).await.unwrap());
            assert!(told.contains(&"changed /t/a/x".to_owned()), "{told:?}");
            assert!(!told.iter().any(|told| told.starts_with("removed")), "{told:?}");
            assert_eq!((cache.is_complete(), cache.len()), (accepts, 4), "{told:?}");
            assert_eq!(&*cache.get("/t/a").unwrap().data, b"/t/a");
            assert_eq!(cache.unreadable().next().unwrap().0, "/t/a");
        }
        set_readable(&client, "/t/a", true).await;
        assert_eq!(until_complete(&mut strict).await, ["changed /t/a", "Complete"]);
        // What is gone is not unreadable.
        set_readable(&client, "/t/a", false).await;
        world.server.disconnect_all();
        assert!(!described(&settle(&mut strict, 900).await.unwrap()).is_empty());
        world.server.admin_delete("/t/a/x");
        world.server.admin_delete("/t/a");
        let told = until_complete(&mut strict).await;
        assert_eq!(told, ["removed /t/a/x", "removed /t/a", "Complete"]);
    });
}

/// The read that is refused is one of the whole tree. The one after it follows a change.
#[test]
fn what_was_missed_below_a_refusal_is_read_when_the_znode_changes() {
    run(async {
        let world = World::new();
        let (client, owner) = (world.client(1).await, world.client(2).await);
        client.create("/t", "", CreateMode::Persistent).await.unwrap();
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        set_readable(&owner, "/t", false).await;
        world.server.disconnect_all();
        world.server.admin_create("/t/missed", b"", None);
        settle(&mut cache, 900).await.unwrap();
        check_unreadable(cache.complete().await, "/t");
        set_readable(&owner, "/t", true).await;
        world.server.admin_set_data("/t", b"new");
        let told = until_complete(&mut cache).await;
        assert_eq!(told, ["changed /t", "added /t/missed", "Complete"]);
    });
}

#[test]
fn what_may_not_be_read_is_read_again_after_pauses_that_grow() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        client.create("/t", "secret", CreateMode::Persistent).await.unwrap();
        set_readable(&client, "/t", false).await;
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        check_unreadable(cache.complete().await, "/t");
        let events = settle(&mut cache, 110_000).await.unwrap();
        assert_eq!(events.len(), 0, "{events:?}");
        let reads = cache.stats().reads;
        assert_eq!(reads, 7, "after 1 s, 3 s, 7 s, 15 s, 31 s and 63 s");
    });
}

#[test]
fn a_path_that_does_not_exist_is_complete_and_missing() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let mut cache = Cache::tree(&client, "/typo").build().unwrap();
        assert!(!cache.is_missing(), "nothing is known yet");
        cache.complete().await.unwrap();
        assert!(cache.is_missing() && cache.is_empty());
        world.server.admin_create("/typo", b"", None);
        sleep_ms(1).await;
        cache.next().await.unwrap();
        assert!(!cache.is_missing());
    });
}

/// Servers of version 3.9 report no change to whoever may not read, and nothing when permissions change.
/// The bound is a check of each znode, and a second more for the read of everything.
#[test]
fn a_cache_that_could_not_read_for_a_while_shows_all_that_it_has_missed() {
    for is_back in [true, false] {
        run(async {
            let config = ServerConfig::default().version(ServerVersion::V3_9);
            let world = World::with(config).pace(Pace::CALM.beside(2_000));
            let client = world.client(1).await;
            let paths = ["/t", "/t/a", "/t/a/x", "/t/a/y", "/t/b"];
            for path in paths {
                world.server.admin_create(path, b"old", None);
            }
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            for path in paths {
                set_readable(&client, path, false).await;
            }
            world.server.admin_delete("/t/a/x");
            world.server.admin_set_data("/t/a/y", b"new");
            world.server.admin_set_data("/t/b", b"new");
            if is_back {
                for path in ["/t", "/t/a", "/t/a/y", "/t/b"] {
                    set_readable(&client, path, true).await;
                }
            }
            // The first ones have not changed.
            let checks = if is_back { 3 } else { 1 };
            let bound = Duration::from_millis(37_500 * checks + 1_000);
            let told = tokio::time::timeout(bound, async {
                let event = cache.next().await.unwrap();
                (matches!(event, CacheEvent::Gap), cache.complete().await)
            });
            let (is_gap, completed) = told.await.expect("it is told within the bound");
            assert!(is_gap);
            if is_back {
                completed.unwrap();
                assert_eq!(shown(&cache), actual(&world.server, "/t"));
            } else {
                let mut refused: Vec<_> = cache.unreadable().map(|(path, _)| &**path).collect();
                refused.dedup();
                assert_eq!(refused, ["/t", "/t/a", "/t/a/y", "/t/b"]);
                assert!(completed.is_err());
            }
        });
    }
}
