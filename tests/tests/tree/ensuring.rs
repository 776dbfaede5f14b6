//! Paths that are created.

use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Acl, RecipeError, Tree};
use zk_tests::scene::FIRST;
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};
use zk_testserver::{Action, At, Fault};

#[test]
fn a_path_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("ensure a path", Some(session_of_first(FIRST)));
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            world.inject(faults);
            Tree::of(&client).ensure("/a/b/c").await.expect("the session continues");
            assert!(world.server.stat("/a/b/c").is_some(), "\n{}", world.trace());
            world.ran()
        })
    });
    assert!(enumeration.is_complete(3, 10), "{enumeration:?}");
}

#[test]
fn existing_znodes_stay_as_they_are() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.admin_create("/a", b"data", None);
        let before = world.server.stat("/a");
        let tree = Tree::of(&client);
        for _ in 0..2 {
            tree.ensure("/a").await.expect("it exists");
            assert_eq!(world.server.stat("/a"), before);
        }
        tree.ensure("/").await.expect("the root exists");
    });
}

#[test]
fn ancestors_are_persistent_unless_containers_are_wanted() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        Tree::of(&client).ensure("/p/q/r").await.expect("nothing fails");
        let creates = |op| world.trace().matches(op).count();
        assert_eq!(creates("createContainer"), 0, "\n{}", world.trace());
        Tree::of(&client).containers().ensure("/c/d/e").await.expect("nothing fails");
        assert!(client.exists("/c/d").await.expect("it answers").is_some());
        assert!(client.exists("/p/q").await.expect("it answers").is_some());
    });
}

#[test]
fn the_session_may_expire_meanwhile() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let lost = Fault::new(At::op(OpCode::CREATE2), Action::CutBefore);
        world.server.inject(lost.refuse_for(Duration::from_secs(40)));
        Tree::of(&client).ensure("/a/b").await.expect("the next session creates it");
        assert!(world.server.stat("/a/b").is_some());
    });
}

#[test]
fn a_call_ends_at_its_timeout_and_names_the_path() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.refuse_for(Duration::from_secs(60));
        world.server.disconnect_all();
        sleep_ms(10).await;
        let begin = client.now();
        let tree = Tree::of(&client).timeout(Duration::from_secs(3));
        let error = tree.ensure("/a/b").await.expect_err("there is no server");
        assert!(error.is_timed_out() && error.to_string().contains("/a/b"), "{error}");
        assert_eq!(client.now().saturating_since(begin), Duration::from_secs(3));
    });
}

#[test]
fn refusals_are_reported() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let tree = Tree::of(&client);
        for path in ["a", "/a/", "/a//b", ""] {
            assert!(matches!(tree.ensure(path).await, Err(RecipeError::Config(_))), "{path}");
        }
        let empty: Vec<Acl> = vec![];
        assert!(matches!(tree.clone().acl(empty).ensure("/a").await, Err(RecipeError::Config(_))));
        client.create("/e", "", zk_session::CreateMode::Ephemeral).await.expect("it is new");
        let Err(RecipeError::Refused { code, path, .. }) = tree.ensure("/e/below").await else {
            panic!("ephemerals have no children")
        };
        assert_eq!((code, path.as_str()), (ErrorCode::NO_CHILDREN_FOR_EPHEMERALS, "/e/below"));
        client.close().await;
        assert_eq!(tree.ensure("/a").await, Err(RecipeError::Closed));
    });
}
