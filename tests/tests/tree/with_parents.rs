//! Creates together with missing ancestors.

use jute_codec::{ErrorCode, OpCode};
use zk_session::{Client, CreateMode, CreateOptions, OpError, Outcome};
use zk_tests::world::{World, run};
use zk_testserver::{Action, At, Fault};

const PERSISTENT: CreateMode = CreateMode::Persistent;

fn at_create(nth: usize, action: Action) -> Fault {
    Fault::new(At::op(OpCode::CREATE2).after(nth), action)
}

async fn create(client: &Client, path: &str) -> Result<String, OpError> {
    let created = client.create_with_parents(path, "x", PERSISTENT).await?;
    Ok(created.path.to_string())
}

#[test]
fn missing_ancestors_are_created_and_existing_ones_cost_nothing() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        assert_eq!(create(&client, "/a/b/c").await.as_deref(), Ok("/a/b/c"));
        let before = world.traffic().requests;
        assert_eq!(create(&client, "/a/b/d").await.as_deref(), Ok("/a/b/d"));
        assert_eq!(world.traffic().requests, before + 1);
        let sequential = CreateMode::EphemeralSequential;
        let created = client.create_with_parents("/q/n-", "", sequential).await.expect("it is new");
        assert_eq!(created.path, "/q/n-0000000000");
        let options = CreateOptions::from(PERSISTENT).container_parents();
        client.create_with_parents("/c/d/e", "", options).await.expect("it is new");
        let exists = create(&client, "/a/b/d").await.expect_err("it exists");
        assert_eq!(exists.server_code(), Some(ErrorCode::NODE_EXISTS));
    });
}

#[test]
fn a_lost_reply_of_an_ancestor_does_not_matter_and_that_of_the_znode_is_reported() {
    run(async {
        // The creates are: the znode, /a, /a/b, the znode.
        for (nth, is_the_znode) in [(0, true), (1, false), (2, false), (3, true)] {
            for action in [Action::CutBefore, Action::CutAfter] {
                let world = World::new();
                let client = world.client(1).await;
                world.server.inject(at_create(nth, action));
                let created = create(&client, "/a/b/c").await;
                assert!(world.server.pending_faults().is_empty(), "create {nth} was not sent");
                if is_the_znode {
                    let error = created.expect_err("the reply was lost");
                    assert!(error.is_connection_loss(), "{nth}: {error}");
                    assert_eq!(error.outcome(), Outcome::Unknown);
                } else {
                    created.unwrap_or_else(|error| panic!("{nth}: {error}"));
                    assert!(world.server.stat("/a/b/c").is_some());
                }
            }
        }
    });
}

#[test]
fn an_ancestor_that_cannot_be_created_is_named() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        world.server.inject(at_create(1, Action::Error(ErrorCode::NO_AUTH)));
        let error = create(&client, "/a/b").await.expect_err("the server refuses /a");
        assert_eq!(
            (error.server_code(), error.outcome()),
            (Some(ErrorCode::NO_AUTH), Outcome::NotApplied)
        );
        assert!(error.to_string().contains("\"/a\""), "{error}");
    });
}
