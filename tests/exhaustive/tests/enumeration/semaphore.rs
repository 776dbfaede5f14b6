//! Every single cut and every pair of cuts of a client that shares two permits with others, and of
//! a client that changes their number.

use std::time::Duration;

use zk_recipes::{Client, LockState, PermitGuard, Released, Semaphore};
use zk_tests::case::{LOCK, OnePermit};
use zk_tests::meter::Pace;
use zk_tests::scene::{create_directory, granted, release, spawn, start_waiting};
use zk_tests::world::{Enumeration, World, run, sleep_ms};

use crate::{CONTENDER, HOLDER, NEXT, OTHER, contender};

/// The semaphore under test, as a client with this number of permits uses it.
fn semaphore(client: &Client, permits: u32) -> Semaphore {
    Semaphore::builder(client, LOCK)
        .and_then(|builder| builder.permits(permits).watch_check(None).build())
        .expect("the options are legal")
}

/// Acquires a permit that is free.
async fn hold(semaphore: &Semaphore) -> PermitGuard {
    semaphore.acquire().await.expect("a permit is free")
}

/// The data of the directory.
fn stored(world: &World) -> Option<String> {
    let data = world.server.data(LOCK)?;
    Some(String::from_utf8(data.to_vec()).expect("the number is text"))
}

#[test]
fn a_waiter_for_two_permits_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("two permits, waiting", contender());
    cut_a_waiter(&mut enumeration, 2);
    assert!(enumeration.is_complete(60, 1_000), "{enumeration:?}");
}

/// It counts the changes of the directory.
#[test]
fn a_waiter_for_many_permits_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("many permits, waiting", contender());
    enumeration = enumeration.without_refusals_in_pairs();
    cut_a_waiter(&mut enumeration, 17);
    assert!(enumeration.is_complete(60, 300), "{enumeration:?}");
}

/// All permits are held, the contender waits, and the oldest holder leaves. Another waits behind.
fn cut_a_waiter(enumeration: &mut Enumeration, permits: u32) {
    enumeration.run(&|faults| {
        run(async {
            let world = World::new().pace(Pace::of(200));
            let mut clients = Vec::new();
            for seed in [CONTENDER, HOLDER, OTHER, NEXT] {
                clients.push(world.client(seed).await);
            }
            let [contender, holder, other, next] = &clients[..] else { unreachable!() };
            let one = hold(&semaphore(holder, permits)).await;
            let mut others = Vec::new();
            for _ in 1..permits {
                others.push(hold(&semaphore(other, permits)).await);
            }
            world.inject(faults);
            let waiter = {
                let semaphore = semaphore(contender, permits);
                spawn(async move { semaphore.acquire().timeout(Duration::from_secs(60)).await })
            };
            sleep_ms(1_500).await;
            assert!(!waiter.is_finished(), "one too many\n{}", world.trace());
            let behind = start_waiting(&world, semaphore(next, permits).acquire()).await;
            release(one).await;
            let guard = granted(waiter).await;
            world
                .until("the contender has its znode", |_| {
                    world.contenders().len() == permits as usize + 1
                })
                .await;
            sleep_ms(1_000).await;
            assert!(!behind.is_finished(), "one too many\n{}", world.trace());
            assert!(others.iter().all(|other| other.state() == LockState::Held));
            guard.validate().await.expect("the permit is held");
            let released = guard.release().await.expect("its znode can be deleted");
            assert_eq!(released, Released::Released, "\n{}", world.trace());
            release(granted(behind).await).await;
            for other in others {
                release(other).await;
            }
            world.check_clean(&clients.iter().collect::<Vec<_>>()).await;
            world.ran()
        })
    });
}

/// Another client changes the number as soon as this one has, so that a late write would overwrite
/// the newer number.
#[test]
fn a_change_of_the_number_survives_every_pair_of_cuts_and_overwrites_no_later_one() {
    for is_there in [false, true] {
        let name = if is_there { "a changed number" } else { "a first number" };
        let mut enumeration = Enumeration::new(name, contender());
        enumeration.run(&|faults| {
            run(async {
                let world = World::new();
                let (client, other) = (world.client(CONTENDER).await, world.client(OTHER).await);
                if is_there {
                    create_directory::<OnePermit>(&world);
                    semaphore(&other, 1).set_permits(9).await.expect("it may be written");
                }
                world.inject(faults);
                semaphore(&client, 1).set_permits(2).await.expect("it may be written");
                assert_eq!(stored(&world).as_deref(), Some("2"), "\n{}", world.trace());
                semaphore(&other, 1).set_permits(3).await.expect("it may be written");
                sleep_ms(2_000).await;
                assert_eq!(stored(&world).as_deref(), Some("3"), "\n{}", world.trace());
                world.check_clean(&[&client, &other]).await;
                world.ran()
            })
        });
        assert!(enumeration.is_complete(20, 100), "{enumeration:?}");
    }
}

/// The contender finds a directory without a number, so it stores its own.
#[test]
fn a_contender_that_stores_the_number_survives_every_pair_of_cuts() {
    let mut enumeration = Enumeration::new("storing the number", contender());
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_directory::<OnePermit>(&world);
            let client = world.client(CONTENDER).await;
            world.inject(faults);
            let guard = hold(&semaphore(&client, 2)).await;
            assert_eq!(stored(&world).as_deref(), Some("2"), "\n{}", world.trace());
            assert_eq!(guard.release().await, Ok(Released::Released), "\n{}", world.trace());
            world.check_clean(&[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 300), "{enumeration:?}");
}
