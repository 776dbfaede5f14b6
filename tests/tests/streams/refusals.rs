//! A refusal is an item, and the stream goes on. A caller who ignores it sends few requests.

use std::time::Duration;

use futures_util::StreamExt as _;
use jute_codec::OpCode;
use zk_recipes::{Acl, CreateMode, CreateOptions, Election, Permissions, SettledClient};
use zk_tests::scene::{FIRST, SECOND, session};
use zk_tests::world::{World, run_within};

const MINUTE: Duration = Duration::from_secs(60);

/// Reads of a minute: pauses grow to five seconds.
const READS_MAX: usize = 25;

fn reads(world: &World, client: &zk_recipes::Client) -> usize {
    let session = session(client);
    let is_read = |op| matches!(op, OpCode::GET_DATA | OpCode::GET_CHILDREN | OpCode::EXISTS);
    let requests = world.server.requests();
    requests.iter().filter(|request| request.session == session && is_read(request.op)).count()
}

/// What everybody may do but read.
fn unreadable() -> CreateOptions {
    let Permissions(all) = Permissions::ALL;
    let rights = Permissions(all & !Permissions::READ.0);
    let acl = Acl::open().into_iter().map(|acl| Acl { perms: rights, ..acl }).collect();
    CreateOptions::from(CreateMode::Persistent).acl(acl)
}

#[test]
fn a_znode_that_may_not_be_read_is_read_now_and_then() {
    run_within(10 * MINUTE, async {
        let world = World::new();
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        two.create("/x", "", unreadable()).await.expect("it is connected");
        two.create("/election", "", unreadable()).await.expect("it is connected");
        let settled = SettledClient::new(&one, "/markers").expect("the path is valid");
        let mut states = settled.changes("/x").expect("the path is valid");
        let mut leaders = Election::new(&one, "/election").expect("the path is valid").observe();

        let mut refused = 0;
        let mut ignoring = async || {
            while let Some(state) = states.next().await.err() {
                assert!(state.server_code().is_some(), "{state}");
                refused += 1;
            }
        };
        tokio::time::timeout(MINUTE, ignoring()).await.expect_err("it is refused");
        assert!((5..=READS_MAX).contains(&refused), "{refused}");
        let read = reads(&world, &one);
        assert!((5..=READS_MAX).contains(&read), "{read} reads");

        let ignoring = (&mut leaders).take_while(|leader| std::future::ready(leader.is_err()));
        let ignoring = ignoring.for_each(async |_| ());
        tokio::time::timeout(MINUTE, ignoring).await.expect_err("it is refused");
        let read = reads(&world, &one) - read;
        assert!((5..=READS_MAX).contains(&read), "{read} reads");

        // It is noticed when the refusal ends.
        for path in ["/x", "/election"] {
            two.set_acl(path, Acl::open(), None).await.expect("it is connected");
        }
        let soon = Duration::from_secs(7);
        let state = async {
            loop {
                if let Ok(state) = states.next().await {
                    break state;
                }
            }
        };
        let state = tokio::time::timeout(soon, state).await.expect("it may be read");
        assert!(state.is_some());
        let leader = async {
            loop {
                if let Ok(leader) = leaders.next().await {
                    break leader;
                }
            }
        };
        let leader = tokio::time::timeout(soon, leader).await.expect("it may be read");
        assert_eq!(leader, None);
        drop((states, leaders, settled));
        one.close().await;
    });
}
