//! Downgrades that fail: the writer still holds the lock, or the lock is lost, and the error says
//! which.

use std::time::Duration;

use jute_codec::{EventType, OpCode, Request, Response, Stat, Zxid};
use zk_recipes::machine::{Input, Repeating, SessionView, Step, WatchNumber};
use zk_recipes::machines::{
    Changed, Downgrade, LockOptions, NameForm, NotChanged, QueueNames, QueueProfile, Znode,
};
use zk_recipes::{
    Acl, AtRiskPolicy, DowngradeError, ErrorCode, LockError, LockState, LostReason, OpError,
    Outcome, Permissions, Role, RwLock, SessionId, Time, WriteGuard,
};
use zk_session::recipe::Reply;
use zk_tests::case::LOCK;
use zk_tests::scene::{
    FIRST, SECOND, at_op, at_request, partition, pauses_ms, place_of, release, session, spawn,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::{Action, At, Fault, ServerConfig};

use crate::Access::{Read, Write};
use crate::{granted, queue_up, writer};

/// Asserts that a downgrade was refused with this code, and returns the writer's guard.
#[track_caller]
fn refused(ended: Result<impl Sized, DowngradeError>, code: ErrorCode) -> WriteGuard {
    let Err(DowngradeError { error, guard, .. }) = ended else { panic!("it was not refused") };
    assert!(matches!(error, LockError::Refused { code: told, .. } if told == code), "{error:?}");
    guard.expect("the lock is still held")
}

#[track_caller]
fn check_lost(ended: Result<impl Sized, DowngradeError>, reason: LostReason) {
    let Err(DowngradeError { error, guard, .. }) = ended else { panic!("it is not lost") };
    assert_eq!(error, LockError::Lost(reason));
    assert!(guard.is_none(), "there is nothing to give back");
}

#[test]
fn a_refused_downgrade_gives_the_writer_back() {
    for code in [ErrorCode::NO_AUTH, ErrorCode::QUOTA_EXCEEDED, ErrorCode::UNIMPLEMENTED] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            let path = guard.path().to_owned();
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::rw_lock(&other), Read).await;
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            let guard = refused(guard.downgrade().await, code);
            assert_eq!((guard.state(), guard.path()), (LockState::Held, path.as_str()));
            guard.validate().await.expect("the lock is held");
            sleep_ms(1_000).await;
            assert!(!waiter.is_finished(), "{}", world.trace());
            // The client watches the writer's znode as before, and a second downgrade works.
            let reading = guard.downgrade().await.expect("nothing is in the way");
            granted(waiter).await.release().await;
            release(reading).await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn the_writer_that_was_given_back_is_watched_and_released() {
    for is_deleted in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            sleep_ms(500).await;
            let code = ErrorCode::NO_AUTH;
            world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            let guard = refused(guard.downgrade().await, code);
            sleep_ms(10).await;
            if is_deleted {
                assert!(world.server.admin_delete(guard.path()));
                sleep_ms(1).await;
                assert_eq!(guard.state(), LockState::Lost(LostReason::ZnodeDeleted));
                drop(guard);
            } else {
                release(guard).await;
            }
            world.check_clean(&[&client]).await;
        });
    }
}

/// The directory no longer allows creates, so the server's own check refuses the downgrade.
#[test]
fn a_directory_that_was_closed_refuses_the_reader() {
    for is_cut in [false, true] {
        run(async {
            let world = World::new();
            let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
            let (client, guard) = writer(&world, FIRST).await;
            let acl = vec![
                Acl::new(Permissions::ALL, "auth", ""),
                Acl::new(Permissions::READ | Permissions::DELETE, "world", "anyone"),
            ];
            owner.set_acl(LOCK, acl, None).await.expect("it was open");
            if is_cut {
                let cut = at_op(session(&client), OpCode::MULTI, Action::CutBefore);
                world.server.inject(cut);
            }
            let guard = refused(guard.downgrade().await, ErrorCode::NO_AUTH);
            assert_ne!(guard.state(), LockState::AtRisk);
            guard.validate().await.expect("the lock is held");
            release(guard).await;
            world.check_clean(&[&client, &owner]).await;
        });
    }
}

/// The downgrade is applied and its reply is lost. The retry is refused for another reason.
#[test]
fn a_directory_closed_behind_a_lost_reply_is_no_refusal() {
    run(async {
        let world = World::new();
        let owner = world.client_with(SECOND, |builder| builder.auth("digest", "a:b")).await;
        let (client, guard) = writer(&world, FIRST).await;
        let cut = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
        world.server.inject(cut.refuse_for(Duration::from_millis(300)));
        let downgrading = spawn(guard.downgrade());
        sleep_ms(100).await;
        let acl = vec![
            Acl::new(Permissions::ALL, "auth", ""),
            Acl::new(Permissions::READ | Permissions::DELETE, "world", "anyone"),
        ];
        owner.set_acl(LOCK, acl, None).await.expect("it was open");
        let reading = downgrading.await.expect("the task does not panic").expect("it has happened");
        assert_eq!(place_of(&world, session(&client)), reading.path());
        reading.validate().await.expect("the lock is held");
        release(reading).await;
        world.check_clean(&[&client, &owner]).await;
    });
}

/// Another znode has the name of the reader.
#[test]
fn a_name_that_is_taken_refuses_the_reader() {
    for is_cut in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            let other = world.client(SECOND).await;
            let taken = guard.path().replace(Write.mark(), Read.mark());
            world.server.admin_create(&taken, b"", Some(session(&other)));
            if is_cut {
                let cut = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
                world.server.inject(cut);
            }
            let guard = refused(guard.downgrade().await, ErrorCode::NODE_EXISTS);
            guard.validate().await.expect("the lock is held");
            release(guard).await;
            assert!(world.server.admin_delete(&taken), "it is not ours to delete");
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn an_overloaded_server_is_asked_again_after_a_pause() {
    for code in [
        ErrorCode::THROTTLED_OP,
        ErrorCode::NOT_READ_ONLY,
        ErrorCode::SYSTEM_ERROR,
        ErrorCode::REQUEST_TIMEOUT,
        ErrorCode(-999),
    ] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            for _ in 0..10 {
                world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Error(code)));
            }
            let before = client.now();
            let reading = guard.downgrade().await.expect("the lock is held");
            let waited = client.now().saturating_since(before).as_millis();
            assert_eq!(world.server.pending_faults(), []);
            assert!(pauses_ms(10).contains(&waited), "{code}: 10 errors in {waited} ms");
            release(reading).await;
            world.check_clean(&[&client]).await;
        });
    }
}

#[test]
fn a_writer_whose_znode_was_deleted_before_is_lost() {
    for (after, is_cut) in [(0, false), (500, false), (0, true)] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            sleep_ms(after).await;
            let lost = spawn(guard.lost());
            assert!(world.server.admin_delete(guard.path()));
            if is_cut {
                let cut = at_op(session(&client), OpCode::MULTI, Action::CutAfter);
                world.server.inject(cut);
            }
            check_lost(guard.downgrade().await, LostReason::ZnodeDeleted);
            assert_eq!(lost.await.expect("the task does not panic"), LostReason::ZnodeDeleted);
            assert_eq!(world.contenders(), [""; 0]);
            world.check_clean(&[&client]).await;
        });
    }
}

/// The downgrade is applied, its reply is lost, and the reader's znode is gone when the client
/// retries the downgrade.
#[test]
fn a_reader_deleted_behind_a_lost_reply_is_lost() {
    for is_directory in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            let id = session(&client);
            let cut = at_op(id, OpCode::MULTI, Action::CutAfter);
            world.server.inject(cut.refuse_for(Duration::from_millis(300)));
            let downgrading = spawn(guard.downgrade());
            sleep_ms(100).await;
            assert!(world.server.admin_delete(&place_of(&world, id)));
            assert!(!is_directory || world.server.admin_delete(LOCK));
            check_lost(
                downgrading.await.expect("the task does not panic"),
                LostReason::ZnodeDeleted,
            );
            world.check_clean(&[&client]).await;
        });
    }
}

/// The session ends at the retry, at the read that decides the outcome, or in between.
#[test]
fn the_end_of_the_session_at_any_request_behind_a_lost_reply_loses_the_lock() {
    let mut points = 0;
    for cut in [Action::CutBefore, Action::CutAfter] {
        for nth in 1.. {
            let fired = run(async {
                let world = World::new();
                let (client, guard) = writer(&world, FIRST).await;
                let id = session(&client);
                world.server.inject(at_op(id, OpCode::MULTI, cut.clone()));
                world.server.inject(at_request(id, nth, Action::Expire));
                let ended = guard.downgrade().await;
                let fired = world.server.pending_faults().is_empty();
                world.server.clear_faults();
                if fired {
                    check_lost(ended, LostReason::SessionExpired);
                } else {
                    release(ended.expect("the lock is held")).await;
                }
                world.check_clean(&[&client]).await;
                fired
            });
            if !fired {
                break;
            }
            points += 1;
        }
    }
    assert!(points >= 3, "only {points} points");
}

#[test]
fn a_guard_that_is_lost_already_sends_nothing() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        sleep_ms(500).await;
        assert!(world.server.admin_delete(guard.path()));
        sleep_ms(100).await;
        world.server.clear_requests();
        check_lost(guard.downgrade().await, LostReason::ZnodeDeleted);
        assert_eq!(world.server.requests(), []);
        world.check_clean(&[&client]).await;
    });
}

/// The clock jumps, and no task has run when the downgrade begins.
#[test]
fn a_guard_whose_deadline_has_passed_sends_nothing() {
    use std::pin::pin;
    use std::task::{Context, Waker};
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        sleep_ms(200).await;
        world.server.clear_requests();
        let downgrading = {
            let mut jump = pin!(tokio::time::advance(zk_tests::world::SESSION_TIMEOUT));
            let polled = jump.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "others have not run yet");
            assert_eq!(guard.state(), LockState::Lost(LostReason::DeadlinePassed));
            let downgrading = guard.downgrade();
            jump.await;
            downgrading
        };
        check_lost(downgrading.await, LostReason::DeadlinePassed);
        world.check_clean(&[&client]).await;
        let multis = world.server.requests().into_iter().filter(|r| r.op == OpCode::MULTI);
        assert_eq!(multis.count(), 0, "{}", world.trace());
    });
}

#[test]
fn the_end_of_the_session_during_a_downgrade_loses_the_lock() {
    for is_swapped in [false, true] {
        run(async {
            let world = World::new();
            let (client, guard) = writer(&world, FIRST).await;
            let dead = session(&client);
            let other = world.client(SECOND).await;
            let waiter = queue_up(&world, &World::rw_lock(&other), Write).await;
            if is_swapped {
                world.server.inject(at_op(dead, OpCode::MULTI, Action::CutAfter));
                world.server.inject(Fault::new(At::connect(0), Action::SwapSession));
            } else {
                world.server.inject(at_op(dead, OpCode::MULTI, Action::Expire));
            }
            check_lost(guard.downgrade().await, LostReason::SessionExpired);
            assert_eq!(world.server.pending_faults(), []);
            let next = granted(waiter).await;
            assert!(!world.server.sessions().contains(&dead));
            next.release().await;
            world.check_clean(&[&client, &other]).await;
        });
    }
}

#[test]
fn a_deadline_that_passes_during_a_downgrade_loses_the_lock() {
    for is_applied in [false, true] {
        run(async {
            let world = World::with(ServerConfig::default().tick(Duration::from_secs(5)));
            let (client, guard) = writer(&world, FIRST).await;
            let action = if is_applied { Action::CutAfter } else { Action::CutBefore };
            let cut = at_op(session(&client), OpCode::MULTI, action);
            world.server.inject(cut.refuse_for(Duration::from_millis(10_500)));
            check_lost(guard.downgrade().await, LostReason::DeadlinePassed);
            let left = place_of(&world, session(&client));
            assert_eq!(left.contains(Read.mark()), is_applied, "{left}");
            world.check_clean(&[&client]).await;
            assert_eq!(world.server.sessions().len(), 1, "the session has survived");
        });
    }
}

#[test]
fn a_downgrade_into_a_black_hole_ends_with_the_deadline() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::Freeze));
        world.server.refuse_for(Duration::from_secs(30));
        let before = client.now();
        check_lost(guard.downgrade().await, LostReason::DeadlinePassed);
        let waited = client.now().saturating_since(before);
        assert!(waited <= zk_tests::world::SESSION_TIMEOUT, "{waited:?}");
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn a_client_closed_during_a_downgrade_loses_the_lock() {
    run(async {
        let world = World::new();
        let (client, guard) = writer(&world, FIRST).await;
        partition(&world, 1_000);
        sleep_ms(10).await;
        let downgrading = spawn(guard.downgrade());
        sleep_ms(100).await;
        client.close().await;
        check_lost(downgrading.await.expect("the task does not panic"), LostReason::Closed);
        world.until("the session ends", |server| server.ephemerals().is_empty()).await;
    });
}

#[test]
fn a_lock_that_must_not_be_at_risk_is_lost_by_a_cut_during_a_downgrade() {
    for action in [Action::CutBefore, Action::CutAfter] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let lock = RwLock::builder(&client, LOCK)
                .and_then(|lock| lock.at_risk(AtRiskPolicy::TreatAsLost).build())
                .expect("the options are legal");
            let guard = lock.write().await.expect("the lock is free");
            world.server.inject(at_op(session(&client), OpCode::MULTI, action));
            check_lost(guard.downgrade().await, LostReason::AtRisk);
            world.check_clean(&[&client]).await;
        });
    }
}

/// A client that may not read the znodes learns nothing from the read that decides the outcome. The
/// name of the reader's znode is taken, and only the client's own lost request can have created it,
/// so the client concludes that the downgrade was applied.
#[test]
fn a_lost_reply_is_resolved_without_the_right_to_read() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let acl = vec![Acl::new(Permissions::WRITE, "world", "anyone")];
        let lock = RwLock::builder(&client, LOCK)
            .and_then(|lock| lock.acl(acl).build())
            .expect("the options are legal");
        let guard = lock.write().await.expect("the lock is free");
        world.server.inject(at_op(session(&client), OpCode::MULTI, Action::CutAfter));
        let reading = guard.downgrade().await.expect("it has happened");
        assert_eq!(place_of(&world, session(&client)), reading.path());
        release(reading).await;
        world.check_clean(&[&client]).await;
    });
}

/// The retry, and the read that decides the outcome, also fail.
#[test]
fn errors_behind_a_lost_reply_are_survived() {
    let mut points = 0;
    for code in [ErrorCode::THROTTLED_OP, ErrorCode::SYSTEM_ERROR, ErrorCode::SESSION_MOVED] {
        for cut in [Action::CutAfter, Action::CutBefore] {
            for nth in 1.. {
                let fired = run(async {
                    let world = World::new();
                    let (client, guard) = writer(&world, FIRST).await;
                    let id = session(&client);
                    world.server.inject(at_op(id, OpCode::MULTI, cut.clone()));
                    world.server.inject(at_request(id, nth, Action::Error(code)));
                    let reading = guard.downgrade().await.expect("the lock is held");
                    let fired = world.server.pending_faults().is_empty();
                    world.server.clear_faults();
                    assert_eq!(place_of(&world, id), reading.path(), "{code} at {nth}");
                    release(reading).await;
                    world.check_clean(&[&client]).await;
                    fired
                });
                if !fired {
                    break;
                }
                points += 1;
            }
        }
    }
    assert!(points >= 9, "only {points} points");
}

fn view() -> SessionView {
    SessionView {
        now: Time::default(),
        connection: Some(1),
        alive: Some(1),
        is_running_out: false,
        lapses: 0,
        has_expired: false,
        has_left_session: false,
        seed: 0,
    }
}

fn profile() -> QueueProfile {
    let writer = NameForm::known("-__WRIT__", "__WRIT__");
    let reader = NameForm::known("-__READ__", "__READ__");
    QueueProfile {
        options: LockOptions { path: "/l".into(), acl: Acl::open(), ..LockOptions::default() },
        names: QueueNames::shared(writer, reader, Role::Exclusive),
        permits: None,
        removes_directory: false,
    }
}

/// The writer's znode is removed first. Otherwise a multi that is committed late could still find
/// it, after the client has found no reader's znode to remove, and would leave a reader's znode
/// behind.
#[test]
fn an_undecided_downgrade_is_removed_by_the_writers_name_first() {
    let name = format!("{:032x}-__WRIT__0000000003", 7);
    let writer = Znode { name: name.as_str().into(), sequence: 3, czxid: Zxid(5) };
    let mut downgrade =
        Repeating::new(Downgrade::new(profile(), SessionId(1), writer).expect("a writer"));
    let Step::Submit(flight, _) = downgrade.start(view()) else { panic!("it is sent") };
    assert!(matches!(flight.operations[0].request, Request::Multi(_)));
    let names = downgrade.machine.names();
    assert_eq!(names[0], name.as_str());
    assert_eq!(names[1], name.replace(Write.mark(), Read.mark()).as_str());
}

/// Events, disconnects and the ends of other sessions do not matter while the downgrade is pending.
#[test]
fn only_a_reply_or_the_end_of_the_session_decides_a_downgrade() {
    let name = format!("{:032x}-__WRIT__0000000003", 7);
    let writer = Znode { name: name.as_str().into(), sequence: 3, czxid: Zxid(5) };
    let view = view();
    let mut downgrade =
        Repeating::new(Downgrade::new(profile(), SessionId(1), writer).expect("a writer"));
    let _ = downgrade.start(view);
    for input in [
        Input::Watch { watch: WatchNumber::new(1).unwrap(), kind: EventType::NODE_DELETED },
        Input::Suspended,
        Input::Timer,
        Input::Ended(SessionId(2)),
    ] {
        let step = downgrade.handle(view, input.clone());
        assert!(matches!(step, Step::Wait(None)), "{input:?}: {step:?}");
    }
    let lost = Err(OpError::connection_loss(Outcome::Unknown));
    let reply =
        |results| Reply { session: Some(SessionId(1)), connection: 2, results, refused: None };
    let step = downgrade.handle(view, Input::Reply(reply(vec![lost])));
    assert!(matches!(step, Step::Submit(..)), "{step:?}");
    let exists = Err(OpError::server(ErrorCode::NODE_EXISTS));
    let step = downgrade.handle(view, Input::Reply(reply(vec![exists])));
    let Step::Submit(flight, _) = step else { panic!("{step:?}") };
    assert!(matches!(flight.operations[0].request, Request::GetData(_)));
    let stat = Stat { ephemeral_owner: SessionId(1), ..Stat::default() };
    let found = Response::GetData(jute_codec::DataReply { data: None, stat });
    let step = downgrade.handle(view, Input::Reply(reply(vec![Ok(found)])));
    let Step::Done(Ok(Changed { znode, connection })) = step else { panic!("{step:?}") };
    assert_eq!(
        (znode.czxid, znode.sequence, connection),
        (Zxid(5), 3, 2),
        "the token is the writer's"
    );
    let ended = downgrade.handle(view, Input::Ended(SessionId(1)));
    assert!(
        matches!(ended, Step::Done(Err(NotChanged::Lost(LostReason::SessionExpired)))),
        "{ended:?}"
    );
}
