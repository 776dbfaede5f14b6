//! Permissions that an administrator takes from everybody, and gives back after a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::{Acl, Permissions, Zxid};

use super::strangers::any_znode;
use super::trouble::FORBIDDEN;
use super::{DIRECTORIES, World};
use crate::draw::Draw;
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::groups::GROUP;
use crate::program::locks::{EXCLUSIVE, RESIZED, ROOT, WIDE};
use crate::program::trees::FOREST;
use crate::program::values::{COUNTER, MARKERS, VALUE};

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

/// The permissions that everybody lacks for a while.
#[derive(Debug, Default)]
pub struct Withdrawn(Mutex<BTreeMap<String, Original>>);

/// The access control list of a znode before somebody took permissions away.
#[derive(Debug)]
struct Original {
    acl: Vec<Acl>,
    /// Another znode of this path keeps its own list.
    czxid: Zxid,
    until: Duration,
}

impl Withdrawn {
    /// Takes permissions on a znode from everybody.
    pub(super) fn take(&self, world: &World, draw: &mut Draw) -> String {
        // The change does this first.
        world.server.do_what_is_due();
        let path =
            if draw.chance(25) { any_znode(world, draw) } else { any_directory(world, draw) };
        let permissions = draw_permissions(draw);
        let longest = draw.pick(&[1_000, 10_000, 60_000, 120_000]);
        let duration = draw.ms(100, longest);
        let Some(path) = path else { return "nothing is there".to_owned() };
        let (Some(stat), Some(acl)) = (world.server.stat(&path), world.server.acl(&path)) else {
            return format!("{path} is not there");
        };
        let until = world.history.now() + duration;
        let original = Original { acl: acl.clone(), czxid: stat.czxid, until };
        let mut all = self.lock();
        if all.get(&path).is_some_and(|earlier| earlier.czxid == stat.czxid) {
            return format!("{path}, already");
        }
        let acl = acl.into_iter().map(|mut entry| {
            entry.perms = Permissions(entry.perms.0 & !permissions.0);
            entry
        });
        if !world.server.admin_set_acl(&path, acl.collect()) {
            return format!("{path}, refused");
        }
        all.insert(path.clone(), original);
        world.disturb(duration + FORBIDDEN);
        format!("{permissions:?} on {path} for {duration:?}")
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
    }

    /// Gives back everything.
    pub(super) fn give_back(&self, world: &World) {
        let all = std::mem::take(&mut *self.lock());
        restore(world, all);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Original>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let taken = strikes.iter().filter(|text| text.contains(" for ")).count();
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
