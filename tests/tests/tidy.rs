//! The rules of the repository that no compiler checks, as an ordinary test.
//!
//! A rule is a function over a file, or over all files, that returns what is wrong. Each stands
//! in a table beside an input it must catch and one it must accept, and must have met a minimum
//! of files: a rule that silently does nothing fails.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

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
    for expected in ["Cargo.toml", "crates/jute-codec/src/lib.rs", "tests/tests/tidy.rs"] {
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

struct FileRule {
    name: &'static str,
    applies: fn(&str) -> bool,
    check: fn(&str, &str) -> Vec<String>,
    /// The rule is broken or misplaced if it meets fewer files.
    met_min: usize,
    bad: &'static [(&'static str, &'static str)],
    good: &'static [(&'static str, &'static str)],
}

/// `concat!` keeps this file from breaking the rules which it states.
const FILE_RULES: &[FileRule] = &[
    FileRule {
        name: "module doc",
        applies: is_rust,
        check: begins_with_module_doc,
        met_min: 20,
        bad: &[
            ("crates/a/src/lib.rs", "use std::fs;\n//! Late."),
            ("tests/src/a.rs", "// Not a doc comment.\n"),
            ("fuzz/fuzz_targets/a.rs", "#![no_main]\nuse a::b;\n"),
            ("tests/src/empty.rs", ""),
        ],
        good: &[
            ("crates/a/src/lib.rs", "//! Doc.\n"),
            ("fuzz/fuzz_targets/a.rs", "#![no_main]\n//! Doc.\n"),
            ("tests/src/a.rs", "#![expect(\n    a::b,\n    reason = \"c\"\n)]\n\n//! Doc.\n"),
        ],
    },
    FileRule {
        name: "length",
        applies: is_rust,
        check: file_is_short,
        met_min: 20,
        // The limits have a test of their own.
        bad: &[("crates/a/src/lib.rs", LINES_1024)],
        good: &[("crates/a/src/lib.rs", "//! Doc.\n")],
    },
    FileRule {
        name: "unfinished",
        applies: is_rust,
        check: nothing_is_unfinished,
        met_min: 20,
        bad: &[
            ("crates/a/src/lib.rs", concat!("fn a() { todo", "!() }")),
            ("crates/a/src/lib.rs", concat!("fn a() { unimplemented", "!(\"b\") }")),
            ("crates/a/src/lib.rs", concat!("let a = dbg", "!(b);")),
            ("tests/tests/a.rs", concat!("#[test]\n#[ig", "nore]\nfn a() {}")),
            ("tests/tests/a.rs", concat!("#[ig", "nore = \"slow\"]")),
            ("fuzz/fuzz_targets/a.rs", concat!("// FIX", "ME: b")),
        ],
        good: &[("crates/a/src/lib.rs", "fn ignore(todo: Todo) { fix(me) }")],
    },
    FileRule {
        name: "pure machine",
        applies: is_machine,
        check: machine_is_pure,
        // None while the crates are empty; "crates have machines" below sees to the rest.
        met_min: 0,
        bad: &[
            ("crates/a/src/machine.rs", "use tokio::time;"),
            ("crates/a/src/machine/b.rs", "let now = Instant::now();"),
            ("crates/a/src/machine/b.rs", "    shared: Arc<AtomicU64>,"),
            ("crates/a/src/machine/b.rs", "use std::cell::{self, RefCell};"),
            ("crates/a/src/machine/b.rs", "    shared: Mutex<State>,"),
            ("crates/a/src/machine/b/c.rs", "let jitter = rand::random();"),
            ("crates/a/src/machine/b.rs", "use std::sync::mpsc;"),
            ("crates/a/src/machine/b.rs", "let (a, b) = oneshot::channel();"),
        ],
        good: &[
            ("crates/a/src/machine/b.rs", "//! Knows no tokio.\n/// Nor Instant::now.\n"),
            (
                "crates/a/src/machine/b.rs",
                "#[cfg(feature = \"tokio\")]\npub(crate) use self::c::D;",
            ),
            ("crates/a/src/machine/b.rs", "    profile: Arc<Profile>,"),
            ("crates/a/src/machine/b.rs", "fn handle(now: Instant, operand: u8) {} // not rand\n"),
        ],
    },
    FileRule {
        name: "spawning",
        applies: may_not_spawn,
        check: nothing_spawns,
        met_min: 10,
        bad: &[
            ("crates/a/src/guard.rs", "tokio::spawn(async {});"),
            ("crates/a/src/machine/run_queue.rs", "set.spawn(work);"),
            ("crates/a/src/lib.rs", "use tokio::{task::spawn as begin};"),
            ("crates/a/src/lib.rs", "handle.spawn_blocking(work);"),
        ],
        good: &[
            ("crates/a/src/guard.rs", "/// Never calls `tokio::spawn`.\nfn respawn() {}"),
            ("crates/a/src/lib.rs", "let spawned = 1;"),
        ],
    },
    FileRule {
        name: "what can be awaited",
        applies: |path| path.starts_with("crates/zk-recipes/src/"),
        check: awaitables_are_documented,
        met_min: 10,
        bad: &[
            ("crates/zk-recipes/src/a.rs", "pub async fn a(&self) {}"),
            (
                "crates/zk-recipes/src/a.rs",
                "/// Survives connection loss. Cancel safe.\npub async fn a() -> Result<(), E> {}",
            ),
            (
                "crates/zk-recipes/src/a.rs",
                "/// Cancel safe.\npub fn a(\n    b: u8,\n) -> impl Future<Output = u8> {\n}",
            ),
            (
                "crates/zk-recipes/src/a.rs",
                "/// Connection loss.\n#[b]\npub fn a() -> Acquire<K> {",
            ),
        ],
        good: &[
            ("crates/zk-recipes/src/a.rs", "pub(crate) async fn a() {}\npub fn b() -> u8 {}"),
            (
                "crates/zk-recipes/src/a.rs",
                "/// Connection loss. Cancel safe.\n/// # Errors\npub async fn a() -> Result<(), E> {}",
            ),
            (
                "crates/zk-recipes/src/a.rs",
                "/// Otherwise as [`b`].\n/// # Errors\npub fn a() -> Run<F> {",
            ),
        ],
    },
    FileRule {
        name: "independent server",
        applies: |path| path == "crates/zk-testserver/Cargo.toml",
        check: |_, text| forbid(text, &["zk-session", "zk_session"]),
        met_min: 1,
        bad: &[("crates/zk-testserver/Cargo.toml", "[dev-dependencies]\nzk-session = \"1\"")],
        good: &[("crates/zk-testserver/Cargo.toml", "[dependencies]\njute-codec = \"1\"")],
    },
    FileRule {
        name: "self-contained",
        applies: |_| true,
        check: |_, text| forbid(text, &[concat!("../", "shared")]),
        met_min: 20,
        bad: &[("README.md", concat!("[notes](", "../", "shared/notes.md)"))],
        good: &[("README.md", "state shared by two tasks")],
    },
];

fn is_rust(path: &str) -> bool {
    let roots = ["crates/", "tests/", "fuzz/fuzz_targets/"];
    path.ends_with(".rs") && roots.iter().any(|root| path.starts_with(root))
}

fn begins_with_module_doc(_: &str, text: &str) -> Vec<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap_or_default();
    while first.starts_with("#![") {
        while !first.ends_with(']') {
            first = lines.next().unwrap_or("]");
        }
        first = lines.next().unwrap_or_default();
    }
    if first.starts_with("//!") { vec![] } else { vec!["begins without a `//!` doc".into()] }
}

fn file_is_short(path: &str, text: &str) -> Vec<String> {
    let limit = match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", _, "src", ..] => SOURCE_LINES_MAX,
        // One lock each, to be read at a glance.
        ["crates", "zk-recipes", "examples", ..] => EXAMPLE_LINES_MAX,
        _ => OTHER_LINES_MAX,
    };
    let lines = text.lines().count();
    if lines <= limit { vec![] } else { vec![format!("has {lines} lines, the limit is {limit}")] }
}

/// Whatever can be awaited says what happens when it is dropped, when the connection is lost, and
/// which errors it ends with; or names another that says so.
fn awaitables_are_documented(_: &str, text: &str) -> Vec<String> {
    const KINDS: [&str; 5] =
        ["async fn", "impl Future", "-> Acquire<", "-> TryAcquire<", "-> Run<"];
    let mut faults = Vec::new();
    let mut doc = String::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(words) = line.strip_prefix("///") {
            doc.push_str(words);
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        let doc = std::mem::take(&mut doc).to_lowercase();
        if !line.starts_with("pub fn ") && !line.starts_with("pub async fn ") {
            continue;
        }
        let mut signature = line.to_owned();
        while !signature.contains('{') {
            signature.push_str(lines.next().unwrap_or("{"));
        }
        if !KINDS.iter().any(|kind| signature.contains(kind)) {
            continue;
        }
        let is_like_another = doc.contains("otherwise as [");
        let may_fail = !signature.contains("Output =") || signature.contains("Result<");
        for (word, is_due) in [
            ("cancel safe", !is_like_another),
            ("connection", !is_like_another),
            ("# errors", may_fail && !signature.contains("-> Option<")),
        ] {
            if is_due && !doc.contains(word) {
                faults.push(format!("{line} says nothing of `{word}`"));
            }
        }
    }
    faults
}

fn nothing_is_unfinished(_: &str, text: &str) -> Vec<String> {
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("#[ig", "nore"),
        concat!("FIX", "ME"),
    ];
    forbid(text, &marks)
}

fn is_machine(path: &str) -> bool {
    path.ends_with(".rs") && (path.contains("/src/machine/") || path.ends_with("/src/machine.rs"))
}

fn machine_is_pure(_: &str, text: &str) -> Vec<String> {
    let outside = [
        "AtomicBool",
        "AtomicU64",
        "AtomicUsize",
        "Cell",
        "Instant::now",
        "Mutex",
        "OnceCell",
        "OnceLock",
        "RefCell",
        "RwLock",
        "SystemTime",
        "atomic",
        "mpsc",
        "oneshot",
        "rand",
        "tokio",
    ];
    // The name of a feature is not an item of the runtime.
    forbid(&code(text).replace("feature = \"tokio\"", ""), &outside)
}

fn may_not_spawn(path: &str) -> bool {
    let owners = ["driver", "examples", "net", "run", "tests"];
    let owned = path.split('/').any(|part| owners.contains(&part.trim_end_matches(".rs")));
    is_rust(path) && !owned
}

fn nothing_spawns(_: &str, text: &str) -> Vec<String> {
    forbid(&code(text), &["spawn", "spawn_blocking", "spawn_local"])
}

struct TreeRule {
    name: &'static str,
    check: fn(&[File]) -> Vec<String>,
    bad: &'static [&'static [(&'static str, &'static str)]],
    good: &'static [(&'static str, &'static str)],
}

const TREE_RULES: &[TreeRule] = &[
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
        bad: &[&[("crates/zk-session/src/lib.rs", ""), ("crates/zk-session/src/core.rs", "")]],
        good: &[
            ("crates/zk-session/src/lib.rs", ""),
            ("crates/zk-session/src/machine/mod.rs", ""),
            ("crates/zk-recipes/src/lib.rs", ""),
        ],
    },
    TreeRule {
        name: "pages are in the summary",
        check: pages_are_in_the_summary,
        bad: &[
            &[],
            &[("docs/SUMMARY.md", "- [A](a.md)"), ("docs/b.md", "")],
            &[("docs/SUMMARY.md", "- [A](a.md)"), ("docs/deep/a.md", "")],
        ],
        good: &[
            ("docs/SUMMARY.md", "- [A](a.md)\n  - [B](deep/b.md)"),
            ("docs/a.md", ""),
            ("docs/deep/b.md", ""),
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
];

/// A second one would replace the first for its crate, and lift every ban without a word.
fn clippy_is_configured_once(files: &[File]) -> Vec<String> {
    let is_config =
        |file: &&File| matches!(file.path.rsplit('/').next(), Some("clippy.toml" | ".clippy.toml"));
    let found: Vec<&str> = files.iter().filter(is_config).map(|file| &*file.path).collect();
    if found == ["clippy.toml"] {
        return vec![];
    }
    vec![format!("the only clippy.toml must be the one at the root, not {found:?}")]
}

/// Were the modules renamed, the rules for machines would meet no file and say nothing.
fn crates_have_machines(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in ["crates/zk-recipes/src/", "crates/zk-session/src/"] {
        let paths = || files.iter().map(|file| &*file.path).filter(|p| p.starts_with(source));
        if paths().count() > 1 && !paths().any(is_machine) {
            problems.push(format!("{source} has no `machine` module"));
        }
    }
    problems
}

fn pages_are_in_the_summary(files: &[File]) -> Vec<String> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return vec![format!("{SUMMARY} is missing")];
    };
    let listed: Vec<String> = links(summary).collect();
    files
        .iter()
        .map(|file| &file.path)
        .filter(|path| path.starts_with("docs/") && path.ends_with(".md") && *path != SUMMARY)
        .filter(|path| !listed.contains(path))
        .map(|path| format!("{SUMMARY} does not link {path}"))
        .collect()
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

/// The files a Markdown page links to, as paths from the root.
fn links(page: &File) -> impl Iterator<Item = String> {
    let targets = page.text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets
        .filter_map(|target| target.split('#').next())
        // What has neither is a Rust item, which rustdoc checks, or code in brackets.
        .filter(|target| target.contains(['.', '/']))
        .filter(|target| !target.contains("::") && !target.contains("//"))
        .map(|target| resolve(&page.path, target))
}

/// A target that leaves the repository keeps its `..`, and so is not found.
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

/// Reports each line that has one of the words, as whole identifiers.
fn forbid(text: &str, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let found = words.iter().filter(|word| has_word(line, word));
        problems.extend(found.map(|word| format!("line {number} has `{word}`")));
    }
    problems
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|l| l.is_alphanumeric() || l == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, found) = line.split_at(at);
        let after = found.strip_prefix(word).unwrap_or_default();
        let joins_before = is_part(word.chars().next()) && is_part(before.chars().next_back());
        let joins_after = is_part(word.chars().next_back()) && is_part(after.chars().next());
        !joins_before && !joins_after
    })
}

/// The text without comments, line by line, so that numbers of lines still hold.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Every text file of the repository, in the order of their paths.
fn repository() -> Vec<File> {
    // At run time first: with a shared target folder, the binary may stem from another checkout.
    let package = env::var("CARGO_MANIFEST_DIR");
    let package = package.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    let root = Path::new(package).parent().expect("tests/ is in the root");
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if BUILT.contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("the walk began there");
                files.push(File { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).expect("the repository can be read");
    listed.map(|entry| entry.expect("an entry can be read").path()).collect()
}

const SUMMARY: &str = "docs/SUMMARY.md";

const EXAMPLE_LINES_MAX: usize = 60;
const SOURCE_LINES_MAX: usize = 700;
const OTHER_LINES_MAX: usize = 900;

/// What tools write and git does not track. (In a linked worktree, `.git` is a file.)
const BUILT: &[&str] = &[".git", "artifacts", "book", "corpus", "coverage", "target"];

const LINES_1024: &str = {
    macro_rules! doubled {
        ($text:expr) => {
            concat!($text, $text)
        };
    }
    macro_rules! times_32 {
        ($text:expr) => {
            doubled!(doubled!(doubled!(doubled!(doubled!($text)))))
        };
    }
    times_32!(times_32!("//\n"))
};
