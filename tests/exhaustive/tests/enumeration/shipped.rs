//! The enumeration with every option at its default: the session timeout is long enough for a
//! lease, and the safety timer is on. The cuts begin either with the claim of the contender, or
//! after a steady state has lasted for a while.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockState, Released};
use zk_tests::case::{Case, Reader, Writer};
use zk_tests::for_each_lock;
use zk_tests::scene::{granted, spawn};
use zk_tests::world::{Enumeration, Ran, World, run, run_within, sleep_ms};
use zk_testserver::Fault;

use crate::every_lock::is_side;
use crate::{CONTENDER, HOLDER, NEXT, contender};

for_each_lock! {
    #[test] pairs: [
        a_lock_with_all_defaults_survives_every_cut,
        a_contender_with_all_defaults_survives_every_pair_of_cuts,
    ]
}

/// Time after which writes renew the leases, and the safety timer is about to fire for the second
/// time.
const STEADY_MS: u64 = 65_000;

/// Virtual time of a run.
const RUN_MAX: Duration = Duration::from_secs(200);

/// When the cuts begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Begin {
    Claim,
    Steady,
    /// Like `Steady`, but the run does not wait for the safety timer. Each renewal of a lease is a
    /// possible position of a cut, so a shorter run keeps the number of pairs of cuts low.
    Brief,
}

impl Begin {
    /// Returns how long the first and the second contender hold the lock, in milliseconds. The
    /// safety timer fires every 30 s or a little later.
    fn holds(self) -> [u64; 2] {
        match self {
            Self::Claim => [1_500, 1_500],
            Self::Steady => [9_000, 40_000],
            Self::Brief => [2_000, 2_000],
        }
    }
}

/// Runs a scenario with a holder, the contender, and another contender behind it.
async fn hand_over<H: Case, W: Case>(faults: Vec<Fault>, begin: Begin) -> Ran {
    let world = World::shipped();
    let client = world.client(CONTENDER).await;
    let (other, next) = (world.client(HOLDER).await, world.client(NEXT).await);
    let held = H::shipped(&other).acquire().await.expect("the lock is free");
    if begin == Begin::Claim {
        world.inject(faults.clone());
    }
    let waiting = spawn(W::shipped(&client).acquire().into_future());
    let behind = spawn(W::shipped(&next).acquire().into_future());
    if begin != Begin::Claim {
        sleep_ms(STEADY_MS).await;
        world.inject(faults);
    }
    let [first_holds, second_holds] = begin.holds();
    sleep_ms(first_holds).await;
    check_held(&world, &held).await;
    assert!(!waiting.is_finished() && !behind.is_finished(), "two holders\n{}", world.trace());
    let path = held.path().to_owned();
    assert_eq!(held.release().await, Ok(Released::Released), "\n{}", world.trace());
    // A cut of a claim may have changed the order of the two.
    let (mut waiting, mut behind) = (waiting, behind);
    let (first, second) = tokio::select! {
        first = &mut waiting => (first, behind),
        first = &mut behind => (first, waiting),
    };
    let first = first.expect("the task does not panic").expect("the lock becomes free");
    assert!(!matches!(first.state(), LockState::Lost(_)), "\n{}", world.trace());
    let stat = world.server.stat(first.path()).map(|stat| stat.ephemeral_owner);
    assert_eq!(stat, Some(first.session()), "held without a znode\n{}", world.trace());
    // The znode of an exclusive lock always has the same path.
    let is_gone = path == first.path() || world.server.stat(&path).is_none();
    assert!(is_gone, "held beside another\n{}", world.trace());
    // The waiter has listed the queue and set its safety timer again. The old timer fires during
    // this sleep.
    sleep_ms(second_holds).await;
    check_held(&world, &first).await;
    assert_eq!(second.is_finished(), W::IS_SHARED, "\n{}", world.trace());
    assert_eq!(first.release().await, Ok(Released::Released), "\n{}", world.trace());
    let second = granted(second).await;
    assert_eq!(second.release().await, Ok(Released::Released), "\n{}", world.trace());
    finish(&world, &[&client, &other, &next]).await
}

/// Checks that the lock is held, or is soon held again: a cut may have just happened, and a client
/// leaves a silent server after 9.5 s.
async fn check_held<K: Kind>(world: &World, guard: &Guard<K>) {
    for _ in 0..140 {
        match guard.state() {
            LockState::Held => return,
            LockState::AtRisk => sleep_ms(100).await,
            LockState::Lost(reason) => panic!("{reason}\n{}", world.trace()),
        }
    }
    panic!("at risk for 14 s\n{}", world.trace());
}

async fn finish(world: &World, clients: &[&Client]) -> Ran {
    world.until("nothing is left", |server| server.ephemerals().is_empty()).await;
    world.check_clean(clients).await;
    for client in clients {
        assert_eq!(client.status().lapses, 0, "\n{}", world.trace());
    }
    world.ran()
}

/// The cuts affect all connections.
fn a_lock_with_all_defaults_survives_every_cut<H: Case, W: Case>() {
    for begin in [Begin::Claim, Begin::Steady] {
        let name = format!("defaults, {begin:?}, {} behind {}", W::NAME, H::NAME);
        let mut enumeration = Enumeration::new(name, None);
        enumeration.run_singles(&|faults| run_within(RUN_MAX, hand_over::<H, W>(faults, begin)));
        assert!(enumeration.singles >= 60, "{enumeration:?}");
    }
}

/// Both cuts affect the contender's connection, so that its retries are cut too.
fn a_contender_with_all_defaults_survives_every_pair_of_cuts<H: Case, W: Case>() {
    let name = format!("defaults, pairs, {} behind {}", W::NAME, H::NAME);
    let mut enumeration =
        Enumeration::new(name, contender()).without_pairs_if(is_side::<W>() || W::IS_RENAMED);
    enumeration.run(&|faults| run_within(RUN_MAX, hand_over::<H, W>(faults, Begin::Brief)));
    assert!(enumeration.is_complete(40, 500), "{enumeration:?}");
}

/// Runs a scenario in which a writer becomes a reader, with a reader and a writer behind it.
async fn downgrade(faults: Vec<Fault>) -> Ran {
    let world = World::shipped();
    let client = world.client(CONTENDER).await;
    let (other, next) = (world.client(HOLDER).await, world.client(NEXT).await);
    let held = Writer::shipped(&client).acquire().await.expect("the lock is free");
    let reader = spawn(Reader::shipped(&other).acquire().into_future());
    sleep_ms(100).await;
    let writer = spawn(Writer::shipped(&next).acquire().into_future());
    sleep_ms(STEADY_MS).await;
    world.inject(faults);
    let reading = held.downgrade().await.expect("the lock is held");
    let beside = granted(reader).await;
    sleep_ms(9_000).await;
    assert!(!writer.is_finished(), "a writer beside readers\n{}", world.trace());
    for guard in [reading, beside] {
        assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
        assert_eq!(guard.release().await, Ok(Released::Released), "\n{}", world.trace());
    }
    let last = granted(writer).await;
    assert_eq!(last.release().await, Ok(Released::Released), "\n{}", world.trace());
    finish(&world, &[&client, &other, &next]).await
}

#[test]
fn a_downgrade_with_all_defaults_survives_every_cut_of_any_side() {
    let mut enumeration = Enumeration::new("downgrade, defaults", None);
    enumeration.run_singles(&|faults| run(downgrade(faults)));
    assert!(enumeration.singles >= 100, "{enumeration:?}");
}
