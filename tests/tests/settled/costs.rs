//! The requests of each operation, counted at the server.

use jute_codec::OpCode;
use zk_recipes::{CreateMode, Multi};
use zk_tests::scene::{FIRST, all_sent_since};
use zk_tests::world::{World, run};

use crate::{MARKERS, PATH, check_clean, create_directories, settled};

const MULTI: OpCode = OpCode::MULTI;

#[test]
fn without_a_fault_each_operation_is_one_request() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        world.server.clear_requests();
        for _ in 0..3 {
            settled.create(PATH, "1", CreateMode::Persistent).await.expect("it is missing");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI]);
            settled.create(PATH, "1", CreateMode::Persistent).await.expect_err("it exists");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI]);
            settled.set_data(PATH, "2", None).await.expect("it exists");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI]);
            let multi = Multi::new().check(PATH, None).set_data(PATH, "3", None);
            settled.commit(multi).await.expect("it exists");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI]);
            settled.get_data(PATH).await.expect("it exists");
            settled.exists(PATH).await.expect("it can be read");
            settled.get_children(PATH).await.expect("it exists");
            let reads = [OpCode::GET_DATA, OpCode::EXISTS, OpCode::GET_CHILDREN];
            assert_eq!(all_sent_since(&world, &client).await, reads);
            settled.clone().behind_barrier().get_data(PATH).await.expect("it exists");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI, OpCode::GET_DATA]);
            settled.delete(PATH, None).await.expect("it exists");
            assert_eq!(all_sent_since(&world, &client).await, [MULTI]);
            assert_eq!(world.server.children(MARKERS).map(|names| names.len()), Some(1));
        }
        // As many markers as there are writes at a time.
        let creates = ["/data/a", "/data/b", "/data/c"]
            .map(|path| settled.create(path, "", CreateMode::Persistent));
        let [a, b, c] = creates;
        let (a, b, c) = tokio::join!(a, b, c);
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        assert_eq!(all_sent_since(&world, &client).await, [MULTI; 3]);
        assert_eq!(world.server.children(MARKERS).map(|names| names.len()), Some(3));
        drop(settled);
        assert_eq!(all_sent_since(&world, &client).await, [OpCode::DELETE; 3]);
        check_clean(&world, &[&client]).await;
    });
}

#[test]
fn a_refused_first_write_leaves_no_marker_and_missing_directories_are_created() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let settled = settled(&client);
        world.server.clear_requests();
        settled.set_data(PATH, "1", None).await.expect_err("it is missing");
        let container = OpCode::CREATE_CONTAINER;
        assert_eq!(all_sent_since(&world, &client).await, [MULTI, container, container, MULTI]);
        assert_eq!(world.server.children(MARKERS).map(|names| names.len()), Some(0));
        let created = settled.create_with_parents(PATH, "1", CreateMode::Persistent).await;
        created.expect("its parents are created");
        assert_eq!(all_sent_since(&world, &client).await, [MULTI, OpCode::CREATE2, MULTI]);
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}
