//! Subtrees that are deleted.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{RecipeError, Tree};
use zk_tests::meter::Pace;
use zk_tests::scene::FIRST;
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::grow;

/// A request for each znode of the larger subtrees.
const BUSY: Pace = Pace { per_second: 2_000, per_minute: 2_000 };

fn at_delete(nth: usize, action: Action) -> Fault {
    Fault::new(At::op(OpCode::DELETE).after(nth), action)
}

#[test]
fn a_subtree_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("delete a subtree", Some(session_of_first(FIRST)));
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            grow(&world, "/a", 2, 2);
            world.server.admin_create("/b", b"", None);
            world.inject(faults);
            let deleted = Tree::of(&client).delete("/a").await.expect("the session continues");
            assert!((1..=7).contains(&deleted), "{deleted}\n{}", world.trace());
            assert!(world.server.stat("/a").is_none(), "\n{}", world.trace());
            assert!(world.server.stat("/b").is_some());
            // No delete that was delayed deletes what is created afterwards.
            world.server.admin_create("/a", b"new", None);
            sleep_ms(2_000).await;
            world.server.admin_create("/flushed", b"", None);
            sleep_ms(10).await;
            assert!(world.server.stat("/a").is_some(), "\n{}", world.trace());
            world.ran()
        })
    });
    assert!(enumeration.is_complete(10, 50), "{enumeration:?}");
}

#[test]
fn progress_grows_to_the_number_of_znodes() {
    run(async {
        let world = World::new().pace(BUSY);
        let client = world.client(1).await;
        let count = grow(&world, "/a", 300, 1) + grow(&world, "/a/1/deep", 3, 3);
        let mut seen = vec![];
        let deleted =
            Tree::of(&client).delete_with_progress("/a", |so_far| seen.push(so_far)).await;
        assert_eq!(deleted, Ok(count));
        assert_eq!(seen.last(), Some(&count));
        assert!(seen.is_sorted() && seen.len() > 5, "{seen:?}");
        // At most 64 requests are in flight, so no batch is larger.
        let batches = [0].iter().chain(&seen).zip(&seen).map(|(before, after)| after - before);
        assert!(batches.clone().all(|batch| batch <= 64), "{seen:?}");
        assert_eq!(Tree::of(&client).delete("/a").await, Ok(0), "it is gone already");
    });
}

#[test]
fn the_session_may_expire_meanwhile() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        grow(&world, "/a", 3, 2);
        let lost = at_delete(1, Action::CutAfter).refuse_for(Duration::from_secs(40));
        world.server.inject(lost);
        let session = client.session_id();
        Tree::of(&client).delete("/a").await.expect("the next session continues");
        assert!(world.server.stat("/a").is_none());
        assert_ne!(client.session_id(), session);
    });
}

#[test]
fn others_may_create_children_meanwhile() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(1).await, world.client(2).await);
        grow(&world, "/a", 3, 2);
        let creating = async {
            for index in 0..20 {
                let path = format!("/a/{}/late-{index}", index % 3);
                let _ = other.create(&path, "", zk_session::CreateMode::Persistent).await;
            }
        };
        let tree = Tree::of(&client);
        let (deleted, ()) = tokio::join!(tree.delete("/a"), creating);
        deleted.expect("the other client stops");
        assert!(world.server.stat("/a").is_none(), "\n{}", world.trace());
    });
}

#[test]
fn a_dropped_future_stops_the_deletion() {
    run(async {
        let world = World::new().pace(BUSY);
        let client = world.client(1).await;
        let count = grow(&world, "/a", 30, 2);
        let mut so_far = 0;
        {
            let tree = Tree::of(&client);
            let mut deleting =
                Box::pin(tree.delete_with_progress("/a", |deleted| so_far = deleted));
            // The first poll submits the list.
            assert!(futures_poll(&mut deleting).is_pending());
            sleep_ms(1).await;
            assert!(futures_poll(&mut deleting).is_pending());
        }
        sleep_ms(1_000).await;
        let left = client.count_descendants("/a").await.expect("it exists") as u64 + 1;
        assert!(left > 1 && left <= count, "{left} of {count} are left");
        sleep_ms(1_000).await;
        assert_eq!(client.count_descendants("/a").await.map(|left| left as u64 + 1), Ok(left));
    });
}

#[test]
fn refusals_name_the_znode() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        grow(&world, "/a", 2, 1);
        let tree = Tree::of(&client);
        for path in ["/", "a", "/a/"] {
            assert!(matches!(tree.delete(path).await, Err(RecipeError::Config(_))), "{path}");
        }
        world.server.inject(at_delete(0, Action::Error(ErrorCode::NO_AUTH)));
        let Err(RecipeError::Refused { code, path, .. }) = tree.delete("/a").await else {
            panic!("the server refuses the first delete")
        };
        assert_eq!(code, ErrorCode::NO_AUTH);
        assert!(path.starts_with("/a/"), "{path}");
        client.close().await;
        assert_eq!(tree.delete("/a").await, Err(RecipeError::Closed));
    });
}

/// Each way takes a millisecond.
#[test]
fn small_directories_take_as_few_round_trips_as_a_flat_tree() {
    run(async {
        for (directories, each) in [(1_000, 2), (0, 3_000)] {
            let world = World::new();
            let client = world.far_client(1, Duration::from_millis(1)).await;
            world.server.admin_create("/a", b"", None);
            let mut count = 1;
            for directory in 0..directories {
                count += grow(&world, &format!("/a/{directory}"), each, 1);
            }
            if directories == 0 {
                count = grow(&world, "/a/flat", each, 1) + 1;
            }
            let begun = client.now();
            assert_eq!(Tree::of(&client).delete("/a").await, Ok(count));
            let took = client.now().saturating_since(begun);
            eprintln!("{directories} x {each}: {took:?}");
            // One request at a time would take 10 s, and a directory at a time 6 s.
            assert!(took < Duration::from_millis(200), "{directories} x {each}: {took:?}");
        }
    });
}

fn futures_poll<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut cx)
}
