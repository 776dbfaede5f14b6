//! The rule that no crate has a cycle of modules.
//!
//! The unit is a file. A file depends on the files that define what it imports or mentions; a
//! re-export stands for the definition behind it, so a detour through `lib.rs` hides nothing.
//! Three things do not count:
//!
//! - Declarations and re-exports of child modules: `mod child; pub use child::Item;` gives an item
//!   its public path. A parent that uses the item itself depends on the child.
//! - Modules, functions and imports that exist only in tests.
//! - Names of modules: `use crate::child;` counts where a path continues after `child`.
//!
//! A child may depend on its parent, or the parent on its child, but not both: types that children
//! share belong in a file below them, and code that drives the children in a file above them.
//!
//! An inherent `impl` may be spread over child files (`impl super::Session`). Its methods can be
//! called without a path, so the calls are invisible here; therefore such a file and the file that
//! defines the type count as one unit. The rules for a single file apply to the unit, so it must
//! not be part of a longer cycle.
//!
//! The same graph shows whether the folders of a crate keep their order; see [`layers`].

mod graph;
pub(crate) mod layers;
mod paths;
mod sources;
mod tests;

use std::collections::BTreeSet;

use super::File;
use graph::{Edge, Graph};
use paths::{Target, resolve};
use sources::{Crate, Mention, MentionKind, ModuleId};

/// Describes every cycle in each of the crates below `crates/`.
pub(crate) fn cycles(files: &[File]) -> Vec<String> {
    roots(files).flat_map(|root| cycles_in_crate(files, root)).collect()
}

/// Returns the root file of each crate below `crates/`.
pub(crate) fn roots(files: &[File]) -> impl Iterator<Item = &str> {
    files.iter().map(|file| &*file.path).filter(|path| {
        let parts: Vec<&str> = path.split('/').collect();
        matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
    })
}

fn cycles_in_crate(files: &[File], root: &str) -> Vec<String> {
    let text_of = |path: &str| {
        let found = files.iter().find(|file| file.path == path);
        found.map(|file| file.text.clone())
    };
    let krate = sources::read(root, &text_of);
    let mut graph = graph_of(&krate);
    for id in 0..krate.modules.len() {
        join_impls(&krate, id, &mut graph);
    }
    graph.cycles()
}

fn graph_of(krate: &Crate) -> Graph {
    let mut graph = Graph::default();
    for id in 0..krate.modules.len() {
        add_edges(krate, id, &mut graph);
    }
    graph
}

fn add_edges(krate: &Crate, id: ModuleId, graph: &mut Graph) {
    let module = krate.module(id);
    for mention in &module.mentions {
        for target in targets(krate, id, mention) {
            let to = &krate.module(target).file;
            let is_below = is_descendant(krate, target, id);
            if *to == module.file || (mention.kind == MentionKind::ReExport && is_below) {
                continue;
            }
            let (line, path) = (mention.line, mention.path.join("::"));
            graph.add(Edge { from: module.file.clone(), to: to.clone(), line, path });
        }
    }
}

/// Returns the modules that define the mentioned item.
fn targets(krate: &Crate, id: ModuleId, mention: &Mention) -> BTreeSet<ModuleId> {
    if mention.kind == MentionKind::Invocation
        && let [name] = &mention.path[..]
        && let Some(module) = krate.macros.get(name)
    {
        return [*module].into();
    }
    let targets = resolve(krate, id, &mention.path).into_iter();
    targets
        .filter_map(|target| match target {
            Target::Item(module) => Some(module),
            Target::Module(module) if mention.kind == MentionKind::GlobImport => Some(module),
            Target::Module(_) | Target::External => None,
        })
        .collect()
}

fn join_impls(krate: &Crate, id: ModuleId, graph: &mut Graph) {
    let module = krate.module(id);
    for path in &module.impls {
        for target in resolve(krate, id, path) {
            if let Target::Item(owner) = target
                && is_descendant(krate, id, owner)
                && krate.module(owner).file != module.file
            {
                let reason = format!("an `impl {}` is in the second", path.join("::"));
                graph.join(&krate.module(owner).file, &module.file, &reason);
            }
        }
    }
}

fn is_descendant(krate: &Crate, id: ModuleId, ancestor: ModuleId) -> bool {
    let parent = |id: &ModuleId| krate.module(*id).parent;
    std::iter::successors(Some(id), parent).skip(1).any(|above| above == ancestor)
}
