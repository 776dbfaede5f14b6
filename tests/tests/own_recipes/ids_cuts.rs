//! The ids.

use std::collections::BTreeSet;

use zk_tests::scene::{FIRST, SECOND, TURNS, Trouble, poll_times};
use zk_tests::world::{Enumeration, run};

use crate::ids::Ids;
use crate::{check_clean, data, first_session, last_data, settled, world};

const PATH: &str = "/app/ids";
const BLOCK: u64 = 2;

/// Two clients take three ids each, from two blocks each.
#[test]
fn no_id_is_handed_out_twice_and_no_block_is_lost() {
    let mut enumeration = Enumeration::new("ids", first_session()).without_refusals_in_pairs();
    enumeration.run(&|faults| {
        run(async {
            let world = world();
            let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
            let (mut first, mut second) =
                (Ids::new(&settled(&one), PATH, BLOCK), Ids::new(&settled(&two), PATH, BLOCK));
            world.inject(faults);
            let take = async |ids: &mut Ids| {
                let is_own = ids.create().await.expect("it can be created");
                let mut taken = Vec::new();
                for _ in 0..3 {
                    taken.push(ids.next().await.expect("there are ids"));
                }
                (is_own, taken)
            };
            let (mine, theirs) = tokio::join!(take(&mut first), take(&mut second));
            assert!(mine.0 != theirs.0, "it was created once\n{}", world.trace());
            let mut all = [mine.1, theirs.1].concat();
            // What is left of the blocks.
            all.push(first.next().await.expect("it is reserved"));
            all.push(second.next().await.expect("it is reserved"));
            all.sort_unstable();
            assert_eq!(all, (0..8).collect::<Vec<_>>(), "\n{}", world.trace());
            assert_eq!(last_data(&world, PATH).await, "8", "\n{}", world.trace());
            drop((first, second));
            check_clean(&world, &[&one, &two]).await;
            world.ran()
        })
    });
    assert!(enumeration.is_complete(70, 800), "{enumeration:?}");
}

/// The first client crashes while it takes an id: its future is dropped after every poll, with every
/// fault of the connection around that moment. At most one block is lost.
#[test]
fn a_crash_loses_at_most_a_block() {
    let session = first_session().expect("connected");
    let mut points = 0;
    for trouble in Trouble::all(session, 3) {
        for polls in 0..=TURNS {
            points += 1;
            let is_over = run(async {
                let world = world();
                world.server.admin_create(PATH, b"10", None);
                let (one, two) = (world.client(FIRST).await, world.client(SECOND).await);
                let mut first = Ids::new(&settled(&one), PATH, BLOCK);
                let mut second = Ids::new(&settled(&two), PATH, BLOCK);
                trouble.begin(&world);
                let taken = poll_times(first.next(), polls, || trouble.cancelling(&world)).await;
                trouble.cancelled(&world);
                drop(first);
                let mut ids = BTreeSet::new();
                let is_over = taken.is_some();
                ids.extend(taken.map(|id| id.expect("there are ids")));
                let before = ids.len();
                for _ in 0..4 {
                    ids.insert(second.next().await.expect("there are ids"));
                }
                assert_eq!(ids.len(), before + 4, "an id was handed out twice\n{}", world.trace());
                world.server.clear_faults();
                let end: u64 = last_data(&world, PATH).await.parse().expect("it is a number");
                assert!((14..=16).contains(&end), "{end}, {trouble:?}\n{}", world.trace());
                drop(second);
                check_clean(&world, &[&one, &two]).await;
                is_over
            });
            if is_over {
                break;
            }
            assert!(polls < TURNS, "it never ends: {trouble:?}");
        }
    }
    eprintln!("crashes while an id is taken: {points} points");
    assert!(points >= 50, "only {points} points");
}

#[test]
fn a_znode_that_is_missing_or_unreadable_gives_no_id() {
    run(async {
        let world = world();
        let client = world.client(FIRST).await;
        let mut ids = Ids::new(&settled(&client), PATH, BLOCK);
        ids.next().await.expect_err("it would begin again at 0");
        for (number, content) in ["", "x", "-1", "18446744073709551615"].iter().enumerate() {
            let path = format!("{PATH}-{number}");
            world.server.admin_create(&path, content.as_bytes(), None);
            let mut ids = Ids::new(&settled(&client), &path, BLOCK);
            ids.next().await.expect_err("there is no number");
            assert_eq!(data(&world, &path), *content);
        }
        drop(ids);
        check_clean(&world, &[&client]).await;
    });
}
