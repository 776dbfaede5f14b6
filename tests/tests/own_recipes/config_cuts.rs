//! The configuration with rollback.

use zk_recipes::Client;
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{Enumeration, Ran, World, run};

use crate::config::{Config, Entries, Loaded};
use crate::{check_clean, first_session, last_data, settled, world};

const PATH: &str = "/app/config";

/// Entries of which a reader notices if one is from another version.
fn entries(text: &str) -> Entries {
    ["color", "size"].map(|key| (key.to_owned(), text.into())).into()
}

/// Checks that all entries are of one version, and returns its text.
fn text_of(loaded: &Loaded) -> String {
    let texts: Vec<_> = loaded.entries.values().collect();
    let [color, size] = texts.as_slice() else { panic!("incomplete: {loaded:?}") };
    assert_eq!(color, size, "mixed: {loaded:?}");
    String::from_utf8(color.to_vec()).expect("it is text")
}

/// Two writers of a configuration, and its version at first.
struct Writers {
    world: World,
    clients: [Client; 2],
    first: Config,
    second: Config,
    old: Loaded,
}

impl Writers {
    /// Creates the configuration, with a version that both clients have read.
    async fn set_up() -> Self {
        let world = world();
        let clients = [world.client(FIRST).await, world.client(SECOND).await];
        let [first, second] = clients.each_ref().map(|client| Config::new(&settled(client), PATH));
        assert!(second.create().await.expect("it can be created"));
        let empty = second.load().await.expect("it can be read");
        assert!(second.publish(&empty, &entries("old")).await.expect("it can be written"));
        let old = second.load().await.expect("it can be read");
        Self { world, clients, first, second, old }
    }

    async fn end(self) -> Ran {
        let Self { world, clients: [one, two], first, second, .. } = self;
        drop((first, second));
        check_clean(&world, &[&one, &two]).await;
        world.ran()
    }
}

/// Checks which version counts in the end, after this many changes, and how many versions there are.
async fn check_end(world: &World, last: &Loaded, changes: i32, versions: usize) {
    assert_eq!(last_data(world, PATH).await, last.name, "\n{}", world.trace());
    let version = world.server.stat(PATH).expect("it exists").version.0;
    assert_eq!(version, changes, "\n{}", world.trace());
    let children = world.server.children(PATH).expect("it exists").len();
    assert_eq!(children, versions, "\n{}", world.trace());
}

#[test]
fn one_of_two_writers_wins_and_both_then_read_its_complete_version() {
    let mut enumeration =
        Enumeration::new("published configurations", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let writers = Writers::set_up().await;
            let Writers { world, first, second, old, .. } = &writers;
            world.inject(faults);
            let write = async |config: &Config, text: &str| {
                let won = config.publish(old, &entries(text)).await.expect("it can be written");
                (won, config.load().await.expect("it can be read"))
            };
            let (mine, theirs) = tokio::join!(write(first, "mine"), write(second, "theirs"));
            assert!(mine.0 != theirs.0, "{mine:?} {theirs:?}\n{}", world.trace());
            let winner = if mine.0 { "mine" } else { "theirs" };
            assert_eq!(text_of(&mine.1), winner, "\n{}", world.trace());
            assert_eq!(mine.1, theirs.1, "\n{}", world.trace());
            check_end(world, &mine.1, 2, 3).await;
            writers.end().await
        })
    });
    assert!(enumeration.is_complete(60, 700), "{enumeration:?}");
}

/// One writer goes back to the first version while the other one publishes.
#[test]
fn a_rollback_restores_an_earlier_version_or_another_writer_was_first() {
    let mut enumeration =
        Enumeration::new("rolled-back configurations", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let writers = Writers::set_up().await;
            let Writers { world, first, second, old, .. } = &writers;
            assert!(second.publish(old, &entries("new")).await.expect("it can be written"));
            let seen = second.load().await.expect("it can be read");
            world.inject(faults);
            let publishing = entries("another");
            let (back, forward) =
                tokio::join!(first.roll_back(&seen, &old.name), second.publish(&seen, &publishing));
            let is_back = back.expect("it can be written");
            assert!(is_back != forward.expect("it can be written"), "\n{}", world.trace());
            let last = first.load().await.expect("it can be read");
            if is_back {
                assert_eq!((&last.name, &last.entries), (&old.name, &old.entries));
            } else {
                assert_eq!(text_of(&last), "another", "\n{}", world.trace());
            }
            check_end(world, &last, 3, if is_back { 3 } else { 4 }).await;
            writers.end().await
        })
    });
    assert!(enumeration.is_complete(60, 700), "{enumeration:?}");
}

#[test]
fn names_do_not_return_and_a_version_that_does_not_exist_is_refused() {
    run(async {
        let world = world().pace(Pace::CALM.beside(100));
        let client = world.client(FIRST).await;
        let config = Config::new(&settled(&client), PATH);
        assert!(config.create().await.expect("it can be created"));
        assert!(!config.create().await.expect("it exists"));
        let mut names = Vec::new();
        for text in ["a", "b"] {
            let seen = config.load().await.expect("it can be read");
            assert!(config.publish(&seen, &entries(text)).await.expect("it can be written"));
            names.push(config.load().await.expect("it can be read").name);
        }
        let seen = config.load().await.expect("it can be read");
        let refused = config.roll_back(&seen, "v9").await.expect_err("there is no such version");
        assert!(refused.to_string().contains("/app/config/v9"), "{refused}");
        assert!(config.roll_back(&seen, &names[0]).await.expect("it can be written"));
        assert!(!config.roll_back(&seen, &names[1]).await.expect("it was read before"));
        let seen = config.load().await.expect("it can be read");
        assert_eq!(text_of(&seen), "a");
        assert!(config.publish(&seen, &entries("c")).await.expect("it can be written"));
        let last = config.load().await.expect("it can be read");
        assert!(!names.contains(&last.name), "{last:?}");
        drop(config);
        check_clean(&world, &[&client]).await;
    });
}
