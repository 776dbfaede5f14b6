//! More permits than a waiter watches contenders: it counts the changes of the directory instead.

#![expect(clippy::indexing_slicing, reason = "clients are known by their index")]

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Client, ErrorCode, LockState, PermitGuard, Semaphore};
use zk_session::{SessionState, WatcherType};
use zk_tests::case::LOCK;
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND, granted, granted_now, release, session, settle, spawn};
use zk_tests::world::{World, run, run_within, sleep_ms};
use zk_testserver::{Action, At, Fault};

use crate::{Waiter, create_directory, hold, queue_up, semaphore, stored};

/// Makes the server refuse persistent watches this many times, as servers before 3.6 do.
fn refuse_persistent_watches(world: &World, times: usize) {
    for _ in 0..times {
        let unknown = Action::Error(ErrorCode::UNIMPLEMENTED);
        world.server.inject(Fault::new(At::op(OpCode::ADD_WATCH), unknown));
    }
}

fn is_connected(client: &Client) -> bool {
    client.status().state == SessionState::Connected
}

/// Contenders that hold or wait.
struct Contenders {
    clients: Vec<Client>,
    holding: Vec<PermitGuard>,
    waiting: Vec<Waiter>,
    permits: usize,
    /// The greatest number of permits since the last look.
    most: usize,
}

impl Contenders {
    fn semaphore(&self, random: &mut SplitMix64) -> Semaphore {
        let client = &self.clients[random.below(self.clients.len() as u64) as usize];
        Semaphore::builder(client, LOCK)
            .and_then(|it| it.permits(17).accept_stored_permits().watch_check(None).build())
            .expect("the options are legal")
    }

    async fn act(&mut self, world: &World, random: &mut SplitMix64) {
        match random.below(40) {
            0..18 => {
                let few = self.holding.len() + self.waiting.len() < 24;
                for _ in 0..if few { 4 } else { 1 } {
                    let semaphore = self.semaphore(random);
                    self.waiting.push(spawn(IntoFuture::into_future(semaphore.acquire())));
                }
            }
            18..28 if !self.holding.is_empty() => {
                let place = random.below(self.holding.len() as u64) as usize;
                // Its session may end at the same time.
                let released = self.holding.swap_remove(place).release().await;
                assert!(released.is_ok(), "{released:?}");
            }
            28..31 if !self.waiting.is_empty() => {
                let place = random.below(self.waiting.len() as u64) as usize;
                self.waiting.swap_remove(place).abort();
            }
            31..34 => {
                let client = &self.clients[random.below(self.clients.len() as u64) as usize];
                if let Some(session) = client.session_id() {
                    world.server.expire(session);
                }
            }
            34..37 => {
                self.permits = 17 + random.below(6) as usize;
                self.most = self.most.max(self.permits);
                let set = self.semaphore(random).set_permits(self.permits as u32).await;
                set.expect("it may be written");
            }
            37..40 => {
                world.server.refuse_for(Duration::from_millis(random.below(300)));
                world.server.disconnect_all();
            }
            _ => {}
        }
    }

    /// Takes note of what was granted and lost.
    async fn look(&mut self) {
        for waiter in std::mem::take(&mut self.waiting) {
            if waiter.is_finished() {
                self.holding.push(granted(waiter).await);
            } else {
                self.waiting.push(waiter);
            }
        }
        self.holding.retain(|guard| !matches!(guard.state(), LockState::Lost(_)));
    }
}

/// After each step, exactly as many contenders hold permits as there are permits, or all of them do;
/// never more, except after a reduction, which takes no permit away.
#[test]
fn with_many_permits_no_permit_is_free_while_a_contender_waits_whatever_happens() {
    let (mut steps, mut waits) = (0, 0);
    for seed in 0..48 {
        run_within(Duration::from_secs(600), async {
            let mut random = SplitMix64::new(seed);
            let world = World::new().pace(Pace::of(2_000));
            create_directory(&world);
            world.server.admin_set_data(LOCK, b"17");
            if seed % 3 == 0 {
                refuse_persistent_watches(&world, 1_000);
            }
            let mut clients = Vec::new();
            for number in 0..4 {
                clients.push(world.client(number).await);
            }
            let (holding, waiting) = (Vec::new(), Vec::new());
            let mut all = Contenders { clients, holding, waiting, permits: 17, most: 17 };
            for _ in 0..90 {
                all.act(&world, &mut random).await;
                sleep_ms(random.below(3)).await;
                if random.below(3) > 0 {
                    // The next step meets contenders that are in the middle of something.
                    continue;
                }
                sleep_ms(1_000).await;
                while !all.clients.iter().all(is_connected) {
                    sleep_ms(1_000).await;
                }
                sleep_ms(1_000).await;
                let before = all.holding.len();
                all.look().await;
                let (held, contenders) = (all.holding.len(), world.contenders().len());
                let may_hold = contenders.min(all.permits);
                let may_keep = before.max(all.most);
                let is_right = held == may_hold || held > all.permits && held <= may_keep;
                all.most = all.permits;
                assert!(
                    is_right,
                    "seed {seed}: {held} of {contenders} hold {} permits, {before} before\n{}",
                    all.permits,
                    world.trace()
                );
                steps += 1;
                waits += usize::from(contenders > held);
            }
            let Contenders { clients, holding, waiting, .. } = all;
            waiting.iter().for_each(|waiter| waiter.abort());
            drop((holding, waiting));
            world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
        });
    }
    assert!(steps > 1_000 && waits > 300, "{steps} steps, {waits} with waiters");
}

/// One transaction may remove several holders: the end of a session, or a multi.
#[test]
fn the_end_of_a_session_with_many_permits_frees_all_of_them_at_once() {
    for is_old in [false, true] {
        run(async {
            let world = World::new().pace(Pace::of(500));
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            let crowd = semaphore(&one, 20);
            let mut guards = Vec::new();
            for _ in 0..20 {
                guards.push(hold(&crowd).await);
            }
            if is_old {
                refuse_persistent_watches(&world, 100);
            }
            let mut waiters = Vec::new();
            for _ in 0..20 {
                waiters.push(queue_up(&world, &semaphore(&two, 20)).await);
            }
            sleep_ms(1_000).await;
            world.server.expire(session(&one));
            let mut held = Vec::new();
            for waiter in waiters {
                held.push(granted_now(&world, waiter).await);
            }
            drop((guards, held));
            world.check_clean(&[&one, &two]).await;
        });
    }
}

/// An increase lets in as many as there are new permits, and a reduction below the limit of watches
/// changes what the waiters watch.
#[test]
fn a_change_of_the_number_reaches_those_that_wait_for_many_permits() {
    run(async {
        let world = World::new().pace(Pace::of(500));
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let mut changing = semaphore(&one, 20);
        let mut guards = Vec::new();
        for _ in 0..20 {
            guards.push(hold(&changing).await);
        }
        let mut waiters = std::collections::VecDeque::new();
        for _ in 0..6 {
            waiters.push_back(queue_up(&world, &semaphore(&two, 20)).await);
        }
        changing.set_permits(22).await.expect("it may be written");
        for _ in 0..2 {
            guards.push(granted_now(&world, waiters.pop_front().expect("it waits")).await);
        }
        // Those that wait watch contenders from now on.
        changing.set_permits(2).await.expect("it may be written");
        while guards.len() >= 2 {
            settle().await;
            assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
            release(guards.swap_remove(guards.len() / 2)).await;
        }
        guards.push(granted_now(&world, waiters.pop_front().expect("it waits")).await);
        changing.set_permits(30).await.expect("it may be written");
        for waiter in waiters {
            guards.push(granted_now(&world, waiter).await);
        }
        assert_eq!(stored(&world).as_deref(), Some("30"));
        drop(guards);
        world.check_clean(&[&one, &two]).await;
    });
}

/// Another part of the program removes the watches of the directory, or the server cannot set them
/// at first.
#[test]
fn a_waiter_whose_persistent_watch_is_lost_or_late_misses_no_release() {
    for is_removed in [true, false] {
        run(async {
            let world = World::new().pace(Pace::of(500));
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            let crowd = semaphore(&one, 17);
            let mut guards = Vec::new();
            for _ in 0..17 {
                guards.push(hold(&crowd).await);
            }
            if !is_removed {
                for _ in 0..4 {
                    let throttled = Action::Error(ErrorCode::THROTTLED_OP);
                    world.server.inject(Fault::new(At::op(OpCode::ADD_WATCH), throttled));
                }
            }
            let waiter = queue_up(&world, &semaphore(&two, 17)).await;
            let after = queue_up(&world, &semaphore(&two, 17)).await;
            if is_removed {
                two.remove_watches(LOCK, WatcherType::ANY).await.expect("a waiter has a watch");
                release(guards.remove(3)).await;
                guards.push(granted_now(&world, waiter).await);
            } else {
                // The first list after the watch shows what has happened until then.
                release(guards.remove(3)).await;
                sleep_ms(10_000).await;
                guards.push(granted_now(&world, waiter).await);
            }
            release(guards.remove(9)).await;
            guards.push(granted_now(&world, after).await);
            drop(guards);
            world.check_clean(&[&one, &two]).await;
        });
    }
}

/// A permit that is held needs no watch of the directory: a holder that has waited would receive an
/// event for each contender that comes or goes.
#[test]
fn a_holder_that_has_waited_receives_no_events_of_others() {
    run(async {
        let world = World::new().pace(Pace::of(500));
        let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
        let crowd = semaphore(&one, 17);
        let mut guards = Vec::new();
        for _ in 0..17 {
            guards.push(hold(&crowd).await);
        }
        let waiter = queue_up(&world, &semaphore(&two, 17)).await;
        release(guards.remove(3)).await;
        let guard = granted_now(&world, waiter).await;
        sleep_ms(1_000).await;
        let own = session(&two);
        let events =
            || world.server.events().into_iter().filter(|event| event.session == own).count();
        let before = events();
        for held in guards {
            release(held).await;
        }
        assert_eq!(events(), before, "{}", world.trace());
        release(guard).await;
        world.check_clean(&[&one, &two]).await;
    });
}
