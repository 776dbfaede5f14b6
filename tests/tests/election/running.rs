//! Work that only the leader does: complete, stopped by a loss, started again, and ended by errors.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{
    AtRiskPolicy, CreateMode, Election, FailedAction, FencingToken, Leadership, LockError,
    LockState, LostReason, Multi,
};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::scene::{FIRST, SECOND, at_op, granted, partition, release, session, spawn};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{campaign, leader};

#[test]
fn the_output_of_a_complete_body_is_returned_and_the_leader_has_resigned() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let led = election.run_while_leader(async |leadership| {
            assert_eq!(leadership.state(), LockState::Held);
            world.check_granted::<Election>(leadership);
            sleep_ms(30_000).await;
            leadership.fencing_token()
        });
        let token: FencingToken = led.await.expect("nothing is refused");
        assert!(token.get() > 0);
        assert!(world.contenders().is_empty(), "it returned before it resigned");
        assert_eq!(election.stats().attempts, 1);
        world.check_clean(&[&client]).await;
    });
}

/// The future is `Send`, although the body borrows the leadership across an await. The body owns what
/// it captures; if it borrowed that, compilers up to 1.95 would not see that the future is `Send`.
#[test]
fn a_task_of_its_own_can_run_while_it_leads() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let (name, written) = (String::from("/written"), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&written);
        let led = spawn(async move {
            let body = async move |leadership: &Leadership| {
                counted.fetch_add(1, Ordering::Relaxed);
                sleep_ms(10).await;
                let create = Multi::new().create(&name, "x", CreateMode::Persistent);
                leadership.transaction(create).await.map(|outcomes| outcomes.len())
            };
            election.run_while_leader(body).await
        });
        let led = led.await.expect("the task does not panic");
        assert_eq!(led, Ok(Ok(1)));
        assert_eq!(written.load(Ordering::Relaxed), 1);
        assert!(world.server.stat("/written").is_some());
        world.check_clean(&[&client]).await;
    });
}

/// Counts the bodies that run at the same time.
struct Running(Rc<Cell<usize>>);

impl Running {
    fn begin(bodies: &Rc<Cell<usize>>) -> Self {
        bodies.set(bodies.get() + 1);
        assert_eq!(bodies.get(), 1, "two bodies at once");
        Self(Rc::clone(bodies))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The first body is stopped by the loss, and the second one completes.
#[test]
fn a_body_is_started_again_after_each_kind_of_loss() {
    for reason in [
        LostReason::SessionExpired,
        LostReason::ZnodeDeleted,
        LostReason::DeadlinePassed,
        LostReason::AtRisk,
    ] {
        run(async {
            let world = if reason == LostReason::AtRisk { World::shipped() } else { World::new() };
            let client = world.client(FIRST).await;
            let policy = if reason == LostReason::AtRisk {
                AtRiskPolicy::TreatAsLost
            } else {
                AtRiskPolicy::GoOn
            };
            let election = Election::with(&client, |builder| builder.at_risk(policy));
            let bodies = Rc::default();
            let mut tokens = Vec::new();
            let lost = RefCell::new(None);
            let led = election.run_while_leader(async |leadership| {
                let _running = Running::begin(&bodies);
                tokens.push(leadership.fencing_token());
                if tokens.len() == 1 {
                    sleep_ms(100).await;
                    *lost.borrow_mut() = Some(spawn(leadership.lost()));
                    match reason {
                        LostReason::SessionExpired => world.server.expire(session(&client)),
                        LostReason::ZnodeDeleted => {
                            assert!(world.server.admin_delete(leadership.path()));
                        }
                        LostReason::AtRisk => partition(&world, 100),
                        LostReason::DeadlinePassed | _ => partition(&world, 30_000),
                    }
                    pending::<()>().await;
                }
                tokens.len()
            });
            assert_eq!(led.await, Ok(2), "{reason}");
            assert_eq!(bodies.get(), 0);
            let lost = lost.into_inner().expect("the first body has run");
            assert_eq!(lost.await.expect("the task does not panic"), reason);
            assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
            assert!(world.contenders().is_empty());
            world.check_clean(&[&client]).await;
        });
    }
}

/// After the loss, the other candidate leads, and the first one waits for its turn.
#[test]
fn after_a_loss_the_next_candidate_leads_and_the_former_leader_waits() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let (election, rival) = (Election::of(&client), Election::of(&other));
        let bodies = Rc::default();
        let mut begun = Vec::new();
        let leading = election.run_while_leader(async |leadership| {
            let _running = Running::begin(&bodies);
            begun.push(client.now());
            if begun.len() == 1 {
                sleep_ms(500).await;
                world.server.expire(leadership.session());
                pending::<()>().await;
            }
        });
        let rivals = async {
            sleep_ms(100).await;
            let candidate = campaign(&world, &rival).await;
            let leadership = granted(candidate).await;
            // The expiry was decided by hand, so the former leader learns of it a moment later.
            sleep_ms(10).await;
            let _running = Running::begin(&bodies);
            world.until("both are candidates", |_| world.contenders().len() == 2).await;
            sleep_ms(5_000).await;
            assert_eq!(leadership.state(), LockState::Held);
            leadership
        };
        let rivals = async { release(rivals.await).await };
        let (led, ()) = tokio::join!(leading, rivals);
        assert_eq!(led, Ok(()));
        let gap = begun[1].saturating_since(begun[0]);
        assert!(gap >= Duration::from_millis(5_500), "{gap:?}");
        world.check_clean(&[&client, &other]).await;
    });
}

#[test]
fn a_body_whose_leadership_is_at_risk_continues() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let mut bodies = 0;
        let election = Election::of(&client);
        let led = election.run_while_leader(async |leadership| {
            bodies += 1;
            partition(&world, 500);
            sleep_ms(100).await;
            assert_eq!(leadership.state(), LockState::AtRisk);
            sleep_ms(2_000).await;
            leadership.state()
        });
        assert_eq!(led.await, Ok(LockState::Held));
        assert_eq!(bodies, 1);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_refused_create_is_an_error_and_not_a_reason_to_try_again() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let refuse = Action::Error(ErrorCode::NO_AUTH);
        world.server.inject(at_op(session(&client), OpCode::CREATE2, refuse.clone()));
        world.server.inject(at_op(session(&client), OpCode::CREATE, refuse));
        let led = Election::of(&client).run_while_leader(async |_| unreachable!()).await;
        let Err(LockError::Refused { code, action: FailedAction::Create, path }) = led else {
            panic!("{led:?}");
        };
        assert_eq!((code, path.starts_with(LOCK)), (ErrorCode::NO_AUTH, true));
        assert_eq!(Election::of(&client).stats().attempts, 0);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_client_that_is_closed_ends_it_with_an_error() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let closed = client.clone();
        let led = election.run_while_leader(async |_| {
            let closed = closed.clone();
            spawn(async move { closed.close().await });
            pending::<()>().await;
        });
        assert_eq!(led.await, Err(LockError::Closed));
    });
}

#[test]
fn dropping_the_future_resigns_or_withdraws() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let election = Election::of(&client);
        let is_dropped = Rc::default();
        let leading = election.run_while_leader(async |_| {
            let _running = Running::begin(&is_dropped);
            pending::<()>().await;
        });
        let timeout = tokio::time::timeout(Duration::from_millis(300), leading).await;
        assert!(timeout.is_err());
        assert_eq!(is_dropped.get(), 0);
        world.until("it has resigned", |_| world.contenders().is_empty()).await;

        let (other, held) = leader(&world, SECOND).await;
        let waiting = election.run_while_leader(async |_| unreachable!());
        let timeout = tokio::time::timeout(Duration::from_millis(300), waiting).await;
        assert!(timeout.map(|never: Result<(), LockError>| never).is_err());
        world.until("it has withdrawn", |_| world.contenders().len() == 1).await;
        release(held).await;
        world.check_clean(&[&client, &other]).await;
    });
}

/// The server refuses to delete the znode, so the resignation fails. The output is returned.
#[test]
fn a_refused_resignation_does_not_lose_the_output() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let refuse = Action::Error(ErrorCode::NO_AUTH);
        world.server.inject(at_op(session(&client), OpCode::DELETE, refuse));
        let led = Election::of(&client).run_while_leader(async |_| 17).await;
        assert_eq!(led, Ok(17));
        // The client retries in the background.
        world.check_clean(&[&client]).await;
    });
}

/// Each candidacy would fail at once, without a pause between two of them.
#[test]
fn a_candidate_whose_client_ends_with_its_session_gives_up() {
    run(async {
        let world = World::new();
        let client = world.client_with(FIRST, |builder| builder.renew_after_expiry(false)).await;
        let election = Election::of(&client);
        let led = spawn(async move {
            election.run_while_leader(async |_: &Leadership| pending::<()>().await).await
        });
        world.until("the leader", |server| !server.ephemerals().is_empty()).await;
        world.server.expire(session(&client));
        let error = led.await.expect("it does not panic").expect_err("there is no other session");
        assert_eq!(error, LockError::Lost(LostReason::SessionExpired));
        // So does one that begins afterwards.
        let again = Election::of(&client).run_while_leader(async |_| ()).await;
        assert_eq!(again, Err(LockError::Lost(LostReason::SessionExpired)));
    });
}
