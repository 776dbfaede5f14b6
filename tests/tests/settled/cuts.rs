//! Every single cut and every pair of cuts of the first of two clients that write the same znode.

use bytes::Bytes;
use jute_codec::ErrorCode;
use zk_recipes::{Acl, CreateMode, CreateOptions, Multi, MultiOutcome, Version};
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{Enumeration, run};

use crate::{MARKERS, PATH, check_clean, create_directories, first_session, flush, settled, world};

/// Both write the same data at the same version, so neither the version nor the data tells whose
/// write was applied.
#[test]
fn of_two_equal_writes_at_a_version_one_is_applied() {
    let mut enumeration = Enumeration::new("settled writes", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directories(&world);
            world.server.admin_create(PATH, b"old", None);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let (mine, theirs) = tokio::join!(
                first.set_data(PATH, "new", Some(Version(0))),
                second.set_data(PATH, "new", Some(Version(0)))
            );
            let is_mine = match (&mine, &theirs) {
                (Ok(stat), Err(refused)) => {
                    assert_eq!(refused.server_code(), Some(ErrorCode::BAD_VERSION));
                    let stat = stat.expect("nobody has written since");
                    let found = world.server.stat(PATH).expect("it exists");
                    assert_eq!((stat.version, stat.mzxid), (found.version, found.mzxid));
                    true
                }
                (Err(refused), Ok(_)) => {
                    assert_eq!(refused.server_code(), Some(ErrorCode::BAD_VERSION));
                    false
                }
                both => panic!("{both:?}\n{}", world.trace()),
            };
            // The same marker once more. A copy that comes too late would overwrite this.
            let loser = if is_mine { &second } else { &first };
            loser.set_data(PATH, "later", None).await.expect("it can be written");
            flush(&world).await;
            assert_eq!(world.server.data(PATH), Some(Bytes::from("later")), "\n{}", world.trace());
            assert_eq!(world.server.stat(PATH).map(|stat| stat.version.0), Some(2));
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 200), "{enumeration:?}");
}

/// The other client deletes what the first one creates, as soon as it sees it, and the first one
/// creates it again: a lost create or delete is never taken for that of the other one.
#[test]
fn each_create_and_each_delete_of_one_name_is_applied_once() {
    let mut enumeration = Enumeration::new("settled creates and deletes", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directories(&world);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let creating = async {
                let created = first.create(PATH, "mine", CreateMode::Persistent).await;
                let created = created.expect("nobody else creates it");
                assert_eq!(created.path.as_deref(), Some(PATH));
                let deleted = first.delete(PATH, None).await;
                (created.stat, deleted)
            };
            let deleting = async {
                let mut deleted = second.delete(PATH, None).await;
                for _ in 0..10 {
                    if deleted.is_ok() {
                        break;
                    }
                    zk_tests::world::sleep_ms(1).await;
                    deleted = second.delete(PATH, None).await;
                }
                deleted
            };
            let ((stat, mine), theirs) = tokio::join!(creating, deleting);
            // The znode was created once, so it was deleted by one of the two.
            assert!(mine.is_ok() != theirs.is_ok(), "{mine:?} {theirs:?}\n{}", world.trace());
            let refused = mine.err().or_else(|| theirs.err()).and_then(|error| error.server_code());
            assert_eq!(refused, Some(ErrorCode::NO_NODE));
            flush(&world).await;
            assert_eq!(world.server.stat(PATH), None, "\n{}", world.trace());
            let directory = world.server.stat("/data").expect("it exists");
            assert_eq!(directory.cversion.0, 2, "one create, one delete\n{}", world.trace());
            assert!(stat.is_none_or(|stat| stat.czxid < directory.pzxid));
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 400), "{enumeration:?}");
}

/// The second client creates a znode of the same name, after it has deleted that of the first one.
/// The first client must not take it for its own, nor delete it.
#[test]
fn a_znode_that_replaces_ones_own_is_not_ones_own() {
    let mut enumeration = Enumeration::new("settled replacements", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directories(&world);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let creating = first.create(PATH, "mine", CreateMode::Persistent);
            let replacing = async {
                let replace = || {
                    Multi::new().delete(PATH, None).create(PATH, "theirs", CreateMode::Persistent)
                };
                for _ in 0..20 {
                    let replaced = second.commit(replace()).await;
                    match replaced {
                        Ok(outcomes) => {
                            let outcomes = outcomes.expect("its connection is not cut");
                            let [MultiOutcome::Deleted, MultiOutcome::Created { stat, .. }] =
                                outcomes.as_slice()
                            else {
                                panic!("{outcomes:?}")
                            };
                            return stat.map(|stat| stat.czxid);
                        }
                        Err(error) => {
                            assert_eq!(error.server_code(), Some(ErrorCode::NO_NODE));
                        }
                    }
                    zk_tests::world::sleep_ms(1).await;
                }
                None
            };
            let (created, theirs) = tokio::join!(creating, replacing);
            let created = created.expect("nobody else has created it before");
            if let (Some(stat), Some(theirs)) = (created.stat, theirs) {
                assert!(stat.czxid < theirs, "{stat:?}\n{}", world.trace());
            }
            flush(&world).await;
            let data = if theirs.is_some() { "theirs" } else { "mine" };
            assert_eq!(world.server.data(PATH), Some(data.into()), "\n{}", world.trace());
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(15, 100), "{enumeration:?}");
}

/// Nothing of these transactions would tell whether they were applied, except for the marker.
#[test]
fn two_transactions_without_a_version_are_applied_once_each() {
    let mut enumeration = Enumeration::new("settled transactions", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            create_directories(&world);
            world.server.admin_create(PATH, b"old", None);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let write =
                |data: &'static str| Multi::new().check("/data", None).set_data(PATH, data, None);
            let (mine, theirs) =
                tokio::join!(first.commit(write("same")), second.commit(write("same")));
            for outcomes in [mine, theirs] {
                let outcomes = outcomes.expect("it can be committed");
                assert!(outcomes.is_none_or(|outcomes| outcomes.len() == 2));
            }
            first.commit(write("last")).await.expect("it can be committed");
            let read = second.clone().behind_barrier().get_data(PATH).await;
            assert_eq!(read.expect("it exists").0, "last", "\n{}", world.trace());
            flush(&world).await;
            assert_eq!(world.server.stat(PATH).map(|stat| stat.version.0), Some(3));
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 200), "{enumeration:?}");
}

#[test]
fn a_znode_and_its_ancestors_are_created_once_although_nothing_exists_at_first() {
    let mut enumeration =
        Enumeration::new("settled parents", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            let (first, second) = (settled(&one), settled(&two));
            world.inject(faults);
            let options = || CreateOptions::from(CreateMode::Persistent).parent_acl(Acl::open());
            let path = "/deep/er/znode";
            let (mine, theirs) = tokio::join!(
                first.create_with_parents(path, "mine", options()),
                second.create_with_parents(path, "theirs", options())
            );
            let data = match (&mine, &theirs) {
                (Ok(created), Err(refused)) | (Err(refused), Ok(created)) => {
                    assert_eq!(refused.server_code(), Some(ErrorCode::NODE_EXISTS));
                    let found = world.server.stat(path).expect("it exists");
                    let stat = created.stat.expect("it is still there");
                    assert_eq!(stat.czxid, found.czxid, "\n{}", world.trace());
                    if mine.is_ok() { "mine" } else { "theirs" }
                }
                both => panic!("{both:?}\n{}", world.trace()),
            };
            flush(&world).await;
            assert_eq!(world.server.data(path), Some(data.into()), "\n{}", world.trace());
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(80, 500), "{enumeration:?}");
}

#[test]
fn reads_and_an_ephemeral_of_the_session_survive_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("settled reads", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let client = world.client(FIRST).await;
            create_directories(&world);
            world.inject(faults);
            let first = settled(&client);
            let created = first.create(PATH, "mine", CreateMode::Ephemeral).await;
            let stat = created.expect("nobody else creates it").stat.expect("it is there");
            assert_eq!(stat.ephemeral_owner, client.session_id());
            let newest = first.clone().behind_barrier();
            let (data, read) = newest.get_data(PATH).await.expect("it exists");
            assert_eq!((data, read.czxid), (Bytes::from("mine"), stat.czxid));
            assert_eq!(first.get_children("/data").await.expect("it exists"), ["x"]);
            first.delete(PATH, Some(Version(0))).await.expect("it has this version");
            assert_eq!(newest.exists(PATH).await, Ok(None));
            assert!(newest.exists(MARKERS).await.expect("it can be read").is_some());
            drop((first, newest));
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(80, 1_000), "{enumeration:?}");
}
