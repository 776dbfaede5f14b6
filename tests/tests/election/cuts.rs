//! Every cut of a candidate that runs its work while it leads, and every pair of cuts of a campaign,
//! a body and a resignation.

use std::cell::Cell;
use std::future::pending;

use zk_recipes::{Election, LockState, SessionId};
use zk_tests::case::Case as _;
use zk_tests::scene::release;
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::leader;

const CANDIDATE: u64 = 1;
const LEADER: u64 = 2;

/// The session of the client whose connections are cut, which is the same in every world.
fn candidate() -> Option<SessionId> {
    Some(session_of_first(CANDIDATE))
}

/// Another candidate leads first. The cuts are too short for a loss, so the body runs once.
#[test]
fn a_campaign_a_body_and_a_resignation_survive_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("run while leader", candidate());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CANDIDATE).await;
            let (other, leadership) = leader(&world, LEADER).await;
            world.inject(faults);
            let (bodies, has_left) = (Cell::new(0), Cell::new(false));
            let election = Election::of(&client);
            let leading = election.run_while_leader(async |leadership| {
                bodies.set(bodies.get() + 1);
                assert!(has_left.get(), "two leaders\n{}", world.trace());
                world.check_granted::<Election>(leadership);
                sleep_ms(1_000).await;
                leadership.fencing_token()
            });
            let leaving = async {
                sleep_ms(1_500).await;
                assert_eq!(leadership.state(), LockState::Held, "\n{}", world.trace());
                has_left.set(true);
                let token = leadership.fencing_token();
                release(leadership).await;
                token
            };
            let (led, before) = tokio::join!(leading, leaving);
            assert!(led.expect("cuts are survived") > before);
            assert_eq!(bodies.get(), 1, "\n{}", world.trace());
            assert!(world.contenders().is_empty(), "not resigned\n{}", world.trace());
            world.check_clean(&[&client, &other]).await;
            assert_eq!(election.stats().watches_missed, 0);
            world.ran()
        })
    });
    assert!(enumeration.is_complete(40, 1_000), "{enumeration:?}");
}

/// The first body loses its leadership, and the second one completes.
#[test]
fn a_loss_and_the_next_campaign_survive_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("run while leader, with a loss", candidate()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(CANDIDATE).await;
            world.inject(faults);
            let bodies = Cell::new(0);
            let election = Election::of(&client);
            let led = election.run_while_leader(async |leadership| {
                bodies.set(bodies.get() + 1);
                world.check_granted::<Election>(leadership);
                if bodies.get() == 1 {
                    sleep_ms(500).await;
                    assert!(world.server.admin_delete(leadership.path()));
                    pending::<()>().await;
                }
                sleep_ms(500).await;
                17
            });
            assert_eq!(led.await, Ok(17), "\n{}", world.trace());
            assert_eq!(bodies.get(), 2, "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(100, 1_500), "{enumeration:?}");
}
