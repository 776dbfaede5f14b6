//! The order of the locks, and the lists of locks that are refused.

use std::future::IntoFuture as _;

use jute_codec::OpCode;
use zk_recipes::{ConfigError, LockError, MultiLock};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, requests_of, session, spawn};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATHS, all_kinds, check_clean, fair, fair_locks, hold, rw_lock, znodes};

#[test]
fn the_locks_are_acquired_in_the_order_of_their_paths_and_released_in_the_reverse() {
    run(async {
        let world = World::new().pace(Pace::of(PATHS.len()));
        let client = world.client(FIRST).await;
        let lock = all_kinds(&client);
        assert_eq!(lock.paths().collect::<Vec<_>>(), PATHS);
        drop(hold(&lock).await);
        sleep_ms(100).await;
        for is_dropped in [false, true] {
            world.server.clear_requests();
            let guard = hold(&lock).await;
            assert_eq!(guard.states().map(|(path, _)| path.to_owned()).collect::<Vec<_>>(), PATHS);
            if is_dropped {
                drop(guard);
            } else {
                let released = guard.release().await.expect("the znodes can be deleted");
                let mut paths: Vec<_> = released.into_iter().map(|(path, _)| path).collect();
                paths.reverse();
                assert_eq!(paths, PATHS);
            }
            sleep_ms(100).await;
            let touched = |op: OpCode| -> Vec<String> {
                let requests = requests_of(&world, session(&client)).into_iter();
                let paths = requests.filter(|request| request.op == op);
                paths.map(|request| request.path.expect("it has a path")[..8].to_owned()).collect()
            };
            assert_eq!(touched(OpCode::CREATE2), PATHS, "\n{}", world.trace());
            let mut deleted = touched(OpCode::DELETE);
            deleted.reverse();
            assert_eq!(deleted, PATHS, "\n{}", world.trace());
        }
        check_clean(&world, &[&client]).await;
    });
}

/// The programs name their locks in opposite orders. Without an order of the paths, each would wait
/// for a lock of the other.
#[test]
fn opposite_orders_end_without_a_deadlock() {
    let orders: [&[&str]; 6] = [
        &["/locks/a", "/locks/b", "/locks/c"],
        &["/locks/c", "/locks/b", "/locks/a"],
        &["/locks/b", "/locks/c"],
        &["/locks/c", "/locks/a"],
        &["/locks/b", "/locks/a"],
        &["/locks/a", "/locks/c", "/locks/b"],
    ];
    for seconds in [false, true] {
        run(async {
            let world = World::new().pace(Pace::of(50));
            let mut clients = Vec::new();
            for seed in 0..orders.len() as u64 {
                clients.push(world.client(seed).await);
            }
            let mut tasks = Vec::new();
            for (client, order) in clients.iter().zip(orders) {
                let lock = fair_locks(client, order);
                tasks.push(spawn(async move {
                    for _ in 0..5 {
                        let guard = hold(&lock).await;
                        sleep_ms(if seconds { 1_000 } else { 1 }).await;
                        guard.validate().await.expect("all are held");
                        guard.release().await.expect("the znodes can be deleted");
                    }
                }));
            }
            for task in tasks {
                task.await.expect("no task fails");
            }
            check_clean(&world, &clients.iter().collect::<Vec<_>>()).await;
        });
    }
}

#[test]
fn a_path_that_occurs_twice_is_refused_and_named() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let both_sides = rw_lock(&client, "/locks/b");
        let twice = MultiLock::builder()
            .with(fair(&client, "/locks/a"))
            .with(both_sides.read_side())
            .with(both_sides.write_side());
        let error = twice.build().expect_err("a writer waits for its own reader");
        assert_eq!(error.path, "/locks/b");
        assert!(matches!(error.error, LockError::Config(ConfigError::Option { .. })), "{error}");
        assert!(error.to_string().contains("\"/locks/b\""), "{error}");
        assert!(error.to_string().contains("same path"), "{error}");
        let error = MultiLock::builder().build().expect_err("there are no locks");
        assert!(error.to_string().contains("must not be empty"), "{error}");
    });
}

/// A queue ignores znodes that are not contenders, so one lock may be below another.
#[test]
fn a_lock_below_the_directory_of_another_is_accepted() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let paths = ["/locks/a/b/c", "/locks/a", "/locks/a/b"];
        let guard = hold(&fair_locks(&client, &paths)).await;
        assert_eq!(znodes(&world).len(), 3);
        let waiting = spawn(fair_locks(&other, &paths).acquire().into_future());
        sleep_ms(500).await;
        assert!(!waiting.is_finished());
        guard.release().await.expect("the znodes can be deleted");
        drop(waiting.await.expect("no panic").expect("the locks are free"));
        check_clean(&world, &[&client, &other]).await;
    });
}

/// A handle with a root names a lock in another way than the client does.
#[test]
fn locks_are_compared_as_they_are_on_the_server() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        world.server.admin_create("/m", b"", None);
        let rooted = client.rooted_at("/m").expect("the path is valid");
        let twice = MultiLock::builder().with(fair(&client, "/m/x")).with(fair(&rooted, "/x"));
        let error = twice.build().expect_err("the second waits for the first");
        assert!(error.to_string().contains("same path"), "{error}");
        let lock = MultiLock::builder()
            .with(fair(&client, "/n"))
            .with(fair(&rooted, "/x"))
            .with(fair(&client, "/x"))
            .with(fair(&rooted, "/a"))
            .with(fair(&client, "/a"));
        let lock = lock.build().expect("they differ on the server");
        assert_eq!(lock.paths().collect::<Vec<_>>(), ["/a", "/a", "/x", "/n", "/x"]);
        // Creates the directories.
        drop(hold(&lock).await);
        sleep_ms(100).await;
        world.server.clear_requests();
        let guard = hold(&lock).await;
        let requests = world.server.requests().into_iter();
        let creates = requests.filter(|request| request.op == OpCode::CREATE2);
        let paths: Vec<_> = creates.filter_map(|request| request.path).collect();
        let directories: Vec<_> = paths.iter().filter_map(|path| path.rsplit_once('/')).collect();
        let directories: Vec<_> = directories.into_iter().map(|(directory, _)| directory).collect();
        assert_eq!(directories, ["/a", "/m/a", "/m/x", "/n", "/x"], "\n{}", world.trace());
        guard.release().await.expect("the znodes can be deleted");
        drop(rooted);
        check_clean(&world, &[&client]).await;
    });
}
