//! Recipes that this library does not ship, as the page about recipes of one's own shows them: a
//! latch, ids in blocks, and a configuration with rollback. In virtual time, with cuts of the
//! connection at every request and event of the first of two clients, one or two at a time.

#[expect(unreachable_pub, reason = "its text is on a page, where it is a module of a crate")]
mod config;
mod config_cuts;
#[expect(unreachable_pub, reason = "its text is on a page, where it is a module of a crate")]
mod ids;
mod ids_cuts;
#[expect(unreachable_pub, reason = "its text is on a page, where it is a module of a crate")]
mod latch;
mod latch_cuts;

use std::time::Duration;

use zk_recipes::{Client, SessionId, SettledClient};
use zk_tests::scene::FIRST;
use zk_tests::world::{World, session_of_first, sleep_ms};

const PAGE: &str = include_str!("../../../docs/internals/own-recipes.md");

/// The number of lines of code that a recipe may have.
const LINES_MAX: usize = 80;

/// The recipes, by the names of their files on the page.
const RECIPES: [(&str, &str); 3] = [
    ("src/latch.rs", include_str!("latch.rs")),
    ("src/ids.rs", include_str!("ids.rs")),
    ("src/config.rs", include_str!("config.rs")),
];

/// The directory of the markers.
const MARKERS: &str = "/app/markers";

/// A time in which each operation ends, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_page_shows_the_recipes_that_are_tested_here() {
    for (file, code) in RECIPES {
        assert!(
            PAGE.contains(&format!("<!-- file: {file} -->\n```rust\n{code}```\n")),
            "the page has another {file}; it should be:\n{code}"
        );
    }
    assert_eq!(PAGE.matches("<!-- file: ").count(), RECIPES.len());
}

#[test]
fn each_recipe_is_short() {
    for (file, code) in RECIPES {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = code.lines().filter(is_code).count();
        assert!((30..LINES_MAX).contains(&lines), "{file} has {lines} lines of code");
    }
}

/// Creates a world with the directories of the recipes.
fn world() -> World {
    let world = World::new();
    for path in ["/app", MARKERS] {
        world.server.admin_create(path, b"", None);
    }
    world
}

fn settled(client: &Client) -> SettledClient {
    SettledClient::new(client, MARKERS).expect("the path is valid").timeout(PATIENCE)
}

/// The session of the first client, which is the same in every world.
fn first_session() -> Option<SessionId> {
    Some(session_of_first(FIRST))
}

/// Lets a late commit become visible, and reads the data of a znode.
async fn last_data(world: &World, path: &str) -> String {
    sleep_ms(2_000).await;
    world.server.admin_create("/flushed", b"", None);
    sleep_ms(10).await;
    data(world, path)
}

fn data(world: &World, path: &str) -> String {
    let data = world.server.data(path).expect("it exists");
    String::from_utf8(data.to_vec()).expect("it is text")
}

/// Waits for the end of all cleanup, and checks that no marker is left. All handles must have been
/// dropped.
async fn check_clean(world: &World, clients: &[&Client]) {
    world.check_clean(clients).await;
    assert_eq!(world.server.ephemerals(), [], "markers are left\n{}", world.trace());
}
