//! The places that `CONTRIBUTING.md` requires of each recipe, and the paths that it names.

use std::collections::BTreeSet;

use super::{
    File,
    listings::text,
    text::{code, has_word},
};

pub(crate) const GUIDE: &str = "CONTRIBUTING.md";

pub(crate) const SOURCE: &str = "crates/zk-recipes/src/";

/// Folders of the crate that are not recipes, but code that recipes share.
pub(crate) const SHARED_FOLDERS: &[&str] =
    &["acquire", "engine", "guard", "lock", "machine", "queue"];

/// What a public type has behind the name of its folder.
const ENDINGS: &[&str] = &["", "Lock", "Locks", "Client"];

/// Recipes whose suite has another name, with the reason.
const SUITES: &[(&str, &str, &str)] =
    &[("counter", "shared_value", "its additions are updates of a shared value")];

/// A recipe, as the places name it.
pub(crate) struct Recipe {
    /// Its folder in the crate.
    pub(crate) folder: String,
    /// Its public type.
    pub(crate) item: String,
    /// The folder of its suite in `tests/tests`.
    pub(crate) suite: String,
}

/// Returns the recipes: each folder of the crate that is not shared. The public type of the recipe
/// `lamp` is `Lamp` or `LampLock`, and its suite is `lamp` or `lamp_lock`.
pub(crate) fn recipes(files: &[File]) -> Vec<Recipe> {
    let folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix(SOURCE)?.split_once('/'))
        .map(|(folder, _)| folder)
        .filter(|folder| !SHARED_FOLDERS.contains(folder))
        .collect();
    let crate_root = text(files, &format!("{SOURCE}lib.rs"));
    let recipe = |folder: &str| {
        let exported = crate_root.split_once(&format!(" {folder}::")).map_or("", |(_, it)| it);
        let end = if exported.starts_with('{') { '}' } else { ',' };
        let exported = exported.split(end).next().unwrap_or_default();
        let names = ENDINGS.iter().map(|ending| format!("{}{ending}", camel_case(folder)));
        let item = names.clone().find(|name| has_word(exported, name));
        let has_suite = |suite: &&str| {
            let prefix = format!("tests/tests/{suite}/");
            files.iter().any(|file| file.path.starts_with(&prefix))
        };
        let other = SUITES.iter().find(|(it, ..)| *it == folder).map(|(_, suite, _)| *suite);
        let suites = [format!("{folder}_lock"), format!("{folder}_locks")];
        let usual = [folder, &*suites[0], &*suites[1]];
        let suite = other.or_else(|| usual.into_iter().find(has_suite)).unwrap_or(folder);
        let item = item.unwrap_or_else(|| camel_case(folder));
        Recipe { folder: folder.to_owned(), item, suite: suite.to_owned() }
    };
    folders.into_iter().map(recipe).collect()
}

/// Returns a name such as `shared_value` as the name of a type.
fn camel_case(folder: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    folder.split('_').map(word).collect()
}

/// A place that every recipe has to be in.
pub(crate) struct Place {
    /// A file, or a folder with a slash at its end, as `CONTRIBUTING.md` names it.
    pub(crate) path: &'static str,
    /// The module of the file that has the recipe, if only one counts.
    pub(crate) module: Option<&'static str>,
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
const CALLS: &str = "tests/src/recipes.rs";

const fn place(path: &'static str, evidence: Evidence) -> Place {
    Place { path, module: None, evidence, without: &[] }
}

pub(crate) const PLACES: &[Place] = &[
    place("crates/zk-recipes/src/lib.rs", Evidence::Row),
    place("crates/zk-recipes/examples/", Evidence::Import),
    Place {
        path: "docs/recipes/",
        module: None,
        evidence: Evidence::Page,
        without: &[
            ("settled", "the page about lost connections has its code"),
            ("tree", "its row of the overview links to all that there is to say"),
        ],
    },
    Place {
        path: "docs/internals/recipes/",
        module: None,
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
        module: None,
        evidence: Evidence::Cell,
        without: &[
            ("holder", "it concludes nothing but what the lock inside concludes"),
            ("multi_lock", "it concludes nothing but what the locks inside conclude"),
        ],
    },
    place("docs/migration.md", Evidence::Word),
    place("tests/tests/conformance/", Evidence::ImportOrCase),
    Place {
        path: "tests/exhaustive/tests/",
        module: None,
        evidence: Evidence::ImportOrCase,
        without: &[
            ("cache", "its own suite enumerates the cuts, and takes seconds"),
            ("settled", "its own suite enumerates the cuts, and takes seconds"),
            ("tree", "its own suite enumerates the cuts, and takes seconds"),
        ],
    },
    place("tests/tests/", Evidence::Suite),
    Place {
        path: CALLS,
        module: Some("pauses"),
        evidence: Evidence::ImportOrCase,
        without: &[
            ("cache", "its machine has pauses of its own, which its suite tests"),
            ("holder", "its calls are those of the lock inside"),
            ("multi_lock", "its calls are those of the locks inside"),
        ],
    },
    Place {
        path: CALLS,
        module: Some("timeouts"),
        evidence: Evidence::Import,
        without: &[
            ("cache", "it has no calls"),
            ("named", "its locks are fair locks, which are there"),
        ],
    },
    Place {
        path: CALLS,
        module: Some("invalid"),
        evidence: Evidence::Import,
        without: &[
            ("holder", "it takes a lock in place of a path"),
            ("multi_lock", "it takes locks in place of paths"),
        ],
    },
    Place { path: CALLS, module: Some("conversions"), evidence: Evidence::Import, without: &[] },
    place("tests/tests/strangers/", Evidence::Import),
    place("tests/simulation/src/program/", Evidence::Import),
    place("tests/mutants/", Evidence::Caught),
    place("CHANGELOG.md", Evidence::Word),
];

/// Checks that each recipe is in all places, and that the guide names these places.
pub(crate) fn missing_places(files: &[File], recipes: &[Recipe], places: &[Place]) -> Vec<String> {
    let mut problems = Vec::new();
    let guide = files.iter().find(|file| file.path == GUIDE).map_or("", |file| &*file.text);
    for place in places {
        if !guide.contains(&format!("`{}`", place.path)) {
            problems.push(format!("{GUIDE} does not name {}", place.path));
        }
        for recipe in recipes {
            let reason = place.without.iter().find(|(folder, _)| recipe.folder == *folder);
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
    let in_place = |shows: &dyn Fn(&str) -> bool| {
        any(place.path, &|text| match place.module {
            Some(module) => module_of(text, module).is_some_and(shows),
            None => shows(text),
        })
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
        Evidence::Import => in_place(&imports),
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
            let is_case = |text: &str| item == "RwLock" && has_word(&code(text), "kind::Write");
            in_place(&imports) || any(CASES, &|text| imports(text) || is_case(text))
        }
        Evidence::Suite => any(&format!("{}{suite}/", place.path), &imports),
        Evidence::Caught => any(place.path, &|text| {
            let names = text.lines().filter_map(|line| line.strip_prefix("Caught by: "));
            names.filter_map(|name| name.split('/').next()).any(|name| name == suite)
        }),
    }
}

/// Returns the text of a module of a file.
fn module_of<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("pub mod {module} {{\n"))?;
    rest.split("\n}\n").next()
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

    use super::{Evidence, File, GUIDE, Place, Recipe, missing_paths, missing_places, recipes};

    fn one() -> [Recipe; 1] {
        [Recipe { folder: "lamp".into(), item: "Lamp".into(), suite: "lamp_suite".into() }]
    }

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
        pairs.map(|(path, evidence)| Place { path, module: None, evidence, without }).collect()
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
        assert_eq!(missing_places(&complete(), &one(), &places(&[])), [""; 0]);
    }

    #[test]
    fn each_place_that_is_left_out_is_noticed() {
        let files = complete();
        for left_out in files.iter().skip(4).map(|file| &file.path) {
            let mut files = complete();
            files.retain(|file| file.path != *left_out);
            let problems = missing_places(&files, &one(), &places(&[]));
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
            assert_eq!(missing_places(&files, &one(), &places(&[])).len(), 1, "{text}");
        }
    }

    #[test]
    fn stale_exceptions_and_an_outdated_guide_are_noticed() {
        let stale = missing_places(&complete(), &one(), &places(&[("lamp", "it is dark")]));
        assert_eq!(stale.len(), PATHS.len(), "{stale:?}");
        let mut files = complete();
        files.retain(|file| file.path != GUIDE);
        assert_eq!(missing_places(&files, &one(), &places(&[])).len(), PATHS.len());
    }

    #[test]
    fn only_the_module_of_a_place_counts() {
        let place = |module| Place {
            path: "examples/",
            module: Some(module),
            evidence: Evidence::Import,
            without: &[],
        };
        let mut files = complete();
        let file = files.iter_mut().find(|file| file.path == "examples/lamp.rs");
        file.expect("it is there").text =
            "pub mod one {\n    use zk_recipes::Lamp;\n}\n\npub mod two {\n}\n".into();
        assert_eq!(missing_places(&files, &one(), &[place("one")]), [""; 0]);
        assert_eq!(missing_places(&files, &one(), &[place("two")]).len(), 1);
        assert_eq!(missing_places(&files, &one(), &[place("three")]).len(), 1);
    }

    #[test]
    fn recipes_are_known_by_the_names_of_their_folders() {
        let files = [
            ("crates/zk-recipes/src/lib.rs", "pub use crate::{\n    lamp::{Glow, LampLock},\n};"),
            ("crates/zk-recipes/src/lamp/mod.rs", ""),
            ("crates/zk-recipes/src/queue/mod.rs", ""),
            ("tests/tests/lamp_lock/main.rs", ""),
        ]
        .map(|(path, text)| File { path: path.into(), text: text.into() });
        let found = recipes(&files);
        let names: Vec<_> = found.iter().map(|it| (&*it.folder, &*it.item, &*it.suite)).collect();
        assert_eq!(names, [("lamp", "LampLock", "lamp_lock")]);
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
