//! What guards of every kind have in common, in virtual time: the policy for a lock at risk,
//! phases, views, statistics, the look at a queue, the end of a client.

#[path = "guard/at_risk.rs"]
mod at_risk;
#[path = "guard/contenders.rs"]
mod contenders;
#[path = "guard/kinds.rs"]
mod kinds;
#[path = "guard/phases.rs"]
mod phases;
#[path = "guard/stats.rs"]
mod stats;
#[path = "guard/status.rs"]
mod status;

use zk_recipes::kind::Kind;
use zk_recipes::{
    Acquire, AtRiskPolicy, Client, ExclusiveLock, FairLock, Guard, LockStats, Released, RwLock,
};
use zk_tests::world::World;

const FIRST: u64 = 1;
const SECOND: u64 = 2;
const THIRD: u64 = 3;

/// Directory of the read/write lock.
const SHARED: &str = "/locks/rw";

/// The locks of all kinds, of one client.
#[derive(Clone)]
struct Locks {
    fair: FairLock,
    rw: RwLock,
    exclusive: ExclusiveLock,
}

impl Locks {
    fn new(client: &Client) -> Self {
        Self::with(client, AtRiskPolicy::GoOn)
    }

    fn with(client: &Client, policy: AtRiskPolicy) -> Self {
        let made = || {
            let fair = FairLock::builder(client, zk_tests::world::DIRECTORY)?;
            let rw = RwLock::builder(client, SHARED)?;
            let exclusive = ExclusiveLock::builder(client, zk_tests::exclusive::ZNODE)?;
            Ok::<_, zk_recipes::ConfigError>(Self {
                fair: fair.at_risk(policy).safety_relist(None).build()?,
                rw: rw.at_risk(policy).safety_relist(None).build()?,
                exclusive: exclusive.at_risk(policy).safety_relist(None).build()?,
            })
        };
        made().expect("the options are legal")
    }
}

/// One of the kinds: how it is acquired, and what it has counted.
struct Way<K> {
    name: &'static str,
    acquire: fn(&Locks) -> Acquire<K>,
    stats: fn(&Locks) -> LockStats,
}

impl<K: Kind> Way<K> {
    async fn hold(&self, locks: &Locks) -> Guard<K> {
        (self.acquire)(locks).await.expect("nobody else wants it")
    }
}

/// Checks something for every kind of lock.
macro_rules! for_every_kind {
    ($check:ident) => {
        $check(&crate::Way {
            name: "fair",
            acquire: |locks| locks.fair.acquire(),
            stats: |locks| locks.fair.stats(),
        });
        $check(&crate::Way {
            name: "read",
            acquire: |locks| locks.rw.read(),
            stats: |locks| locks.rw.stats(),
        });
        $check(&crate::Way {
            name: "write",
            acquire: |locks| locks.rw.write(),
            stats: |locks| locks.rw.stats(),
        });
        $check(&crate::Way {
            name: "exclusive",
            acquire: |locks| locks.exclusive.acquire(),
            stats: |locks| locks.exclusive.stats(),
        });
    };
}
use for_every_kind;

/// Releases a lock that is still there.
async fn release<K: Kind>(guard: Guard<K>) {
    assert_eq!(guard.release().await, Ok(Released::Released));
}

/// Lets cleanup come to its end and checks that nothing is left of any lock.
async fn check_clean(world: &World, clients: &[&Client]) {
    let is_left = || {
        let queue = world.server.children(SHARED).unwrap_or_default();
        (!queue.is_empty()).then_some(queue)
    };
    world.until("the read/write lock is free", |_| is_left().is_none()).await;
    zk_tests::exclusive::check_clean(world, clients).await;
    assert_eq!(is_left(), None, "orphans\n{}", world.trace());
}
