//! Names, and the directories they lead to.

use zk_recipes::{ConfigError, NamedLocks};
use zk_tests::meter::Pace;
use zk_tests::scene::FIRST;
use zk_tests::world::{World, run};

use crate::{hold, named};

#[test]
fn every_name_has_a_lock_of_its_own_below_the_root() {
    run(async {
        let world = World::new().pace(Pace::of(11));
        let client = world.client(FIRST).await;
        let locks = named(&client);
        let names = ["a", "a/b", "a%2Fb", ".", "..", "../x", "/", "é", " ", "\0", "zookeeper"];
        let mut guards = Vec::new();
        for name in names {
            let lock = locks.lock(name).expect("the name is not empty");
            assert_eq!(locks.name_of(lock.directory()).as_deref(), Some(name));
            let guard = hold(&lock).await;
            assert!(lock.try_acquire().await.expect("it can be read").is_none(), "{name:?}");
            guards.push(guard);
        }
        let children = world.server.children("/locks").expect("the root exists");
        assert_eq!(children.len(), names.len(), "{children:?}");
        assert_eq!(world.server.children("/").map(|names| names.len()), Some(2), "and /zookeeper");
        for guard in guards {
            guard.release().await.expect("its znode can be deleted");
        }
        assert_eq!(world.server.children("/locks"), Some(vec![]));
        assert_eq!(locks.stats().acquired, names.len() as u64);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn an_empty_name_and_a_bad_root_are_refused() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let error = named(&client).lock("").expect_err("it is empty");
        assert!(matches!(error, ConfigError::Option { option: "name of the lock", .. }), "{error}");
        for root in ["", "/", "locks", "/locks/", "/a/../b"] {
            assert!(NamedLocks::new(&client, root).is_err(), "{root:?}");
        }
        assert_eq!(named(&client).name_of("/locks"), None);
        assert_eq!(named(&client).name_of("/locks/a/b"), None);
        assert_eq!(named(&client).name_of("/other/a"), None);
    });
}
