//! The options of a barrier: permissions and the timeout.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Acl, Barrier, Permissions, RecipeError};
use zk_tests::scene::{FIRST, SECOND, at_op, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{OUTAGE, PATH, check_clean, close, is_closed};

#[test]
fn the_permissions_apply_to_the_znode_and_to_its_marker() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let acl = vec![Acl::new(Permissions::READ | Permissions::ADMIN, "world", "anyone")];
        let barrier = Barrier::builder(&client, PATH)
            .and_then(|builder| builder.acl(acl.clone()).build())
            .expect("the options are legal");
        // The directory exists, so the first transaction is applied, and its marker remains.
        world.server.admin_create("/barriers", b"", None);
        let cut = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
        world.server.inject(cut.refuse_for(Duration::from_secs(1)));
        let closing = {
            let barrier = barrier.clone();
            spawn(async move { barrier.close().await })
        };
        sleep_ms(100).await;
        let names = world.server.children("/barriers").expect("the directory exists");
        assert_eq!(names.len(), 2, "{names:?}");
        for name in names {
            let (found, _) = other.get_acl(&format!("/barriers/{name}")).await.expect("it exists");
            assert_eq!(found, acl, "{name}");
        }
        closing.await.expect("no panic").expect("it is closed");
        barrier.open().await.expect("it can be opened");
        check_clean(&world, &[&client, &other]).await;
    });
}

#[test]
fn an_empty_list_of_permissions_is_refused() {
    run(async {
        let client = World::new().client(FIRST).await;
        let builder = Barrier::builder(&client, PATH).expect("the path is valid");
        let refused = builder.acl(vec![]).build().expect_err("servers refuse it");
        assert!(refused.to_string().contains("acl of the barrier"), "{refused}");
    });
}

#[test]
fn a_timeout_ends_each_operation_and_leaves_no_marker() {
    for is_closing in [true, false] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            if !is_closing {
                close(&world);
            }
            let timeout = Duration::from_millis(700);
            let barrier = Barrier::builder(&client, PATH)
                .and_then(|builder| builder.timeout(timeout).build())
                .expect("the options are legal");
            world.server.refuse_for(OUTAGE);
            world.server.disconnect_all();
            let began = client.now();
            let changed = if is_closing { barrier.close().await } else { barrier.open().await };
            assert!(matches!(changed, Err(RecipeError::TimedOut(_))), "{changed:?}");
            let read = barrier.is_open().await;
            assert!(matches!(read, Err(RecipeError::TimedOut(_))), "{read:?}");
            let took = client.now().saturating_since(began);
            assert!(
                took >= 2 * timeout && took < 2 * timeout + Duration::from_millis(50),
                "{took:?}"
            );
            sleep_ms(60_000).await;
            assert_eq!(is_closed(&world), !is_closing, "it was sent although it had timed out");
            assert_eq!(barrier.is_open().await, Ok(is_closing));
            check_clean(&world, &[&client]).await;
        });
    }
}
