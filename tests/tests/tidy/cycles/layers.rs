//! The rule that the folders of a crate keep the order of the list in `ARCHITECTURE.md`.

use std::collections::BTreeSet;

use super::{
    super::File,
    graph::{Edge, Graph},
    graph_of, sources,
};

const MAP: &str = "ARCHITECTURE.md";

/// The crate whose part of the map is a list of layers, the lowest one first.
const LAYERED: &str = "crates/zk-recipes";

/// Folders that use only these other ones, as the map says.
pub(crate) const NARROW: &[(&str, &[&str])] = &[
    ("barrier", &["machine", "engine"]),
    ("cache", &["machine", "engine"]),
    ("counter", &["machine", "engine", "shared_value"]),
    ("double_barrier", &["machine", "engine"]),
    ("engine", &["machine"]),
    ("machine", &[]),
    ("shared_value", &["machine", "engine"]),
    ("tree", &["machine", "engine"]),
];

/// Describes each dependency on a folder that the map does not list earlier, and each folder that
/// the map does not list. Files beside the folders belong to no layer.
pub(crate) fn breaches(files: &[File], narrow: &[(&str, &[&str])]) -> Vec<String> {
    let root = format!("{LAYERED}/src/lib.rs");
    let source = format!("{LAYERED}/src/");
    let text_of = |path: &str| {
        let found = files.iter().find(|file| file.path == path);
        found.map(|file| file.text.clone())
    };
    let folder_of = |path: &str| {
        let inner = path.strip_prefix(&source)?;
        inner.split_once('/').map(|(folder, _)| folder.to_owned())
    };
    let folders: BTreeSet<String> = files.iter().filter_map(|file| folder_of(&file.path)).collect();
    let order = order(&text_of(MAP).unwrap_or_default(), &folders);
    let mut problems: Vec<String> = folders
        .iter()
        .filter(|folder| !order.contains(folder))
        .map(|folder| format!("{MAP} does not list {source}{folder}"))
        .collect();
    let gone = narrow.iter().filter(|(folder, _)| !folders.contains(*folder));
    problems.extend(gone.map(|(folder, _)| format!("{source} has no {folder} any more")));
    let layer = |folder: &String| order.iter().position(|other| other == folder);
    let graph: Graph = graph_of(&sources::read(&root, &text_of));
    for Edge { from, to, line, path } in graph.edges() {
        let (Some(user), Some(used)) = (folder_of(from), folder_of(to)) else { continue };
        if user == used {
            continue;
        }
        let listed = narrow.iter().find(|(folder, _)| *folder == user);
        if listed.is_some_and(|(_, allowed)| !allowed.contains(&&*used)) {
            problems
                .push(format!("{from}:{line} mentions `{path}`, but {user} may not use {used}"));
        } else if let (Some(below), Some(above)) = (layer(&user), layer(&used))
            && below < above
        {
            problems.push(format!(
                "{from}:{line} mentions `{path}`, but {MAP} lists {used} after {user}"
            ));
        }
    }
    problems
}

/// Returns the folders in the order in which the part about the crate names them first.
fn order(map: &str, folders: &BTreeSet<String>) -> Vec<String> {
    let heading = format!("### `{LAYERED}`");
    let part = map.lines().skip_while(|line| !line.starts_with(&heading)).skip(1);
    let part = part.take_while(|line| !line.starts_with('#'));
    let mut order: Vec<String> = Vec::new();
    for line in part.filter(|line| line.starts_with("- ")) {
        for word in line.split('`').skip(1).step_by(2) {
            let Some(folder) = word.strip_suffix('/') else { continue };
            if folders.contains(folder) && !order.iter().any(|other| other == folder) {
                order.push(folder.to_owned());
            }
        }
    }
    order
}
