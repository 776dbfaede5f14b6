//! What is documented and what this suite covers must not drift apart.
//!
//! The documentation is that of the operations of the client, and the tables of
//! `docs/internals/protocol.md`.
//! The suite is read as text, so this shows that one statement of the suite calls an operation and
//! names an error, not that it asserts the right thing about them.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use jute_codec::ErrorCode;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Attribute, Expr, FnArg, ImplItem, Item, Lit, Meta, Type, Visibility};

/// An error that this suite does not provoke.
struct Elsewhere {
    /// The operation whose documentation names the error. Empty: no test of the suite names it.
    operation: &'static str,
    code: &'static str,
    /// The file that tests the error.
    tested_in: &'static str,
    /// Why this suite cannot provoke it.
    why: &'static str,
}

const fn elsewhere(
    operation: &'static str,
    code: &'static str,
    tested_in: &'static str,
    why: &'static str,
) -> Elsewhere {
    Elsewhere { operation, code, tested_in, why }
}

const RECONFIG: &str = "tests/processes/tests/ensemble/reconfig.rs";
const ADMINISTRATOR: &str = "it takes the superuser and a server that allows reconfig";
const ONE_AT_A_TIME: &str = "the first change must still be under way, which no client can arrange";

const ELSEWHERE: &[Elsewhere] = &[
    elsewhere(
        "",
        "NOT_READ_ONLY",
        "tests/processes/tests/ensemble/read_only.rs",
        "it takes a server that has lost its ensemble",
    ),
    elsewhere(
        "",
        "SESSION_CLOSED_REQUIRE_SASL_AUTH",
        "crates/zk-testserver/tests/server/sasl.rs",
        "it takes a server that demands SASL, on which no other test could run",
    ),
    elsewhere(
        "",
        "THROTTLED_OP",
        "tests/tests/refusals.rs",
        "it takes a server that is overloaded, or is set to refuse most requests",
    ),
    elsewhere(
        "",
        "SESSION_MOVED",
        "crates/zk-session/src/machine/tests/requests.rs",
        "servers close the connection instead",
    ),
    elsewhere(
        "",
        "EPHEMERAL_ON_LOCAL_SESSION",
        "crates/jute-codec/tests/numbers.rs",
        "it takes a server with local sessions that cannot be upgraded",
    ),
    elsewhere("", "NEW_CONFIG_NO_QUORUM", RECONFIG, ADMINISTRATOR),
    elsewhere(
        "",
        "RECONFIG_IN_PROGRESS",
        "crates/zk-testserver/tests/server/reconfig.rs",
        ONE_AT_A_TIME,
    ),
    elsewhere("reconfig", "BAD_VERSION", RECONFIG, ADMINISTRATOR),
    elsewhere("reconfig", "BAD_ARGUMENTS", RECONFIG, ADMINISTRATOR),
    elsewhere("reconfig", "NEW_CONFIG_NO_QUORUM", RECONFIG, ADMINISTRATOR),
    elsewhere(
        "reconfig",
        "RECONFIG_IN_PROGRESS",
        "crates/zk-testserver/tests/server/reconfig.rs",
        ONE_AT_A_TIME,
    ),
    elsewhere(
        "get_config",
        "NO_NODE",
        "tests/tests/conformance/operations.rs",
        "servers from 3.5 on have the znode; it is read like any other",
    ),
    elsewhere(
        "get_config",
        "NO_AUTH",
        "tests/tests/conformance/acl.rs",
        "the znode is that of all tests; it is read like any other",
    ),
];

/// Methods of the client that are not operations: they neither send nor change anything.
const LOCAL: &[&str] = &["now"];

fn root() -> PathBuf {
    // The variable at run time takes precedence: if checkouts share a target folder, the binary may
    // have been built in another one.
    let package = env::var("CARGO_MANIFEST_DIR");
    let package = package.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR"));
    Path::new(package).parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources in a folder, with the folders in it.
fn sources(folder: &str) -> Vec<String> {
    let mut folders = vec![root().join(folder)];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs")
                && path.file_name().is_some_and(|name| name != "coverage.rs")
            {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    texts
}

fn flatten(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                words.push("(".to_owned());
                flatten(group.stream(), words);
                words.push(")".to_owned());
            }
            word => words.push(word.to_string()),
        }
    }
}

/// What one function of the suite mentions: `.method` for each call of a method, and `TYPE::NAME`.
type Mentions = BTreeSet<String>;

fn mentions(body: TokenStream) -> Mentions {
    let mut words = Vec::new();
    flatten(body, &mut words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut mentions = Mentions::new();
    for window in words.windows(4) {
        match window {
            [".", method, "(", _] => mentions.insert(format!(".{method}")),
            [scope, ":", ":", name] => mentions.insert(format!("{scope}::{name}")),
            _ => false,
        };
    }
    mentions
}

#[derive(Default)]
struct Suite {
    /// The tests and their helpers.
    functions: Vec<Mentions>,
    /// The statements of these functions. A loop is one statement.
    statements: Vec<Mentions>,
}

/// Splits the body of a function.
fn statements(body: TokenStream) -> Vec<TokenStream> {
    let mut statements = vec![TokenStream::new()];
    for token in body {
        let is_end = match &token {
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        statements.last_mut().unwrap().extend([token]);
        if is_end {
            statements.push(TokenStream::new());
        }
    }
    statements
}

fn suite() -> Suite {
    let mut suite = Suite::default();
    for text in sources("tests/tests/conformance") {
        let tokens: TokenStream = text.parse().unwrap();
        let mut is_fn = false;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if word == "fn" => is_fn = true,
                TokenTree::Group(group) if is_fn && group.delimiter() == Delimiter::Brace => {
                    let all = statements(group.stream()).into_iter().map(mentions);
                    suite.statements.extend(all);
                    suite.functions.push(mentions(group.stream()));
                    is_fn = false;
                }
                _ => {}
            }
        }
    }
    suite
}

fn has(places: &[Mentions], needles: &[&str]) -> bool {
    places.iter().any(|mentions| needles.iter().all(|needle| mentions.contains(*needle)))
}

/// A method of the client, and the codes that its documentation names.
struct Operation {
    name: String,
    codes: Vec<String>,
}

fn doc(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Each public method that takes a client.
fn operations() -> Vec<Operation> {
    let codes: BTreeSet<String> = (-200..0).map(|code| format!("{:?}", ErrorCode(code))).collect();
    let mut operations = Vec::new();
    for text in sources("crates/zk-session/src") {
        for item in syn::parse_file(&text).unwrap().items {
            let Item::Impl(item) = item else { continue };
            let is_client = matches!(&*item.self_ty, Type::Path(ty) if ty.path.is_ident("Client"));
            if !is_client || item.trait_.is_some() {
                continue;
            }
            for item in item.items {
                let ImplItem::Fn(method) = item else { continue };
                let takes_self = matches!(method.sig.inputs.first(), Some(FnArg::Receiver(_)));
                if matches!(method.vis, Visibility::Public(_)) && takes_self {
                    let doc = doc(&method.attrs);
                    let named = doc.split('`').filter(|word| codes.contains(*word));
                    let codes = named.map(str::to_owned).collect();
                    operations.push(Operation { name: method.sig.ident.to_string(), codes });
                }
            }
        }
    }
    operations
}

/// The codes and names in the table of errors of `docs/internals/protocol.md`.
fn documented_codes() -> Vec<(i32, String)> {
    let page = read("docs/internals/protocol.md");
    let (_, section) = page.split_once("\n## Error codes\n").expect("the page has the section");
    let (section, _) = section.split_once("\n## ").expect("another section follows");
    let mut codes = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| -")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let numbers: Vec<&str> = cells[1].split(", ").collect();
        let names: Vec<&str> = cells[2].split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(numbers.len(), names.len(), "{row}");
        codes.extend(
            numbers.iter().zip(names).map(|(number, name)| (number.parse().unwrap(), name.into())),
        );
    }
    assert!(codes.len() > 20, "the table was not recognized: {codes:?}");
    codes
}

#[test]
fn each_operation_of_the_client_is_called() {
    let (suite, operations) = (suite(), operations());
    assert!(operations.len() > 35, "the client was not recognized");
    let missing: Vec<&str> = operations
        .iter()
        .map(|operation| operation.name.as_str())
        .filter(|name| !LOCAL.contains(name) && !has(&suite.functions, &[&format!(".{name}")]))
        .collect();
    assert!(missing.is_empty(), "the suite does not call {missing:?}");
}

#[test]
fn each_refusal_that_an_operation_documents_is_provoked() {
    let suite = suite();
    let mut problems = Vec::new();
    let mut pairs = BTreeSet::new();
    for Operation { name, codes } in operations() {
        for code in codes {
            let needles = [&*format!(".{name}"), &*format!("ErrorCode::{code}")];
            let is_covered = has(&suite.statements, &needles);
            let is_elsewhere = ELSEWHERE.iter().any(|it| it.operation == name && it.code == code);
            if is_covered == is_elsewhere {
                problems.push(format!("{name} {code}: covered {is_covered}, here {is_elsewhere}"));
            }
            pairs.insert((name.clone(), code));
        }
    }
    assert!(pairs.len() > 25, "the documentation was not recognized: {pairs:?}");
    for it in ELSEWHERE.iter().filter(|it| !it.operation.is_empty()) {
        if !pairs.contains(&(it.operation.to_owned(), it.code.to_owned())) {
            problems.push(format!("{} does not document {}", it.operation, it.code));
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_error_of_the_protocol_is_provoked() {
    let suite = suite();
    let codes = documented_codes();
    let mut problems = Vec::new();
    for (number, name) in &codes {
        assert_eq!(format!("{:?}", ErrorCode(*number)), *name, "the page and the codec differ");
        let is_covered = has(&suite.functions, &[&format!("ErrorCode::{name}")]);
        let is_elsewhere = ELSEWHERE.iter().any(|it| it.operation.is_empty() && it.code == name);
        if is_covered == is_elsewhere {
            problems.push(format!("{name}: covered {is_covered}, here {is_elsewhere}"));
        }
    }
    for it in ELSEWHERE {
        if !codes.iter().any(|(_, name)| name == it.code) {
            problems.push(format!("docs/internals/protocol.md does not document {}", it.code));
        }
        if !read(it.tested_in).contains(it.code) {
            problems.push(format!("{} does not test {} ({})", it.tested_in, it.code, it.why));
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn each_kind_of_watch_is_set_fires_and_is_removed() {
    let suite = suite();
    // Kinds of one-shot watches are operations of their own.
    let needed = [
        &[".watch", "WatchMode::Persistent"][..],
        &[".watch", "WatchMode::Recursive"],
        &[".remove_watches", ".check_watches", "WatcherType::CHILDREN"],
        &[".remove_watches", ".check_watches", "WatcherType::DATA"],
        &[".remove_watches", ".check_watches", "WatcherType::ANY"],
        &[".remove_watches", ".check_watches", "WatcherType::PERSISTENT"],
        &[".remove_watches", ".check_watches", "WatcherType::PERSISTENT_RECURSIVE"],
    ];
    for needles in needed {
        assert!(has(&suite.functions, needles), "no function of the suite has {needles:?}");
    }
    let numbers = read("crates/jute-codec/src/numbers.rs");
    let (_, kinds) = numbers.split_once("pub struct WatcherType {").expect("it has them");
    let (kinds, _) = kinds.split_once('}').expect("it ends");
    let kinds = kinds.lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(kinds, 5, "list the new kind above");
}
