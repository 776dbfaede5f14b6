//! `next` and `poll_next` in turns, with futures that are dropped in between.

use std::time::Duration;

use futures_util::StreamExt as _;
use zk_recipes::{
    Cache, CacheEvent, Counter, Election, FairLock, Group, GroupChange, Phase, SessionState,
    SettledClient, SharedValue,
};
use zk_session::{WatchItem, WatchMode};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::wait::now;
use zk_tests::world::{World, run, sleep_ms};

use crate::APP;

/// How often something changes.
const CHANGES: i64 = 12;

/// The time between two changes, in which a waiting task sees the first one.
const BETWEEN_MS: u64 = 200;

/// Waits for the next item of a stream, in one of three ways: by `next`, as a stream, or after futures
/// of both kinds that were polled once, by a task that nobody wakes, and dropped.
macro_rules! item {
    ($stream:expr, $turn:expr, $convert:expr) => {{
        let convert = $convert;
        match $turn % 3 {
            0 => convert($stream.next().await),
            1 => futures_util::StreamExt::next(&mut $stream).await.expect("it goes on"),
            _ => {
                if let Some(item) = now($stream.next()) {
                    convert(item)
                } else if let Some(item) = now(futures_util::StreamExt::next(&mut $stream)) {
                    item.expect("it goes on")
                } else if $turn % 2 == 0 {
                    convert($stream.next().await)
                } else {
                    futures_util::StreamExt::next(&mut $stream).await.expect("it goes on")
                }
            }
        }
    }};
}

fn same<T>(item: T) -> T {
    item
}

fn some<T>(item: Option<T>) -> T {
    item.expect("it goes on")
}

/// Makes changes while a task waits for them.
async fn change(mut change: impl AsyncFnMut(i64)) {
    for number in 1..=CHANGES {
        sleep_ms(BETWEEN_MS).await;
        change(number).await;
    }
}

#[test]
fn no_change_of_a_value_is_lost() {
    run(async {
        let world = World::new();
        world.server.admin_create(APP, b"", None);
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let path = format!("{APP}/x");
        world.server.admin_create(&path, b"0", None);
        let value = SharedValue::new(&one, &path).expect("the path is valid");
        let counter = Counter::new(&one, &path).expect("the path is valid");
        let settled = SettledClient::new(&one, "/markers").expect("the path is valid");
        let mut values = value.changes();
        let mut numbers = counter.changes();
        let mut states = settled.changes(&path).expect("the path is valid");
        let mut cache = Cache::node(&one, &path).build().expect("the options are valid");
        cache.complete().await.expect("it can be read");
        let mut watch = two.watch(&path, WatchMode::Persistent).await.expect("it is connected");
        let text = |number: i64| number.to_string();
        let changing = change(async |number| {
            world.server.admin_set_data(&path, text(number).as_bytes());
        });
        let as_value = async {
            for number in 0..=CHANGES {
                let found = item!(values, number, same).expect("it can be read");
                assert_eq!(found.expect("it exists").bytes(), text(number).as_bytes());
            }
        };
        let as_number = async {
            for number in 0..=CHANGES {
                let found = item!(numbers, number, same).expect("it can be read");
                assert_eq!(found, Some(number));
            }
        };
        let as_state = async {
            for number in 0..=CHANGES {
                let found = item!(states, number, same).expect("it can be read");
                let (data, stat) = found.expect("it exists");
                assert_eq!((&*data, i64::from(stat.version.0)), (text(number).as_bytes(), number));
            }
        };
        let as_event = async {
            for number in 1..=CHANGES {
                let found = item!(cache, number, same).expect("it can be read");
                let CacheEvent::Changed { node, .. } = found else { panic!("{found:?}") };
                assert_eq!(&*node.data, text(number).as_bytes());
            }
        };
        let as_item = async {
            for number in 1..=CHANGES {
                let found = item!(watch, number, same).expect("it is connected");
                assert!(matches!(found, WatchItem::Event(_)), "{found:?}");
            }
        };
        tokio::join!(changing, as_value, as_number, as_state, as_event, as_item);
    });
}

#[test]
fn no_member_of_a_group_is_missed() {
    run(async {
        let world = World::new();
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let group = Group::new(&one, "/group").expect("the path is valid");
        let others = Group::new(&two, "/group").expect("the path is valid");
        let mut watch = group.watch();
        let joining = async {
            let mut members = Vec::new();
            for number in 1..=CHANGES {
                sleep_ms(BETWEEN_MS).await;
                let id = number.to_string();
                members.push(others.join(&id, "").await.expect("nobody else has this id"));
            }
            members
        };
        let watching = async {
            for number in 1..=CHANGES {
                let found = item!(watch, number, same).expect("it can be read");
                let GroupChange::Joined(member) = found else { panic!("{found:?}") };
                assert_eq!(member.id, number.to_string());
            }
        };
        tokio::join!(joining, watching);
    });
}

#[test]
fn each_leader_is_reported() {
    run(async {
        let world = World::new();
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let election = Election::new(&one, "/election").expect("the path is valid");
        let candidates = Election::new(&two, "/election").expect("the path is valid");
        let mut leaders = election.observe();
        let leading = async {
            let mut tokens = Vec::new();
            for _ in 1..=CHANGES {
                let leader = candidates.campaign().await.expect("there is no other candidate");
                tokens.push(leader.fencing_token());
                sleep_ms(BETWEEN_MS).await;
                leader.resign().await.expect("it leads");
                sleep_ms(BETWEEN_MS).await;
            }
            tokens
        };
        let observing = async {
            let mut tokens = Vec::new();
            let mut turn = 0;
            while tokens.len() < CHANGES as usize {
                let leader = item!(leaders, turn, same).expect("it can be read");
                tokens.extend(leader.map(|leader| leader.fencing_token));
                turn += 1;
            }
            tokens
        };
        let (led, observed) = tokio::join!(leading, observing);
        assert_eq!(led, observed);
    });
}

#[test]
fn each_state_and_each_phase_is_reported_and_both_end() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut states = client.states();
        assert_eq!(states.current().state, SessionState::Connected);
        let (acquire, mut phases) =
            FairLock::new(&client, "/lock").expect("the path is valid").acquire().phases();
        let changing = async {
            let guard = acquire.await.expect("it is free");
            for _ in 0..CHANGES {
                sleep_ms(BETWEEN_MS).await;
                world.black_hole(Duration::from_secs(8));
                sleep_ms(9_000).await;
            }
            drop(guard);
            sleep_ms(BETWEEN_MS).await;
            client.close().await;
        };
        let as_state = async {
            let (mut turn, mut reconnects) = (0, 0);
            loop {
                let status = item!(states, turn, some);
                turn += 1;
                reconnects += usize::from(status.state == SessionState::Connected);
                if status.state == SessionState::Closed {
                    break;
                }
            }
            // The last state is followed by the end.
            assert_eq!(states.next().await.map(|status| status.state), None);
            assert_eq!(states.collect::<Vec<_>>().await.len(), 0);
            reconnects
        };
        let as_phase = async {
            let mut held = 0;
            for turn in 0.. {
                let phase = item!(phases, turn, some);
                held += usize::from(phase == Phase::Held);
                if phase == Phase::Released {
                    break;
                }
            }
            assert_eq!(phases.next().await, None);
            assert_eq!(phases.count().await, 0);
            held
        };
        let ((), reconnects, held) = tokio::join!(changing, as_state, as_phase);
        assert!(reconnects >= 1, "{reconnects}");
        assert!(held >= 1, "{held}");
    });
}
