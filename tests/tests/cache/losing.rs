//! Caches whose connection is lost at any request, reply or event, or whose session ends.

use zk_recipes::{Cache, CacheError, CacheEvent, SessionState};
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{Fault, ServerConfig, ServerVersion};

use crate::history::History;
use crate::{WIDE, actual, refuse_persistent_watches, settle, shown};

/// Applies the changes one by one while the cache follows, and checks all that it shows.
async fn follow(world: &World, cache: &mut Cache, faults: Vec<Fault>, pause_ms: u64) {
    let server = &world.server;
    let mut history = History::default();
    for path in ["/t", "/t/a", "/t/b", "/t/b/c"] {
        history.put(server, path);
    }
    world.inject(faults);
    for step in 0..8 {
        match step {
            0 => history.put(server, "/t/a"),
            1 => history.put(server, "/t/b/d"),
            2 => history.delete(server, "/t/b/c"),
            3 => {
                history.delete(server, "/t/a");
                history.put(server, "/t/a");
            }
            4 => {
                history.put(server, "/t/a/x");
                history.put(server, "/t/a/x");
            }
            5 => {
                for path in ["/t/a/x", "/t/a", "/t/b/d", "/t/b", "/t"] {
                    history.delete(server, path);
                }
            }
            6 => history.put(server, "/t"),
            _ => history.put(server, "/t/new"),
        }
        for event in settle(cache, pause_ms).await.unwrap() {
            history.check(&event);
        }
        history.check_snapshot(cache);
    }
    until_equal(world, cache, &mut history).await;
}

/// Follows until the cache shows what the server has.
pub(crate) async fn until_equal(world: &World, cache: &mut Cache, history: &mut History) {
    for _ in 0..100 {
        if cache.is_complete() && shown(cache) == actual(&world.server, "/t") {
            return;
        }
        for event in settle(cache, 1_000).await.unwrap() {
            history.check(&event);
        }
        history.check_snapshot(cache);
    }
    panic!("{:?} shown, {:?} exists\n{}", shown(cache), actual(&world.server, "/t"), world.trace());
}

#[test]
fn a_cache_shows_no_wrong_state_and_the_last_one_wherever_the_connection_is_lost() {
    let mut total = 0;
    for is_old in [false, true] {
        for pause_ms in [0, 5] {
            let scenario = |faults: Vec<Fault>| {
                run(async {
                    let world = World::new();
                    if is_old {
                        refuse_persistent_watches(&world.server, 1);
                    }
                    let client = world.client(1).await;
                    let mut cache = Cache::tree(&client, "/t").reads_in_flight(2).build().unwrap();
                    follow(&world, &mut cache, faults, pause_ms).await;
                    assert_eq!(cache.stats().uses_one_shot_watches, is_old, "{:?}", cache.stats());
                    world.ran()
                })
            };
            // The refusal of the persistent watch is a fault too, so cuts begin behind it.
            let name =
                format!("cache {} {pause_ms}", if is_old { "one-shot" } else { "persistent" });
            let mut enumeration = Enumeration::new(name, None);
            enumeration.run_singles(&scenario);
            total += enumeration.singles;
        }
    }
    assert!(total > 300, "{total} cuts");
}

#[test]
fn a_cache_survives_every_pair_of_lost_connections() {
    let scenario = |faults: Vec<Fault>| {
        run(async {
            let world = World::with(ServerConfig::default().version(ServerVersion::V3_9));
            let client = world.client(1).await;
            let mut cache = Cache::tree(&client, "/t").reads_in_flight(3).build().unwrap();
            follow(&world, &mut cache, faults, 2).await;
            world.ran()
        })
    };
    let mut enumeration = Enumeration::new("cache pairs", None).without_refusals_in_pairs();
    enumeration.run(&scenario);
    assert!(enumeration.is_complete(100, 1_000), "{enumeration:?}");
}

#[test]
fn random_changes_cuts_and_ends_of_sessions_never_confuse_a_cache() {
    let (mut gaps, mut shared) = (0, 0);
    for seed in 0..60 {
        let is_old = seed % 3 == 0;
        run(async {
            let mut random = SplitMix64::new(seed);
            // At most two reads for each znode and each of the 150 steps.
            let world = World::new().pace(Pace::CALM.beside(7_200));
            if is_old {
                refuse_persistent_watches(&world.server, 50);
            }
            let client = world.client(seed).await;
            let mut cache = Cache::tree(&client, "/t").reads_in_flight(4).build().unwrap();
            let mut history = History::default();
            let mut names = vec!["/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/b/x", "/t/a/x/deep"];
            // Enough znodes to be read together.
            if seed % 2 == 0 {
                names.extend(WIDE);
            }
            for _ in 0..150 {
                let path = names[random.below(names.len() as u64) as usize];
                let parent = path.rsplit_once('/').unwrap().0;
                let has_parent = parent.is_empty() || world.server.data(parent).is_some();
                let is_leaf = world.server.children(path).is_none_or(|names| names.is_empty());
                match random.below(20) {
                    0..12 if has_parent => history.put(&world.server, path),
                    12..17 if is_leaf => history.delete(&world.server, path),
                    17 => world.server.disconnect_all(),
                    18 if random.below(4) == 0 => {
                        for session in world.server.sessions() {
                            world.server.expire(session);
                        }
                    }
                    _ => {}
                }
                if random.below(3) > 0 {
                    let ms = random.below(4);
                    for event in settle(&mut cache, ms).await.unwrap() {
                        history.check(&event);
                    }
                    history.check_snapshot(&cache);
                }
            }
            until_equal(&world, &mut cache, &mut history).await;
            let stats = cache.stats();
            gaps += stats.gaps;
            shared += stats.reads - stats.requests;
        });
    }
    assert!(gaps > 100, "{gaps} gaps");
    assert!(shared > 300, "{shared} reads shared a request");
}

#[test]
fn a_cache_reads_everything_again_in_the_next_session() {
    for is_old in [false, true] {
        run(async {
            let world = World::new();
            if is_old {
                refuse_persistent_watches(&world.server, 2);
            }
            let client = world.client(1).await;
            world.server.admin_create("/t", b"1", None);
            world.server.admin_create("/t/gone", b"", None);
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            world.server.expire(client.session_id().unwrap());
            world.server.admin_delete("/t/gone");
            world.server.admin_set_data("/t", b"2");
            let mut events = Vec::new();
            while events.last() != Some(&CacheEvent::Complete) {
                events.push(cache.next().await.unwrap());
            }
            assert_eq!(events.first(), Some(&CacheEvent::Gap));
            assert_eq!(shown(&cache), actual(&world.server, "/t"));
            assert_eq!((cache.stats().gaps, cache.is_complete()), (1, true));
        });
    }
}

#[test]
fn a_cache_of_a_client_that_opens_no_other_session_ends() {
    run(async {
        let world = World::new();
        world.server.admin_create("/t", b"", None);
        let client = world.client_with(1, |builder| builder.renew_after_expiry(false)).await;
        let mut cache = Cache::tree(&client, "/t").build().unwrap();
        cache.complete().await.unwrap();
        world.server.expire(client.session_id().unwrap());
        while client.state() != SessionState::Expired {
            sleep_ms(10).await;
        }
        assert_eq!(settle(&mut cache, 1_000).await, Err(CacheError::Closed));
        assert_eq!(cache.complete().await, Err(CacheError::Closed));
        let mut late = Cache::tree(&client, "/t").build().unwrap();
        assert_eq!(late.complete().await, Err(CacheError::Closed));
        assert_eq!(shown(&cache).len(), 1);
    });
}
