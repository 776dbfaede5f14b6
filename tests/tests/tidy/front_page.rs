//! The pages of crates: their index is written by hand, because rustdoc lists more than a hundred
//! items without an order, so a rule checks that nothing is missing.

use syn::{Attribute, Item, UseTree, Visibility};

use super::{File, layout::INDEXED_CRATES};

/// Checks that the documentation of each of these crates has the name of each public item of its
/// root, and of each feature, as code.
pub(crate) fn crate_pages_name_everything(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for name in INDEXED_CRATES {
        let text_of = |path: &str| {
            let path = format!("crates/{name}/{path}");
            files.iter().find(|file| file.path == path).map(|file| &*file.text)
        };
        let Some(root) = text_of("src/lib.rs") else {
            problems.push(format!("{name} has no src/lib.rs"));
            continue;
        };
        let page: String = root.lines().filter(|line| line.starts_with("//!")).collect();
        let features = features(text_of("Cargo.toml").unwrap_or_default());
        let missing = items(root).into_iter().chain(features);
        let missing = missing.filter(|name| !page.contains(&format!("`{name}`")));
        problems.extend(missing.map(|it| format!("the page of {name} does not name `{it}`")));
    }
    problems
}

/// Checks that each conversion into a public type, such as an error, begins with a public type. If `?`
/// does not convert an error, compilers list all conversions, and a user can do nothing with a
/// type that has no public name.
pub(crate) fn conversions_are_public(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for name in INDEXED_CRATES {
        let folder = format!("crates/{name}/src/");
        let root = files.iter().find(|file| file.path == format!("{folder}lib.rs"));
        let public = root.map(|root| items(&root.text)).unwrap_or_default();
        let is_public = |name: &str| public.iter().any(|item| item == name);
        for file in files.iter().filter(|file| file.path.starts_with(&folder)) {
            let lines = file.text.lines().filter_map(conversion);
            let wrong = lines.filter(|(from, to)| is_public(to) && !is_public(from));
            problems.extend(wrong.map(|(from, to)| {
                format!("{}: {to} is converted from {from}, which is not public", file.path)
            }));
        }
    }
    problems
}

/// Returns the names of the types that a line converts, unless the first is the same type, or has the
/// path of another crate.
fn conversion(line: &str) -> Option<(&str, &str)> {
    let name = |of: &str| of.find(['<', ' ']).unwrap_or(of.len());
    let (from, to) = line.split_once(" From<")?.1.split_once("> for ")?;
    let from = from.trim_start_matches('&');
    let (from, to) = (from.get(..name(from))?, to.get(..name(to))?);
    (from != "Self" && !from.starts_with(char::is_lowercase)).then_some((from, to))
}

/// Returns the names of the public items of a crate's root, except for hidden ones.
#[expect(clippy::wildcard_enum_match_arm, reason = "the roots contain modules and re-exports")]
fn items(root: &str) -> Vec<String> {
    let parsed = syn::parse_file(root).unwrap_or_else(|error| panic!("a crate's root: {error}"));
    let mut names = Vec::new();
    for item in &parsed.items {
        match item {
            Item::Use(item) if is_shown(&item.vis, &item.attrs) => exported(&item.tree, &mut names),
            Item::Mod(item) if is_shown(&item.vis, &item.attrs) => {
                names.push(item.ident.to_string())
            }
            _ => {}
        }
    }
    names
}

fn is_shown(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    let is_hidden = |attribute: &Attribute| {
        let list = attribute.meta.require_list().ok();
        list.is_some_and(|list| list.path.is_ident("doc") && list.tokens.to_string() == "hidden")
    };
    matches!(visibility, Visibility::Public(_)) && !attributes.iter().any(is_hidden)
}

fn exported(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => exported(&path.tree, names),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(rename) => names.push(rename.rename.to_string()),
        UseTree::Glob(_) => names.push("*".to_owned()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| exported(tree, names)),
    }
}

/// Returns the names of the features of a manifest, except for the default ones.
fn features(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let lines =
        lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned());
    names.filter(|name| name != "default").collect()
}
