//! Permissions that an administrator takes from everybody, and gives back after a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::{Acl, Permissions, Zxid};

use super::strangers::{any_znode, any_znode_below, touched};
use super::trouble::FORBIDDEN;
use super::{DIRECTORIES, World};
use crate::draw::Draw;
use crate::judges::turns::parse;
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::groups::GROUP;
use crate::program::locks::{EXCLUSIVE, RESIZED, ROOT, WIDE};
use crate::program::trees::FOREST;
use crate::program::values::{COUNTER, MARKERS, TREE, VALUE};

/// What recipes use besides [`DIRECTORIES`].
pub const OTHERS: [&str; 13] = [
    ROOT,
    RESIZED,
    WIDE,
    EXCLUSIVE,
    BARRIER,
    "/barriers",
    MEETING,
    GROUP,
    VALUE,
    COUNTER,
    "/values",
    MARKERS,
    FOREST,
];

/// How long permissions are taken in milliseconds at most if they are back before anybody has checked
/// for missed watches, which happens every 30 s.
const SOON: u64 = 25_000;
/// How many strikes of newer seeds delete a contender that its holder may not read, in percent.
const DOOMED_PERCENT: u64 = 15;
/// How many strikes in worlds where nothing else happens take READ on all that is followed, in percent,
/// and how many of these delete a znode meanwhile.
const HIDDEN_PERCENT: u64 = 40;
const HIDDEN_DELETION_PERCENT: u64 = 60;
/// For how long its holder may not read it: longer than two checks of the holder take.
const UNAWARE: Duration = Duration::from_secs(75);
/// On how many children of a directory permissions are taken together with those on it.
const CHILDREN_MAX: usize = 20;

/// The permissions that everybody lacks for a while.
#[derive(Debug, Default)]
pub struct Withdrawn {
    lists: Mutex<BTreeMap<String, Original>>,
    /// The contenders that are deleted at these times, while their holders may not read them.
    doomed: Mutex<Vec<(Duration, String, Zxid)>>,
}

/// The access control list of a znode before somebody took permissions away.
#[derive(Debug)]
struct Original {
    acl: Vec<Acl>,
    /// Another znode of this path keeps its own list.
    czxid: Zxid,
    until: Duration,
}

impl Withdrawn {
    /// Takes permissions on a znode, or on several, from everybody.
    pub(super) fn take(&self, world: &World, draw: &mut Draw) -> String {
        // The change does this first.
        world.server.do_what_is_due();
        if world.plan.is_silent() && draw.aside().aside().chance(HIDDEN_PERCENT) {
            return self.hide(world, draw);
        }
        if world.plan.has_aims && draw.aside().chance(DOOMED_PERCENT) {
            return self.doom(world, draw);
        }
        let strike =
            if world.plan.has_aims { aimed_strike(world, draw) } else { any_strike(world, draw) };
        let Strike { mut paths, permissions, duration } = strike;
        if paths.is_empty() {
            return "nothing is there".to_owned();
        }
        let until = world.history.now() + duration;
        let all = paths.join(", ");
        paths.retain(|path| self.take_one(world, path, permissions, until));
        if paths.is_empty() {
            return format!("{all}, already or refused");
        }
        // All permissions are back once the faults stop.
        let left = world.plan.calm_at.saturating_sub(world.history.now());
        world.disturb(duration.min(left) + FORBIDDEN);
        format!("{permissions:?} on {} for {duration:?}", paths.join(", "))
    }

    /// Takes READ on the znode of a contender, and deletes it a while later.
    fn doom(&self, world: &World, draw: &mut Draw) -> String {
        let mut contenders = world.server.ephemerals();
        let touched = touched(world);
        contenders.retain(|(path, _)| touched.iter().any(|it| path.starts_with(it)));
        let paths: Vec<&str> = contenders.iter().map(|(path, _)| path.as_str()).collect();
        if paths.is_empty() {
            return "nobody is there".to_owned();
        }
        let path = draw.pick(&paths);
        let Some(stat) = world.server.stat(path) else { return "nobody is there".to_owned() };
        let now = world.history.now();
        let (after, until) = (draw.ms(1, 10_000), now + UNAWARE);
        if !self.take_one(world, path, Permissions::READ, until) {
            return format!("{path}, already or refused");
        }
        // The holder goes on, and has to find out by itself.
        world.trouble.linger_until(until);
        world.disturb(after + FORBIDDEN);
        let doomed = (now + after, path.to_owned(), stat.czxid);
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).push(doomed);
        format!("READ on {path} for {UNAWARE:?}, and it is deleted after {after:?}")
    }

    /// Takes READ on all that a watch or a cache follows, and in most cases deletes one of these znodes
    /// meanwhile.
    fn hide(&self, world: &World, draw: &mut Draw) -> String {
        let roots = [TREE, GROUP].into_iter().filter(|path| world.server.stat(path).is_some());
        let roots: Vec<&str> = roots.collect();
        if roots.is_empty() {
            return "nobody follows anything".to_owned();
        }
        let root = draw.pick(&roots);
        let (mut paths, mut next) = (vec![root.to_owned()], 0);
        while let Some(path) = paths.get(next).filter(|_| paths.len() < CHILDREN_MAX).cloned() {
            let names = world.server.children(&path).unwrap_or_default();
            paths.extend(names.iter().map(|name| format!("{path}/{name}")));
            next += 1;
        }
        let now = world.history.now();
        let until = now + UNAWARE;
        paths.retain(|path| self.take_one(world, path, Permissions::READ, until));
        if paths.is_empty() {
            return "already or refused".to_owned();
        }
        world.disturb(UNAWARE.min(world.plan.calm_at.saturating_sub(now)) + FORBIDDEN);
        // Where strangers do not touch members, these are known to be there.
        let deletes = root == TREE || world.plan.aims.touches_groups;
        let mut text = format!("READ on {} for {UNAWARE:?}", paths.join(", "));
        if let Some(leaf) = paths.last().filter(|_| deletes && draw.chance(HIDDEN_DELETION_PERCENT))
            && let Some(stat) = world.server.stat(leaf)
        {
            let at = now + draw.ms(1, 20_000);
            let doomed = (at, leaf.clone(), stat.czxid);
            self.doomed.lock().unwrap_or_else(PoisonError::into_inner).push(doomed);
            text.push_str(&format!("; the last one is deleted at {at:?}"));
        }
        text
    }

    /// Takes permissions on a znode. Returns whether nobody has done that before, and it is there.
    fn take_one(
        &self,
        world: &World,
        path: &str,
        permissions: Permissions,
        until: Duration,
    ) -> bool {
        let (Some(stat), Some(acl)) = (world.server.stat(path), world.server.acl(path)) else {
            return false;
        };
        let original = Original { acl: acl.clone(), czxid: stat.czxid, until };
        let mut all = self.lock();
        if all.get(path).is_some_and(|earlier| earlier.czxid == stat.czxid) {
            return false;
        }
        let acl = acl.into_iter().map(|mut entry| {
            entry.perms = Permissions(entry.perms.0 & !permissions.0);
            entry
        });
        let is_taken = world.server.admin_set_acl(path, acl.collect());
        if is_taken {
            all.insert(path.to_owned(), original);
        }
        is_taken
    }

    /// Gives back what was taken for long enough.
    pub fn give_back_what_is_due(&self, world: &World) {
        let now = world.history.now();
        let mut all = self.lock();
        let (due, rest) =
            std::mem::take(&mut *all).into_iter().partition(|(_, original)| original.until <= now);
        *all = rest;
        drop(all);
        restore(world, due);
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, path, czxid) in doomed.extract_if(.., |(at, ..)| *at <= now) {
            if world.server.stat(&path).is_some_and(|stat| stat.czxid == czxid) {
                world.strangers.delete_path(world, &path);
            }
        }
    }

    /// Gives back everything.
    pub(super) fn give_back(&self, world: &World) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let all = std::mem::take(&mut *self.lock());
        restore(world, all);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Original>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn restore(world: &World, originals: BTreeMap<String, Original>) {
    if originals.is_empty() {
        return;
    }
    world.server.do_what_is_due();
    for (path, original) in originals {
        if world.server.stat(&path).is_some_and(|stat| stat.czxid == original.czxid) {
            let is_restored = world.server.admin_set_acl(&path, original.acl);
            debug_assert!(is_restored, "the list was there before");
        }
    }
}

/// What is taken, where, and for how long.
struct Strike {
    paths: Vec<String>,
    permissions: Permissions,
    duration: Duration,
}

fn any_strike(world: &World, draw: &mut Draw) -> Strike {
    let path = if draw.chance(25) { any_znode_of(world, draw) } else { any_directory(world, draw) };
    let permissions = draw_permissions(draw);
    let longest = draw.pick(&[1_000, 10_000, 60_000, 120_000]);
    Strike { paths: path.into_iter().collect(), permissions, duration: draw.ms(100, longest) }
}

/// Draws a strike that users of a recipe may miss something by.
fn aimed_strike(world: &World, draw: &mut Draw) -> Strike {
    let mut aside = draw.aside();
    let mut strike = any_strike(world, draw);
    if world.plan.aims.takes_contenders
        && aside.chance(60)
        && let Some(path) = any_contender(world, &mut aside)
    {
        let (read, delete) = (Permissions::READ, Permissions::DELETE);
        strike.paths = vec![path];
        strike.permissions = aside.pick(&[read, read, read, read | delete]);
        if aside.chance(70) {
            strike.duration = aside.ms(20_000, 120_000);
        }
        return strike;
    }
    if aside.chance(50) {
        strike.duration = aside.ms(100, SOON);
    }
    if aside.chance(25)
        && let [directory] = &strike.paths[..]
    {
        let names = world.server.children(directory).unwrap_or_default();
        let below = names.iter().take(CHILDREN_MAX).map(|name| format!("{directory}/{name}"));
        strike.paths.extend(below.collect::<Vec<_>>());
    }
    strike
}

/// Returns the path of a contender that others are behind, or of a member of the group.
fn any_contender(world: &World, draw: &mut Draw) -> Option<String> {
    let ephemerals = world.server.ephemerals();
    let number = |path: &str| parse(path).map(|(of, contender)| (of.to_owned(), contender.number));
    let mut last: BTreeMap<String, u32> = BTreeMap::new();
    for (directory, number) in ephemerals.iter().filter_map(|(path, _)| number(path)) {
        let last = last.entry(directory).or_default();
        *last = number.max(*last);
    }
    let mut paths: Vec<&String> = ephemerals.iter().map(|(path, _)| path).collect();
    paths.retain(|path| match number(path) {
        Some((directory, number)) => last.get(&directory).is_some_and(|last| number < *last),
        None => path.starts_with(GROUP),
    });
    (!paths.is_empty()).then(|| draw.pick(&paths).clone())
}

/// Returns the path of a znode of any recipe. Older seeds know only those in [`DIRECTORIES`].
fn any_znode_of(world: &World, draw: &mut Draw) -> Option<String> {
    if !world.plan.has_aims {
        return any_znode(world, draw);
    }
    let all: Vec<&str> = DIRECTORIES.into_iter().chain(OTHERS).collect();
    any_znode_below(world, draw, &all)
}

fn any_directory(world: &World, draw: &mut Draw) -> Option<String> {
    let all = DIRECTORIES.into_iter().chain(OTHERS);
    let there: Vec<&str> = all.filter(|path| world.server.stat(path).is_some()).collect();
    (!there.is_empty()).then(|| draw.pick(&there).to_owned())
}

/// Whoever has ADMIN keeps it, so that a list never permits nothing at all.
fn draw_permissions(draw: &mut Draw) -> Permissions {
    draw.pick(&[
        Permissions::READ,
        Permissions::READ,
        Permissions::READ,
        Permissions::CREATE,
        Permissions::DELETE,
        Permissions::WRITE,
        Permissions::READ | Permissions::DELETE,
        Permissions::CREATE | Permissions::DELETE,
        Permissions::READ | Permissions::WRITE | Permissions::CREATE | Permissions::DELETE,
    ])
}

#[cfg(test)]
mod tests {
    use jute_codec::{ErrorCode, OpCode};

    use crate::cuts::Cuts;
    use crate::draw::Draw;
    use crate::run::drawn;
    use crate::sample;
    use crate::world::plan::{AIMS_FROM, FaultKind, PERMISSIONS_FROM};

    #[test]
    fn the_newest_seeds_have_impatient_callers_that_may_lack_permissions() {
        let plan = |seed| drawn(seed, &mut Draw::new(seed), &Cuts::default()).0;
        let count = |from: u64| {
            let plans = (from..from + 400).map(plan).filter(|plan| plan.is_impatient);
            plans.inspect(|plan| assert!(plan.faults.contains(&FaultKind::Permission))).count()
        };
        assert_eq!(count(AIMS_FROM - 400), 0);
        assert!(count(AIMS_FROM) > 5);
    }

    #[test]
    fn newer_seeds_take_permissions_and_give_them_back() {
        let have = |from| {
            (from..from + 100).filter(|seed| sample::may_have(*seed, FaultKind::Permission)).count()
        };
        assert_eq!(have(PERMISSIONS_FROM - 100), 0, "the older ones have none");
        assert!(have(PERMISSIONS_FROM) > 10);
        let strikes = sample::strikes(FaultKind::Permission);
        let taken = strikes.iter().filter(|text| text.contains(" for "));
        let taken: usize = taken.map(|text| text.split(", ").count()).sum();
        assert!(taken > 5, "{taken}");
        let newest = sample::newest();
        let changes = newest.iter().flat_map(|report| &report.commits).filter(|commit| {
            commit.op == OpCode::SET_ACL && commit.session.0 == 0 && commit.error == ErrorCode::OK
        });
        let changes = changes.count();
        // Those on a znode that was deleted meanwhile cannot be given back.
        assert!(changes > taken && changes <= 2 * taken, "{changes} of {taken}");
        let refused = newest
            .iter()
            .flat_map(|report| &report.requests)
            .filter(|request| format!("{:?}", request.outcome).contains("NO_AUTH"));
        assert!(refused.count() > 0, "somebody is refused");
    }
}
