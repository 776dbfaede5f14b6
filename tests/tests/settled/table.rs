//! All operations, under all single cuts and pairs of cuts, late commits, ends of the session, and
//! members that lag.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_tests::meter::Pace;
use zk_tests::scene::{FIRST, at_request, spawn};
use zk_tests::world::{Enumeration, World, run, sleep_ms};
use zk_testserver::{Action, TestServer};

use crate::rows::{Told, client, config, rows};
use crate::{MARKERS, OUTAGE, disturb, first_session, flush};

#[test]
fn every_operation_settles_under_every_single_cut_and_every_pair_of_cuts() {
    for (number, row) in rows().into_iter().enumerate() {
        let name = format!("{} ({number})", row.name);
        let mut enumeration = Enumeration::new(name, first_session()).without_refusals_in_pairs();
        enumeration.run(&|faults| {
            run(async {
                let world = World::with(config());
                let scene = row.scene(world.clone(), client(&world).await).await;
                world.inject(faults);
                let told = row.run(&scene).await;
                let is_settled = matches!(told, Told::Applied | Told::InForce);
                assert!(is_settled, "{}: {told:?}\n{}", row.name, world.trace());
                flush(&world).await;
                row.check(&told, &world);
                let client = scene.client.clone();
                drop(scene);
                // What was created may belong to the session, but markers may not stay.
                let has_markers = |server: &TestServer| {
                    server.children(MARKERS).is_some_and(|names| !names.is_empty())
                };
                world.until("no marker is left", |server| !has_markers(server)).await;
                drop(client);
                world.ran()
            })
        });
        assert!(enumeration.is_complete(2, 4), "{enumeration:?}");
    }
}

/// The next session may go on with what was certainly not applied, and with reads.
#[test]
fn a_session_that_ends_in_between_is_told_as_it_is() {
    let mut unknown = 0;
    for row in rows() {
        for action in [Action::CutBefore, Action::CutAfter] {
            for nth in 0.. {
                let has_fired = run(async {
                    let world = World::with(config());
                    let scene = row.scene(world.clone(), client(&world).await).await;
                    let session = scene.client.session_id().expect("connected");
                    let mut cut = at_request(session, nth, action.clone());
                    cut.refuse_for = Some(OUTAGE);
                    world.server.inject(cut);
                    let told = row.run(&scene).await;
                    let has_fired = world.server.pending_faults().is_empty();
                    world.server.clear_faults();
                    flush(&world).await;
                    row.check(&told, &world);
                    if row.is_read() || !has_fired {
                        assert_eq!(told, Told::Applied, "{}\n{}", row.name, world.trace());
                    }
                    // What belongs to no session goes on in the next one, if it was not applied.
                    let has_failed = matches!(told, Told::NotApplied(_));
                    assert!(row.is_bound || !has_failed, "{}: {told:?}", row.name);
                    let is_unknown = matches!(told, Told::Unknown(_));
                    assert!(!(is_unknown && row.has_version()), "{}: {told:?}", row.name);
                    unknown += usize::from(is_unknown);
                    has_fired
                });
                if !has_fired {
                    break;
                }
            }
        }
    }
    assert!(unknown >= 20, "{unknown}");
}

#[test]
fn what_is_told_is_true_when_the_session_moves_between_members_that_lag() {
    let (mut applied, mut unknown) = (0, 0);
    for seed in 0..12 {
        for row in rows() {
            let told = run(async {
                let lag = |most: u64| Duration::from_millis(seed * 97 % most);
                let config = config().members(3).lag(lag(700)).unapplied(lag(500));
                let world = World::with(config).pace(Pace::of(60));
                let member = Arc::new(AtomicUsize::new(0));
                let transport = Arc::clone(&member);
                let connector =
                    world.server.connector_by(move |_| transport.load(Ordering::SeqCst));
                let client = world.client_with(FIRST, |builder| {
                    builder.auth("digest", "super:pw").transport(connector)
                });
                let scene = row.scene(world.clone(), client.await).await;
                let session = scene.client.session_id().expect("connected");
                if seed % 2 == 0 {
                    let is_lost = seed % 4 == 0;
                    let action = if is_lost { Action::CutBefore } else { Action::CutAfter };
                    let mut cut = at_request(session, (seed / 4 % 2) as usize, action);
                    cut.refuse_for = (seed % 3 == 0).then_some(OUTAGE);
                    world.server.inject(cut);
                }
                let trouble = disturb(world.clone(), member, vec![scene.client.clone()], seed);
                let trouble = spawn(trouble);
                let told = row.run(&scene).await;
                trouble.abort();
                world.server.clear_faults();
                sleep_ms(10_000).await;
                flush(&world).await;
                row.check(&told, &world);
                told
            });
            applied += usize::from(matches!(told, Told::Applied | Told::InForce));
            unknown += usize::from(matches!(told, Told::Unknown(_)));
        }
    }
    eprintln!("{applied} operations were applied, {unknown} are unknown");
    assert!(applied > 300 && unknown > 3, "{applied} {unknown}");
}
