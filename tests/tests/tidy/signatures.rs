//! Pages of the guide that list what each public type has, made of the snapshots of the API.
//!
//! A line of a snapshot is an item with its whole path, such as
//! `pub fn zk_recipes::WorkQueue::length(&self) -> zk_recipes::Call<usize, zk_recipes::WorkQueueError>`.
//! On the page, it is a line in the block of its type, and no path has modules. The first
//! paragraph of its documentation follows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{File, listings::text, summaries::known};

/// A page, what it is about, and its snapshot.
struct Page {
    path: &'static str,
    title: &'static str,
    about: &'static str,
    snapshot: &'static str,
    /// The crate whose documentation says what the types do.
    source: &'static str,
}

const PAGES: &[Page] = &[
    Page {
        path: "docs/signatures/recipes.md",
        title: "Recipe types",
        about: "`zk_recipes` also exports [types of the client](client.md). The kinds of locks, such as `Fair`, and the traits that bound them are in `zk_recipes::kind`.",
        snapshot: RECIPES,
        source: "crates/zk-recipes",
    },
    Page {
        path: "docs/signatures/client.md",
        title: "Client types",
        about: "`zk_recipes` exports them, but those with `zk_session::` only as `zk_recipes::zk_session::…`.",
        snapshot: CLIENT,
        source: "crates/zk-session",
    },
    Page {
        path: "docs/signatures/testserver.md",
        title: "Test server types",
        about: "They are in the crate `zk_testserver`. `Acl`, `ErrorCode`, `EventType`, `OpCode`, `SessionId`, `Version` and `Zxid` are those of the client. Its `Stat` is another type than this one, which has the numbers of the protocol.",
        snapshot: TEST_SERVER,
        source: "crates/zk-testserver",
    },
];
/// The snapshot with the recipes, and with what they export.
const RECIPES: &str = "api/zk-recipes.txt";
/// The snapshot with the types of the client.
const CLIENT: &str = "api/zk-session.txt";
/// The snapshot with the types of the test server.
const TEST_SERVER: &str = "api/zk-testserver.txt";
/// The snapshot with the types that the client and the test server take from the codec.
const CODEC: &str = "api/jute-codec.txt";
const CODEC_SOURCE: &str = "crates/jute-codec";

/// Modules for authors of recipes, whom the internals address.
const FOR_AUTHORS: &[&str] = &["recipe", "kind"];
/// Traits that matter to users. Each type that can be compared is `PartialEq`.
const SHOWN: &[&str] = &[
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Display",
    "Error",
    "Future",
    "Hash",
    "IntoFuture",
    "Ord",
    "PartialEq",
    "Stream",
];
/// Methods of traits that say nothing about a type.
const USUAL: &[&str] =
    &["fmt", "poll", "poll_next", "drop", "into_future", "clone", "eq", "source"];

/// How the declaration of a type begins to which variants or fields may be added.
const OPEN: &str = "#[non_exhaustive] ";

const COLUMNS: usize = 96;

/// What a type has.
#[derive(Default)]
struct Type {
    lines: Vec<Line>,
    /// The fields of each variant that has some.
    fields: BTreeMap<String, Vec<String>>,
    /// Those of the traits that are [shown](SHOWN).
    traits: BTreeSet<String>,
    /// Traits that most types have, and this one does not.
    lacking: BTreeSet<String>,
}

/// A line in the block of a type.
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
struct Line {
    rank: Rank,
    text: String,
    /// The name of a member, as in its source; empty for the type.
    name: String,
    /// The type with arguments, if the member belongs to some of them only.
    owner: String,
}

/// The place of a line in the block of its type.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Rank {
    /// The type itself.
    Declaration,
    /// A variant, a field or a method.
    Member,
    /// A conversion, or an associated type.
    Rest,
}

/// Returns each page with its text.
pub(crate) fn pages(files: &[File]) -> Vec<(&'static str, String)> {
    let page = |page: &Page| (page.path, written(page, files));
    PAGES.iter().map(page).collect()
}

fn written(page: &Page, files: &[File]) -> String {
    let snapshot = text(files, page.snapshot);
    let mut types = types(snapshot, &|_| true);
    if page.snapshot == CLIENT {
        let exported = exported(snapshot);
        types.append(&mut self::types(text(files, CODEC), &|name| exported.contains(name)));
        let by_recipes = self::exported(text(files, RECIPES));
        for (name, it) in types.iter_mut().filter(|(name, _)| !by_recipes.contains(name.as_str())) {
            for line in it.lines.iter_mut().filter(|it| it.rank == Rank::Declaration) {
                line.text = line.text.replacen(name, &format!("zk_session::{name}"), 1);
            }
        }
    }
    if page.snapshot == TEST_SERVER {
        let (own, by_client) = (exported(snapshot), exported(text(files, CLIENT)));
        let is_only_here = |name: &str| own.contains(name) && !by_client.contains(name);
        types.append(&mut self::types(text(files, CODEC), &is_only_here));
    }
    // What all functions have that implement a trait has no type.
    types.retain(|_, it| it.lines.iter().any(|line| line.rank == Rank::Declaration));
    let mut documented = known(files, page.source);
    let of_codec = known(files, CODEC_SOURCE);
    for (member, summary) in of_codec.summaries {
        documented.summaries.entry(member).or_insert(summary);
    }
    for (member, names) in of_codec.parameters {
        documented.parameters.entry(member).or_insert(names);
    }
    let mut page_text = format!(
        "# {}\n\nWhat each public type has, with the first paragraph of its documentation; rustdoc (`cargo doc --open`) has the rest.\nAll are `Send` and `Sync`, but for those with a line that says `not`.\n{}\n",
        page.title, page.about
    );
    let functions = functions(snapshot);
    if !functions.is_empty() {
        page_text.push_str("\n```text\n");
        for line in functions {
            let name = line.split(['(', '<']).next().unwrap_or_default();
            let key = (String::new(), name.trim_start_matches("fn ").to_owned());
            let names = documented.parameters.get(&key).map_or(&[][..], Vec::as_slice);
            page_text.push_str(&wrapped(&with_names(&line, names)));
            if let Some(summary) = documented.summaries.get(&key) {
                page_text.push_str(&comment("    ", summary));
            }
        }
        page_text.push_str("```\n");
    }
    for (name, it) in types {
        // Headings would be found before the pages that explain something.
        page_text.push_str("\n```text\n");
        for line in it.lines {
            let variant = line.text.clone();
            let fields = it.fields.get(&variant).map(|fields| fields.join(", "));
            let text = match fields {
                Some(fields) => format!("{} {{ {fields} }}", line.text),
                None => line.text,
            };
            let rank = line.rank;
            let own_name = line.name.split('<').next().unwrap_or_default();
            // What belongs to some arguments only may have another meaning for others.
            let key = [&line.owner, &name]
                .map(|of| (of.clone(), own_name.to_owned()))
                .into_iter()
                .find(|key| documented.summaries.contains_key(key))
                .unwrap_or_else(|| (name.clone(), own_name.to_owned()));
            let names = documented.parameters.get(&key).map_or(&[][..], Vec::as_slice);
            let text = with_names(&text, names);
            let indent = if rank == Rank::Declaration { "" } else { "    " };
            page_text.push_str(&wrapped(&format!("{indent}{text}")));
            let defaults = if line.name.is_empty() { "<>" } else { "" };
            let of_defaults = (name.clone(), defaults.to_owned());
            for (key, name_in_source) in [(key, own_name), (of_defaults, defaults)] {
                let of_type = rank == Rank::Declaration || !name_in_source.is_empty();
                if let Some(summary) = documented.summaries.get(&key).filter(|_| of_type) {
                    page_text.push_str(&comment(&format!("{indent}    "), summary));
                }
            }
            for field in it.fields.get(&variant).into_iter().flatten() {
                let field = field.split(':').next().unwrap_or_default();
                let key = (name.clone(), format!("{variant}::{field}"));
                if let Some(summary) = documented.summaries.get(&key) {
                    let summary = format!("`{field}`: {summary}");
                    page_text.push_str(&comment(&format!("{indent}    "), &summary));
                }
            }
        }
        if !it.traits.is_empty() {
            let traits = it.traits.into_iter().collect::<Vec<_>>().join(" + ");
            page_text.push_str(&wrapped(&format!("    impl {traits}")));
        }
        for lacking in it.lacking {
            page_text.push_str(&format!("    not {lacking}\n"));
        }
        page_text.push_str("```\n");
    }
    page_text
}

/// Returns the names that a crate exports from another one.
fn exported(snapshot: &str) -> BTreeSet<&str> {
    let exported = snapshot.lines().filter_map(|line| line.strip_prefix("pub use "));
    exported.filter_map(|path| path.rsplit("::").next()).collect()
}

/// Returns the functions that belong to no type.
fn functions(snapshot: &str) -> Vec<String> {
    let functions = snapshot.lines().filter_map(|line| line.strip_prefix("pub fn "));
    let free = functions.filter(|item| {
        let segments = segments(&item[..end_of_path(item)]);
        // Another crate's types have what this one implements for them.
        segments.first().is_some_and(|it| it.contains('_'))
            && segments
                .iter()
                .all(|it| !it.starts_with(char::is_uppercase) && !FOR_AUTHORS.contains(it))
    });
    free.map(|item| format!("fn {}", short(item))).collect()
}

/// Returns for which kinds of locks an implementation is, such as
/// `impl<K: zk_recipes::kind::Fenced> zk_recipes::Guard<K>`, unless it is for all.
fn kinds(snapshot: &str, implementation: &str) -> Option<String> {
    let kinds_with = |bound: &str| -> BTreeSet<String> {
        let marker = format!("impl {bound} for ");
        snapshot.lines().filter_map(|line| line.strip_prefix(&marker)).map(short).collect()
    };
    let bound = implementation.strip_prefix("impl<K: ")?.split_once("> ")?.0;
    // `Queued<Profile = …>` is a condition of the implementation only.
    let bound = bound.split('<').next()?;
    let (kinds, all) = (kinds_with(bound), kinds_with("zk_recipes::kind::Kind"));
    (kinds.len() < all.len()).then(|| kinds.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns the type and the traits of `derived TYPE: TRAITS` and of `impl TRAIT for TYPE`.
fn implemented(line: &str) -> Option<(&str, Vec<&str>)> {
    if let Some((of, traits)) = line.strip_prefix("derived ").and_then(|it| it.split_once(": ")) {
        return Some((of, traits.split(", ").collect()));
    }
    let (implemented, of) = line.strip_prefix("impl")?.split_once(" for ")?;
    Some((of, vec![implemented.rsplit("::").next()?]))
}

/// Returns the types of a snapshot that are wanted, with what they have.
fn types(snapshot: &str, is_wanted: &dyn Fn(&str) -> bool) -> BTreeMap<String, Type> {
    let mut types: BTreeMap<String, Type> = BTreeMap::new();
    let mut of_some = None;
    for line in snapshot.lines() {
        if line.starts_with("impl") {
            of_some = kinds(snapshot, line);
        }
        if let Some((of, lacking)) =
            line.strip_prefix("lacking ").and_then(|it| it.split_once(": "))
        {
            let name = segments(&of[..end_of_path(of)]).pop().unwrap_or_default();
            let name = name.split('<').next().unwrap_or_default();
            if let Some(of_type) = types.get_mut(name) {
                of_type.lacking.insert(lacking.to_owned());
            }
            continue;
        }
        if let Some((of, traits)) = implemented(line) {
            let segments = segments(&of[..end_of_path(of)]);
            let name = segments.last().and_then(|own| own.split('<').next()).unwrap_or_default();
            if !segments.iter().any(|it| FOR_AUTHORS.contains(it)) && is_wanted(name) {
                let of_type = types.entry(name.to_owned()).or_default();
                let shown = traits.iter().filter(|it| SHOWN.contains(*it));
                of_type.traits.extend(shown.map(|it| (*it).to_owned()));
                let from = traits.iter().filter_map(|it| it.strip_prefix("From<"));
                let from =
                    from.map(|it| format!("from({}) -> Self", short(it.trim_end_matches('>'))));
                of_type.lines.extend(from.map(|text| Line {
                    rank: Rank::Rest,
                    text,
                    name: "from".to_owned(),
                    owner: String::new(),
                }));
            }
            continue;
        }
        let (mark, line) = match line.strip_prefix(OPEN) {
            Some(line) => (OPEN, line),
            None => ("", line),
        };
        let Some(item) = line.strip_prefix("pub ") else { continue };
        let (kind, item) = kind_of(item);
        let (path, rest) = item.split_at(end_of_path(item));
        let segments = segments(path);
        let Some(at) = segments.iter().position(|it| it.starts_with(char::is_uppercase)) else {
            continue;
        };
        let (modules, names) = segments.split_at(at);
        let is_for_authors = modules.iter().any(|it| FOR_AUTHORS.contains(it));
        let is_usual = names.last().is_some_and(|name| USUAL.contains(name)) && kind == "fn ";
        if is_for_authors || is_usual || ["use ", "mod "].contains(&kind) {
            continue;
        }
        let name = names.first().and_then(|own| own.split('<').next()).unwrap_or_default();
        if !is_wanted(name) {
            continue;
        }
        let of_type = types.entry(name.to_owned()).or_default();
        let rest = short(rest);
        match names {
            [own] => {
                let text = format!("{mark}{kind}{}{rest}", short(own));
                let (name, owner) = (String::new(), String::new());
                of_type.lines.push(Line { rank: Rank::Declaration, text, name, owner });
            }
            [_, variant, field] if kind.is_empty() => {
                of_type
                    .fields
                    .entry((*variant).to_owned())
                    .or_default()
                    .push(format!("{field}{rest}"));
            }
            [own, member @ ..] => {
                let owner = if is_concrete(own) { short(own) } else { String::new() };
                let is_rest = kind == "type " || member == ["from"];
                let rank = if is_rest { Rank::Rest } else { Rank::Member };
                let kind = if kind == "fn " { "" } else { kind };
                let of = if owner.is_empty() { "" } else { "::" };
                let mut text = format!("{kind}{owner}{of}{}{rest}", short(&member.join("::")));
                if let Some(kinds) = of_some.as_ref().filter(|_| rank == Rank::Member) {
                    write!(text, " // K: {kinds}").expect("a string grows");
                }
                let name = member.join("::");
                of_type.lines.push(Line { rank, text, name, owner });
            }
            [] => {}
        }
    }
    for it in types.values_mut() {
        let mut seen = BTreeSet::new();
        it.lines.retain(|line| seen.insert(line.clone()));
        it.lines.sort_by_key(|line| line.rank);
    }
    types
}

/// Splits an item into its keywords, which are empty for fields and variants, and its path.
fn kind_of(item: &str) -> (&str, &str) {
    const KINDS: &[&str] = &[
        "async fn ",
        "const fn ",
        "fn ",
        "struct ",
        "enum ",
        "trait ",
        "type ",
        "const ",
        "use ",
        "mod ",
        "macro ",
    ];
    let kind = KINDS.iter().find(|kind| item.starts_with(**kind)).map_or(0, |kind| kind.len());
    item.split_at(kind)
}

/// Returns where the path at the beginning of an item ends.
fn end_of_path(item: &str) -> usize {
    let bytes = item.as_bytes();
    let mut depth = 0;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => at += 1,
            b'(' | b' ' | b':' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    item.len()
}

/// Splits a path where no generic arguments are open. The first segment is the crate.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, character) in path.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ':' if depth == 0 && path[at..].starts_with("::") => {
                segments.push(&path[start..at]);
                start = at + 2;
            }
            _ => {}
        }
    }
    segments.push(&path[start..]);
    segments
}

/// Returns whether a type has generic arguments that are types, not parameters.
fn is_concrete(name: &str) -> bool {
    let Some((_, arguments)) = name.split_once('<') else { return false };
    arguments.trim_end_matches('>').split(", ").any(|argument| {
        !argument.starts_with('\'') && argument.split(':').next().is_some_and(|it| it.len() > 1)
    })
}

/// Removes the modules from all paths.
fn short(text: &str) -> String {
    let mut shortened = String::new();
    let mut word = 0;
    for character in text.chars() {
        shortened.push(character);
        if character.is_alphanumeric() || character == '_' {
            continue;
        }
        if shortened.ends_with("::") {
            let segment = &shortened[word..shortened.len() - 2];
            if !segment.is_empty() && !segment.starts_with(char::is_uppercase) {
                shortened.truncate(word);
            } else {
                word = shortened.len();
            }
        } else if character != ':' {
            word = shortened.len();
        }
    }
    shortened
}

/// Names the parameters of a function, such as those of `set(&self, u8) -> bool`. Does nothing if
/// there are more or fewer than names.
fn with_names(signature: &str, names: &[String]) -> String {
    let Some((head, arguments, tail)) = arguments(signature) else { return signature.to_owned() };
    let is_receiver = |it: &str| ["self", "&self", "&mut self"].contains(&it);
    if arguments.iter().filter(|it| !is_receiver(it)).count() != names.len() {
        return signature.to_owned();
    }
    let mut names = names.iter();
    let named = arguments.iter().map(|it| {
        let name = if is_receiver(it) { None } else { names.next() };
        name.map_or_else(|| (*it).to_owned(), |name| format!("{name}: {it}"))
    });
    format!("{head}({}){tail}", named.collect::<Vec<_>>().join(", "))
}

/// Splits a function into what precedes its arguments, these, and what follows.
fn arguments(signature: &str) -> Option<(&str, Vec<&str>, &str)> {
    let (mut depth, mut start, mut found) = (0, None, Vec::new());
    let mut before = ' ';
    for (at, character) in signature.char_indices() {
        match character {
            '(' if depth == 0 && start.is_none() => start = Some((at, at + 1)),
            ')' | ',' if depth == 0 => {
                let (open, from) = start?;
                let argument = signature[from..at].trim();
                found.extend(Some(argument).filter(|it| !it.is_empty()));
                if character == ')' {
                    return Some((&signature[..open], found, &signature[at + 1..]));
                }
                start = Some((open, at + 1));
            }
            '(' | '<' | '[' => depth += 1,
            '>' if before == '-' => {}
            ')' | '>' | ']' => depth -= 1,
            _ => {}
        }
        before = character;
    }
    None
}

/// Breaks a line behind commas, if it is too long.
fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.to_owned();
    while rest.chars().count() > COLUMNS {
        let Some(at) = rest[..COLUMNS].rfind([' ']).filter(|at| *at > 8) else { break };
        writeln!(text, "{}", &rest[..at]).expect("a string grows");
        rest = format!("        {}", rest[at..].trim_start());
    }
    writeln!(text, "{rest}").expect("a string grows");
    text
}

/// Returns a comment on lines of its own.
fn comment(indent: &str, summary: &str) -> String {
    let mut text = String::new();
    let mut line = format!("{indent}//");
    for word in summary.split_whitespace() {
        if line.chars().count() + word.chars().count() >= COLUMNS {
            writeln!(text, "{line}").expect("a string grows");
            line = format!("{indent}//");
        }
        write!(line, " {word}").expect("a string grows");
    }
    writeln!(text, "{line}").expect("a string grows");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_their_names() {
        let named = |signature: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
            with_names(signature, &names)
        };
        let cases = [
            ("set(&self, i64, i64) -> Call<(), E>", &["expected", "new"][..]),
            ("run<F: Fn(u8) -> u8>(self, F)", &["body"]),
            ("on(impl FnOnce(&str) -> Option<(u8, u8)>, &[u8])", &["call", "data"]),
            ("own(&mut self)", &[]),
        ];
        let expected = [
            "set(&self, expected: i64, new: i64) -> Call<(), E>",
            "run<F: Fn(u8) -> u8>(self, body: F)",
            "on(call: impl FnOnce(&str) -> Option<(u8, u8)>, data: &[u8])",
            "own(&mut self)",
        ];
        for ((signature, names), expected) in cases.into_iter().zip(expected) {
            assert_eq!(named(signature, names), expected);
        }
        assert_eq!(named("set(&self, i64)", &[]), "set(&self, i64)");
        assert_eq!(named("path: String", &[]), "path: String");
    }
}
