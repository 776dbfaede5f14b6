//! Idle sessions, which send no writes and have no lease when a lock is granted.

use std::future::IntoFuture as _;
use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    AtRiskPolicy, Client, ClientBuilder, FairLock, Lease, LockError, LockState, LostReason,
    Released,
};
use zk_tests::case::LOCK;
use zk_tests::lockstep::Lockstep;
use zk_tests::meter::Pace;
use zk_tests::scene::spawn;
use zk_tests::world::{World, run_within, sleep_ms};
use zk_testserver::{CutOff, ServerConfig};

use crate::{RATES, SECOND, ms};

/// Maximum time from a grant until the guard has a lease: a bridge of one tick, and five writes at
/// intervals of an eighth of a tick.
const LEASED: Duration = Duration::from_millis(3_500);
/// Virtual time of a test.
const LONG: Duration = Duration::from_secs(1_000);
const TIMEOUTS: [u64; 4] = [4, 10, 30, 60];

/// Returns a client whose session was idle for twice its timeout.
async fn idle(world: &World, timeout: u64) -> Client {
    let timeout = SECOND * timeout as u32;
    let client = world.client_with(1, |builder| builder.session_timeout(timeout)).await;
    let lock = FairLock::new(&client, LOCK).expect("the path is valid");
    // This creates the directory.
    lock.acquire().await.expect("the lock is free").release().await.expect("the lock is held");
    let before = writes(world);
    sleep_ms(u64::try_from(timeout.as_millis() * 2).expect("it is not long")).await;
    assert_eq!(writes(world), before, "an idle session of {timeout:?} writes");
    client
}

/// Returns the number of writes that have renewed a lease.
fn writes(world: &World) -> usize {
    let requests = world.server.requests();
    let is_renewal = |path: Option<&str>, op| op == OpCode::MULTI && path == Some("/");
    requests.iter().filter(|request| is_renewal(request.path.as_deref(), request.op)).count()
}

/// Runs a scenario for each timeout, with a client whose session is idle.
fn for_each_timeout(scenario: impl AsyncFn(&World, Client, u64)) {
    for timeout in TIMEOUTS {
        run_within(LONG, async {
            let world = world();
            let client = idle(&world, timeout).await;
            scenario(&world, client, timeout).await;
        });
    }
}

fn world() -> World {
    let world = World::with(ServerConfig::default().max_session_timeout(SECOND * 60)).leased();
    // A session with a timeout of four seconds renews its lease five times per second.
    world.pace(Pace { per_minute: 400, ..Pace::CALM })
}

#[test]
fn a_lock_on_an_idle_session_is_granted_at_once_and_leased_soon() {
    for_each_timeout(async |world, client, timeout| {
        let lock = FairLock::new(&client, LOCK).expect("the path is valid");
        let began = client.now();
        let guard = lock.acquire().await.expect("the lock is free");
        assert_eq!(client.now(), began, "{timeout} s: it takes a round trip, and that no time");
        assert_eq!((guard.state(), guard.remaining()), (LockState::AtRisk, None), "{timeout}");
        let begun = guard.run(async { 17 }).await;
        assert_eq!(begun, Ok(17), "it continues while the lock is at risk");
        while guard.state() != LockState::Held {
            assert_eq!(guard.state(), LockState::AtRisk, "{timeout} s");
            assert!(client.now().saturating_since(began) < LEASED, "{timeout} s: no lease yet");
            sleep_ms(10).await;
        }
        let made = client.now().saturating_since(began);
        assert!(made > SECOND * 2, "{timeout} s: a lease in {made:?} is too good to be true");
        assert!(guard.remaining().is_some_and(|left| !left.is_zero()));
        sleep_ms(60_000).await;
        assert_eq!(guard.state(), LockState::Held, "{timeout} s\n{}", world.trace());
        let stats = lock.stats();
        assert_eq!((stats.at_risk, stats.lost), (0, 0), "{timeout} s: it only became better");
        assert_eq!(guard.release().await, Ok(Released::Released));
        let after = writes(world);
        sleep_ms(60_000).await;
        assert_eq!(writes(world), after, "{timeout} s: nothing needs a lease");
        assert_eq!(client.status().lapses, 0, "nothing needed the lease that has ended");
    });
}

#[test]
fn who_gives_up_at_risk_gets_the_lock_when_there_is_a_lease() {
    for_each_timeout(async |world, client, timeout| {
        let builder = FairLock::builder(&client, LOCK).expect("the path is valid");
        let builder = builder.at_risk(AtRiskPolicy::TreatAsLost);
        let lock = builder.build().expect("the options are legal");
        let began = client.now();
        let short = lock.acquire().timeout(SECOND).await;
        assert!(matches!(short.map(drop), Err(LockError::TimedOut(_))), "{timeout} s");
        sleep_ms(1).await;
        assert!(world.server.ephemerals().is_empty(), "{timeout} s: the znode is left");
        let guard = lock.acquire().await.expect("the lock is free");
        assert_eq!(guard.state(), LockState::Held, "{timeout} s");
        let made = client.now().saturating_since(began);
        assert!(made < SECOND + LEASED, "{timeout} s: {made:?}");
        world.server.disconnect_all();
        assert_eq!(guard.lost().await, LostReason::AtRisk);
    });
}

/// The idle time ends anywhere in the lease that the session had before, or after it. The suite
/// `guard` of the other package does the same with every lock, and a timeout of 10 s.
#[test]
fn after_any_idle_time_a_guard_stays_held() {
    for timeout in TIMEOUTS {
        let step = timeout * 20;
        for idle_ms in (0..timeout * 1_000 + 500).step_by(step as usize) {
            for was_held in [false, true] {
                run_within(LONG, async {
                    let world = world();
                    let options =
                        |builder: ClientBuilder| builder.session_timeout(SECOND * timeout as u32);
                    let client = world.client_with(1, options).await;
                    if was_held {
                        let lock = FairLock::new(&client, LOCK).expect("the path is valid");
                        let guard = lock.acquire().await.expect("the lock is free");
                        sleep_ms(timeout * 1_000).await;
                        assert_eq!(guard.release().await, Ok(Released::Released));
                    }
                    sleep_ms(idle_ms).await;
                    let builder = FairLock::builder(&client, LOCK).expect("the path is valid");
                    let builder = builder.at_risk(AtRiskPolicy::TreatAsLost);
                    let lock = builder.build().expect("the options are legal");
                    let began = client.now();
                    let guard = lock.acquire().await.expect("the lock is free");
                    let case = format!("{timeout} s, idle for {idle_ms} ms, {was_held}");
                    let waited = client.now().saturating_since(began);
                    assert!(waited < LEASED, "{case}: {waited:?}");
                    for _ in 0..timeout * 12 {
                        assert_eq!(guard.state(), LockState::Held, "{case}\n{}", world.trace());
                        sleep_ms(100).await;
                    }
                    assert_eq!(lock.stats().lost, 0, "{case}");
                });
            }
        }
    }
}

#[test]
fn a_body_that_stops_at_risk_begins_when_there_is_a_lease() {
    for_each_timeout(async |world, client, timeout| {
        let lock = FairLock::new(&client, LOCK).expect("the path is valid");
        let guard = lock.acquire().await.expect("the lock is free");
        let began = client.now();
        let first = guard.run(async { client.now() }).stop_at_risk().await;
        let waited = first.expect("there will be a lease").saturating_since(began);
        assert!((SECOND * 2..LEASED).contains(&waited), "{timeout} s: {waited:?}");
        // The lock is dropped before it was ever `Held`.
        drop(guard);
        sleep_ms(timeout * 2_000).await;
        let guard = lock.acquire().await.expect("the lock is free");
        assert_eq!(
            guard.state(),
            LockState::AtRisk,
            "{timeout} s {:?}\n{}",
            guard.remaining(),
            world.trace()
        );
        world.server.expire(guard.session());
        assert_eq!(guard.state(), LockState::AtRisk, "{timeout} s");
        let lost = guard.run(async { unreachable!("there was never a lease") });
        lost.stop_at_risk().await.expect_err("the session has expired");
    });
}

/// A session renews its lease for a waiter that is next in the queue, but not for a waiter further
/// behind.
#[test]
fn only_who_holds_and_who_is_next_are_written_for() {
    run_within(LONG, async {
        let world = world();
        let (mut clients, mut waiting) = (vec![], vec![]);
        for seed in 0..10 {
            let client = world.client_with(seed, |builder| builder.session_timeout(SECOND * 10));
            let client = client.await;
            let lock = FairLock::new(&client, LOCK).expect("the path is valid");
            waiting.push(spawn(lock.acquire().into_future()));
            clients.push(client);
            sleep_ms(10).await;
        }
        sleep_ms(5_000).await;
        let before = writes(&world);
        sleep_ms(60_000).await;
        // Two sessions each send one write every half second.
        let count = writes(&world) - before;
        assert!((230..=242).contains(&count), "{count} writes in a minute");
        for waiter in waiting {
            let guard =
                waiter.await.expect("the task does not panic").expect("the lock becomes free");
            assert_ne!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
            drop(guard);
        }
    });
}

/// The server is cut off from its leader before the guard has a lease, or soon afterwards.
#[test]
fn a_lock_without_a_lease_is_not_held_when_another_can_have_it() {
    let (mut cases, mut without) = (0, 0);
    for timeout in [4, 10, 30].map(Duration::from_secs) {
        for rate in RATES {
            for moment in 0..36 {
                let mut world = Lockstep::new(ServerConfig::default(), rate);
                let options = |builder: ClientBuilder| builder.session_timeout(timeout);
                let client = world.client(|builder| options(builder).lease(Lease::default()));
                let guard = world.hold(&client);
                world.look(|| drop(guard));
                // Each run ends at another moment of the ping interval.
                let end = timeout * 2 + timeout * moment / 36;
                world.run_until(end, ms(50));
                let guard = world.hold(&client);
                let lost = world.await_loss(&guard);
                let end = world.now + ms(100) * moment;
                world.run_until(end, ms(50));
                without += usize::from(world.look(|| guard.state()) == LockState::AtRisk);
                world.serve(|server| server.refuse_for(SECOND * 3600));
                let cut_off = CutOff { notices_after: SECOND * 10, unreported: SECOND };
                world.serve(|server| server.cut_off(guard.session(), cut_off));
                loop {
                    world.step(ms(50));
                    let is_over = world.serve(|server| server.stat(guard.path()).is_none());
                    let state = world.look(|| guard.state());
                    let case = format!("{timeout:?}, {rate}, {moment}, at {:?}", world.now);
                    assert!(!is_over || matches!(state, LockState::Lost(_)), "{case}: {state:?}");
                    if is_over && lost.is_finished() {
                        break;
                    }
                    assert!(world.now < end + timeout * 3, "{case}: never over");
                }
                world.look(|| drop(guard));
                cases += 1;
            }
        }
    }
    assert!(without * 2 > cases, "{without} of {cases} before there was a lease");
    eprintln!("{cases} cuts, {without} of them before there was a lease");
}
