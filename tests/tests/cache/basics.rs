//! What a cache contains and reports while the connection holds.

use jute_codec::OpCode;
use zk_recipes::{Barrier, Cache, CacheError, CacheEvent, CreateMode, SharedValue};
use zk_tests::meter::Pace;
use zk_tests::world::{World, run};

use crate::{actual, refuse_persistent_watches, settle, shown};

pub(crate) fn described(events: &[CacheEvent]) -> Vec<String> {
    let name = |event: &CacheEvent| match event {
        CacheEvent::Added { path, .. } => format!("added {path}"),
        CacheEvent::Changed { path, .. } => format!("changed {path}"),
        CacheEvent::Removed { path, .. } => format!("removed {path}"),
        CacheEvent::Complete | CacheEvent::Gap | CacheEvent::Unreadable { .. } | _ => {
            format!("{event:?}")
        }
    };
    events.iter().map(name).collect()
}

#[test]
fn a_cache_covers_a_znode_its_children_or_a_tree() {
    for is_old in [false, true] {
        run(async {
            let world = World::new();
            if is_old {
                refuse_persistent_watches(&world.server, 3);
            }
            let client = world.client(1).await;
            for path in ["/t", "/t/a", "/t/a/deep", "/t-other"] {
                world.server.admin_create(path, path.as_bytes(), None);
            }
            let mut caches = [
                Cache::node(&client, "/t").build().unwrap(),
                Cache::children(&client, "/t").build().unwrap(),
                Cache::tree(&client, "/t").build().unwrap(),
            ];
            for (levels, cache) in caches.iter_mut().enumerate() {
                cache.complete().await.unwrap();
                assert_eq!(cache.len(), levels + 1);
            }
            for path in ["/t", "/t/a", "/t/a/deep", "/t-other"] {
                world.server.admin_set_data(path, b"new");
            }
            world.server.admin_create("/t/b", b"", None);
            world.server.admin_create("/t/b/deep", b"", None);
            let expected = [
                "changed /t",
                "changed /t/a",
                "changed /t/a/deep",
                "added /t/b",
                "added /t/b/deep",
            ];
            for (levels, cache) in caches.iter_mut().enumerate() {
                let mut told = described(&settle(cache, 10).await.unwrap());
                told.sort();
                let mut fits: Vec<_> = expected
                    .into_iter()
                    .filter(|told| told.matches('/').count() <= levels + 1)
                    .collect();
                fits.sort_unstable();
                assert_eq!(told, fits);
                assert_eq!(cache.stats().gaps, 0);
            }
            assert_eq!(shown(&caches[2]), actual(&world.server, "/t"));
        });
    }
}

#[test]
fn a_cache_follows_the_deletion_and_the_return_of_its_root() {
    for is_old in [false, true] {
        run(async {
            let world = World::new();
            if is_old {
                refuse_persistent_watches(&world.server, 1);
            }
            let client = world.client(1).await;
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            assert!(cache.is_empty(), "the root does not exist yet");
            for round in 0..3 {
                world.server.admin_create("/t", b"", None);
                world.server.admin_create("/t/a", b"", None);
                let told = described(&settle(&mut cache, 10).await.unwrap());
                assert_eq!(told, ["added /t", "added /t/a"], "round {round}");
                world.server.admin_delete("/t/a");
                world.server.admin_delete("/t");
                let told = described(&settle(&mut cache, 10).await.unwrap());
                assert_eq!(told, ["removed /t/a", "removed /t"], "round {round}");
            }
        });
    }
}

#[test]
fn paths_are_those_of_the_client() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        for path in ["/app", "/app/t", "/app/t/a"] {
            world.server.admin_create(path, b"", None);
        }
        let connector = world.server.connector();
        let inside = zk_recipes::Client::builder("in-process/app").transport(connector);
        let inside = inside.connect().await.unwrap();
        let mut cache = Cache::tree(&inside, "/t").build().unwrap();
        cache.complete().await.unwrap();
        assert_eq!(shown(&cache).into_keys().collect::<Vec<_>>(), ["/t", "/t/a"]);
        client.create("/app/t/b", "", CreateMode::Persistent).await.unwrap();
        assert_eq!(described(&settle(&mut cache, 10).await.unwrap()), ["added /t/b"]);
        let mut root = Cache::tree(&inside, "/").build().unwrap();
        root.complete().await.unwrap();
        assert_eq!(shown(&root).into_keys().collect::<Vec<_>>(), ["/", "/t", "/t/a", "/t/b"]);
    });
}

#[test]
fn a_cache_ends_with_its_client_and_keeps_what_it_shows() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.admin_create("/t", b"x", None);
        let mut cache = Cache::node(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        client.close().await;
        for _ in 0..2 {
            assert_eq!(cache.next().await, Err(CacheError::Closed));
        }
        assert!(cache.get("/t").is_some());
    });
}

/// After a reconnect, 10,000 znodes are read again with few requests at a time, and no change is
/// reported for those that have not changed.
#[test]
fn ten_thousand_children_are_read_again_at_a_limited_rate() {
    run(async {
        const CHILDREN: usize = 10_000;
        let world = World::new().pace(Pace::CALM.beside(3 * CHILDREN));
        let client = world.client(1).await;
        world.server.admin_create("/t", b"", None);
        for number in 0..CHILDREN {
            world.server.admin_create(&format!("/t/{number:05}"), b"some data", None);
        }
        let mut cache = Cache::children(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        let read = cache.stats();
        assert_eq!((read.nodes, read.reads), (CHILDREN + 1, CHILDREN as u64 + 2));
        world.server.disconnect_all();
        world.server.admin_set_data("/t/00007", b"new");
        let told = described(&settle(&mut cache, 2_000).await.unwrap());
        assert_eq!(told, ["Gap", "changed /t/00007", "Complete"]);
        assert!(cache.stats().reads <= 2 * read.reads);
        eprintln!("{:?}", cache.stats());
        let lists = world.server.requests().iter().filter(|r| r.op == OpCode::GET_CHILDREN).count();
        assert_eq!(lists, 2);
    });
}

/// A shared value and a barrier leave an ephemeral znode for a moment, to know the outcome of a
/// write. Programs that read a configuration would see keys that mean nothing.
#[test]
fn markers_of_shared_values_and_barriers_are_not_shown() {
    for is_old in [false, true] {
        run(async {
            let world = World::new();
            if is_old {
                refuse_persistent_watches(&world.server, 1);
            }
            let client = world.client(1).await;
            world.server.admin_create("/t", b"", None);
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            let value = SharedValue::new(&client, "/t/value").unwrap();
            let barrier = Barrier::new(&client, "/t/barrier").unwrap();
            let mut told = Vec::new();
            for number in 0..5 {
                value.set(number.to_string()).await.unwrap();
                barrier.close().await.unwrap();
                told.extend(described(&settle(&mut cache, 10).await.unwrap()));
                barrier.open().await.unwrap();
                world.server.disconnect_all();
                told.extend(described(&settle(&mut cache, 1_000).await.unwrap()));
            }
            let is_known = |told: &String| {
                ["Gap", "Complete"].contains(&&**told)
                    || told.ends_with("/t/value")
                    || told.ends_with("/t/barrier")
            };
            assert!(told.iter().all(is_known), "{told:?}");
            assert!(told.len() >= 15, "{told:?}");
        });
    }
}
