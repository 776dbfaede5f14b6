//! What it costs to read everything, in requests and in round trips.

use std::time::Duration;

use zk_recipes::Cache;
use zk_tests::meter::Pace;
use zk_tests::page;
use zk_tests::world::{World, run_within};
use zk_testserver::ServerConfig;
use zk_testserver::ServerVersion;

use crate::{actual, shown};

const DIRECTORIES: usize = 500;
const EACH: usize = 100;
/// With the directories and the root.
const ZNODES: usize = DIRECTORIES * (EACH + 1) + 1;

/// Each way takes a millisecond.
#[test]
fn a_reconnect_reads_fifty_thousand_znodes_in_few_round_trips() {
    run_within(Duration::from_secs(600), async {
        let world = World::new().pace(Pace::CALM.beside(10_000));
        let client = world.far_client(1, Duration::from_millis(1)).await;
        world.server.admin_create("/t", b"", None);
        for directory in 0..DIRECTORIES {
            world.server.admin_create(&format!("/t/{directory}"), b"", None);
            for child in 0..EACH {
                world.server.admin_create(&format!("/t/{directory}/{child}"), b"value", None);
            }
        }
        let begun = client.now();
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        let start = client.now().saturating_since(begun);
        let before = cache.stats();
        assert_eq!(cache.len(), ZNODES);
        world.server.disconnect_all();
        world.server.admin_set_data("/t/7/7", b"new");
        while cache.stats().gaps == 0 {
            cache.next().await.unwrap();
        }
        let begun = client.now();
        cache.complete().await.unwrap();
        let again = client.now().saturating_since(begun);
        let after = cache.stats();
        let (reads, requests) = (after.reads - before.reads, after.requests - before.requests);
        eprintln!(
            "start {start:?}, {before:?}; again {again:?}, {reads} reads, {requests} requests"
        );
        // A read of each znode, and a list of each that has children.
        assert_eq!(reads, (ZNODES + DIRECTORIES + 1) as u64);
        let row = "| {} read per znode and {} list per znode with children,";
        page::check_text("recipes/cache.md", row, &[1, 1]);
        assert!(requests < 1_000, "{requests}");
        // One read per request takes 51,002 requests, and 1.6 s with 64 in flight.
        assert!(again < Duration::from_millis(100), "{again:?}");
        assert!(start < Duration::from_millis(150), "{start:?}");
        assert_eq!(shown(&cache), actual(&world.server, "/t"));
    });
}

#[test]
fn a_few_changes_are_read_one_by_one() {
    run_within(Duration::from_secs(600), async {
        let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
        let client = world.client(1).await;
        world.server.admin_create("/t", b"", None);
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        let before = cache.stats();
        for number in 0..3 {
            world.server.admin_create(&format!("/t/{number}"), b"", None);
            cache.next().await.unwrap();
        }
        let after = cache.stats();
        let reads = after.reads - before.reads;
        assert_eq!((reads, after.requests - before.requests), (3, 3));
        let row = "| a znode is created or written | {} read;";
        page::check_text("recipes/cache.md", row, &[reads as usize / 3]);
    });
}

#[test]
fn a_quiet_cache_reads_one_znode_after_the_other() {
    run_within(Duration::from_secs(600), async {
        let world = World::new();
        let client = world.client(1).await;
        for path in ["/t", "/t/a", "/t/b"] {
            world.server.admin_create(path, b"", None);
        }
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        let before = cache.stats();
        // Three rounds, each of which reads each znode, and the list of the root.
        let rounds = Duration::from_secs(3 * 3 * 30);
        tokio::time::timeout(rounds, cache.next()).await.expect_err("nothing changes");
        let after = cache.stats();
        let reads = after.reads - before.reads;
        // The interval is up to a quarter longer.
        assert!((8..=12).contains(&reads), "{reads} reads in {rounds:?}");
        assert_eq!((after.requests - before.requests, after.gaps), (reads, before.gaps));
        let row = "| idle, every 30 s | {} read of a znode in turn, and {} list |";
        page::check_text("recipes/cache.md", row, &[1, 1]);
    });
}
