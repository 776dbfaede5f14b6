//! Caches whose session moves between members that lag: nothing goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{Cache, CacheEvent};
use zk_tests::random::SplitMix64;
use zk_tests::world::{MOVES, World, run, sleep_ms};
use zk_testserver::ServerConfig;

use crate::history::History;
use crate::losing::until_equal;
use crate::{WIDE, refuse_persistent_watches, settle, shown};

/// An event tells of a deletion, and no reply with a greater zxid follows. The next member has
/// received the deletion and not applied it, so it resumes the session and still shows the znode.
#[test]
fn a_deleted_znode_stays_deleted_when_the_session_moves_to_a_member_that_lags() {
    for (version, from, to) in MOVES {
        run(async {
            let world = World::slow_member(version, to);
            let server = &world.server;
            server.admin_create("/t", b"", None);
            server.admin_create("/t/a", b"", None);
            server.catch_up_all();
            let member = Arc::new(AtomicUsize::new(from));
            let client = world.moving_client(1, &member).await;
            let mut cache = Cache::tree(&client, "/t").build().unwrap();
            cache.complete().await.unwrap();
            sleep_ms(20_000).await;
            server.admin_delete("/t/a");
            let event = cache.next().await.unwrap();
            assert!(matches!(event, CacheEvent::Removed { .. }), "{event:?}");
            member.store(to, Ordering::SeqCst);
            server.member(from).disconnect_member();
            let events = settle(&mut cache, 20_000).await.unwrap();
            assert_eq!(events, [CacheEvent::Gap, CacheEvent::Complete], "{version:?}, to {to}");
            assert_eq!(shown(&cache).len(), 1);
        });
    }
}

#[test]
fn a_session_that_moves_between_members_that_lag_never_takes_a_cache_back() {
    let (mut gaps, mut shared) = (0, 0);
    for seed in 0..80 {
        run(async {
            let mut random = SplitMix64::new(seed);
            let (lag, unapplied) =
                [(0, 700), (300, 300), (700, 50), (10, 3_000)][seed as usize % 4];
            let config = ServerConfig::default().members(3);
            let config = config.lag(Duration::from_millis(lag));
            let config = config.unapplied(Duration::from_millis(unapplied));
            let at_leader = [0, 0, 2_000][seed as usize % 3];
            let world = World::with(config.leader_unapplied(Duration::from_millis(at_leader)));
            let server = world.server.clone();
            let is_old = seed % 3 == 0;
            if is_old {
                refuse_persistent_watches(&server, 200);
            }
            let member = Arc::new(AtomicUsize::new(0));
            let client = world.moving_client(seed, &member).await;
            let mut cache = Cache::tree(&client, "/t").reads_in_flight(4).build().unwrap();
            let mut history = History::default();
            let mut names = vec!["/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y"];
            // Enough znodes to be read together.
            if seed % 2 == 0 {
                names.extend(WIDE);
            }
            for _ in 0..150 {
                let path = names[random.below(names.len() as u64) as usize];
                let parent = path.rsplit_once('/').unwrap().0;
                let has_parent = parent.is_empty() || server.data(parent).is_some();
                let is_leaf = server.children(path).is_none_or(|names| names.is_empty());
                match random.below(20) {
                    0..9 if has_parent => history.put(&server, path),
                    9..16 if is_leaf => history.delete(&server, path),
                    16..19 => {
                        member.store(random.below(3) as usize, Ordering::SeqCst);
                        server.disconnect_all();
                    }
                    19 if random.below(6) == 0 => {
                        for session in server.sessions() {
                            server.expire(session);
                        }
                    }
                    _ => {}
                }
                for event in settle(&mut cache, random.below(150)).await.unwrap() {
                    history.check(&event);
                }
                history.check_snapshot(&cache);
            }
            sleep_ms(5_000).await;
            until_equal(&world, &mut cache, &mut history).await;
            let stats = cache.stats();
            gaps += stats.gaps;
            shared += stats.reads - stats.requests;
        });
    }
    assert!(shared > 300, "{shared} reads shared a request");
    assert!(gaps > 300, "{gaps} gaps");
}
