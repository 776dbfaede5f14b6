//! A transaction of a guard is not replayed, so the reported outcome must be true: the transaction
//! is applied at most once; it is not applied if the error says so; its outcome is unknown only if
//! the reply never arrived.

use zk_recipes::kind::Queued;
use zk_recipes::{
    Client, CreateMode, ErrorCode, Guard, LockState, Multi, OpError, Outcome, TransactionError,
};
use zk_session::Zxid;
use zk_tests::bare::{Bare as _, not_committed};
use zk_tests::case::{Case, Writer};
use zk_tests::for_each_lock;
use zk_tests::scene::{holder, release};
use zk_tests::world::{Enumeration, Ran, World, run, sleep_ms};
use zk_testserver::Fault;

use crate::{CONTENDER, contender};

for_each_lock! {
    #[test] queues: [a_transaction_under_every_pair_of_cuts_is_reported_as_it_was]
}

const EFFECT: &str = "/effect-unique";

fn effect() -> Multi {
    Multi::new().create(EFFECT, "", CreateMode::Persistent)
}

/// Returns the zxids of the transactions that have created the effect.
fn applied(world: &World) -> Vec<Zxid> {
    let is_effect = |path: &Option<String>| path.as_deref() == Some(EFFECT);
    let commits = world.server.commits().into_iter();
    commits
        .filter(|commit| commit.error == ErrorCode::OK && is_effect(&commit.path))
        .map(|commit| commit.zxid)
        .collect()
}

/// Returns whether the server has sent the reply to a transaction.
fn is_answered(world: &World, zxid: Zxid) -> bool {
    world.server.requests().iter().any(|request| {
        request.zxid == Some(zxid) && matches!(request.outcome, zk_testserver::Outcome::Applied(_))
    })
}

/// Sends a transaction, and repeats it until it is applied. Also returns the reported outcome of
/// the first attempt, if it failed.
async fn transact<K: Queued>(
    world: World,
    client: Client,
    guard: Guard<K>,
    faults: Vec<Fault>,
) -> (Ran, Option<Outcome>) {
    world.inject(faults);
    let first = guard.transaction(effect()).await;
    // A late commit becomes visible with time, or with the next write.
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
            let is_loss = matches!(error, TransactionError::Op(OpError::ConnectionLoss { .. }));
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
    // A transaction that creates a unique name can be repeated until it is applied.
    let mut result = first;
    while let Err(TransactionError::Op(OpError::ConnectionLoss { .. })) = result {
        result = guard.transaction(effect()).await;
    }
    let exists = not_committed(0, ErrorCode::NODE_EXISTS);
    let result = result.bare();
    assert!(result.is_ok() || result == Err(exists), "{result:?}\n{}", world.trace());
    assert_eq!(applied(&world).len(), 1, "once\n{}", world.trace());
    sleep_ms(1_500).await;
    assert_eq!(guard.state(), LockState::Held, "\n{}", world.trace());
    release(guard).await;
    world.check_clean(&[&client]).await;
    (world.ran(), outcome)
}

/// How often each outcome was reported.
#[derive(Debug, Default)]
struct Reported {
    applied: usize,
    unknown: usize,
}

impl Reported {
    fn note(&mut self, outcome: Option<Outcome>) {
        match outcome {
            None => self.applied += 1,
            Some(Outcome::Unknown) => self.unknown += 1,
            Some(Outcome::NotApplied) => {}
        }
    }
}

fn a_transaction_under_every_pair_of_cuts_is_reported_as_it_was<C: Case<Kind: Queued>>() {
    let reported = std::cell::RefCell::new(Reported::default());
    let mut enumeration = Enumeration::new(format!("transaction, {}", C::NAME), contender());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, guard) = holder::<C>(&world, CONTENDER).await;
            let (ran, outcome) = transact(world, client, guard, faults).await;
            reported.borrow_mut().note(outcome);
            ran
        })
    });
    assert!(enumeration.is_complete(24, 300), "{enumeration:?}");
    let reported = reported.borrow();
    assert!(reported.applied >= 50 && reported.unknown >= 50, "{reported:?}");
}

/// The transaction checks the reader's znode, which has replaced the writer's.
#[test]
fn a_transaction_of_a_downgraded_reader_is_reported_as_it_was() {
    let mut enumeration = Enumeration::new("transaction of a reader", contender());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let (client, guard) = holder::<Writer>(&world, CONTENDER).await;
            let reading = guard.downgrade().await.expect("the lock is held");
            transact(world, client, reading, faults).await.0
        })
    });
    assert!(enumeration.is_complete(24, 300), "{enumeration:?}");
}
