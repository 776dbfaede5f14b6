//! Every single cut and every pair of cuts of a holder that acquires three levels behind another
//! contender, and ends them.

use zk_recipes::{LockState, Released};
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{self, granted, start_waiting};
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::{holder, level};

for_each_lock! {
    #[test] fifos: [three_levels_survive_every_pair_of_cuts]
}

const HOLDER: u64 = 1;
const OTHER: u64 = 2;

fn three_levels_survive_every_pair_of_cuts<C: Case>() {
    let contender = Some(session_of_first(HOLDER));
    let name = format!("three levels, {}", C::NAME);
    let mut enumeration = Enumeration::new(name, contender)
        .without_pairs_if(C::NAME != "fair")
        .without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            let client = world.client(HOLDER).await;
            let (other, held) = scene::holder::<C::Rival>(&world, OTHER).await;
            world.inject(faults);
            let holder = holder::<C>(&client);
            let leaving = async {
                sleep_ms(1_000).await;
                held.release().await.expect("its znode can be deleted");
            };
            let (outer, ()) = tokio::join!(level(&holder), leaving);
            let middle = level(&holder).await;
            middle.validate().await.expect("it is held");
            let inner = level(&holder).await;
            world.check_granted::<C>(&inner);
            let waiter = start_waiting(&world, C::Rival::of(&other).acquire()).await;
            assert_eq!(outer.release().await, Ok(None));
            assert_eq!(inner.release().await, Ok(None));
            sleep_ms(1_000).await;
            assert!(!waiter.is_finished(), "beside a level\n{}", world.trace());
            assert!(!matches!(middle.state(), LockState::Lost(_)), "\n{}", world.trace());
            assert_eq!(middle.release().await, Ok(Some(Released::Released)));
            granted(waiter).await.release().await.expect("its znode can be deleted");
            world.check_clean(&[&client, &other]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(50, 500), "{enumeration:?}");
}
