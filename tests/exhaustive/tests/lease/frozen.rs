//! A process that is frozen between the acquire and the commit of a transaction, for longer than
//! its session timeout. The transaction is not applied, however far it had progressed before.

use std::time::Duration;

use zk_recipes::{CreateMode, Multi, TransactionError};
use zk_tests::case::LOCK;
use zk_tests::lockstep::Lockstep;
use zk_testserver::ServerConfig;

use crate::{RATES, SECOND, ms};

/// How far the transaction has progressed when the process is frozen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Begun {
    /// The process begins the transaction only when it continues, before it does anything else.
    Not,
    /// The caller has started the transaction, and the request is in the client's queue.
    Queued,
    /// Like `Queued`, but the future was also polled: it has checked that the guard was held.
    Polled,
}

#[test]
fn a_transaction_of_a_process_that_was_frozen_changes_nothing() {
    let mut cases = 0;
    // The first timeout is too short for a lease, and the second is long enough.
    for timeout in [SECOND * 10, SECOND * 30] {
        for rate in RATES {
            for begun in [Begun::Not, Begun::Queued, Begun::Polled] {
                for seconds in [1, 7, 30] {
                    check(timeout, rate, begun, timeout + SECOND * seconds);
                    cases += 1;
                }
            }
        }
    }
    eprintln!("{cases} frozen transactions");
}

fn check(timeout: Duration, rate: u32, begun: Begun, frozen: Duration) {
    let label = format!("{timeout:?} {rate} {begun:?} {frozen:?}");
    let mut world = Lockstep::new(ServerConfig::default(), rate);
    let client = world.client(|builder| builder.session_timeout(timeout));
    let guard = world.hold(&client);
    world.run_until(SECOND * 5, ms(50));
    let effect = || Multi::new().create("/effect", "x", CreateMode::Persistent);
    let before = (begun != Begun::Not).then(|| world.look(|| guard.transaction(effect())));
    let mut before = before.map(Box::pin);
    if let (Begun::Polled, Some(transaction)) = (begun, &mut before) {
        assert!(world.poll(transaction).is_none(), "{label}");
    }
    let end = world.now + frozen;
    while world.now < end {
        world.step_frozen(ms(500));
    }
    // Within one more tick, another client could hold the lock.
    world.step_frozen(SECOND * 2);
    // The directory may be missing, because servers delete a directory that stays empty.
    let contenders = world.serve(|server| server.children(LOCK)).unwrap_or_default();
    assert_eq!(contenders, [""; 0], "{label}");
    let first = world.thaw(|| Box::pin(guard.transaction(effect())));
    let transactions = before.into_iter().map(|before| world.finish(before)).collect::<Vec<_>>();
    for outcome in [vec![world.finish(first)], transactions].concat() {
        assert!(matches!(outcome, Err(TransactionError::Lost(_))), "{label}: {outcome:?}");
    }
    let end = world.now + SECOND * 10;
    world.run_until(end, ms(100));
    assert_eq!(world.serve(|server| server.data("/effect")), None, "{label}");
}

/// The session stays alive, but the contender's znode is deleted while the process is frozen. Only
/// the check in the transaction can detect that, because the transaction is sent before the client
/// reads the event.
#[test]
fn a_transaction_of_a_lock_that_was_taken_from_a_frozen_process_changes_nothing() {
    for rate in RATES {
        let mut world = Lockstep::new(ServerConfig::default(), rate);
        let client = world.client(|builder| builder);
        let guard = world.hold(&client);
        world.run_until(SECOND * 5, ms(50));
        for _ in 0..10 {
            world.step_frozen(ms(100));
        }
        assert!(world.serve(|server| server.admin_delete(guard.path())));
        let multi = Multi::new().create("/effect", "x", CreateMode::Persistent);
        let transaction = world.thaw(|| Box::pin(guard.transaction(multi)));
        let outcome = world.finish(transaction);
        assert!(matches!(outcome, Err(TransactionError::Lost(_))), "{rate}: {outcome:?}");
        assert_eq!(world.serve(|server| server.data("/effect")), None, "{rate}");
    }
}
