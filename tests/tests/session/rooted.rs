//! Handles with a root of their own: they use the same session, and know no path outside of it.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::{ErrorCode, EventType, OpCode};
use zk_recipes::{Client, SharedValue};
use zk_session::{
    ConfigError, CreateMode, HandOverError, Multi, MultiError, MultiOutcome, MultiRead, OpError,
    PathDefect, WatchItem, WatchMode,
};
use zk_tests::case::{Case, LOCK};
use zk_tests::for_each_lock;
use zk_tests::scene::{hold, spawn};
use zk_tests::world::{SESSION_TIMEOUT, World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::at_op;

const PERSISTENT: CreateMode = CreateMode::Persistent;

for_each_lock! {
    #[test] locks: [
        a_lock_below_a_root_is_the_lock_at_its_full_path,
        locks_below_different_roots_do_not_meet,
        what_a_lost_create_left_is_removed_although_its_root_has_no_handle_left,
    ]
}

/// Returns handles with the roots `/a` and `/a/b`, which exist.
async fn nested(client: &Client) -> (Client, Client) {
    client.create_with_parents("/a/b", "", PERSISTENT).await.expect("the server is empty");
    let a = client.rooted_at("/a").expect("the path is valid");
    let b = a.rooted_at("/b").expect("the path is valid");
    (a, b)
}

#[test]
fn roots_are_nested_and_the_session_is_shared() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (a, b) = nested(&client).await;
        let same = b.rooted_at("/").expect("the root is a path");
        let roots = [&client, &a, &b, &same].map(Client::root);
        assert_eq!(roots, ["/", "/a", "/a/b", "/a/b"]);
        assert_eq!(b.session_id(), client.session_id());
        for (path, defect) in
            [("b", PathDefect::NotAbsolute), ("/b/../..", PathDefect::RelativeComponent)]
        {
            let error = b.rooted_at(path).expect_err("it would leave the root");
            assert_eq!(error, ConfigError::Path { option: "root", path: path.into(), defect });
        }
        // A root keeps the session open.
        drop((client, a, same));
        sleep_ms(60_000).await;
        b.create("/x", "", PERSISTENT).await.expect("the session goes on");
        assert!(world.server.stat("/a/b/x").is_some());
    });
}

#[test]
fn every_path_that_a_handle_returns_begins_at_its_root() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (a, b) = nested(&client).await;
        let created = b.create("/s-", "x", CreateMode::EphemeralSequential).await;
        assert_eq!(created.expect("the root exists").path, "/s-0000000000");
        assert_eq!(a.get_data("/b/s-0000000000").await.expect("it exists").0, "x");
        client.create("/ab", "", CreateMode::Ephemeral).await.expect("it is new");
        assert_eq!(a.get_ephemerals("/").await.expect("3.6"), ["/b/s-0000000000"]);
        assert_eq!(b.get_ephemerals("/").await.expect("3.6"), ["/s-0000000000"]);

        let multi = Multi::new().create("/m", "", PERSISTENT).create("/m/s-", "", PERSISTENT);
        let outcomes = b.commit(multi).await.expect("the root exists");
        let paths: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                let MultiOutcome::Created { path, .. } = outcome else { panic!("{outcome:?}") };
                path.to_string()
            })
            .collect();
        assert_eq!(paths, ["/m", "/m/s-"]);

        let missing = b.delete("/none", None).await.expect_err("it does not exist");
        assert_eq!(missing.target().expect("it has one").path, "/none");
        let multi = Multi::new().check("/m", None).delete("/none", None);
        let refused = b.commit(multi).await.expect_err("it does not exist");
        let MultiError::Refused { target, .. } = &refused else { panic!("{refused}") };
        assert_eq!(target.path, "/none", "{refused}");
        let reads = b.multi_read(MultiRead::new().get_data("/none")).await.expect("3.6");
        assert!(matches!(&reads[..], [Err(error)] if error.to_string().contains("\"/none\"")));
    });
}

#[test]
fn a_root_that_does_not_exist_is_named() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let b = client.rooted_at("/a/b").expect("the path is valid");
        assert_eq!(b.exists("/").await.expect("nobody hides it"), None);
        let refused = b.create("/x", "", PERSISTENT).await.expect_err("there is no root");
        let error = OpError::ChrootMissing { chroot: "/a/b".into(), path: "/x".into() };
        assert_eq!(refused, error);
        let multi = Multi::new().create("/x", "", PERSISTENT);
        assert_eq!(b.commit(multi).await, Err(MultiError::Op(error)));
        client.create_with_parents("/a/b", "", PERSISTENT).await.expect("the server is empty");
        b.create("/x", "", PERSISTENT).await.expect("there is a root");
    });
}

#[test]
fn events_name_paths_as_the_handle_of_their_watch_knows_them() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (a, b) = nested(&client).await;
        let handles = [(&client, "/a/b/x"), (&a, "/b/x"), (&b, "/x")];
        let (mut watchers, mut streams) = (vec![], vec![]);
        for (handle, path) in handles {
            let (stat, watcher) = handle.exists_and_watch(path).await.expect("the server answers");
            assert_eq!(stat, None);
            watchers.push(watcher);
            streams.push(handle.watch("/", WatchMode::Recursive).await.expect("3.6"));
        }
        world.server.admin_create("/a/b/x", b"", None);
        for ((watcher, stream), (_, path)) in watchers.iter_mut().zip(&mut streams).zip(handles) {
            let event = watcher.changed().await.expect("it is created");
            assert_eq!((event.kind, &*event.path), (EventType::NODE_CREATED, path));
            let item = stream.next().await.expect("it is created");
            let WatchItem::Event(event) = item else { panic!("{item:?}") };
            assert_eq!((event.kind, &*event.path), (EventType::NODE_CREATED, path));
        }
        world.server.admin_delete("/a/b/x");
        sleep_ms(100).await;
        for (stream, (_, path)) in streams.iter_mut().zip(handles) {
            let item = stream.try_next().expect("it is deleted");
            assert!(matches!(&item, Some(WatchItem::Event(event)) if event.path == path));
        }
        // After a reconnect, the watches are those of their handles still.
        let (_, mut watcher) = b.exists_and_watch("/y").await.expect("the server answers");
        world.server.disconnect_all();
        a.create("/b/y", "", PERSISTENT).await.expect("the client reconnects");
        assert_eq!(watcher.changed().await.expect("it is created").path, "/y");
    });
}

fn a_lock_below_a_root_is_the_lock_at_its_full_path<C: Case>() {
    // Each request of the acquire and of the release loses its connection before or after it.
    for (nth, action) in
        (0..6).flat_map(|nth| [Action::CutBefore, Action::CutAfter].map(|action| (nth, action)))
    {
        run(async {
            let world = World::new();
            let (client, other) = (world.client(1).await, world.client(2).await);
            // The full path is `/locks/x`.
            client.create("/locks", "", PERSISTENT).await.expect("the server is empty");
            let rooted = client.rooted_at("/locks").expect("the path is valid");
            let at = At::request(world.server.requests().len() + nth);
            world.server.inject(Fault::new(at, action.clone()));
            let builder = C::builder(&rooted, "/x").expect("the path is valid");
            let guard = hold(&C::build(builder).expect("the options are valid")).await;
            let rival = C::Rival::of(&other);
            let waiting = spawn(rival.acquire().into_future());
            sleep_ms(1_000).await;
            assert!(!waiting.is_finished(), "{nth}, {action:?}: two hold {LOCK}");
            guard.release().await.expect("it is held");
            let next = waiting.await.expect("it does not panic").expect("it is free");
            next.release().await.expect("it is held");
            world.check_clean(&[&client, &other]).await;
        });
    }
}

fn locks_below_different_roots_do_not_meet<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (a, b) = nested(&client).await;
        let locks = [&client, &a, &b].map(|client| C::of(client));
        let mut guards = vec![];
        for lock in &locks {
            guards.push(hold(lock).await);
        }
        for (handle, paths) in [
            (&client, ["/a/b/locks/x", "/a/locks/x", "/locks/x"]),
            // The path of what is outside of a root is that of the server.
            (&a, ["/b/locks/x", "/locks/x", "/locks/x"]),
        ] {
            let paths = paths.map(String::from).to_vec();
            let refused = HandOverError::Unfinished { within: SESSION_TIMEOUT, paths };
            assert_eq!(handle.hand_over().await, Err(refused));
        }
        for guard in guards {
            guard.release().await.expect("it is held");
        }
        client.hand_over().await.expect("nothing is left to do");
    });
}

fn what_a_lost_create_left_is_removed_although_its_root_has_no_handle_left<C: Case>() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let rooted = client.rooted_at("/a").expect("the path is valid");
        client.create("/a", "", PERSISTENT).await.expect("the server is empty");
        // Creates the directories.
        drop(hold(&C::of(&rooted)).await);
        sleep_ms(1_000).await;
        for op in [OpCode::CREATE, OpCode::CREATE2] {
            world.server.inject(at_op(op, Action::CutAfter));
        }
        let guard = hold(&C::of(&rooted)).await;
        let [(path, _)] = &world.server.ephemerals()[..] else {
            panic!("one znode holds the lock")
        };
        let data = world.server.data(path).expect("it is there");
        drop((guard, rooted));
        sleep_ms(1_000).await;
        assert_eq!(world.server.ephemerals(), []);
        // The lost create takes effect after all.
        let (directory, _) = path.rsplit_once('/').expect("it is a path");
        for (end, _) in directory.match_indices('/').skip(1).chain([(directory.len(), "")]) {
            if world.server.stat(&directory[..end]).is_none() {
                world.server.admin_create(&directory[..end], b"", None);
            }
        }
        world.server.admin_create(path, &data, client.session_id());
        world.server.disconnect_all();
        sleep_ms(5_000).await;
        assert_eq!(world.server.ephemerals(), [], "the client looks for it after a reconnect");
    });
}

#[test]
fn a_recipe_below_a_root_reports_the_paths_of_its_root() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let (_, b) = nested(&client).await;
        let value = SharedValue::new(&b, "/value").expect("the path is valid");
        value.set("1").await.expect("the value is new");
        assert_eq!(world.server.data("/a/b/value").as_deref(), Some(&b"1"[..]));
        world.server.inject(at_op(OpCode::GET_DATA, Action::Error(ErrorCode::NO_AUTH)));
        let refused = value.get().timeout(Duration::from_secs(1)).await.expect_err("a refusal");
        let message = refused.to_string();
        assert!(message.contains("\"/value\"") && !message.contains("/a/b"), "{message}");
    });
}
