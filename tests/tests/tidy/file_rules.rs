//! Rules that each file follows on its own.

use super::{
    layout::{
        EXAMPLE_LINES_MAX, MACHINE_FILES_MIN, OTHER_LINES_MAX, SOURCE_LINES_MAX, is_machine,
        is_outside_machines, is_rust, may_not_spawn,
    },
    tables::tables_are_whole,
    text::{code, forbid},
};

pub(crate) struct FileRule {
    pub(crate) name: &'static str,
    /// Whether the rule applies to the file with this path.
    pub(crate) applies: fn(&str) -> bool,
    /// Takes the path and the text of a file, and describes each violation.
    pub(crate) check: fn(&str, &str) -> Vec<String>,
    /// The minimum number of files that the rule applies to. If it applies to fewer files, then
    /// files have moved, or `applies` is wrong.
    pub(crate) met_min: usize,
    /// Paths and texts that the rule must catch.
    pub(crate) bad: &'static [(&'static str, &'static str)],
    /// Paths and texts that the rule must accept.
    pub(crate) good: &'static [(&'static str, &'static str)],
}

/// `concat!` keeps this file from breaking the rules that it states.
pub(crate) const FILE_RULES: &[FileRule] = &[
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
        // The limits have their own test.
        bad: &[("crates/a/src/lib.rs", LINES_1024)],
        good: &[("crates/a/src/lib.rs", "//! Doc.\n")],
    },
    FileRule {
        name: "errors in debug format",
        applies: |path| {
            let crates = ["jute-codec", "zk-session", "zk-recipes"];
            is_rust(path) && crates.iter().any(|it| path.starts_with(&format!("crates/{it}/src/")))
        },
        check: errors_show_their_message,
        met_min: 100,
        bad: &[("crates/zk-session/src/a.rs", "#[derive(Clone, Debug, Eq, Error)]\nenum A {}")],
        good: &[("crates/zk-session/src/a.rs", "#[derive(Clone, Eq, Error)]\nenum A {}")],
    },
    FileRule {
        name: "pauses",
        applies: |path| is_rust(path) && path.starts_with("crates/zk-recipes/src/"),
        check: pauses_belong_to_repeating,
        met_min: 100,
        bad: &[("crates/zk-recipes/src/fair/machine.rs", "struct A { pauses: Pauses }")],
        good: &[
            ("crates/zk-recipes/src/fair/machine.rs", "let needs = Needs::All;"),
            ("crates/zk-recipes/src/machine/repeat/mod.rs", "pauses: Pauses,"),
        ],
    },
    FileRule {
        name: "tables",
        applies: |path| path.ends_with(".md"),
        check: tables_are_whole,
        met_min: 50,
        bad: &[
            ("docs/a.md", "| a | b |\n|---|---|\n| c | d | e |\n"),
            ("docs/a.md", "| a | b |\n|---|---|\n| c |\n"),
            ("docs/a.md", "| a |\n|---|---|\n"),
            ("docs/a.md", "| a | b |\n|---|---|\n\n| c | d |\n"),
        ],
        good: &[
            ("docs/a.md", "| a | b |\n| --- | --: |\n| `c\\|d` | |\n\nText.\n"),
            ("docs/a.md", "```text\n| a | b\n```\n"),
        ],
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
        met_min: MACHINE_FILES_MIN,
        bad: &[
            ("crates/a/src/machine.rs", "use tokio::time;"),
            ("crates/a/src/machine/b.rs", "let now = Instant::now();"),
            ("crates/a/src/machine/b.rs", "    shared: Arc<AtomicU64>,"),
            ("crates/a/src/machine/b.rs", "use std::cell::{self, RefCell};"),
            ("crates/a/src/rw/machine.rs", "    shared: Mutex<State>,"),
            ("crates/a/src/b/c/machine/d/e.rs", "let jitter = rand::random();"),
            ("crates/a/src/queue/machine/b.rs", "use std::sync::mpsc;"),
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
        name: "place of machines",
        applies: is_outside_machines,
        check: implements_no_machine,
        met_min: 70,
        bad: &[
            ("crates/a/src/rw/release.rs", "impl Machine for Release {"),
            ("crates/a/src/lib.rs", "impl<'a, K: Kind> crate::machine::Machine for Claim<K> {"),
        ],
        good: &[
            (
                "crates/a/src/engine/drive.rs",
                "fn drive(m: &mut impl Machine) {} // impl Machine for",
            ),
            ("crates/a/src/engine/drive.rs", "impl Drive for Machine {}"),
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
                "/// It is like [`b`].\n/// # Errors\npub fn a() -> Run<F> {",
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

pub(crate) fn file_is_short(path: &str, text: &str) -> Vec<String> {
    let limit = match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", _, "src", ..] => SOURCE_LINES_MAX,
        // An example shows one lock and fits on a screen.
        ["crates", "zk-recipes", "examples", ..] => EXAMPLE_LINES_MAX,
        _ => OTHER_LINES_MAX,
    };
    let lines = text.lines().count();
    if lines <= limit { vec![] } else { vec![format!("has {lines} lines, the limit is {limit}")] }
}

/// Checks that the documentation of a public function that can be awaited says what happens when
/// the future is dropped and when the connection is lost, and which errors it returns, or refers to
/// another function whose documentation does.
fn awaitables_are_documented(_: &str, text: &str) -> Vec<String> {
    const KINDS: [&str; 7] = [
        "async fn",
        "impl Future",
        "-> Acquire<",
        "-> TryAcquire<",
        "-> Run<",
        "-> Call<",
        "-> Put ",
    ];
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
        let is_like_another = doc.contains("is like [");
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

/// Checks that no state machine is outside of the modules named `machine`, because only these
/// modules are checked for purity.
fn implements_no_machine(_: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let lines = (1..).zip(code.lines().map(str::trim));
    let is_machine = |line: &str| {
        // A type without values makes no decisions.
        line.starts_with("impl")
            && line.contains("Machine for ")
            && !line.contains(" for Infallible")
    };
    lines
        .filter(|(_, line)| is_machine(line))
        .map(|(number, _)| format!("line {number} implements a machine: move it to `machine`"))
        .collect()
}

fn nothing_spawns(_: &str, text: &str) -> Vec<String> {
    forbid(&code(text), &["spawn", "spawn_blocking", "spawn_local"])
}

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

/// The files that pause, although `Repeating` does that for machines.
const PAUSING: [&str; 15] = [
    // They issue operations of the client, which are not flights.
    "settled/again.rs",
    "settled/change.rs",
    "machine/mod.rs",
    "machine/pause.rs",
    "machine/repeat/mod.rs",
    // Callers that are not machines.
    "engine/drive.rs",
    "engine/persistent.rs",
    "election/mod.rs",
    "election/term.rs",
    // The keeper is not a machine.
    "guard/keeper.rs",
    // Nothing is repeated: a caller who ignores errors must not send requests without end.
    "election/observe.rs",
    "group/machine/roster.rs",
    "machine/monitor.rs",
    // Nothing is repeated: somebody deletes the znode again and again.
    "presence/machine/presence.rs",
    // An event ends these pauses.
    "presence/machine/obstacle.rs",
];

fn errors_show_their_message(_: &str, text: &str) -> Vec<String> {
    // It is a part of a state, and no call fails with it.
    let is_excepted =
        |at| text.lines().skip(at).take(3).any(|line| line == "pub enum LostReason {");
    let both = |(at, line): &(usize, &str)| {
        let has = |name| line.split(['(', ',', ')']).any(|part| part.trim() == name);
        let is_derive = line.trim_start().starts_with("#[derive(");
        is_derive && has("Debug") && has("Error") && !is_excepted(*at)
    };
    let lines = text.lines().enumerate().filter(both);
    lines
        .map(|(at, _)| format!("line {}: use `debug_by_message!` instead of `Debug`", at + 1))
        .collect()
}

fn pauses_belong_to_repeating(path: &str, text: &str) -> Vec<String> {
    if PAUSING.iter().any(|name| path == format!("crates/zk-recipes/src/{name}")) {
        return Vec::new();
    }
    let is_pausing = |(_, line): &(usize, &str)| line.contains("Pauses");
    let lines = text.lines().enumerate().filter(is_pausing);
    lines
        .map(|(at, _)| format!("line {}: let `Repeating` pause, or say why not here", at + 1))
        .collect()
}
