//! Every single cut and every pair of cuts of a presence.

use zk_recipes::{Released, SessionId};
use zk_tests::scene::FIRST;
use zk_tests::world::{Enumeration, World, run, session_of_first, sleep_ms};

use crate::{PATH, begin, check_clean, check_honest, create_parent, stored, until_present};

/// The session of the client whose connections are cut, which is the same in every world.
fn first() -> Option<SessionId> {
    Some(session_of_first(FIRST))
}

fn data(world: &World) -> Option<String> {
    stored(world).map(|(data, _)| data)
}

#[test]
fn a_presence_survives_every_pair_of_cuts_of_its_life() {
    let mut enumeration = Enumeration::new("a presence", first()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_parent(&world);
            let client = world.client(FIRST).await;
            world.inject(faults);
            let presence = begin(&client, "1").await;
            assert_eq!(data(&world).as_deref(), Some("1"), "{}", world.trace());
            check_honest(&world, &presence);
            presence.set_data("2").await.expect("it may be written");
            assert_eq!(data(&world).as_deref(), Some("2"), "{}", world.trace());
            let closed = presence.close().await.expect("it may be deleted");
            assert_eq!(closed, Released::Released, "{}", world.trace());
            assert_eq!(data(&world), None, "{}", world.trace());
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(30, 200), "{enumeration:?}");
}

/// An administrator deletes the znode, while the connection is cut.
#[test]
fn a_presence_that_comes_back_survives_every_pair_of_cuts() {
    let mut enumeration =
        Enumeration::new("a presence that comes back", first()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = World::new();
            create_parent(&world);
            let client = world.client(FIRST).await;
            let mut presence = begin(&client, "1").await;
            world.inject(faults);
            assert!(world.server.admin_delete(PATH));
            sleep_ms(3_000).await;
            until_present(&world, &client, &mut presence).await;
            check_honest(&world, &presence);
            presence.set_data("2").await.expect("it may be written");
            assert_eq!(data(&world).as_deref(), Some("2"), "{}", world.trace());
            drop(presence);
            check_clean(&world, &[&client]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(20, 200), "{enumeration:?}");
}
