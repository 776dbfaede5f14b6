//! The rules of the repository that the compiler does not check, as an ordinary test.
//!
//! A rule is a function that takes one file or all files, and describes violations. The tables of
//! rules contain inputs that each rule must catch and inputs that it must accept. A rule for files
//! also states the minimum number of files that it applies to, because a rule that applies to no
//! file proves nothing. The names of folders belong in `layout`.

mod blocks;
mod books;
mod changes;
mod cycles;
mod figures;
mod file_rules;
mod front_page;
mod known_faults;
mod layout;
mod listings;
mod log_lines;
mod operations;
mod options;
mod questions;
mod recipes;
mod signatures;
mod summaries;
mod tables;
mod text;
mod tree_rules;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use file_rules::{FILE_RULES, FileRule, file_is_short};
use layout::{BUILT, EXAMPLE_LINES_MAX, OTHER_LINES_MAX, SOURCE_LINES_MAX};
use tree_rules::TREE_RULES;

#[test]
fn every_file_follows_the_rules_for_files() {
    let files = repository();
    let mut problems = Vec::new();
    for rule in FILE_RULES {
        let met: Vec<&File> = files.iter().filter(|file| (rule.applies)(&file.path)).collect();
        let (name, met_min) = (rule.name, rule.met_min);
        assert!(met.len() >= met_min, "{name}: met {} files, expected {met_min}", met.len());
        for file in met {
            let wrong = (rule.check)(&file.path, &file.text);
            problems.extend(wrong.into_iter().map(|what| format!("{}: {what}", file.path)));
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_files_together_follow_the_rules_for_trees() {
    let files = repository();
    let problems: Vec<String> = TREE_RULES.iter().flat_map(|rule| (rule.check)(&files)).collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_guide_is_found_with_the_words_of_questions() {
    let problems = questions::unanswered(&repository());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_number_of_the_guide_is_checked_or_has_a_reason() {
    let problems = figures::outdated(&repository());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_log_line_is_on_the_page_of_all() {
    let problems = log_lines::unlisted(&repository());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_option_of_a_lock_has_its_row_and_its_scene() {
    let files = repository();
    let problems = options::unproven(&files);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    check(&files, options::PAGE, &options::page(&files));
}

#[test]
fn each_known_fault_is_on_its_page() {
    let files = repository();
    check(&files, known_faults::PAGE, &known_faults::page(&files));
}

#[test]
fn the_operations_are_those_of_the_schema() {
    let files = repository();
    check(&files, operations::PAGE, &operations::page(&files));
}

#[test]
fn the_types_are_those_of_the_snapshots() {
    let files = repository();
    let pages = signatures::pages(&files);
    let all: String = pages.iter().map(|(_, text)| &**text).collect();
    for line in [
        "\nstruct Leased\n    // An item of a `WorkQueue` that this taker has, and no other.\n",
        "\n    ack(self) -> Call<(), WorkQueueError>\n        // ",
        "\n    contenders(&self) -> Call<Vec<Contender>, LockError> // K: Fair, Lead, Permit, Read, Write\n",
        "\n    Blocked { item: String, reason: BlockReason }\n",
        "\n    LeaseLost(LostReason)\n",
        "\n    Lock<Permit>::set_permits(&mut self, permits: u32) -> ScopedCall<'_, (), LockError>\n",
        "\n    has_left_session(&self) -> bool\n",
        "\ntype Leadership = Guard<Lead>\n",
        "enum zk_session::TlsFailure\n",
        "\n#[non_exhaustive] enum LostReason\n",
        "\n    fencing_token(&self) -> FencingToken // K: Exclusive, Fair, Lead, Write\n",
        "\n    from(Stopped) -> Self\n    from(ConfigError) -> Self\n    impl Clone + Debug + Display + Error + PartialEq\n",
        "\nfn request_revocation(client: &Client, contender: &str) -> Call<bool, RecipeError>\n",
        "\nstruct TestServer\n",
        "\n    ephemeral_owner: SessionId\n",
        "\n    impl Clone + Debug + Hash + PartialEq\n",
        "\nstruct Tls\n",
        "\n    const NO_AUTH: Self\n",
    ] {
        assert!(all.contains(line), "no page has {line:?}");
    }
    for (page, text) in pages {
        check(&files, page, &text);
    }
}

#[test]
fn something_new_changes_few_files() {
    let problems = changes::oversized(&repository(), changes::LIMITS);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_recipe_and_each_suite_is_in_the_lists() {
    let files = repository();
    let recipes = recipes::recipes(&files);
    assert!(recipes.len() >= 18, "saw only {} recipes", recipes.len());
    for (page, text) in listings::completed(&files, &recipes) {
        check(&files, page, &text);
    }
}

/// Checks that a page has this text, or updates it.
fn check(files: &[File], page: &str, text: &str) {
    if env::var_os("UPDATE_PAGES").is_some() {
        fs::write(root().join(page), text).expect("the page can be written");
    } else {
        let is_current = files.iter().any(|file| file.path == page && file.text == text);
        assert!(is_current, "{page} is outdated; UPDATE_PAGES=1 and this test update it");
    }
}

#[test]
fn manifests_and_commands_of_pages_name_what_exists() {
    let problems = blocks::wrong(&repository());
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn no_crate_has_cycles_of_modules() {
    let problems = cycles::cycles(&repository());
    let rules = "tests/tests/tidy/cycles/mod.rs says what counts as a dependency";
    assert!(problems.is_empty(), "\n{}\n({rules})\n", problems.join("\n"));
}

#[test]
fn the_folders_of_recipes_keep_the_order_of_the_map() {
    let problems = cycles::layers::breaches(&repository(), cycles::layers::NARROW);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_recipe_is_in_the_places_that_the_guide_for_contributors_demands() {
    let files = repository();
    let mut problems = recipes::missing_places(&files, &recipes::recipes(&files), recipes::PLACES);
    problems.extend(recipes::missing_paths(&files));
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_rule_for_files_catches_the_bad_and_accepts_the_good() {
    let problems = |rule: &FileRule, (path, text): &(&str, &str)| {
        assert!((rule.applies)(path), "{} passes over {path}", rule.name);
        (rule.check)(path, text)
    };
    for rule in FILE_RULES {
        assert!(!rule.bad.is_empty() && !rule.good.is_empty(), "{} has no examples", rule.name);
        for bad in rule.bad {
            assert!(!problems(rule, bad).is_empty(), "{} accepts {bad:?}", rule.name);
        }
        for good in rule.good {
            assert_eq!(problems(rule, good), [""; 0], "{} refuses {good:?}", rule.name);
        }
    }
}

#[test]
fn every_rule_for_trees_catches_the_bad_and_accepts_the_good() {
    let tree = |files: &[(&str, &str)]| -> Vec<File> {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        files.iter().map(file).collect()
    };
    for rule in TREE_RULES {
        assert!(!rule.bad.is_empty(), "{} has no example", rule.name);
        for bad in rule.bad {
            assert!(!(rule.check)(&tree(bad)).is_empty(), "{} accepts {bad:?}", rule.name);
        }
        assert_eq!(
            (rule.check)(&tree(rule.good)),
            [""; 0],
            "{} refuses {:?}",
            rule.name,
            rule.good
        );
    }
}

#[test]
fn limits_on_length_hold_to_the_line() {
    let lines = |count: usize| "//\n".repeat(count);
    for (path, limit) in [
        ("crates/a/src/lib.rs", SOURCE_LINES_MAX),
        ("crates/a/tests/api.rs", OTHER_LINES_MAX),
        ("crates/zk-recipes/examples/a.rs", EXAMPLE_LINES_MAX),
        ("crates/zk-testserver/examples/a.rs", OTHER_LINES_MAX),
    ] {
        assert_eq!(file_is_short(path, &lines(limit)), [""; 0]);
        assert_eq!(file_is_short(path, &lines(limit + 1)).len(), 1, "{path}");
    }
}

#[test]
fn the_walk_sees_the_repository_and_no_build_output() {
    let files = repository();
    assert!(files.len() >= 20, "saw only {} files", files.len());
    for expected in ["Cargo.toml", "crates/jute-codec/src/lib.rs", "tests/tests/tidy/main.rs"] {
        assert!(files.iter().any(|file| file.path == expected), "did not see {expected}");
    }
    let built = files.iter().find(|file| file.path.split('/').any(|part| part == "target"));
    assert!(built.is_none(), "saw {:?}", built.map(|file| &file.path));
}

/// A text file; its path is relative to the root of the repository.
struct File {
    path: String,
    text: String,
}

/// Returns all text files of the repository, in the order of their paths.
fn repository() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if BUILT.contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(&root).expect("the walk began there");
                files.push(File { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn root() -> PathBuf {
    // The variable at run time takes precedence: if checkouts share a target folder, the binary may
    // have been built in another one.
    let package = env::var("CARGO_MANIFEST_DIR");
    let package = package.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    Path::new(package).parent().expect("tests/ is in the root").to_path_buf()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).expect("the repository can be read");
    listed.map(|entry| entry.expect("an entry can be read").path()).collect()
}
