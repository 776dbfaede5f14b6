//! Resolves a path to the module that defines the item.

use super::sources::{Crate, Module, ModuleId, Name};

/// The target of a path.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// An item that this module defines.
    Item(ModuleId),
    Module(ModuleId),
    /// An item of another crate.
    External,
}

/// Returns the targets of `path` when `from` mentions it. There are several targets if a name has
/// several meanings, and none if the first name is not in scope, as with local variables and the
/// prelude.
pub(crate) fn resolve(krate: &Crate, from: ModuleId, path: &[String]) -> Vec<Target> {
    follow(krate, from, path, IMPORTS_MAX)
}

fn follow(krate: &Crate, from: ModuleId, path: &[String], imports_left: usize) -> Vec<Target> {
    let mut at = from;
    // A name that is not in scope belongs to another crate, unless the path has already entered a
    // module of this one.
    let mut is_inside = false;
    for (index, name) in path.iter().enumerate() {
        match name.as_str() {
            "crate" => at = 0,
            "self" => {}
            "super" => at = krate.module(at).parent.unwrap_or_default(),
            name => {
                let is_last = index + 1 == path.len();
                let targets = look_up(krate, at, name, is_last, imports_left);
                if is_last && !targets.is_empty() {
                    return targets;
                }
                match targets.first() {
                    Some(Target::Module(inner)) => at = *inner,
                    // The next name is a variant, a method or another associated item.
                    Some(target) => return vec![*target],
                    // A macro has generated the name, or a glob imports the variants of an enum.
                    None if is_inside => return vec![Target::Item(at)],
                    None => return vec![],
                }
            }
        }
        is_inside = true;
    }
    vec![Target::Module(at)]
}

fn look_up(
    krate: &Crate,
    at: ModuleId,
    name: &str,
    is_last: bool,
    imports_left: usize,
) -> Vec<Target> {
    if imports_left == 0 {
        return vec![];
    }
    let import = |path: &[String]| {
        let found = follow(krate, at, path, imports_left - 1);
        if found.is_empty() { vec![Target::External] } else { found }
    };
    let Module { names, globs, .. } = krate.module(at);
    let mut targets: Vec<Target> = Vec::new();
    for meaning in names.get(name).into_iter().flatten() {
        match meaning {
            Name::Item => targets.push(Target::Item(at)),
            Name::Module(inner) => targets.push(Target::Module(*inner)),
            // `use order::order` imports a function of the module that the path begins with.
            Name::Import(path) if !is_last && path.first().is_some_and(|first| first == name) => {}
            Name::Import(path) => targets.extend(import(path)),
        }
    }
    if targets.is_empty() {
        for glob in globs {
            for target in follow(krate, at, glob, imports_left - 1) {
                if let Target::Module(inner) = target {
                    targets.extend(look_up(krate, inner, name, is_last, imports_left - 1));
                }
            }
        }
    }
    if !is_last {
        // If the path continues, the name means the module: a function with the same name is not
        // followed by `::`.
        targets.sort_by_key(|target| !matches!(target, Target::Module(_)));
    }
    targets
}

/// The maximum number of imports to follow, because imports may refer to each other in a circle:
/// `use a::x` in `b` and `use b::x` in `a`.
const IMPORTS_MAX: usize = 16;
