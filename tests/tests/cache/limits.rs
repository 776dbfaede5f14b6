//! Caches that are not polled, or have too much to show.

use zk_recipes::{Cache, CacheError, CacheEvent, ConfigError};
use zk_tests::meter::Pace;
use zk_tests::world::{World, run, sleep_ms};

use crate::{actual, settle, shown};

#[test]
fn a_cache_that_is_not_polled_reads_everything_again() {
    run(async {
        let world = World::new().pace(Pace::CALM.beside(10_000));
        let client = world.client(1).await;
        world.server.admin_create("/t", b"", None);
        let mut cache = Cache::tree(&client, "/t").max_nodes(5_100).build().unwrap();
        cache.complete().await.unwrap();
        for number in 0..5_000 {
            world.server.admin_create(&format!("/t/{number}"), b"", None);
            if number % 100 == 0 {
                sleep_ms(1).await;
            }
        }
        for number in 0..2_500 {
            world.server.admin_delete(&format!("/t/{number}"));
        }
        sleep_ms(10).await;
        assert_eq!(cache.len(), 1, "nothing changes between two calls");
        let events = settle(&mut cache, 1_000).await.unwrap();
        assert_eq!(events.first(), Some(&CacheEvent::Gap));
        assert!(events.contains(&CacheEvent::Complete));
        assert_eq!(shown(&cache), actual(&world.server, "/t"));
        assert!(cache.stats().overflows >= 1, "{:?}", cache.stats());
    });
}

/// Events wait for a cache that is not polled, as many as it may have znodes. So a burst costs one
/// read for each znode that has changed, and not one for each znode.
#[test]
fn a_burst_of_changes_that_nobody_polls_costs_the_changed_znodes_only() {
    run(async {
        let world = World::new().pace(Pace::CALM.beside(20_000));
        let client = world.client(1).await;
        world.server.admin_create("/t", b"", None);
        for number in 0..10_000 {
            world.server.admin_create(&format!("/t/{number}"), b"", None);
        }
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        let reads = cache.stats().reads;
        for number in 0..3_000 {
            world.server.admin_set_data(&format!("/t/{}", number % 1_500), b"new");
            if number % 100 == 0 {
                sleep_ms(1).await;
            }
        }
        sleep_ms(1_000).await;
        let events = settle(&mut cache, 1_000).await.unwrap();
        assert_eq!(events.len(), 1_500);
        assert_eq!((cache.stats().reads - reads, cache.stats().gaps), (1_500, 0));
        assert_eq!(shown(&cache), actual(&world.server, "/t"));
    });
}

#[test]
fn a_cache_over_its_limits_says_so_and_stays_as_it_was() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.admin_create("/t", b"", None);
        for number in 0..10 {
            world.server.admin_create(&format!("/t/{number}"), &[0; 1000], None);
        }
        let mut few = Cache::tree(&client, "/t").max_nodes(11).build().unwrap();
        let mut small = Cache::tree(&client, "/t").max_bytes(14_000).build().unwrap();
        few.complete().await.unwrap();
        small.complete().await.unwrap();
        world.server.admin_create("/t/more", &[0; 2000], None);
        for cache in [&mut few, &mut small] {
            let error = loop {
                match cache.next().await {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            let CacheError::TooLarge { nodes, nodes_max, bytes, bytes_max, .. } = error.clone()
            else {
                panic!("{error}")
            };
            assert!(nodes > nodes_max || bytes > bytes_max, "{error}");
            assert_eq!(cache.next().await, Err(error));
            assert!(cache.get("/t/9").is_some());
        }
        // Nothing is left at the server but the watches of open caches.
        client.sync("/").await.unwrap();
        assert_eq!(world.server.watch_count(), 0);
    });
}

#[test]
fn invalid_options_are_refused() {
    run(async {
        let client = World::new().client(1).await;
        let option = |result: Result<Cache, ConfigError>| result.unwrap_err().to_string();
        assert_eq!(
            option(Cache::tree(&client, "t").build()),
            "invalid path of the cache \"t\": it must start with /"
        );
        assert!(option(Cache::tree(&client, "/t").max_nodes(0).build()).contains("max_nodes 0"));
        for reads in [0, 201] {
            let error = option(Cache::tree(&client, "/t").reads_in_flight(reads).build());
            assert!(error.contains("from 1 to 200"), "{error}");
        }
    });
}
