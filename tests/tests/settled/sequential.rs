//! Sequential znodes: each create counts once, and its znode is found although its name does not
//! tell whose it is.

use jute_codec::OpCode;
use zk_recipes::CreateMode;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND, at_op, session};
use zk_tests::world::{Enumeration, run};
use zk_testserver::Action;

use crate::{check_clean, create_directories, first_session, flush, settled, world};

#[test]
fn each_create_of_a_sequential_znode_counts_once_and_finds_its_znode() {
    let mut enumeration = Enumeration::new("settled sequential znodes", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directories(&world);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let create = |client: &zk_recipes::SettledClient| {
                client.create("/data/job-", "same", CreateMode::PersistentSequential)
            };
            let (mine, theirs) = tokio::join!(create(&first), create(&second));
            let again = create(&first).await;
            let mut paths = Vec::new();
            for created in [mine, theirs, again] {
                let created = created.expect("it can be created");
                let path = created.path.expect("nobody deletes it");
                let found = world.server.stat(&path).expect("it exists");
                let stat = created.stat.expect("nobody deletes it");
                assert_eq!(stat.czxid, found.czxid, "\n{}", world.trace());
                paths.push(path.to_string());
            }
            flush(&world).await;
            paths.sort_unstable();
            let numbers = [0, 1, 2].map(|number| format!("/data/job-{number:010}"));
            assert_eq!(paths, numbers, "\n{}", world.trace());
            assert_eq!(world.server.children("/data").map(|names| names.len()), Some(3));
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(25, 300), "{enumeration:?}");
}

#[test]
fn a_znode_that_others_have_deleted_was_created_but_its_number_is_not_known() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        // Another znode of this form, and one that is not sequential.
        for path in ["/data/job-0000000077", "/data/job-x", "/data/jobless"] {
            world.server.admin_create(path, b"", None);
        }
        let own = session(&client);
        world.server.inject(at_op(own, OpCode::MULTI, Action::CutAfter));
        let creating = settled.create("/data/job-", "", CreateMode::PersistentSequential);
        let deleting = async {
            while world.server.stat("/data/job-0000000003").is_none() {
                zk_tests::world::sleep_ms(1).await;
            }
            assert!(world.server.admin_delete("/data/job-0000000003"));
        };
        let (created, ()) = tokio::join!(creating, deleting);
        let created = created.expect("it was created");
        assert_eq!((created.path, created.stat), (None, None), "\n{}", world.trace());
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}

/// The znode is not in the first batch of those that are looked at.
#[test]
fn a_znode_is_found_among_many_newer_ones() {
    run(async {
        let world = world().pace(Pace::CALM.beside(400));
        let client = world.client(FIRST).await;
        create_directories(&world);
        let settled = settled(&client);
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::CutAfter));
        let creating = settled.create("/data/job-", "", CreateMode::PersistentSequential);
        let mine = "/data/job-0000000000";
        let others = async {
            while world.server.stat(mine).is_none() {
                zk_tests::world::sleep_ms(1).await;
            }
            for number in 1..=250 {
                world.server.admin_create(&format!("/data/job-{number:010}"), b"", None);
            }
        };
        let (created, ()) = tokio::join!(creating, others);
        assert_eq!(created.expect("it was created").path.as_deref(), Some(mine));
        drop(settled);
        check_clean(&world, &[&client]).await;
    });
}
