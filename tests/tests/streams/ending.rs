//! A stream ends when its client does, so combinators do too.

use futures_util::{Stream, StreamExt as _, future, pin_mut, stream};
use zk_recipes::{Cache, Counter, Election, Group, SettledClient, SharedValue};
use zk_session::WatchMode;
use zk_session::recipe::Session;
use zk_tests::scene::FIRST;
use zk_tests::world::{World, run, sleep_ms};

use crate::APP;

/// Counts the items that are not errors, and the errors.
async fn count<T, E>(items: impl Stream<Item = Result<T, E>>) -> (usize, usize) {
    let count = |(good, bad), item: Result<T, E>| {
        future::ready(if item.is_ok() { (good + 1, bad) } else { (good, bad + 1) })
    };
    // One that does not end would go on without a pause.
    items.take(1_000).fold((0, 0), count).await
}

#[test]
fn each_stream_yields_why_it_has_ended_once_and_ends() {
    run(async {
        let world = World::new();
        world.server.admin_create(APP, b"1", None);
        let client = world.client(FIRST).await;
        let value = SharedValue::new(&client, APP).expect("the path is valid").changes();
        let counter = Counter::new(&client, APP).expect("the path is valid").changes();
        let settled = SettledClient::new(&client, "/markers").expect("the path is valid");
        let states = settled.changes(APP).expect("the path is valid");
        let group = Group::new(&client, "/group").expect("the path is valid").watch();
        let leaders = Election::new(&client, "/election").expect("the path is valid").observe();
        let cache = Cache::node(&client, APP).build().expect("the options are valid");
        let watch = client.watch(APP, WatchMode::Recursive).await.expect("it is connected");
        let lane = Session::of(&client).lane();
        let closing = async {
            sleep_ms(1_000).await;
            client.close().await;
        };
        let counting = async {
            assert_eq!(count(value).await, (1, 1));
            assert_eq!(count(counter).await, (0, 1), "the client has ended before");
            assert_eq!(count(states).await, (0, 1));
            assert_eq!(count(group).await, (0, 1));
            assert_eq!(count(leaders).await, (0, 1));
            assert_eq!(count(cache).await, (0, 1));
            assert_eq!(count(watch).await, (0, 1));
            assert!(lane.count().await >= 1);
        };
        tokio::join!(closing, counting);
    });
}

/// `select` and `take_until` move streams, drop futures, and poll in any order.
#[test]
fn streams_can_be_combined() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let settled = SettledClient::new(&client, "/markers").expect("the path is valid");
        let follow = |path: &'static str| {
            let states = settled.changes(path).expect("the path is valid");
            states.map(move |state| (path, state.expect("it can be read").map(|(data, _)| data)))
        };
        let merged = stream::select(follow("/a"), follow("/b"));
        let merged = merged.take_until(Box::pin(sleep_ms(5_000)));
        let changing = async {
            for path in ["/a", "/b", "/a", "/b"] {
                sleep_ms(500).await;
                world.server.admin_create(path, b"here", None);
                sleep_ms(500).await;
                assert!(world.server.admin_delete(path));
            }
        };
        let collecting = async {
            pin_mut!(merged);
            merged.collect::<Vec<_>>().await
        };
        let ((), seen) = tokio::join!(changing, collecting);
        for path in ["/a", "/b"] {
            let seen = seen.iter().filter(|(of, _)| *of == path);
            let seen: Vec<_> = seen.map(|(_, data)| data.is_some()).collect();
            assert_eq!(seen, [false, true, false, true, false], "{path}");
        }
        client.close().await;
    });
}
