//! The folders, limits and names that the rules use. If you move code, change them here.

/// Crates that have state machines. A module named `machine` is pure, wherever it is in a crate.
pub(crate) const MACHINE_CRATES: &[&str] = &["zk-recipes", "zk-session"];

/// Crates whose page names all items and features, in an index that is written by hand.
pub(crate) const INDEXED_CRATES: &[&str] = &["zk-recipes", "zk-session"];

/// The minimum number of files in modules named `machine`. Lower it only when such files are
/// removed: if they were renamed, the rules for machines would no longer apply to them.
pub(crate) const MACHINE_FILES_MIN: usize = 64;

/// The modules that may create tasks, and the folders that do not belong to a library.
pub(crate) const SPAWNERS: &[&str] = &["driver", "net", "examples", "tests", "zk-bench", "zklock"];

/// The folders with Rust sources.
pub(crate) const RUST_FOLDERS: &[&str] = &["api/src/", "crates/", "fuzz/fuzz_targets/", "tests/"];

/// The folders of the books, the most specific one first.
pub(crate) const BOOKS: &[&str] = &["docs/internals/", "docs/"];

/// The folders whose entries are suites, and the page that has a row for each.
pub(crate) const SUITES: &[&str] = &["tests/tests/", "tests/exhaustive/tests/"];
pub(crate) const SUITES_PAGE: &str = "docs/internals/testing.md";

pub(crate) const EXAMPLE_LINES_MAX: usize = 70;
pub(crate) const SOURCE_LINES_MAX: usize = 700;
pub(crate) const OTHER_LINES_MAX: usize = 900;

/// Names of folders that tools write and git does not track. In a linked worktree, `.git` is a
/// file.
pub(crate) const BUILT: &[&str] = &[".git", "artifacts", "book", "coverage", "target"];

pub(crate) fn is_rust(path: &str) -> bool {
    path.ends_with(".rs") && RUST_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// Returns whether the file belongs to a module named `machine` of a crate, at any depth.
pub(crate) fn is_machine(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let ["crates", _, "src", modules @ ..] = &parts[..] else { return false };
    path.ends_with(".rs") && modules.iter().any(|part| part.trim_end_matches(".rs") == "machine")
}

/// Returns whether the file belongs to the sources of a crate, but not to a module named `machine`.
pub(crate) fn is_outside_machines(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", ..]) && path.ends_with(".rs") && !is_machine(path)
}

pub(crate) fn may_not_spawn(path: &str) -> bool {
    let is_spawner = |part: &str| SPAWNERS.contains(&part.trim_end_matches(".rs"));
    is_rust(path) && !path.split('/').any(is_spawner)
}
