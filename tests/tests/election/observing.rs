//! Following who leads: every change is reported, whatever happens to the observer, and nothing
//! else costs a request.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{Client, Election, FailedAction, Leader, Leaders, Leadership, LockError};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::Pace;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, create_directory, granted, granted_now, hold, ops, partition,
    release, requests_of, session, settle, spawn,
};
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};
use zk_testserver::{Action, Fault};

use crate::{campaign, campaigning, leader};

/// Connects an observer.
async fn observer(world: &World) -> (Client, Leaders) {
    let client = world.client(THIRD).await;
    let leaders = Election::of(&client).observe();
    (client, leaders)
}

/// Waits for the next report, which must not be an error.
async fn next(leaders: &mut Leaders) -> Option<Leader> {
    leaders.next().await.expect("nothing is refused")
}

/// Checks that a report is about this leadership.
fn check(report: Option<Leader>, leadership: &Leadership) {
    let leader = report.expect("one leads");
    assert_eq!(leader.path, leadership.path());
    assert_eq!(leader.fencing_token, leadership.fencing_token());
}

/// Returns whether the next report is still to come.
async fn is_waiting(leaders: &mut Leaders) -> bool {
    tokio::time::timeout(Duration::from_secs(5), leaders.next()).await.is_err()
}

#[test]
fn the_current_leader_is_reported_first_and_then_each_change() {
    run(async {
        let world = World::new();
        let (client, mut leaders) = observer(&world).await;
        assert_eq!(next(&mut leaders).await, None, "there is no directory");
        create_directory::<Election>(&world);
        assert!(is_waiting(&mut leaders).await, "an empty directory has no leader either");
        let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        let one = hold(&Election::with(&first, |builder| builder.identity("one"))).await;
        let report = next(&mut leaders).await;
        assert_eq!(report.as_ref().map(|leader| &leader.identity[..]), Some(&b"one"[..]));
        check(report, &one);
        let mut late = Election::of(&client).observe();
        check(next(&mut late).await, &one);

        let two = campaign(&world, &Election::of(&second)).await;
        assert!(is_waiting(&mut leaders).await, "the leader is the same");
        release(one).await;
        let two = granted(two).await;
        check(next(&mut leaders).await, &two);
        world.server.expire(two.session());
        assert_eq!(next(&mut leaders).await, None);
        assert_eq!(next(&mut late).await, None);
        drop(two);
        world.check_clean(&[&first, &second, &client]).await;
    });
}

#[test]
fn a_candidate_that_can_never_lead_is_not_reported() {
    run(async {
        let world = World::new();
        create_directory::<Election>(&world);
        // Each candidate gets the last number once the counter has reached its end, and fails.
        let last = format!("{LOCK}/{:032x}-latch-{}", 7, i32::MAX);
        world.server.admin_create(&last, b"", None);
        let (client, mut leaders) = observer(&world).await;
        assert_eq!(next(&mut leaders).await, None);
        assert_eq!(Election::of(&client).leader().await.expect("nothing is refused"), None);
        assert!(is_waiting(&mut leaders).await, "nobody leads");
        world.server.admin_delete(&last);
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn candidates_that_arrive_and_leave_cost_the_observer_nothing() {
    run(async {
        let world = World::new().pace(Pace::of(20));
        let (first, one) = leader(&world, FIRST).await;
        let second = world.client(SECOND).await;
        let (client, mut leaders) = observer(&world).await;
        check(next(&mut leaders).await, &one);
        let (list, read) = (OpCode::GET_CHILDREN, OpCode::GET_DATA);
        assert_eq!(ops(&requests_of(&world, session(&client))), [list, read]);
        world.server.clear_requests();
        let observing = spawn(async move {
            let report = next(&mut leaders).await;
            (report, leaders)
        });
        let election = Election::of(&second);
        let next_one = campaign(&world, &election).await;
        let others: Vec<_> = (0..10).map(|_| campaigning(&election)).collect();
        world.until("all are candidates", |_| world.contenders().len() == 12).await;
        others.into_iter().for_each(|candidate| candidate.abort());
        world.until("the others have left", |_| world.contenders().len() == 2).await;
        // The first check of the watch comes after 30 s.
        sleep_ms(25_000).await;
        assert_eq!(ops(&requests_of(&world, session(&client))), [], "{}", world.trace());

        release(one).await;
        let two = granted(next_one).await;
        let (report, leaders) = observing.await.expect("the task does not panic");
        check(report, &two);
        assert_eq!(ops(&requests_of(&world, session(&client))), [read, list, read]);
        drop(leaders);
        release(two).await;
        world.check_clean(&[&first, &second, &client]).await;
    });
}

/// Each leader that has left would otherwise leave a watch for a znode that never returns.
#[test]
fn leaders_that_have_left_leave_no_watches_behind() {
    run(async {
        let world = World::new().pace(Pace::of(3));
        let first = world.client(FIRST).await;
        let (_client, mut leaders) = observer(&world).await;
        let mut before = None;
        for _ in 0..20 {
            let leadership = hold(&Election::of(&first)).await;
            while next(&mut leaders).await.is_none() {}
            release(leadership).await;
            assert_eq!(next(&mut leaders).await, None);
            settle().await;
            let watches = world.server.watch_count();
            assert_eq!(*before.get_or_insert(watches), watches);
        }
    });
}

/// The leader changes while the observer has no connection, or no session.
#[test]
fn a_change_during_an_outage_of_the_observer_is_reported() {
    for expires in [false, true] {
        for has_next in [false, true] {
            run(async {
                let world = World::new();
                let (first, one) = leader(&world, FIRST).await;
                let second = world.client(SECOND).await;
                let (client, mut leaders) = observer(&world).await;
                check(next(&mut leaders).await, &one);
                let id = session(&client);
                world.server.refuse_for(Duration::from_millis(500));
                if expires {
                    world.server.expire(id);
                } else {
                    world.server.disconnect_all();
                }
                let two = if has_next {
                    let two = campaign(&world, &Election::of(&second)).await;
                    release(one).await;
                    Some(granted_now(&world, two).await)
                } else {
                    release(one).await;
                    None
                };
                match (next(&mut leaders).await, &two) {
                    (None, None) => {}
                    (report, Some(two)) => check(report, two),
                    (report, None) => panic!("{report:?} does not lead"),
                }
                assert_eq!(session(&client) != id, expires);
                assert!(is_waiting(&mut leaders).await);
                drop(two);
                world.check_clean(&[&first, &second, &client]).await;
            });
        }
    }
}

#[test]
fn an_outage_without_a_change_reports_nothing() {
    run(async {
        let world = World::new();
        let (first, one) = leader(&world, FIRST).await;
        let (client, mut leaders) = observer(&world).await;
        check(next(&mut leaders).await, &one);
        partition(&world, 500);
        assert!(is_waiting(&mut leaders).await);
        world.server.expire(session(&client));
        assert!(is_waiting(&mut leaders).await);
        release(one).await;
        assert_eq!(next(&mut leaders).await, None);
        world.check_clean(&[&first, &client]).await;
    });
}

#[test]
fn a_next_that_is_dropped_at_any_time_loses_nothing() {
    run(async {
        let world = World::new().pace(Pace::of(3));
        let first = world.client(FIRST).await;
        let (client, mut leaders) = observer(&world).await;
        let election = Election::of(&first);
        let leading = async {
            for _ in 0..20 {
                let leadership = hold(&election).await;
                sleep_ms(7).await;
                release(leadership).await;
                sleep_ms(3).await;
            }
            hold(&election).await
        };
        let (is_over, last) = (Cell::new(false), Cell::new(None));
        let observing = async {
            while !is_over.get() {
                // Dropped after one poll, and then after some time.
                for patience in [0, 1] {
                    let report =
                        tokio::time::timeout(Duration::from_millis(patience), leaders.next());
                    if let Ok(report) = report.await {
                        last.set(Some(report.expect("nothing is refused")));
                    }
                }
            }
        };
        let leading = async {
            let leadership = leading.await;
            sleep_ms(100).await;
            is_over.set(true);
            leadership
        };
        let ((), leadership) = tokio::join!(observing, leading);
        check(last.take().expect("something was reported"), &leadership);
        release(leadership).await;
        world.check_clean(&[&first, &client]).await;
    });
}

#[test]
fn a_refusal_is_an_error_and_the_stream_continues() {
    run(async {
        let world = World::new();
        let (first, one) = leader(&world, FIRST).await;
        let (client, mut leaders) = observer(&world).await;
        for op in [OpCode::GET_CHILDREN, OpCode::GET_DATA] {
            let refuse = Action::Error(ErrorCode::NO_AUTH);
            world.server.inject(at_op(session(&client), op, refuse));
            let refused = leaders.next().await;
            let Err(LockError::Refused { code, action, path }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(code, ErrorCode::NO_AUTH);
            let (expected, at) = if op == OpCode::GET_CHILDREN {
                (FailedAction::List, LOCK)
            } else {
                (FailedAction::Read, one.path())
            };
            assert_eq!((action, path.as_str()), (expected, at));
        }
        check(next(&mut leaders).await, &one);
        let other = format!("{LOCK}/a-lock-0000000000");
        world.server.admin_create(&other, b"", None);
        release(one).await;
        let mixed = LockError::MixedKinds { path: other.clone() };
        assert_eq!(leaders.next().await, Err(mixed));
        assert!(world.server.admin_delete(&other));
        assert_eq!(next(&mut leaders).await, None);
        world.check_clean(&[&first, &client]).await;
    });
}

/// Two leaders follow each other while the connections of the observer are cut. It must report
/// growing tokens, and finally the second leader.
#[test]
fn an_observer_survives_every_pair_of_cuts() {
    let session_of_observer = Some(session_of_first(THIRD));
    let mut enumeration = Enumeration::new("observe", session_of_observer);
    enumeration.run(&|faults: Vec<Fault>| {
        run(async {
            let world = World::new();
            let (client, mut leaders) = observer(&world).await;
            let (first, one) = leader(&world, FIRST).await;
            let second = world.client(SECOND).await;
            world.inject(faults);
            let leading = async {
                let two = campaign(&world, &Election::of(&second)).await;
                sleep_ms(1_000).await;
                release(one).await;
                granted(two).await
            };
            let observing = async {
                let mut tokens = Vec::new();
                // The server refuses connections for less than a second.
                while let Ok(report) =
                    tokio::time::timeout(Duration::from_secs(4), next(&mut leaders)).await
                {
                    tokens.push(report.map(|leader| leader.fencing_token));
                }
                tokens
            };
            let (two, tokens) = tokio::join!(leading, observing);
            let last = Some(Some(two.fencing_token()));
            assert_eq!(tokens.last().copied(), last, "{tokens:?}\n{}", world.trace());
            release(two).await;
            let leaders: Vec<_> = tokens.iter().flatten().collect();
            assert!(leaders.is_sorted_by(|a, b| a < b), "{tokens:?}\n{}", world.trace());
            world.check_clean(&[&client, &first, &second]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(25, 400), "{enumeration:?}");
}

/// Reports never go back, although the observer's session moves between members that lag, and ends.
#[test]
fn an_observer_that_moves_between_members_that_lag_reports_no_leader_twice() {
    let mut reports = 0;
    for seed in 0..40 {
        run(async {
            let mut random = SplitMix64::new(seed);
            let world = World::lagging(seed);
            let candidate = world.client(FIRST).await;
            let election = Election::of(&candidate);
            let member = Arc::new(AtomicUsize::new(0));
            let client = world.moving_client(THIRD, &member).await;
            let mut leaders = Election::of(&client).observe();
            let mut leadership = None;
            let mut newest = None;
            for _ in 0..80 {
                match random.below(6) {
                    0..3 => match leadership.take() {
                        Some(held) => release(held).await,
                        None => leadership = Some(hold(&election).await),
                    },
                    3..5 => {
                        member.store(random.below(3) as usize, Ordering::SeqCst);
                        world.server.disconnect_all();
                    }
                    _ if random.below(8) == 0 => {
                        client.session_id().into_iter().for_each(|own| world.server.expire(own));
                    }
                    _ => {}
                }
                let time = Duration::from_millis(random.below(200));
                while let Ok(report) = tokio::time::timeout(time, next(&mut leaders)).await {
                    let Some(leader) = report else { continue };
                    let token = Some(leader.fencing_token);
                    assert!(token > newest, "{token:?} behind {newest:?}\n{}", world.trace());
                    newest = token;
                    reports += 1;
                }
            }
        });
    }
    assert!(reports > 300, "{reports} reports");
}
