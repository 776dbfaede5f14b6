//! Inspection of queues, and of the holder of an exclusive lock.

use std::time::{Duration, UNIX_EPOCH};

use jute_codec::{OpCode, SessionId};
use zk_recipes::{Client, Contender, ErrorCode, ExclusiveLock, FairLock, LockError, Naming, Role};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::Pace;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, create_directory, granted, release, session, spawn,
};
use zk_tests::world::{World, cuts_at_request, run, sleep_ms};
use zk_testserver::Action;

/// Start of the server's clock.
const START: Duration = Duration::from_millis(1_700_000_000_000);

fn fair(client: &Client, identity: &'static str) -> FairLock {
    FairLock::builder(client, LOCK)
        .and_then(|lock| lock.identity(identity).watch_check(None).build())
        .expect("the options are legal")
}

/// Returns the position, identity and session of each contender.
fn told(contenders: &[Contender]) -> Vec<(usize, &[u8], SessionId)> {
    contenders.iter().map(|one| (one.position, &one.identity[..], one.session)).collect()
}

#[test]
fn everybody_in_the_queue_is_listed_in_its_order() {
    run(async {
        let world = World::new();
        let clients =
            [world.client(FIRST).await, world.client(SECOND).await, world.client(THIRD).await];
        let [one, two, three] = clients.each_ref();
        let looker = fair(one, "");
        assert_eq!(looker.contenders().await, Ok(vec![]), "not even a directory");
        let held = fair(three, "three").acquire().await.expect("the lock is free");
        let mut waiters = Vec::new();
        for lock in [fair(one, "one"), fair(two, "two"), fair(one, "")] {
            sleep_ms(1_000).await;
            waiters.push(spawn(lock.acquire().into_future()));
        }
        sleep_ms(1_000).await;
        let queue = looker.contenders().await.expect("it can be read");
        let expected = [
            (0, &b"three"[..], session(three)),
            (1, b"one", session(one)),
            (2, b"two", session(two)),
            (3, b"", session(one)),
        ];
        assert_eq!(told(&queue), expected);
        assert_eq!(queue[0].path, held.path());
        for (contender, seconds) in queue.iter().zip(0..) {
            assert_eq!(contender.role, Role::Exclusive);
            let since = START + Duration::from_secs(seconds);
            assert_eq!(contender.since, UNIX_EPOCH + since);
            assert_eq!(contender.age(UNIX_EPOCH + START), Duration::ZERO, "never negative");
            let later = UNIX_EPOCH + since + Duration::from_secs(7);
            assert_eq!(contender.age(later), Duration::from_secs(7));
        }
        release(held).await;
        for waiter in waiters {
            release(granted(waiter).await).await;
        }
        assert_eq!(looker.contenders().await, Ok(vec![]));
        world.check_clean(&[one, two, three]).await;
    });
}

#[test]
fn readers_and_writers_say_what_they_are() {
    run(async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let lock = World::rw_lock(&client);
        let held = (lock.read().await, lock.read().await);
        let writer = spawn(lock.write().into_future());
        sleep_ms(100).await;
        let reader = spawn(lock.read().into_future());
        sleep_ms(100).await;
        let queue = lock.contenders().await.expect("it can be read");
        let roles: Vec<_> = queue.iter().map(|one| (one.position, one.role)).collect();
        let (shared, exclusive) = (Role::Shared, Role::Exclusive);
        assert_eq!(roles, [(0, shared), (1, shared), (2, exclusive), (3, shared)]);
        assert!(queue.iter().all(|one| one.path.starts_with(LOCK)));
        drop(held);
        release(granted(writer).await).await;
        release(granted(reader).await).await;
        world.check_clean(&[&client]).await;
    });
}

#[test]
fn other_implementations_are_listed_and_strangers_are_not() {
    run(async {
        let world = World::new();
        create_directory::<FairLock>(&world);
        let client = world.client(FIRST).await;
        let names = [
            "_c_1f6b0e0c-0000-4000-8000-000000000000-lock-0000000011",
            "lock-0000000003",
            "zzz-lock-0000000007",
        ];
        for name in names {
            world.server.admin_create(&format!("{LOCK}/{name}"), b"10.0.0.1", None);
        }
        for stranger in ["config", "lock-12", "unlock"] {
            world.server.admin_create(&format!("{LOCK}/{stranger}"), b"", None);
        }
        let queue = fair(&client, "").contenders().await.expect("it can be read");
        let expected = [0, 1, 2].map(|place| (place, &b"10.0.0.1"[..], SessionId::NONE));
        assert_eq!(told(&queue), expected);
        let paths: Vec<_> = queue.iter().map(|one| one.path.as_str()).collect();
        let expected = [names[1], names[2], names[0]].map(|name| format!("{LOCK}/{name}"));
        assert_eq!(paths, expected);
        // For a lock with another naming, these contenders belong to another kind of lock.
        let kazoo = FairLock::builder(&client, LOCK)
            .and_then(|lock| lock.naming(Naming::kazoo()).build())
            .expect("the options are legal");
        assert!(matches!(kazoo.contenders().await, Err(LockError::MixedKinds { .. })));
        let path = format!("{LOCK}/a-__READ__0000000000");
        world.server.admin_create(&path, b"", None);
        let mixed = LockError::MixedKinds { path };
        assert_eq!(fair(&client, "").contenders().await, Err(mixed));
    });
}

/// The queue has hundreds of contenders, and some clients have a low limit of outstanding requests.
#[test]
fn a_long_queue_is_listed_as_a_whole() {
    const COUNT: usize = 250;
    for limit in [None, Some(64), Some(3)] {
        run(async {
            let world = World::new().pace(Pace::of(COUNT));
            create_directory::<FairLock>(&world);
            let client = world
                .client_with(FIRST, |builder| match limit {
                    Some(limit) => builder.outstanding_limit(limit),
                    None => builder,
                })
                .await;
            for number in 0..COUNT {
                // The names sort differently from the numbers.
                let name = format!("{LOCK}/{:03}-lock-{number:010}", COUNT - number);
                world.server.admin_create(&name, number.to_string().as_bytes(), None);
            }
            world.server.clear_requests();
            let queue = fair(&client, "").contenders().await.expect("it can be read");
            assert_eq!(queue.len(), COUNT);
            for (number, one) in queue.iter().enumerate() {
                assert_eq!(one.position, number);
                assert_eq!(one.identity, number.to_string().as_bytes());
            }
            assert_eq!(world.server.requests().len(), COUNT + 1, "each is read once");
        });
    }
}

#[test]
fn who_has_gone_since_is_left_out_and_the_others_move_up() {
    run(async {
        let world = World::new();
        create_directory::<FairLock>(&world);
        let client = world.client(FIRST).await;
        let path = |number: usize| format!("{LOCK}/x-lock-{number:010}");
        for number in 0..5 {
            world.server.admin_create(&path(number), number.to_string().as_bytes(), None);
        }
        let slow = Action::Delay(Duration::from_millis(100));
        world.server.inject(at_op(session(&client), OpCode::GET_CHILDREN, slow));
        let lock = fair(&client, "");
        let looking = spawn(async move { lock.contenders().await });
        sleep_ms(50).await;
        assert!(world.server.admin_delete(&path(0)) && world.server.admin_delete(&path(3)));
        let queue = looking.await.expect("the task does not panic").expect("it can be read");
        assert_eq!(
            told(&queue),
            [
                (0, &b"1"[..], SessionId::NONE),
                (1, b"2", SessionId::NONE),
                (2, b"4", SessionId::NONE)
            ]
        );
    });
}

#[test]
fn a_look_survives_every_cut() {
    let mut points = 0;
    for nth in 0..8 {
        for kind in 0..cuts_at_request(None, 0).len() {
            run(async {
                let world = World::new();
                let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
                let held = fair(&other, "holder").acquire().await.expect("the lock is free");
                let waiter = spawn(fair(&other, "waiter").acquire().into_future());
                let exclusive = |client| ExclusiveLock::new(client, "/locks/one");
                let one = exclusive(&other).expect("the path is valid").acquire().await;
                sleep_ms(100).await;
                let cuts = cuts_at_request(Some(session(&client)), nth);
                world.server.inject(cuts[kind].clone());
                let queue = fair(&client, "").contenders().await.expect("it can be read");
                let id = session(&other);
                assert_eq!(told(&queue), [(0, &b"holder"[..], id), (1, b"waiter", id)]);
                let looker = exclusive(&client).expect("the path is valid");
                let holder = looker.holder().await.expect("it can be read");
                assert_eq!(holder.map(|one| one.session), Some(id));
                points += usize::from(world.server.pending_faults().is_empty());
                world.server.clear_faults();
                drop((held, one));
                drop(granted(waiter).await);
                world.check_clean(&[&client, &other]).await;
            });
        }
    }
    assert!(points >= 48, "only {points} cuts");
}

#[test]
fn a_look_is_refused_or_goes_on_as_the_servers_say() {
    for op in [OpCode::GET_CHILDREN, OpCode::GET_DATA] {
        for code in [ErrorCode::NO_AUTH, ErrorCode::THROTTLED_OP, ErrorCode::SYSTEM_ERROR] {
            run(async {
                let world = World::new();
                let client = world.client(FIRST).await;
                let lock = fair(&client, "one");
                let held = lock.acquire().await.expect("the lock is free");
                world.server.inject(at_op(session(&client), op, Action::Error(code)));
                let looked = lock.contenders().await;
                assert!(world.server.pending_faults().is_empty());
                if code == ErrorCode::NO_AUTH {
                    let is_refused = |error: &LockError| matches!(error, LockError::Refused { code: told, .. } if *told == code);
                    assert!(looked.as_ref().is_err_and(is_refused), "{op:?}: {looked:?}");
                } else {
                    assert_eq!(looked.expect("it passes").len(), 1, "{op:?} {code}");
                }
                release(held).await;
                world.check_clean(&[&client]).await;
                client.close().await;
                assert_eq!(lock.contenders().await, Err(LockError::Closed));
            });
        }
    }
}

#[test]
fn the_holder_of_an_exclusive_lock_says_who_it_is() {
    run(async {
        let world = World::new();
        let (client, other) = (world.client(FIRST).await, world.client(SECOND).await);
        let lock = ExclusiveLock::of(&client);
        assert_eq!(lock.holder().await, Ok(None), "not even a directory");
        for identity in ["", "night shift", "0123456789abcdef0123456789abcdef"] {
            let theirs = ExclusiveLock::builder(&other, LOCK)
                .and_then(|lock| lock.identity(identity).build())
                .expect("the options are legal");
            let held = theirs.acquire().await.expect("the lock is free");
            let holder = lock.holder().await.expect("it can be read").expect("the lock is held");
            assert_eq!(holder.identity, identity.as_bytes(), "without the id of the attempt");
            assert_eq!((holder.path.as_str(), holder.position), (LOCK, 0));
            assert_eq!((holder.role, holder.session), (Role::Exclusive, session(&other)));
            release(held).await;
            assert_eq!(lock.holder().await, Ok(None));
        }
        // This holder belongs to another implementation.
        world.server.admin_create(LOCK, b"10.0.0.1:4711", Some(session(&other)));
        let holder = lock.holder().await.expect("it can be read").expect("the lock is held");
        assert_eq!(holder.identity, &b"10.0.0.1:4711"[..]);
        assert!(world.server.admin_delete(LOCK));
        world.server.admin_create(LOCK, b"", None);
        assert_eq!(lock.holder().await, Err(LockError::MixedKinds { path: LOCK.to_owned() }));
        assert!(world.server.admin_delete(LOCK));
        world.check_clean(&[&client, &other]).await;
    });
}
