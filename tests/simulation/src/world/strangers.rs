//! Others who use the znodes of recipes: an administrator who deletes, and clients of another kind
//! that leave their own entries.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::World;
use crate::draw::Draw;

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
        // Recorded before the deletion takes effect: promises end with it.
        let is_deleted = world.server.admin_delete(&path);
        if is_deleted {
            self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        }
        format!("{path}, deleted: {is_deleted}")
    }

    /// Creates a znode that belongs to no recipe in a directory of one.
    pub(super) fn create(&self, world: &World, draw: &mut Draw) -> String {
        let directory = draw.pick(&super::DIRECTORIES);
        let name = draw.pick(&["config", "README", "x-0000000001", "lock-", "0000000000"]);
        let path = format!("{directory}/{name}");
        if world.server.stat(directory).is_none() || world.server.stat(&path).is_some() {
            return format!("{path} cannot be created");
        }
        world.server.admin_create(&path, b"not yours", None);
        path
    }
}

/// Returns the path of a znode in a directory of a recipe, with the directories of its own.
fn any_znode(world: &World, draw: &mut Draw) -> Option<String> {
    let mut path = draw.pick(&super::DIRECTORIES).to_owned();
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
