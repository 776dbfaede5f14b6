//! After a create with a lost reply, a znode with the attempt's id belongs to the attempt only if
//! its session owns it.

use jute_codec::OpCode;
use zk_recipes::LockState;
use zk_tests::case::LOCK;
use zk_tests::scene::{at_op, session};
use zk_tests::world::{REFUSED, World, run, sleep_ms};
use zk_testserver::Action;

#[test]
fn a_znode_of_another_session_that_carries_the_same_id_is_neither_adopted_nor_deleted() {
    run(async {
        let world = World::new();
        let client = world.client(1).await;
        let stranger = world.client(2).await.session_id().expect("connected");
        world.server.admin_create("/locks", b"", None);
        world.server.admin_create(LOCK, b"", None);
        let lost = at_op(session(&client), OpCode::CREATE2, Action::CutBefore);
        world.server.inject(lost.refuse_for(REFUSED));

        let lock = World::lock(&client);
        let acquire = async { lock.acquire().await.expect("the lock becomes free") };
        let disturb = async {
            world.until("the create is lost", |server| server.pending_faults().is_empty()).await;
            let create = world.server.requests().into_iter().rev().find_map(|request| request.path);
            let path = format!("{}0000000000", create.expect("a create has a path"));
            world.server.admin_create(&path, b"", Some(stranger));
            sleep_ms(5_000).await;
            let contenders = world.contenders();
            assert_eq!(contenders.len(), 2, "ours queues behind it: {contenders:?}");
            assert!(world.server.admin_delete(&path), "the other session's znode was deleted");
            path
        };
        let (guard, path) = tokio::join!(acquire, disturb);
        assert_ne!(guard.path(), path, "\n{}", world.trace());
        assert_eq!(guard.state(), LockState::Held);
        guard.release().await.expect("its znode can be deleted");
        sleep_ms(1_000).await;
        assert!(world.contenders().is_empty(), "\n{}", world.trace());
    });
}
