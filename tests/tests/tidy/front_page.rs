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
