//! A server that refuses the proofs of many locks, or one for good.

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{FailedAction, FairLock, LockError, LockState};
use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, hold, pauses_ms, release};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault};

const LOCKS: usize = 200;

/// Lets the server refuse this number of writes that prove a lock.
fn refuse_proofs(world: &World, code: ErrorCode, count: usize) {
    for nth in 0..count {
        let at = At::op(OpCode::MULTI).below("/locks").after(nth);
        world.server.inject(Fault::new(at, Action::Error(code)));
    }
}

/// Returns how many proofs the server has received.
fn proofs(world: &World) -> usize {
    let is_proof = |path: &String| path.starts_with("/locks");
    let all = world.server.requests();
    all.iter().filter(|r| r.op == OpCode::MULTI && r.path.iter().any(is_proof)).count()
}

#[test]
fn proofs_that_are_refused_together_come_back_apart_and_ever_less_often() {
    run(async {
        let world = World::new().pace(Pace { per_second: 3_000, per_minute: 10_000 });
        let client = world.client(FIRST).await;
        let mut guards = Vec::new();
        for number in 0..LOCKS {
            let lock = FairLock::new(&client, &format!("/locks/{number}")).expect("a path");
            guards.push(hold(&lock).await);
        }
        sleep_ms(1_000).await;
        let before = proofs(&world);
        refuse_proofs(&world, ErrorCode::THROTTLED_OP, 30 * LOCKS);
        world.server.disconnect_all();
        // The first proofs follow the reconnect at once.
        while proofs(&world) < before + LOCKS {
            sleep_ms(1).await;
        }
        let mut sent = proofs(&world);
        let mut most = 0;
        for _ in 0..6_000 {
            sleep_ms(5).await;
            let now = proofs(&world);
            most = most.max(now - sent);
            sent = now;
        }
        assert!(most <= LOCKS / 4, "{most} proofs within 5 ms");
        // Pauses from 200 ms to 5 s, of which nine end within 30 s.
        let each = (sent - before).div_ceil(LOCKS);
        assert!((8..=11).contains(&each), "{each} proofs for each lock");
        assert!(guards.iter().all(|guard| guard.state() == LockState::AtRisk));

        world.server.clear_faults();
        sleep_ms(6_500).await;
        assert!(guards.iter().all(|guard| guard.state() == LockState::Held));
        for guard in guards {
            release(guard).await;
        }
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_new_connection_ends_the_pause_of_a_proof() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let guard = hold(&World::lock(&client)).await;
        sleep_ms(1_000).await;
        refuse_proofs(&world, ErrorCode::THROTTLED_OP, 100);
        world.server.disconnect_all();
        // The pauses are those of 5 s now, and one has just begun.
        sleep_ms(8_500).await;
        assert_eq!(guard.state(), LockState::AtRisk);
        world.server.clear_faults();
        world.server.disconnect_all();
        sleep_ms(1_000).await;
        assert_eq!(guard.state(), LockState::Held, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_validation_waits_for_a_throttled_server_and_gives_up_on_a_broken_one() {
    for (code, refusals, gives_up) in
        [(ErrorCode::THROTTLED_OP, 12, false), (ErrorCode::SYSTEM_ERROR, 100, true)]
    {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let guard = hold(&World::lock(&client)).await;
            sleep_ms(1_000).await;
            refuse_proofs(&world, code, refusals);
            let (began, before) = (client.now(), proofs(&world));
            let validated = guard.validate().await;
            let waited = client.now().saturating_since(began).as_millis();
            let sent = proofs(&world) - before;
            if gives_up {
                let path = guard.path().to_owned();
                let refused = LockError::Refused { code, action: FailedAction::Check, path };
                assert_eq!(validated, Err(refused));
                assert_eq!(sent, 9);
                assert!(pauses_ms(8).contains(&waited), "{waited} ms");
            } else {
                assert_eq!(validated, Ok(()));
                assert_eq!(sent, 13);
                assert!(pauses_ms(12).contains(&waited), "{waited} ms");
            }
            world.server.clear_faults();
            release(guard).await;
            world.check_clean(&[&client]).await;
        });
    }
}
