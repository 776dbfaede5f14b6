//! The requests of each level, counted at the server.

use jute_codec::OpCode;
use zk_recipes::Released;
use zk_tests::case::Case;
use zk_tests::for_each_lock;
use zk_tests::scene::{FIRST, create_directory, hold, release, sent_since, settle};
use zk_tests::world::{World, run};

use crate::{holder, level};

for_each_lock! {
    #[test] locks: [only_the_first_and_the_last_level_send_requests]
}

fn only_the_first_and_the_last_level_send_requests<C: Case>() {
    run(async {
        let world = World::new();
        create_directory::<C>(&world);
        let client = world.client(FIRST).await;
        let requests = || sent_since(&world, &client);
        // The first use of a semaphore also stores its number.
        release(hold(&C::of(&client)).await).await;
        requests();
        // The cost of the lock alone.
        let guard = hold(&C::of(&client)).await;
        let acquired = requests();
        release(guard).await;
        let released = requests();

        let holder = holder::<C>(&client);
        for _ in 0..2 {
            let outer = level(&holder).await;
            assert_eq!(requests(), acquired);
            let before = client.now();
            for _ in 0..100 {
                let inner = level(&holder).await;
                let tried = holder.try_acquire().await.expect("it is held");
                assert_eq!(tried.expect("it is held").release().await, Ok(None));
                drop(inner);
            }
            settle().await;
            assert_eq!(requests(), [] as [OpCode; 0], "nested levels are free");
            assert_eq!(client.now(), before);
            assert_eq!(outer.release().await, Ok(Some(Released::Released)));
            assert_eq!(requests(), released);
        }
        world.check_clean(&[&client]).await;
    });
}
