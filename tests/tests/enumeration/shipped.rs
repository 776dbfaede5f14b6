//! The same cuts in a world in which every option has its default: a session timeout that is long
//! enough for a lease, and the safety timer on. They begin either with the claim of the contender,
//! or when everything has been in its steady state for a while.

use std::future::IntoFuture as _;
use std::time::Duration;

use zk_recipes::kind::Kind;
use zk_recipes::{Client, ExclusiveLock, FairLock, Guard, LockState, Released};
use zk_tests::lock::{Reader, Side, Writer};
use zk_tests::scene::{granted, spawn};
use zk_tests::world::{Enumeration, Ran, World, run, run_within, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, HOLDER, NEXT, inject, ran};

/// A lease comes from writes by then, and the safety timer is about to fire for the second time.
const STEADY_MS: u64 = 65_000;

/// Virtual time of a run.
const RUN_MAX: Duration = Duration::from_secs(200);

/// When the cuts begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Begin {
    Claim,
    Steady,
    /// As `Steady`, but nobody waits for the safety timer. So there are few renewals of leases, each
    /// of which is a point to cut, and pairs of cuts are not too many.
    Brief,
}

impl Begin {
    /// How long the first holds, and how long the one after it, in milliseconds. The safety timer
    /// goes off every 30 s or a little later.
    fn holds(self) -> [u64; 2] {
        match self {
            Self::Claim => [1_500, 1_500],
            Self::Steady => [9_000, 40_000],
            Self::Brief => [2_000, 2_000],
        }
    }
}

/// The contender's session, of several.
fn contender() -> Option<i64> {
    run(async { World::shipped().client(CONTENDER).await.session_id().map(|session| session.0) })
}

/// A holder, the contender, and one more behind it.
async fn hand_over<H: Side, W: Side>(faults: Vec<Fault>, begin: Begin) -> Ran {
    let world = World::shipped();
    let client = world.client(CONTENDER).await;
    let (other, next) = (world.client(HOLDER).await, world.client(NEXT).await);
    let held = H::shipped(&other).acquiring().await.expect("nobody else wants it");
    if begin == Begin::Claim {
        inject(&world, faults.clone());
    }
    let waiting = spawn(W::shipped(&client).acquiring().into_future());
    let behind = spawn(W::shipped(&next).acquiring().into_future());
    if begin != Begin::Claim {
        sleep_ms(STEADY_MS).await;
        inject(&world, faults);
    }
    let [first_holds, second_holds] = begin.holds();
    sleep_ms(first_holds).await;
    check_held(&world, &held).await;
    assert!(!waiting.is_finished() && !behind.is_finished(), "two holders\n{}", world.trace());
    let path = held.path().to_owned();
    assert_eq!(held.release().await, Ok(Released::Released), "\n{}", world.trace());
    // Whose turn it is among the two may have been changed by a cut of a claim.
    let (mut waiting, mut behind) = (waiting, behind);
    let (first, second) = tokio::select! {
        first = &mut waiting => (first, behind),
        first = &mut behind => (first, waiting),
    };
    let first = first.expect("it does not panic").expect("it becomes free");
    assert!(!matches!(first.state(), LockState::Lost(_)), "\n{}", world.trace());
    let stat = world.server.stat(first.path()).map(|stat| stat.ephemeral_owner);
    assert_eq!(stat, Some(first.session().0), "held without a znode\n{}", world.trace());
    // The znode of an exclusive lock always has the same path.
    let is_gone = path == first.path() || world.server.stat(&path).is_none();
    assert!(is_gone, "held beside another\n{}", world.trace());
    // The one behind has listed and set its safety timer anew; the old one goes off meanwhile.
    sleep_ms(second_holds).await;
    check_held(&world, &first).await;
    assert_eq!(second.is_finished(), W::SHARES, "\n{}", world.trace());
    assert_eq!(first.release().await, Ok(Released::Released), "\n{}", world.trace());
    let second = granted(second).await;
    assert_eq!(second.release().await, Ok(Released::Released), "\n{}", world.trace());
    finish(&world, &[&client, &other, &next]).await
}

/// It is held, or soon again: a cut may be a moment ago, and a server that says nothing is left
/// after 9.5 s.
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
    ran(world)
}

/// Cuts of everybody's connections.
fn survive<H: Side, W: Side>(name: &'static str, begin: Begin) {
    let mut enumeration = Enumeration::new(name, None);
    enumeration.run_singles(&|faults| run_within(RUN_MAX, hand_over::<H, W>(faults, begin)));
    assert!(enumeration.singles >= 60, "{enumeration:?}");
}

#[test]
fn a_fair_lock_with_all_defaults_survives_every_cut() {
    survive::<FairLock, FairLock>("fair, defaults, claim", Begin::Claim);
    survive::<FairLock, FairLock>("fair, defaults, steady", Begin::Steady);
}

#[test]
fn an_exclusive_lock_with_all_defaults_survives_every_cut() {
    survive::<ExclusiveLock, ExclusiveLock>("exclusive, defaults, claim", Begin::Claim);
    survive::<ExclusiveLock, ExclusiveLock>("exclusive, defaults, steady", Begin::Steady);
}

#[test]
fn readers_behind_a_writer_with_all_defaults_survive_every_cut() {
    survive::<Writer, Reader>("readers, defaults, claim", Begin::Claim);
    survive::<Writer, Reader>("readers, defaults, steady", Begin::Steady);
}

#[test]
fn writers_behind_a_reader_with_all_defaults_survive_every_cut() {
    survive::<Reader, Writer>("writers, defaults, claim", Begin::Claim);
    survive::<Reader, Writer>("writers, defaults, steady", Begin::Steady);
}

/// Both cuts are of the contender, so that its repetitions are cut too.
#[test]
fn a_contender_with_all_defaults_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("fair, defaults, pairs", contender());
    enumeration
        .run(&|faults| run_within(RUN_MAX, hand_over::<FairLock, FairLock>(faults, Begin::Brief)));
    assert!(enumeration.singles >= 40 && enumeration.pairs >= 500, "{enumeration:?}");
}

/// A writer becomes a reader, with a reader and a writer behind it.
async fn downgrade(faults: Vec<Fault>) -> Ran {
    let world = World::shipped();
    let client = world.client(CONTENDER).await;
    let (other, next) = (world.client(HOLDER).await, world.client(NEXT).await);
    let held = Writer::shipped(&client).acquiring().await.expect("nobody else wants it");
    let reader = spawn(Reader::shipped(&other).acquiring().into_future());
    sleep_ms(100).await;
    let writer = spawn(Writer::shipped(&next).acquiring().into_future());
    sleep_ms(STEADY_MS).await;
    inject(&world, faults);
    let reading = held.downgrade().await.expect("it is held");
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
