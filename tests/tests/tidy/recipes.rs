//! The places that `CONTRIBUTING.md` requires of each recipe, and the paths that it names.

use std::collections::BTreeSet;

use super::{
    File,
    text::{code, has_word},
};

pub(crate) const GUIDE: &str = "CONTRIBUTING.md";

const SOURCE: &str = "crates/zk-recipes/src/";

/// Folders of the crate that are not recipes, but code that recipes share.
pub(crate) const SHARED_FOLDERS: &[&str] =
    &["acquire", "engine", "guard", "lock", "machine", "queue"];

/// A recipe, as the places name it.
pub(crate) struct Recipe {
    /// Its folder in the crate.
    pub(crate) folder: &'static str,
    /// Its public type.
    pub(crate) item: &'static str,
    /// The folder of its suite in `tests/tests`.
    pub(crate) suite: &'static str,
}

const fn recipe(folder: &'static str, item: &'static str, suite: &'static str) -> Recipe {
    Recipe { folder, item, suite }
}

pub(crate) const RECIPES: &[Recipe] = &[
    recipe("barrier", "Barrier", "barrier"),
    recipe("cache", "Cache", "cache"),
    // Its additions are updates of a shared value.
    recipe("counter", "Counter", "shared_value"),
    recipe("double_barrier", "DoubleBarrier", "double_barrier"),
    recipe("election", "Election", "election"),
    recipe("exclusive", "ExclusiveLock", "exclusive_lock"),
    recipe("fair", "FairLock", "fair_lock"),
    recipe("group", "Group", "group"),
    recipe("holder", "Holder", "holder"),
    recipe("multi_lock", "MultiLock", "multi_lock"),
    recipe("named", "NamedLocks", "named_locks"),
    recipe("presence", "Presence", "presence"),
    recipe("rw", "RwLock", "rw_lock"),
    recipe("semaphore", "Semaphore", "semaphore"),
    recipe("settled", "SettledClient", "settled"),
    recipe("shared_value", "SharedValue", "shared_value"),
    recipe("tree", "Tree", "tree"),
    recipe("work_queue", "WorkQueue", "work_queue"),
];

/// A place that every recipe has to be in.
pub(crate) struct Place {
    /// A file, or a folder with a slash at its end, as `CONTRIBUTING.md` names it.
    pub(crate) path: &'static str,
    pub(crate) evidence: Evidence,
    /// Folders of recipes that are not in this place, with the reason.
    pub(crate) without: &'static [(&'static str, &'static str)],
}

/// What shows that a recipe is in a place.
#[derive(Clone, Copy)]
pub(crate) enum Evidence {
    /// The text has the public type as a word.
    Word,
    /// A row of a table has the public type as a link.
    Row,
    /// A row of a table has the public type as code.
    Cell,
    /// The text has the folder as code, with a slash.
    Folder,
    /// A Rust file imports the public type.
    Import,
    /// The code of a page imports the public type.
    Page,
    /// A page says that the code is in the folder.
    Source,
    /// The same, or the recipe is a lock that the generic suites test.
    ImportOrCase,
    /// A Rust file in the folder of the recipe's suite imports the public type.
    Suite,
    /// A file names the recipe's suite as the one that catches it.
    Caught,
}

pub(crate) const CASES: &str = "tests/src/case/";

const fn place(path: &'static str, evidence: Evidence) -> Place {
    Place { path, evidence, without: &[] }
}

pub(crate) const PLACES: &[Place] = &[
    place("crates/zk-recipes/src/lib.rs", Evidence::Row),
    place("crates/zk-recipes/examples/", Evidence::Import),
    Place {
        path: "docs/recipes/",
        evidence: Evidence::Page,
        without: &[
            ("settled", "the page about lost connections has its code"),
            ("tree", "its row of the overview links to all that there is to say"),
        ],
    },
    Place {
        path: "docs/internals/recipes/",
        evidence: Evidence::Source,
        without: &[
            ("fair", "it has no code but that of all queues, which its page names"),
            ("settled", "the page about lost replies describes it"),
            ("tree", "it has no algorithm besides the order of its requests"),
        ],
    },
    place("docs/recipes/overview.md", Evidence::Row),
    place("ARCHITECTURE.md", Evidence::Folder),
    Place {
        path: "docs/internals/connection-loss.md",
        evidence: Evidence::Cell,
        without: &[
            ("holder", "it concludes nothing but what the lock inside concludes"),
            ("multi_lock", "it concludes nothing but what the locks inside conclude"),
        ],
    },
    place("docs/migration.md", Evidence::Word),
    place("tests/tests/conformance/", Evidence::ImportOrCase),
    place("tests/tests/runtimes/", Evidence::ImportOrCase),
    Place {
        path: "tests/exhaustive/tests/",
        evidence: Evidence::ImportOrCase,
        without: &[
            ("cache", "its own suite enumerates the cuts, and takes seconds"),
            ("settled", "its own suite enumerates the cuts, and takes seconds"),
            ("tree", "its own suite enumerates the cuts, and takes seconds"),
        ],
    },
    place("tests/tests/", Evidence::Suite),
    Place {
        path: "tests/tests/machines.rs",
        evidence: Evidence::ImportOrCase,
        without: &[
            ("cache", "its machine has pauses of its own, which its suite tests"),
            ("holder", "its calls are those of the lock inside"),
            ("multi_lock", "its calls are those of the locks inside"),
        ],
    },
    Place {
        path: "tests/tests/timeouts.rs",
        evidence: Evidence::Import,
        without: &[
            ("cache", "it has no calls"),
            ("named", "its locks are fair locks, which are there"),
        ],
    },
    Place {
        path: "tests/tests/messages/options.rs",
        evidence: Evidence::Import,
        without: &[("holder", "it takes a lock in place of a path, and has no options")],
    },
    place("tests/tests/messages/conversions.rs", Evidence::Import),
    place("tests/tests/strangers/", Evidence::Import),
    place("tests/simulation/src/program/", Evidence::Import),
    place("tests/mutants/", Evidence::Caught),
    place("CHANGELOG.md", Evidence::Word),
];

/// Checks that each folder of the crate is shared or a recipe, that each recipe is in all places,
/// and that the guide names these places.
pub(crate) fn missing_places(files: &[File], recipes: &[Recipe], places: &[Place]) -> Vec<String> {
    let mut problems = Vec::new();
    let known = |folder: &str| {
        SHARED_FOLDERS.contains(&folder) || recipes.iter().any(|recipe| recipe.folder == folder)
    };
    let folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix(SOURCE)?.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    problems.extend(folders.iter().filter(|folder| !known(folder)).map(|folder| {
        format!("{SOURCE}{folder} is neither shared nor a recipe: add it to `recipes.rs`")
    }));
    for recipe in recipes.iter().filter(|recipe| !folders.contains(recipe.folder)) {
        problems.push(format!("the recipe {} has no folder {}", recipe.item, recipe.folder));
    }
    let guide = files.iter().find(|file| file.path == GUIDE).map_or("", |file| &*file.text);
    for place in places {
        if !guide.contains(&format!("`{}`", place.path)) {
            problems.push(format!("{GUIDE} does not name {}", place.path));
        }
        for recipe in recipes {
            let reason = place.without.iter().find(|(folder, _)| *folder == recipe.folder);
            match (is_in(files, recipe, place), reason) {
                (true, None) | (false, Some(_)) => {}
                (false, None) => {
                    problems.push(format!("{} is not in {}: see {GUIDE}", recipe.item, place.path))
                }
                (true, Some(_)) => problems.push(format!(
                    "{} is in {} now: remove the exception",
                    recipe.item, place.path
                )),
            }
        }
    }
    problems
}

fn is_in(files: &[File], recipe: &Recipe, place: &Place) -> bool {
    let Recipe { folder, item, suite } = recipe;
    let any = |prefix: &str, shows: &dyn Fn(&str) -> bool| {
        files.iter().any(|file| file.path.starts_with(prefix) && shows(&file.text))
    };
    let imports = |text: &str| imports(text, item);
    match place.evidence {
        Evidence::Word => any(place.path, &|text| has_word(text, item)),
        Evidence::Row => any(place.path, &|text| {
            let mut rows = text.lines().map(|line| line.trim_start_matches("//! "));
            rows.any(|row| row.starts_with('|') && names_in_row(row, item))
        }),
        Evidence::Cell => any(place.path, &|text| {
            let mut rows = text.lines().filter(|line| line.starts_with('|'));
            rows.any(|row| row.contains(&format!("`{item}`")))
        }),
        Evidence::Folder => any(place.path, &|text| text.contains(&format!("`{folder}/`"))),
        Evidence::Import => any(place.path, &imports),
        Evidence::Page => any(place.path, &|text| {
            let mut blocks = text.split("```").skip(1).step_by(2);
            blocks.any(imports)
        }),
        Evidence::Source => any(place.path, &|text| {
            let source = format!("`{SOURCE}{folder}");
            let mut named = text.split(&source).skip(1);
            named.any(|rest| rest.starts_with(['`', '/', ':']))
        }),
        Evidence::ImportOrCase => {
            // A read/write lock consists of two locks, each of which is a case.
            let is_case = |text: &str| *item == "RwLock" && has_word(&code(text), "kind::Write");
            any(place.path, &imports) || any(CASES, &|text| imports(text) || is_case(text))
        }
        Evidence::Suite => any(&format!("{}{suite}/", place.path), &imports),
        Evidence::Caught => any(place.path, &|text| {
            let names = text.lines().filter_map(|line| line.strip_prefix("Caught by: "));
            names.filter_map(|name| name.split('/').next()).any(|name| name == *suite)
        }),
    }
}

fn names_in_row(row: &str, item: &str) -> bool {
    row.contains(&format!("[`{item}`]")) || row.starts_with(&format!("| `{item}` |"))
}

/// Returns whether the code imports the item from the crate of recipes, or mentions it by its path.
fn imports(text: &str, item: &str) -> bool {
    let code = code(text);
    let mut uses = code.split("zk_recipes::").skip(1);
    uses.any(|rest| {
        let end = if rest.starts_with('{') { '}' } else { ';' };
        has_word(rest.split(end).next().unwrap_or_default(), item)
    })
}

/// Checks that each path that the guide names as code exists. A part in angle brackets, or a star,
/// stands for any name.
pub(crate) fn missing_paths(files: &[File]) -> Vec<String> {
    let Some(guide) = files.iter().find(|file| file.path == GUIDE) else {
        return vec![format!("{GUIDE} is missing")];
    };
    let exists = |path: &str| {
        let wanted: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        files.iter().any(|file| {
            let found: Vec<&str> = file.path.split('/').collect();
            let is_folder = found.len() > wanted.len();
            let fits = |(wanted, found): (&&str, &&str)| {
                wanted == found || *wanted == "*" || wanted.starts_with('<')
            };
            (is_folder || (found.len() == wanted.len() && !path.ends_with('/')))
                && wanted.iter().zip(&found).all(fits)
        })
    };
    let named = paths(&guide.text);
    named.filter(|path| !exists(path)).map(|path| format!("{GUIDE}: no {path}")).collect()
}

/// Returns the paths that a page has as code, outside of blocks of code.
fn paths(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```").step_by(2);
    let words = blocks.flat_map(|text| text.split('`').skip(1).step_by(2));
    words.filter(|word| word.contains('/') && !word.contains(char::is_whitespace))
}

mod tests {
    //! Tests that a place that is left out is noticed.

    use super::{Evidence, File, GUIDE, Place, Recipe, missing_paths, missing_places};

    const ONE: &[Recipe] = &[Recipe { folder: "lamp", item: "Lamp", suite: "lamp_suite" }];

    const PATHS: [&str; 10] = [
        "docs/words.md",
        "docs/rows.md",
        "docs/cells.md",
        "MAP.md",
        "examples/",
        "docs/pages/",
        "docs/sources/",
        "tests/tests/many/",
        "tests/tests/",
        "tests/mutants/",
    ];

    fn places(without: &'static [(&'static str, &'static str)]) -> Vec<Place> {
        let evidence = [
            Evidence::Word,
            Evidence::Row,
            Evidence::Cell,
            Evidence::Folder,
            Evidence::Import,
            Evidence::Page,
            Evidence::Source,
            Evidence::ImportOrCase,
            Evidence::Suite,
            Evidence::Caught,
        ];
        let pairs = PATHS.into_iter().zip(evidence);
        pairs.map(|(path, evidence)| Place { path, evidence, without }).collect()
    }

    /// A tree in which the recipe is everywhere.
    fn complete() -> Vec<File> {
        let guide = PATHS.map(|path| format!("- `{path}`\n")).concat();
        [
            ("crates/zk-recipes/src/lamp/mod.rs", ""),
            ("crates/zk-recipes/src/queue/mod.rs", ""),
            ("crates/zk-recipes/src/error.rs", ""),
            (GUIDE, &*guide),
            ("docs/words.md", "a `Lamp`"),
            ("docs/rows.md", "| [`Lamp`](lamp.md) | light |"),
            ("docs/cells.md", "| a lock, `Lamp`, and others | nothing |"),
            ("MAP.md", "- `lamp/`"),
            ("examples/lamp.rs", "use zk_recipes::{Client, Lamp};"),
            ("docs/pages/lamp.md", "# Lamps\n\n```rust\nuse zk_recipes::Lamp;\n```\n"),
            ("docs/sources/lamp.md", "The code is in `crates/zk-recipes/src/lamp`."),
            ("tests/src/case/lamp.rs", "let it = zk_recipes::Lamp::new();"),
            ("tests/tests/lamp_suite/main.rs", "use zk_recipes::Lamp;"),
            ("tests/mutants/dark.mutant", "Caught by: lamp_suite/dark::"),
        ]
        .map(|(path, text)| File { path: path.into(), text: text.into() })
        .into()
    }

    #[test]
    fn a_recipe_that_is_everywhere_is_accepted() {
        assert_eq!(missing_places(&complete(), ONE, &places(&[])), [""; 0]);
    }

    #[test]
    fn each_place_that_is_left_out_is_noticed() {
        let files = complete();
        for left_out in files.iter().skip(4).map(|file| &file.path) {
            let mut files = complete();
            files.retain(|file| file.path != *left_out);
            let problems = missing_places(&files, ONE, &places(&[]));
            assert_eq!(problems.len(), 1, "without {left_out}: {problems:?}");
        }
    }

    #[test]
    fn words_that_resemble_a_recipe_are_not_enough() {
        for (path, text) in [
            ("docs/words.md", "`Lamps`"),
            ("docs/rows.md", "A [`Lamp`](lamp.md)."),
            ("docs/cells.md", "| `Lamps` |\na `Lamp`"),
            ("examples/lamp.rs", "// use zk_recipes::Lamp;\nenum Job { Lamp }"),
            ("examples/lamp.rs", "use zk_recipes::{Client}; struct Lamp;"),
            ("docs/pages/lamp.md", "use zk_recipes::Lamp;\n```rust\nlet it = Lamp;\n```\n"),
            ("docs/sources/lamp.md", "The code is in `crates/zk-recipes/src/lamps`."),
            ("tests/mutants/dark.mutant", "Caught by: lamp_suites"),
        ] {
            let mut files = complete();
            let file = files.iter_mut().find(|file| file.path == path).expect("it is there");
            file.text = text.into();
            assert_eq!(missing_places(&files, ONE, &places(&[])).len(), 1, "{text}");
        }
    }

    #[test]
    fn new_folders_stale_exceptions_and_an_outdated_guide_are_noticed() {
        let mut files = complete();
        files.push(File { path: "crates/zk-recipes/src/new/mod.rs".into(), text: String::new() });
        assert_eq!(missing_places(&files, ONE, &places(&[])).len(), 1);
        assert_eq!(missing_places(&complete(), &[], &places(&[])).len(), 1);
        let stale = missing_places(&complete(), ONE, &places(&[("lamp", "it is dark")]));
        assert_eq!(stale.len(), PATHS.len(), "{stale:?}");
        let mut files = complete();
        files.retain(|file| file.path != GUIDE);
        assert_eq!(missing_places(&files, ONE, &places(&[])).len(), PATHS.len());
    }

    #[test]
    fn paths_of_the_guide_must_exist() {
        let tree = |guide: &str| -> Vec<File> {
            let file = |(path, text): (&str, &str)| File { path: path.into(), text: text.into() };
            [(GUIDE, guide), ("a/b/c.rs", "")].map(file).into()
        };
        let good =
            "`a/b` `a/b/` `a/b/c.rs` `a/<it>/` `a/*/c.rs` `x / y` `word`\n```sh\n`no/no`\n```\n";
        assert_eq!(missing_paths(&tree(good)), [""; 0]);
        for bad in ["a/c", "a/b/c.rs/", "a/b/c", "a/<it>/d.rs"] {
            assert_eq!(missing_paths(&tree(&format!("`{bad}`"))).len(), 1, "{bad}");
        }
        assert_eq!(missing_paths(&[]).len(), 1);
    }
}
