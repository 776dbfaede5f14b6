//! Every single cut and every pair of cuts of the connection, at every request and event of the
//! lives of the locks.
//!
//! The shipped code runs, from the lock to the driver, on a virtual clock and against the
//! in-process server. After each run the same must hold: the lock was acquired and released, or
//! timed out; nobody held it beside somebody whom it excludes; no contender znode is left; nothing
//! was created twice.

#[path = "enumeration/downgrade.rs"]
mod downgrade;
#[path = "enumeration/exclusive.rs"]
mod exclusive;
#[path = "enumeration/fair.rs"]
mod fair;
#[path = "enumeration/read_write.rs"]
mod read_write;
#[path = "enumeration/shipped.rs"]
mod shipped;
#[path = "enumeration/transaction.rs"]
mod transaction;

use zk_tests::sides::{Holding, Side, number};
use zk_tests::world::{Ran, World, run};
use zk_testserver::Fault;

const CONTENDER: u64 = 1;
const HOLDER: u64 = 2;
const OTHER: u64 = 3;
const NEXT: u64 = 4;
const QUITTER: u64 = 5;

fn first_session() -> Option<i64> {
    run(async {
        let world = World::new();
        world.client(CONTENDER).await.session_id().map(|session| session.0)
    })
}

fn inject(world: &World, faults: Vec<Fault>) {
    for fault in faults {
        world.server.inject(fault);
    }
}

fn ran(world: &World) -> Ran {
    Ran { left: world.server.pending_faults().len(), trace: world.trace() }
}

/// What the leader knows at the moment of a grant: the own znode is there, and ahead of it is
/// nobody whom its side excludes.
fn check_may_hold(world: &World, held: &Holding) {
    let side = |name: &str| if name.contains(Side::Read.mark()) { Side::Read } else { Side::Write };
    let names = world.contenders();
    let own = names.iter().find(|name| held.path().ends_with(name.as_str()));
    let own = own.unwrap_or_else(|| panic!("held without a znode\n{}", world.trace()));
    for other in &names {
        let is_ahead = number(other) < number(own);
        let is_beside = is_ahead && side(own).excludes(side(other));
        assert!(!is_beside, "{own} beside {other}\n{}", world.trace());
    }
}
