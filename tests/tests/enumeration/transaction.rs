//! A transaction of a guard is not replayed, so its outcome has to be told truly: applied at most
//! once; not applied if that is what was said; unknown only if the reply never came.

use zk_recipes::kind::Queued;
use zk_recipes::{
    Client, CreateMode, ErrorCode, Guard, LockState, Multi, OpError, Outcome, TransactionError,
};
use zk_tests::scene::release;
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, first_session, inject, ran};

const EFFECT: &str = "/effect-unique";

fn effect() -> Multi {
    Multi::new().create(EFFECT, "", CreateMode::Persistent)
}

/// Transactions that have created the effect.
fn applied(world: &World) -> Vec<i64> {
    let is_effect = |path: &Option<String>| path.as_deref() == Some(EFFECT);
    let commits = world.server.commits().into_iter();
    commits
        .filter(|commit| commit.error == ErrorCode::OK && is_effect(&commit.path))
        .map(|commit| commit.zxid)
        .collect()
}

/// True if the reply to a transaction has left the server.
fn is_answered(world: &World, zxid: i64) -> bool {
    world.server.requests().iter().any(|request| {
        request.zxid == Some(zxid) && matches!(request.outcome, zk_testserver::Outcome::Applied(_))
    })
}

/// One transaction, and its repetitions until it is settled. Also says what was told of the first,
/// if it failed.
async fn transact<K: Queued>(
    world: World,
    client: Client,
    guard: Guard<K>,
    faults: Vec<Fault>,
) -> (Ran, Option<Outcome>) {
    inject(&world, faults);
    let first = guard.transaction(effect()).await;
    // A commit that is late comes to light.
    sleep_ms(1_000).await;
    world.server.admin_create("/later", b"", None);
    let zxids = applied(&world);
    assert!(zxids.len() <= 1, "applied twice\n{}", world.trace());
    let outcome = match &first {
        Ok(outcomes) => {
            assert_eq!((outcomes.len(), zxids.len()), (1, 1), "\n{}", world.trace());
            None
        }
        Err(error) => {
            let is_loss = matches!(error, TransactionError::Op(OpError::ConnectionLoss(_)));
            assert!(is_loss, "{error:?}\n{}", world.trace());
            Some(error.outcome())
        }
    };
    match outcome {
        None => {}
        Some(Outcome::NotApplied) => assert_eq!(zxids, [], "it was applied\n{}", world.trace()),
        Some(Outcome::Unknown) => {
            let answered = zxids.iter().any(|zxid| is_answered(&world, *zxid));
            assert!(!answered, "the reply has left\n{}", world.trace());
        }
    }
    // What is unique can be repeated until it is settled.
    let mut result = first;
    while let Err(TransactionError::Op(OpError::ConnectionLoss(_))) = result {
        result = guard.transaction(effect()).await;
    }
    let exists = TransactionError::Refused { index: 0, code: ErrorCode::NODE_EXISTS };
    assert!(result.is_ok() || result == Err(exists), "{result:?}\n{}", world.trace());
    assert_eq!(applied(&world).len(), 1, "once\n{}", world.trace());
    sleep_ms(1_500).await;
    assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
    release(guard).await;
    world.check_clean(&[&client]).await;
    (ran(&world), outcome)
}

/// How often each outcome was told.
#[derive(Debug, Default)]
struct Told {
    applied: usize,
    unknown: usize,
}

impl Told {
    fn note(&mut self, outcome: Option<Outcome>) {
        match outcome {
            None => self.applied += 1,
            Some(Outcome::Unknown) => self.unknown += 1,
            Some(Outcome::NotApplied) => {}
        }
    }
}

#[test]
fn a_transaction_under_every_pair_of_cuts_is_reported_as_it_was() {
    let told = std::cell::RefCell::new(Told::default());
    let mut enumeration = Enumeration::new("transaction", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let guard = World::lock(&client).acquire().await.expect("nobody else wants it");
            let (ran, outcome) = transact(world, client, guard, faults).await;
            told.borrow_mut().note(outcome);
            ran
        })
    });
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 300, "{enumeration:?}");
    let told = told.borrow();
    assert!(told.applied >= 50 && told.unknown >= 50, "{told:?}");
}

/// The reader's check is of the znode that has replaced the writer's.
#[test]
fn a_transaction_of_a_downgraded_reader_is_reported_as_it_was() {
    let mut enumeration = Enumeration::new("transaction of a reader", first_session());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CONTENDER).await;
            let guard = World::rw_lock(&client).write().await.expect("nobody else wants it");
            let reading = guard.downgrade().await.expect("it is held");
            transact(world, client, reading, faults).await.0
        })
    });
    assert!(enumeration.singles >= 24 && enumeration.pairs >= 300, "{enumeration:?}");
}
