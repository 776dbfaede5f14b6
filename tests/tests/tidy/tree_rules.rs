//! Rules for the tree of all files.

use std::collections::BTreeSet;

use super::{
    File,
    books::{self, pages_of},
    front_page,
    layout::{BOOKS, MACHINE_CRATES, SUITES, SUITES_PAGE, is_machine},
    text::has_word,
};

pub(crate) struct TreeRule {
    pub(crate) name: &'static str,
    /// Takes all files, and describes each violation.
    pub(crate) check: fn(&[File]) -> Vec<String>,
    /// Trees that the rule must catch, as paths and texts.
    pub(crate) bad: &'static [&'static [(&'static str, &'static str)]],
    /// A tree that the rule must accept.
    pub(crate) good: &'static [(&'static str, &'static str)],
}

const RECIPES_MANIFEST: (&str, &str) = (
    "crates/zk-recipes/Cargo.toml",
    "[features]\ndefault = [\"f\"]\nf = []\n\n[dependencies]\ng = \"1\"",
);
const GUIDE: (&str, &str) = ("docs/SUMMARY.md", "- [A](a.md)");
const INTERNALS: (&str, &str) = ("docs/internals/SUMMARY.md", "- [A](a.md)");
const PAGES: (&str, &str) =
    ("crates/zk-recipes/src/lib.rs", "#[doc = include_str!(\"../../../docs/a.md\")]");
/// More words than the guide may have.
const LONG: &str = match str::from_utf8(LONG_BYTES.as_flattened()) {
    Ok(text) => text,
    Err(_) => panic!("this is ASCII"),
};
const LONG_BYTES: &[[u8; 2]] = &[*b"a "; 20_001];
/// A line of code with one character more than 100.
const LONG_LINE: &str = "```text
12345678901234567890123456789012345678901234567890\
12345678901234567890123456789012345678901234567890!
```";
const SESSION: (&str, &str) = ("crates/zk-session/src/lib.rs", "//! `J`\npub use k::J;");

pub(crate) const TREE_RULES: &[TreeRule] = &[
    TreeRule {
        name: "one clippy.toml",
        check: clippy_is_configured_once,
        bad: &[
            &[],
            &[("crates/a/clippy.toml", "")],
            &[("clippy.toml", ""), ("crates/a/clippy.toml", "")],
            &[("clippy.toml", ""), ("tests/.clippy.toml", "")],
        ],
        good: &[("clippy.toml", ""), ("crates/a/Cargo.toml", "")],
    },
    TreeRule {
        name: "crates have machines",
        check: crates_have_machines,
        bad: &[
            &[("crates/zk-session/src/core.rs", ""), ("crates/zk-recipes/src/machine.rs", "")],
            &[("crates/zk-session/src/machine/mod.rs", "")],
        ],
        good: &[
            ("crates/zk-session/src/machine/mod.rs", ""),
            ("crates/zk-recipes/src/queue/machine/claim.rs", ""),
        ],
    },
    TreeRule {
        name: "published crates contain their licences",
        check: published_crates_contain_their_licences,
        bad: &[
            &[("LICENSE-MIT", "may"), ("LICENSE-APACHE", "if"), ("crates/a/Cargo.toml", "")],
            &[
                ("LICENSE-MIT", "may"),
                ("LICENSE-APACHE", "if"),
                ("crates/a/Cargo.toml", ""),
                ("crates/a/LICENSE-MIT", "../../LICENSE-MIT"),
                ("crates/a/LICENSE-APACHE", "if"),
            ],
            &[("crates/a/Cargo.toml", "publish = false")],
        ],
        good: &[
            ("LICENSE-MIT", "may"),
            ("LICENSE-APACHE", "if"),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/LICENSE-MIT", "may"),
            ("crates/a/LICENSE-APACHE", "if"),
            ("crates/b/Cargo.toml", "publish = false"),
        ],
    },
    TreeRule {
        name: "crate pages name everything",
        check: front_page::crate_pages_name_everything,
        bad: &[
            &[],
            &[
                RECIPES_MANIFEST,
                SESSION,
                ("crates/zk-recipes/src/lib.rs", "//! `f`\npub use a::B;"),
            ],
            &[
                RECIPES_MANIFEST,
                SESSION,
                ("crates/zk-recipes/src/lib.rs", "//! `f` B\npub mod B {}"),
            ],
            &[
                RECIPES_MANIFEST,
                SESSION,
                ("crates/zk-recipes/src/lib.rs", "//! `B`\npub use a::B;"),
            ],
            &[
                RECIPES_MANIFEST,
                SESSION,
                ("crates/zk-recipes/src/lib.rs", "//! `f` `B`\npub use a::{B, c::D as E};"),
            ],
        ],
        good: &[
            RECIPES_MANIFEST,
            SESSION,
            (
                "crates/zk-recipes/src/lib.rs",
                "//! `f` [`B`] `E`\npub use a::{B, c::D as E};\nuse g::H;\n#[doc(hidden)]\npub mod i {}",
            ),
        ],
    },
    TreeRule {
        name: "conversions are public",
        check: front_page::conversions_are_public,
        bad: &[
            &[SESSION, ("crates/zk-session/src/k.rs", "impl From<Inner> for J {")],
            &[SESSION, ("crates/zk-session/src/k.rs", "impl<T> From<&Inner<T>> for J<T> {")],
        ],
        good: &[
            SESSION,
            ("crates/zk-session/src/k.rs", "impl From<&J> for J {\nimpl From<&io::Error> for J {"),
            ("crates/zk-session/src/l.rs", "impl From<Inner> for Other {\nimpl From<i64> for J {"),
        ],
    },
    TreeRule {
        name: "pages are in the summary",
        check: pages_are_in_the_summary,
        bad: &[
            &[],
            &[GUIDE, INTERNALS, ("docs/a.md", ""), ("docs/internals/a.md", ""), ("docs/b.md", "")],
            &[GUIDE, INTERNALS, ("docs/a.md", ""), ("docs/internals/deep/a.md", "")],
            &[GUIDE, ("docs/a.md", ""), ("docs/internals/a.md", "")],
            &[
                ("docs/SUMMARY.md", "- [A](a.md)\n- [A](internals/a.md)"),
                INTERNALS,
                ("docs/a.md", ""),
                ("docs/internals/a.md", ""),
            ],
        ],
        good: &[
            ("docs/SUMMARY.md", "- [A](a.md)\n  - [B](deep/b.md)"),
            INTERNALS,
            ("docs/a.md", ""),
            ("docs/deep/b.md", ""),
            ("docs/internals/a.md", ""),
        ],
    },
    TreeRule {
        name: "the guide is short",
        check: books::guide_is_short,
        bad: &[&[("docs/a.md", LONG)], &[("docs/a.md", LONG), ("docs/internals/a.md", "")]],
        good: &[
            ("docs/internals/a.md", LONG),
            ("docs/programs/a.md", LONG),
            ("docs/b.md", "# B\n\n```text\na b\n```\n"),
        ],
    },
    TreeRule {
        name: "the guide is readable",
        check: books::guide_is_readable,
        bad: &[
            &[("docs/a.md", LONG_LINE)],
            &[("docs/a.md", "# A\n\n| a | b | c | d | e |\n|---|---|---|---|---|\n")],
            &[("docs/a.md", "# A\n\n## B\n\n## C\n\n### B\n")],
        ],
        good: &[
            ("docs/internals/a.md", LONG_LINE),
            ("docs/a.md", "# A\n\n| a | b | c \\| c | d |\n|---|---|---|---|\n\n```sh\n# A\n```\n"),
            ("docs/b.md", "# A\n\n```text\n| a | b | c | d | e |\n```\n"),
        ],
    },
    TreeRule {
        name: "code of pages is compiled",
        check: books::code_of_pages_is_compiled,
        bad: &[
            &[("docs/a.md", "# A\n\n```rust\nfn a() {}\n```")],
            &[PAGES, ("docs/a.md", "# A\n\n```rust,ignore\nfn a() {}\n```")],
            &[PAGES, ("docs/b.md", "# B\n\n```rust,no_run\nfn a() {}\n```")],
            &[PAGES, ("docs/b.md", "<!-- file: a.rs -->\n```rust\n```\n\n```rust\n```")],
        ],
        good: &[
            PAGES,
            ("docs/a.md", "# A\n\n```rust,no_run\nfn a() {}\n```"),
            ("docs/b.md", "<!-- file: a.rs -->\n```rust,ignore\n```\n\n```toml\n```"),
        ],
    },
    TreeRule {
        name: "recipes begin with use",
        check: books::recipes_begin_with_use,
        bad: &[
            &[(
                "docs/recipes/a.md",
                "# A\n\nWords.\n\n```rust\n```\n| limits, errors, permissions | |\n| how it works | [x](x) |",
            )],
            &[(
                "docs/recipes/a.md",
                "# A\n\n| limits, errors, permissions | |\n| how it works | [x](x) |",
            )],
            &[(
                "docs/recipes/a.md",
                "# A\n\n```rust\n```\n| limits, errors | |\n| how it works | [x](x) |",
            )],
            &[(
                "docs/recipes/a.md",
                "# A\n\n```rust\n```\n| limits, errors, permissions | |\n## B\n| how it works | [x](x) |",
            )],
        ],
        good: &[
            (
                "docs/recipes/a.md",
                "# A\n\n```rust\n```\n| limits, errors | |\n| permissions | |\n| how it works | [x](x) |",
            ),
            ("docs/recipes/overview.md", "# Which\n\nWords."),
        ],
    },
    TreeRule {
        name: "errors have reviewed messages",
        check: errors_have_reviewed_messages,
        bad: &[
            &[
                ("crates/a/src/messages.rs", "Others"),
                (
                    "crates/a/src/b.rs",
                    "#[derive(Clone, Error)]\n#[non_exhaustive]\npub enum Other {",
                ),
            ],
            &[
                ("crates/a/src/messages.rs", ""),
                ("crates/a/src/b.rs", "#[derive(Error)]\npub struct B;"),
            ],
        ],
        good: &[
            ("crates/a/src/messages.rs", "Other::Closed"),
            (
                "crates/a/src/b.rs",
                "#[derive(Error)]\npub enum Other {\n#[derive(Error)]\npub(crate) enum B {}\n#[derive(Eq)]\npub enum C {}",
            ),
            ("crates/b/src/c.rs", "#[derive(Error)]\npub enum D {}"),
        ],
    },
    TreeRule {
        name: "suites are described",
        check: suites_are_described,
        bad: &[
            &[("tests/tests/a/main.rs", ""), ("docs/internals/testing.md", "")],
            &[("tests/tests/a.rs", ""), ("docs/internals/testing.md", "| `tests/tests/ab` |")],
            &[("tests/exhaustive/tests/a.rs", "")],
        ],
        good: &[
            ("tests/tests/a/main.rs", ""),
            ("tests/tests/a/b.rs", ""),
            ("tests/exhaustive/tests/b.rs", ""),
            (
                "docs/internals/testing.md",
                "| a | `tests/tests/a/main.rs` |\n| b | `tests/exhaustive/tests/b.rs` |",
            ),
        ],
    },
    TreeRule {
        name: "links lead somewhere",
        check: links_lead_somewhere,
        bad: &[
            &[("docs/SUMMARY.md", "- [A](a.md)")],
            &[("docs/deep/a.md", "[B](b.md#part)"), ("docs/b.md", "")],
            &[("docs/a.md", "[out](../../outside.md)")],
        ],
        good: &[
            ("docs/SUMMARY.md", "[B](deep/b.md) [web](https://example.org/x.md) [part](#part)"),
            ("docs/deep/b.md", "[up](../SUMMARY.md#top) [dir](../../crates/a) [item](crate::A)"),
            ("crates/a/Cargo.toml", ""),
        ],
    },
    TreeRule {
        name: "anchors are headings",
        check: anchors_are_headings,
        bad: &[
            &[("docs/a.md", "[part](#part)")],
            &[("docs/a.md", "[part](b.md#part)"), ("docs/b.md", "```sh\n# Part\n```")],
            &[("docs/a.md", "[part](b.md#part-1)"), ("docs/b.md", "# Part")],
        ],
        good: &[
            ("docs/a.md", "# A `b`, c_d\n\n[up](#a-b-c_d) [other](b.md#part-1) [item](Self::a#b)"),
            ("docs/b.md", "# Part\n\n## Part\n\n[web](https://example.org/#part)"),
        ],
    },
];

/// Checks that there is only one Clippy configuration. A second one would replace the first for its
/// crate, and silently lift every ban.
fn clippy_is_configured_once(files: &[File]) -> Vec<String> {
    let is_config =
        |file: &&File| matches!(file.path.rsplit('/').next(), Some("clippy.toml" | ".clippy.toml"));
    let found: Vec<&str> = files.iter().filter(is_config).map(|file| &*file.path).collect();
    if found == ["clippy.toml"] {
        return vec![];
    }
    vec![format!("the only clippy.toml must be the one at the root, not {found:?}")]
}

/// Checks that the crates still have modules named `machine`. If the modules were renamed, the
/// rules for machines would not apply to them.
fn crates_have_machines(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for name in MACHINE_CRATES {
        let source = format!("crates/{name}/src/");
        let mut paths = files.iter().map(|file| &*file.path).filter(|p| p.starts_with(&source));
        if !paths.any(is_machine) {
            problems.push(format!("{source} has no `machine` module"));
        }
    }
    problems
}

/// Checks that the package of each published crate contains the text of the licences. Symbolic links
/// would save the copies, but where a checkout turns them into files, these contain only a path.
fn published_crates_contain_their_licences(files: &[File]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let is_published = |file: &&File| {
        let parts: Vec<&str> = file.path.split('/').collect();
        matches!(parts[..], ["crates", _, "Cargo.toml"]) && !file.text.contains("publish = false")
    };
    let mut problems = Vec::new();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let Some(expected) = text(licence) else {
            problems.push(format!("{licence} is missing"));
            continue;
        };
        for manifest in files.iter().filter(is_published) {
            let copy = manifest.path.replace("Cargo.toml", licence);
            if text(&copy) != Some(expected) {
                problems.push(format!("{copy} must be a copy of {licence}"));
            }
        }
    }
    problems
}

fn pages_are_in_the_summary(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for book in BOOKS {
        let path = format!("{book}SUMMARY.md");
        let Some(summary) = files.iter().find(|file| file.path == path) else {
            problems.push(format!("{path} is missing"));
            continue;
        };
        let mut wanted: Vec<&str> = pages_of(book, files).map(|page| &*page.path).collect();
        wanted.retain(|page| *page != path);
        let listed: Vec<String> = links(summary).collect();
        let unlisted = wanted.iter().filter(|page| !listed.iter().any(|it| it == *page));
        problems.extend(unlisted.map(|page| format!("{path} does not link {page}")));
        // mdBook would build the page a second time, in the wrong book.
        let foreign = listed.iter().filter(|page| !wanted.contains(&&***page));
        problems.extend(foreign.map(|page| format!("{path} links {page} of the other book")));
    }
    problems
}

/// Checks that the messages of each public error are among those that are reviewed, in the crates
/// that have reviewed messages.
fn errors_have_reviewed_messages(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for reviewed in files {
        let Some(source) = reviewed.path.strip_suffix("messages.rs") else { continue };
        for file in files.iter().filter(|file| file.path.starts_with(source)) {
            let derived = file.text.split("#[derive(").skip(1);
            let errors = derived.filter_map(|rest| {
                let (traits, item) = rest.split_once(")]")?;
                let item = item.lines().find(|line| !line.is_empty() && !line.starts_with("#["))?;
                let name =
                    item.strip_prefix("pub enum ").or_else(|| item.strip_prefix("pub struct "))?;
                let name = name.split(|letter: char| !letter.is_alphanumeric()).next()?;
                has_word(traits, "Error").then_some(name)
            });
            let missing = errors.filter(|name| !has_word(&reviewed.text, name));
            problems
                .extend(missing.map(|name| format!("{} has no example of {name}", reviewed.path)));
        }
    }
    problems
}

/// Checks that the page about tests says what each suite shows.
fn suites_are_described(files: &[File]) -> Vec<String> {
    let missing = undescribed(files).into_iter();
    missing.map(|suite| format!("{SUITES_PAGE} has no row for {suite}")).collect()
}

/// Returns the suites without a row.
pub(crate) fn undescribed(files: &[File]) -> Vec<String> {
    let page = files.iter().find(|file| file.path == SUITES_PAGE).map_or("", |file| &*file.text);
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let named: Vec<&str> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let suite = |path: &str| {
        let (folder, rest) = SUITES.iter().find_map(|it| Some((it, path.strip_prefix(it)?)))?;
        Some(format!("{folder}{}", rest.split(['/', '.']).next()?))
    };
    let suites: BTreeSet<String> = files.iter().filter_map(|file| suite(&file.path)).collect();
    let is_named = |suite: &str| {
        let mut after = named.iter().filter_map(|path| path.strip_prefix(suite));
        after.any(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    };
    suites.into_iter().filter(|suite| !is_named(suite)).collect()
}

fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let exists = |target: &str| {
        let folder = format!("{}/", target.trim_end_matches('/'));
        files.iter().any(|file| file.path == target || file.path.starts_with(&folder))
    };
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let dead = links(file).filter(|target| !exists(target));
        problems.extend(dead.map(|target| format!("{}: no {target}", file.path)));
    }
    problems
}

fn anchors_are_headings(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (target, anchor) in targets(&file.text).filter_map(|target| target.split_once('#')) {
            let path = match target {
                "" => file.path.clone(),
                target => resolve(&file.path, target),
            };
            // Links to the web and to Rust items resolve to no page.
            let Some(page) = files.iter().find(|page| page.path == path) else { continue };
            if path.ends_with(".md") && !anchors(&page.text).iter().any(|it| it == anchor) {
                problems.push(format!("{}: {path} has no heading #{anchor}", file.path));
            }
        }
    }
    problems
}

/// Returns the anchors of the headings of a page, as mdBook and the usual hosts derive them.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let text = line.trim_start_matches('#');
        if is_code || text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let name: String = text.trim().chars().filter(kept).collect();
        let name = name.to_lowercase().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Returns the targets of all links of a page, with their anchors.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// Returns the files that a Markdown page links to, as paths from the root.
fn links(page: &File) -> impl Iterator<Item = String> {
    targets(&page.text)
        .filter_map(|target| target.split('#').next())
        // A target without a dot or a slash is a Rust item, which rustdoc checks, or code in
        // brackets.
        .filter(|target| target.contains(['.', '/']))
        .filter(|target| !target.contains("::") && !target.contains("//"))
        .map(|target| resolve(&page.path, target))
}

/// Converts the target of a link to a path from the root. A target outside of the repository keeps
/// its `..`, so that no file matches it.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}
