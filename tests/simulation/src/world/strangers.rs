//! Others who use the znodes of recipes: an administrator who deletes, and clients of another kind
//! that leave their own entries.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jute_codec::Zxid;

use super::kinds::WorldKind;
use super::{DIRECTORIES, World};
use crate::draw::Draw;
use crate::history::What;
use crate::program::groups::GROUP;
use crate::program::queue::QUEUE;
use crate::program::values::TREE;

/// The directories of contenders and items, which have numbers.
const SEQUENCES: [&str; 9] = [
    "/locks/a",
    "/locks/b",
    "/rw",
    "/semaphore",
    "/election",
    "/named/order%2F1",
    "/named/order%2F2",
    "/queue/entries",
    "/queue/takers",
];

/// The directories of locks where an administrator waits for contenders, and how long it does.
const AMBUSHED: [&str; 4] = ["/locks/a", "/locks/b", "/election", "/named/order%2F1"];
const AMBUSH: Duration = Duration::from_secs(5);

/// The name of a znode below an item, which nobody can acknowledge then.
pub const NOTE: &str = "note";

/// How many znodes strangers create where everybody takes items all the time: each taker tries each item
/// that it cannot deliver.
const RETURNING_MAX: usize = 10;

/// What strangers have done, as far as judges must know.
#[derive(Debug, Default)]
pub struct Strangers {
    deleted: Mutex<BTreeSet<String>>,
    created: Mutex<BTreeSet<String>>,
    /// The directories whose numbers have come to their end, by their creation.
    ended: Mutex<BTreeSet<Zxid>>,
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
        let crowds: Vec<Vec<String>> =
            touched(world).iter().map(|it| children(world, it)).collect();
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
        // The deletion does this first.
        world.server.do_what_is_due();
        let czxid = world.server.stat(path).map_or(0, |stat| stat.czxid.0);
        let is_deleted = world.server.admin_delete(path);
        if is_deleted {
            self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
            world.history.note(What::Deleted { path: path.to_owned(), czxid });
        }
        is_deleted
    }

    /// Uses up the sequence numbers of a directory, as very many znodes would that are gone.
    pub(super) fn end_sequence(&self, world: &World, draw: &mut Draw) -> String {
        let left = draw.pick(&[0, 0, 1, 2, 5]);
        // The change does this first, and it may delete the directory.
        world.server.do_what_is_due();
        let directories =
            SEQUENCES.iter().filter_map(|path| Some((*path, world.server.stat(path)?)));
        let directories: Vec<_> = directories.map(|(path, stat)| (path, stat.czxid)).collect();
        if directories.is_empty() {
            return "nothing is there".to_owned();
        }
        let (directory, czxid) = draw.pick(&directories);
        // Numbers never go back.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !ended.insert(czxid) {
            return format!("{directory}, already");
        }
        world.server.set_create_count(directory, i32::MAX - left);
        format!("{directory}, after {left} more")
    }

    /// Deletes a znode of a recipe, and changes it, without credentials. Directories below the root
    /// are not touched: the root is open to everyone.
    pub(super) async fn intrude(&self, world: &World, draw: &mut Draw) -> String {
        let Some(path) = any_znode(world, draw) else { return "nothing is there".to_owned() };
        // The parent of a directory of a recipe is created with it.
        let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let parent = parent.filter(|parent| !parent.is_empty() && draw.clone().chance(30));
        let path = parent.unwrap_or(path);
        if path == TREE || path == QUEUE || self.admin_created(&path) {
            return format!("{path} belongs to nobody");
        }
        let is_below_root = path.matches('/').count() < 2;
        let Ok(client) = world.outsider().start() else { unreachable!("the options are valid") };
        let deleting = async {
            let is_changed = client.set_data(&path, "intruder", None).await.is_ok();
            let is_deleted = !is_below_root && client.delete(&path, None).await.is_ok();
            if is_changed || is_deleted {
                world.history.note(What::Intruded { path: path.clone() });
            }
            format!("{path}, changed: {is_changed}, deleted: {is_deleted}")
        };
        // Faults concern the intruder too.
        let tried = tokio::time::timeout(Duration::from_secs(1), deleting).await;
        tokio::task::spawn_local(async move { client.close().await });
        tried.unwrap_or_else(|_| "nobody answers".to_owned())
    }

    /// Waits for a contender that has one other ahead of it, and deletes both before it can have read
    /// the other one: first itself, so that its turn never comes.
    pub(super) async fn ambush(&self, world: &World, draw: &mut Draw, left: Duration) -> String {
        // Without a latency, time would stand still in the loop below.
        let round_trip = (world.plan.latency * 2).max(Duration::from_millis(1));
        let (delay, from) = (draw.ms(1, 1_000), world.server.zxid());
        let delay =
            round_trip.mul_f64(f64::from(u32::try_from(delay.as_millis()).unwrap_or(0)) / 1_000.0);
        let until = world.history.now() + AMBUSH.min(left);
        while world.history.now() < until {
            world.sleep(round_trip / 4).await;
            let pair = AMBUSHED.iter().map(|directory| children(world, directory)).find(|paths| {
                let newest = paths.last().and_then(|path| world.server.stat(path));
                paths.len() == 2 && newest.is_some_and(|stat| stat.czxid > from)
            });
            if let Some(mut pair) = pair {
                world.sleep(delay).await;
                pair.reverse();
                pair.retain(|path| self.delete_path(world, path));
                return format!("{pair:?}, deleted");
            }
        }
        "nobody came".to_owned()
    }

    /// Creates a znode below an item that has the name of a pin, and one below that, so that no taker can
    /// remove it. Returns the path of the latter.
    fn create_false_pin(&self, world: &World, item: &str, draw: &mut Draw) -> String {
        let pin = format!("{item}/{:016x}{:016x}", draw.seed(), draw.seed());
        world.server.admin_create(&pin, b"", None);
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        created.insert(pin.clone());
        format!("{pin}/{NOTE}")
    }

    fn count_created(&self) -> usize {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn admin_created(&self, path: &str) -> bool {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    /// Creates a znode that belongs to no recipe in a directory of one.
    pub(super) fn create(&self, world: &World, draw: &mut Draw) -> String {
        let mut aside = draw.clone();
        if world.plan.is_of(WorldKind::Returning) && self.count_created() >= RETURNING_MAX {
            return "there are enough".to_owned();
        }
        // The change does this first, and it may delete the directory or create the znode.
        world.server.do_what_is_due();
        if aside.chance(30)
            && let Some(item) = any_item(world, &mut aside)
        {
            let mut path = format!("{item}/{NOTE}");
            if world.plan.has_aims && aside.chance(40) {
                path = self.create_false_pin(world, &item, &mut aside);
            }
            world.server.admin_create(&path, b"not yours", None);
            self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
            return path;
        }
        let Some(directory) = any_directory(world, draw, &DIRECTORIES) else {
            return "nothing is there".to_owned();
        };
        let name = draw.pick(&["config", "README", "x-0000000001", "lock-", "0000000000"]);
        let path = format!("{directory}/{name}");
        if world.server.stat(directory).is_none() || world.server.stat(&path).is_some() {
            return format!("{path} cannot be created");
        }
        world.server.admin_create(&path, b"not yours", None);
        self.created.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
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

/// Returns the directories of the recipes that strangers touch.
pub(super) fn touched(world: &World) -> Vec<&'static str> {
    let mut directories = DIRECTORIES.to_vec();
    if world.plan.aims.touches_groups {
        directories.push(GROUP);
    }
    directories
}

/// Returns one of these directories. In a world of one recipe, nearly all of them are missing, so
/// newer seeds draw from those that exist.
fn any_directory<'a>(world: &World, draw: &mut Draw, directories: &[&'a str]) -> Option<&'a str> {
    let mut those = directories.to_vec();
    if world.plan.has_aims {
        those.retain(|path| world.server.stat(path).is_some());
    }
    (!those.is_empty()).then(|| draw.pick(&those))
}

/// Returns the path of an item of the work queue that has no children.
fn any_item(world: &World, draw: &mut Draw) -> Option<String> {
    let mut items = children(world, &format!("{QUEUE}/entries"));
    items.retain(|path| {
        path.contains("/entry-") && world.server.stat(path).is_some_and(|it| it.num_children == 0)
    });
    (!items.is_empty()).then(|| draw.pick(&items.iter().collect::<Vec<_>>()).clone())
}

/// Returns the path of a znode in a directory of a recipe, with the directories of its own.
pub(super) fn any_znode(world: &World, draw: &mut Draw) -> Option<String> {
    any_znode_below(world, draw, &touched(world))
}

/// Returns the path of a znode in one of these directories, or of the directory.
pub(super) fn any_znode_below(
    world: &World,
    draw: &mut Draw,
    directories: &[&str],
) -> Option<String> {
    let mut path = any_directory(world, draw, directories)?.to_owned();
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
