//! Sessions that move between members that lag, and that end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use zk_recipes::{CreateMode, Outcome, SettledClient, SettledError};
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND};
use zk_tests::world::{World, run, sleep_ms};

use crate::{PATH, check_clean, create_directories, disturb, flush, settled};

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
                () = disturb(world.clone(), member, vec![one.clone(), two.clone()], seed) => {}
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

/// A new session begins with a transaction, so the server that reports it has applied everything that
/// the client has seen before.
#[test]
fn states_do_not_get_older_when_sessions_move_between_members_that_lag_and_end() {
    let (mut sessions, mut states) = (0, 0);
    for seed in 0..60 {
        run(async {
            let world = World::lagging(seed).pace(Pace::of(60));
            create_directories(&world);
            world.server.admin_create(PATH, b"0", None);
            let member = Arc::new(AtomicUsize::new(0));
            let client = world.moving_client(FIRST, &member).await;
            let mut random = SplitMix64::new(seed);
            let mut changes = settled(&client).changes(PATH).expect("the path is valid");
            let (mut last, mut session) = (-1, client.session_id());
            let following = async {
                while last < 60 {
                    // A member that lags may not have the znode at first.
                    let found = changes.next().await.expect("it may be read");
                    let version = found.map_or(-1, |(_, stat)| stat.version.0);
                    assert!(version >= last, "{last} {version}\n{}", world.trace());
                    (last, states) = (version, states + 1);
                    let now = client.session_id().or(session);
                    sessions += usize::from(now != session);
                    session = now;
                }
            };
            let writing = async {
                for version in 1..=60 {
                    sleep_ms(random.below(100)).await;
                    world.server.admin_set_data(PATH, version.to_string().as_bytes());
                    let ended = (random.below(6) == 0).then(|| client.session_id()).flatten();
                    ended.into_iter().for_each(|session| world.server.expire(session));
                }
            };
            tokio::select! {
                _ = async { tokio::join!(following, writing) } => {}
                () = disturb(world.clone(), member, vec![client.clone()], seed) => {}
            }
        });
    }
    eprintln!("{states} states in {sessions} more sessions");
    assert!(states > 250 && sessions > 100, "{states} {sessions}");
}
