//! Tests that the check finds the cycles of small made-up crates, and accepts crates without
//! cycles.

use super::{File, cycles, layers::breaches, roots};

/// Source files of a crate: path below `crates/a/src/`, and text.
type Sources<'a> = &'a [(&'a str, &'a str)];

#[test]
fn cycles_are_found_however_they_are_written() {
    let cases: &[(&str, Sources<'_>)] = &[
        (
            "two imports",
            &[
                ("lib.rs", "mod one;\nmod two;"),
                ("one.rs", "use crate::two::B;\npub struct A(B);"),
                ("two.rs", "use crate::one::A;\npub struct B(Box<A>);"),
            ],
        ),
        (
            "three paths without imports",
            &[
                ("lib.rs", "mod one;\nmod two;\nmod three;"),
                ("one.rs", "pub fn a() { crate::two::b() }"),
                ("two.rs", "pub fn b() { super::three::c() }"),
                ("three.rs", "pub fn c() { let _ = crate::one::a; }"),
            ],
        ),
        (
            "a re-export in the root",
            &[
                ("lib.rs", "mod one;\nmod two;\npub use one::A;\npub use two::B;"),
                ("one.rs", "use crate::B;\npub struct A(B);"),
                ("two.rs", "pub struct B(Box<crate::A>);"),
            ],
        ),
        (
            "a renamed re-export of everything",
            &[
                ("lib.rs", "mod one;\nmod two;\npub mod api { pub use crate::one::*; }"),
                ("one.rs", "use crate::two::B;\npub struct A(B);"),
                ("two.rs", "use crate::api::A as Other;\npub struct B(Box<Other>);"),
            ],
        ),
        (
            "a parent that drives a child, which uses an item of the parent",
            &[
                ("lib.rs", "mod parent;"),
                ("parent/mod.rs", "mod child;\npub struct A;\nfn f() { child::run() }"),
                ("parent/child.rs", "use super::A;\npub fn run() { let _ = A; }"),
            ],
        ),
        (
            "a re-export that the parent uses itself",
            &[
                ("lib.rs", "mod child;\npub use child::B;\npub struct A(B);"),
                ("child.rs", "pub struct B(Option<Box<super::A>>);"),
            ],
        ),
        (
            "the arguments of a macro",
            &[
                ("lib.rs", "mod one;\nmod two;"),
                ("one.rs", "pub fn a() { assert!(self::super::two::b(), \"text\"); }"),
                ("two.rs", "use crate::one;\npub fn b() -> bool { matches!(one::a(), ()) }"),
            ],
        ),
        (
            "the definition of a macro, and its invocation",
            &[
                ("lib.rs", "#[macro_use]\nmod macros;\nmod two;"),
                ("macros.rs", "macro_rules! b { ($x:expr) => { $crate::two::b($x) }; }"),
                ("two.rs", "pub fn b(_: u8) {}\nfn c() { b!(1) }"),
            ],
        ),
        (
            "types that a macro declares",
            &[
                ("lib.rs", "#[macro_use]\nmod macros;\nmod one;\nmod two;\npub use two::*;"),
                ("macros.rs", "macro_rules! record { ($($t:tt)*) => { $($t)* }; }"),
                ("one.rs", "record! { pub struct A(crate::B); }"),
                ("two.rs", "record! { pub struct B(Box<crate::one::A>); }"),
            ],
        ),
        (
            "nested groups and imports in a function",
            &[
                ("lib.rs", "mod deep;\nmod two;"),
                ("deep/mod.rs", "pub mod one;"),
                ("deep/one.rs", "pub fn a() { use crate::two::B; let _ = B; }"),
                ("two.rs", "use crate::{deep::{self, one::{a as run}}};\npub struct B;"),
            ],
        ),
        (
            "an `impl` in a child, whose unit is part of a longer cycle",
            &[
                ("lib.rs", "mod session;\nmod two;"),
                ("session/mod.rs", "mod part;\npub struct Session;"),
                (
                    "session/part.rs",
                    "use super::Session;\nimpl Session { fn a() { crate::two::b() } }",
                ),
                ("two.rs", "use crate::session::Session;\npub fn b() { let _ = Session; }"),
            ],
        ),
    ];
    for (name, sources) in cases {
        let found = cycles(&tree(sources));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
    }
}

#[test]
fn what_only_points_one_way_is_accepted() {
    let cases: &[(&str, Sources<'_>)] = &[
        (
            "a parent that declares and re-exports",
            &[
                (
                    "lib.rs",
                    "mod child;\npub use child::B;\npub(crate) use self::child::*;\nconst MAX: u8 = 1;",
                ),
                ("child.rs", "pub struct B;\nconst MAX: u8 = super::MAX;"),
            ],
        ),
        (
            "an `impl` that is spread over children",
            &[
                ("lib.rs", "mod part;\nmod rest;\npub struct Session;\nfn f() { part::run() }"),
                ("part.rs", "use super::Session;\nimpl Session {}\npub fn run() {}"),
                ("rest.rs", "use crate::Session;\nimpl Session { fn a() { super::part::run() } }"),
            ],
        ),
        (
            "tests",
            &[
                ("lib.rs", "mod one;\nmod two;\n#[cfg(test)]\nmod tests;"),
                (
                    "one.rs",
                    "pub fn a() {}\n#[cfg(all(test, feature = \"x\"))]\nmod tests { use crate::two::b; }\n\
                     #[cfg(test)]\nuse crate::two;\n#[test]\nfn t() { crate::two::b() }",
                ),
                ("two.rs", "pub fn b() { crate::one::a() }"),
            ],
        ),
        (
            "other crates, local names, comments and strings",
            &[
                ("lib.rs", "mod one;\nmod two;\nuse std::sync::Arc as Shared;"),
                ("one.rs", "//! [`crate::two::B`]\npub struct A;\nfn f() { \"crate::two::B\"; }"),
                (
                    "two.rs",
                    "use super::Shared;\nuse crate::one::A;\nuse ::one::b;\n\
                     fn g(one: A) { println!(\"{}\", one.two); Shared::new(one); }",
                ),
            ],
        ),
        (
            "the name of a module",
            &[
                ("lib.rs", "mod one;\nmod two;"),
                ("one.rs", "use crate::two;\npub(in crate::one) fn a() { two::b() }"),
                ("two.rs", "use crate::one;\npub fn b() {}"),
            ],
        ),
    ];
    for (name, sources) in cases {
        assert_eq!(cycles(&tree(sources)), [""; 0], "{name}");
    }
}

#[test]
fn a_cycle_is_described_as_a_chain_of_files_with_lines() {
    let sources = [
        ("lib.rs", "mod one;\nmod two;\nmod three;\npub use two::B;"),
        ("one.rs", "use std::fs;\n\nuse crate::B;"),
        ("two.rs", "pub struct B;\nfn f() {\n    crate::three::c();\n}"),
        ("three.rs", "pub fn c() {}\nuse super::one::A;"),
    ];
    assert_eq!(
        cycles(&tree(&sources)),
        ["a cycle of 3 files:\n    \
            crates/a/src/one.rs:3 mentions `crate::B` of crates/a/src/two.rs\n    \
            crates/a/src/two.rs:3 mentions `crate::three::c` of crates/a/src/three.rs\n    \
            crates/a/src/three.rs:2 mentions `super::one::A` of crates/a/src/one.rs"]
    );
}

#[test]
fn every_crate_of_the_repository_is_read() {
    let files = crate::repository();
    for expected in ["jute-codec", "zk-recipes", "zk-session", "zk-testserver"] {
        let root = format!("crates/{expected}/src/lib.rs");
        assert!(roots(&files).any(|found| found == root), "{root} is not read");
    }
    assert!(roots(&files).any(|root| root == "crates/zk-bench/src/main.rs"));
}

fn tree(sources: Sources<'_>) -> Vec<File> {
    let file = |(path, text): &(&str, &str)| File {
        path: format!("crates/a/src/{path}"),
        text: (*text).to_owned(),
    };
    sources.iter().map(file).collect()
}

#[test]
fn a_folder_that_uses_a_later_one_of_the_map_is_noticed() {
    const MAP: &str =
        "# Map\n\n### `crates/zk-recipes`: recipes\n\n- `low/` is below `high/`: no.\n";
    let tree = |map: &str, low: &str, high: &str| -> Vec<File> {
        let file = |(path, text): (&str, &str)| File { path: path.into(), text: text.into() };
        let root = "mod low;\nmod high;\nmod error;\npub use high::High;\npub use low::Low;";
        [
            ("ARCHITECTURE.md", map),
            ("crates/zk-recipes/src/lib.rs", root),
            ("crates/zk-recipes/src/error.rs", "pub struct Error(crate::High);"),
            ("crates/zk-recipes/src/low/mod.rs", low),
            ("crates/zk-recipes/src/high/mod.rs", high),
        ]
        .map(file)
        .into()
    };
    let (low, high) = ("pub struct Low;", "pub struct High;");
    let uses_low = "use crate::Low;\npub struct High(Low);";
    let uses_high = "pub struct Low;\nfn f(_: super::high::High) {}";
    assert_eq!(breaches(&tree(MAP, low, uses_low), &[]), [""; 0]);
    assert_eq!(breaches(&tree(MAP, uses_high, high), &[]).len(), 1);
    assert_eq!(breaches(&tree(MAP, low, uses_low), &[("high", &["low"])]), [""; 0]);
    assert_eq!(breaches(&tree(MAP, low, uses_low), &[("high", &[])]).len(), 1);
    assert_eq!(breaches(&tree(MAP, low, high), &[("gone", &[])]).len(), 1);
    assert_eq!(breaches(&tree("# Map", low, high), &[]).len(), 2);
}
