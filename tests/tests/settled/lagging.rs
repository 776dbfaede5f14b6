//! Sessions that move between members that lag, and that end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{Client, CreateMode, Outcome, SettledClient, SettledError};
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND, at_request};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{PATH, check_clean, create_directories, flush, settled};

/// What the callers of one kind of operation were told.
#[derive(Debug, Default)]
struct Told {
    applied: usize,
    unknown: usize,
    /// The results, each of which belongs to one call.
    results: Vec<String>,
}

impl Told {
    fn add<T>(
        &mut self,
        called: Result<T, SettledError>,
        result: impl FnOnce(T) -> Option<String>,
    ) {
        match called {
            Ok(found) => {
                self.applied += 1;
                self.results.extend(result(found));
            }
            Err(error) if error.outcome() == Outcome::NotApplied => panic!("{error}"),
            Err(_) => self.unknown += 1,
        }
    }

    /// Checks that as many operations were applied as the callers know of.
    #[track_caller]
    fn check(&self, applied: usize, world: &World) {
        let possible = self.applied..=self.applied + self.unknown;
        assert!(possible.contains(&applied), "{applied}, told {self:?}\n{}", world.trace());
        let unique: BTreeSet<_> = self.results.iter().collect();
        assert_eq!(unique.len(), self.results.len(), "{self:?}\n{}", world.trace());
    }
}

/// Writes a znode and creates sequential ones.
async fn work(settled: &SettledClient, seed: u64, writes: &mut Told, creates: &mut Told) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..12 {
        sleep_ms(random.below(60)).await;
        let written = settled.set_data(PATH, "same", None).await;
        writes.add(written, |stat| Some(stat?.version.0.to_string()));
        let job = settled.create("/data/job-", "same", CreateMode::PersistentSequential).await;
        creates.add(job, |job| Some(job.path?.to_string()));
    }
}

/// Moves the sessions, loses their requests or replies, and ends them now and then.
async fn disturb(world: &World, member: &AtomicUsize, clients: (&Client, &Client), seed: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..40 {
        sleep_ms(random.below(40)).await;
        let client = if random.below(2) == 0 { clients.0 } else { clients.1 };
        let Some(session) = client.session_id() else { continue };
        match random.below(16) {
            0 => world.server.expire(session),
            1..8 => {
                member.store(random.below(3) as usize, Ordering::SeqCst);
                world.server.disconnect_all();
            }
            _ => {
                let is_lost = random.below(2) == 0;
                let action = if is_lost { Action::CutBefore } else { Action::CutAfter };
                let mut cut = at_request(session, random.below(3) as usize, action);
                // Some outages are longer than the session timeout.
                let lasts_long = random.below(16) == 0;
                cut.refuse_for = lasts_long.then(|| Duration::from_secs(30));
                world.server.inject(cut);
            }
        }
    }
    std::future::pending().await
}

#[test]
fn what_callers_are_told_is_true_when_sessions_move_between_members_that_lag() {
    let (mut applied, mut unknown) = (0, 0);
    for seed in 0..60 {
        run(async {
            let world = World::lagging(seed).pace(Pace::of(60));
            create_directories(&world);
            world.server.admin_create(PATH, b"", None);
            let member = Arc::new(AtomicUsize::new(0));
            let one = world.moving_client(FIRST, &member).await;
            let two = world.moving_client(SECOND, &member).await;
            let (first, second) = (settled(&one), settled(&two));
            let (mut writes, mut creates) = (Told::default(), Told::default());
            let (mut others, mut jobs) = (Told::default(), Told::default());
            let working = async {
                tokio::join!(
                    work(&first, seed + 1_000, &mut writes, &mut creates),
                    work(&second, seed + 2_000, &mut others, &mut jobs)
                )
            };
            tokio::select! {
                _ = working => {}
                () = disturb(&world, &member, (&one, &two), seed) => {}
            }
            sleep_ms(10_000).await;
            flush(&world).await;
            for (told, more) in [(&mut writes, others), (&mut creates, jobs)] {
                told.applied += more.applied;
                told.unknown += more.unknown;
                told.results.extend(more.results);
                (applied, unknown) = (applied + told.applied, unknown + told.unknown);
            }
            let version = world.server.stat(PATH).expect("it exists").version.0;
            writes.check(version as usize, &world);
            let children = world.server.children("/data").expect("it exists");
            creates.check(children.len() - 1, &world);
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
        });
    }
    eprintln!("{applied} operations were applied, {unknown} are unknown");
    assert!(applied > 1_000 && unknown > 20, "{applied} {unknown}");
}
