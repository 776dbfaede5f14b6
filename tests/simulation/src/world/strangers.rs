//! Others who use the znodes of recipes: an administrator who deletes, and clients of another kind
//! that leave their own entries.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::{DIRECTORIES, World};
use crate::draw::Draw;
use crate::history::What;

/// What strangers have done, as far as judges must know.
#[derive(Debug, Default)]
pub struct Strangers {
    deleted: Mutex<BTreeSet<String>>,
}

impl Strangers {
    /// Returns the paths of the znodes that an administrator has deleted. A promise about such a
    /// znode, or one above it, does not hold.
    pub fn deleted(&self) -> BTreeSet<String> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Deletes a znode below a directory of a recipe, or the directory.
    pub(super) fn delete(&self, world: &World, draw: &mut Draw) -> String {
        let Some(path) = any_znode(world, draw) else { return "nothing is there".to_owned() };
        let mut draw = draw.clone();
        let crowds: Vec<Vec<String>> = DIRECTORIES.iter().map(|it| children(world, it)).collect();
        let crowds: Vec<&Vec<String>> = crowds.iter().filter(|paths| paths.len() > 1).collect();
        if !crowds.is_empty() && draw.chance(40) {
            let mut paths = draw.pick(&crowds).clone();
            if draw.chance(50) {
                paths.reverse();
            }
            paths.retain(|path| self.delete_path(world, path));
            return format!("{paths:?}, deleted");
        }
        let is_deleted = self.delete_path(world, &path);
        format!("{path}, deleted: {is_deleted}")
    }

    /// Deletes a znode. Returns whether it was there and had no children.
    pub fn delete_path(&self, world: &World, path: &str) -> bool {
        let is_deleted = world.server.admin_delete(path);
        if is_deleted {
            self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
            world.history.note(What::Deleted { path: path.to_owned() });
        }
        is_deleted
    }

    /// Creates a znode that belongs to no recipe in a directory of one.
    pub(super) fn create(&self, world: &World, draw: &mut Draw) -> String {
        let directory = draw.pick(&DIRECTORIES);
        let name = draw.pick(&["config", "README", "x-0000000001", "lock-", "0000000000"]);
        let path = format!("{directory}/{name}");
        if world.server.stat(directory).is_none() || world.server.stat(&path).is_some() {
            return format!("{path} cannot be created");
        }
        world.server.admin_create(&path, b"not yours", None);
        path
    }
}

/// Returns the paths of the children of a znode, in the order of their creation.
fn children(world: &World, directory: &str) -> Vec<String> {
    let names = world.server.children(directory).unwrap_or_default();
    let mut paths: Vec<String> = names.iter().map(|name| format!("{directory}/{name}")).collect();
    paths.sort_by_key(|path| world.server.stat(path).map(|stat| stat.czxid));
    paths
}

/// Returns the path of a znode in a directory of a recipe, with the directories of its own.
fn any_znode(world: &World, draw: &mut Draw) -> Option<String> {
    let mut path = draw.pick(&DIRECTORIES).to_owned();
    world.server.stat(&path)?;
    while draw.chance(80) {
        let names = world.server.children(&path).unwrap_or_default();
        if names.is_empty() {
            break;
        }
        let index = draw.size(0, names.len() - 1);
        path = format!("{path}/{}", names.get(index)?);
    }
    Some(path)
}
