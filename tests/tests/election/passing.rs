//! Leadership that passes from one candidate to the next, and what candidates and others see of it.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{Election, ElectionNaming, FairLock, LockError, LockState, LostReason, Released};
use zk_tests::case::{Case as _, LOCK};
use zk_tests::meter::Pace;
use zk_tests::scene::{
    FIRST, SECOND, THIRD, at_op, granted, granted_now, hold, ops, release, requests_of, session,
    settle,
};
use zk_tests::world::{World, run, sleep_ms};
use zk_testserver::Action;

use crate::{campaign, campaigning, leader};

#[test]
fn a_resignation_passes_the_leadership_to_the_next_candidate() {
    run(async {
        let world = World::new();
        let (first, leadership) = leader(&world, FIRST).await;
        let (second, third) = (world.client(SECOND).await, world.client(THIRD).await);
        let next = campaign(&world, &Election::of(&second)).await;
        let last = campaign(&world, &Election::of(&third)).await;
        let mut tokens = vec![leadership.fencing_token()];
        assert_eq!(leadership.resign().await, Ok(Released::Released));
        let leadership = granted_now(&world, next).await;
        world.check_granted::<Election>(&leadership);
        assert!(!last.is_finished(), "two leaders\n{}", world.trace());
        tokens.push(leadership.fencing_token());
        assert_eq!(leadership.resign().await, Ok(Released::Released));
        let leadership = granted_now(&world, last).await;
        tokens.push(leadership.fencing_token());
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        drop(leadership);
        world.check_clean(&[&first, &second, &third]).await;
    });
}

#[test]
fn an_expiry_or_a_deletion_passes_the_leadership_and_the_former_leader_knows() {
    for reason in [LostReason::SessionExpired, LostReason::ZnodeDeleted] {
        run(async {
            let world = World::new();
            let (first, former) = leader(&world, FIRST).await;
            let second = world.client(SECOND).await;
            let next = campaign(&world, &Election::of(&second)).await;
            if reason == LostReason::SessionExpired {
                world.server.expire(session(&first));
            } else {
                assert!(world.server.admin_delete(former.path()));
            }
            let leadership = granted_now(&world, next).await;
            assert_eq!(former.lost().await, reason);
            assert_eq!(former.state(), LockState::Lost(reason));
            assert!(leadership.fencing_token() > former.fencing_token());
            former.resign().await.expect("nothing is refused");
            leadership.validate().await.expect("it leads");
            release(leadership).await;
            world.check_clean(&[&first, &second]).await;
        });
    }
}

#[test]
fn a_try_takes_a_free_leadership_only() {
    run(async {
        let world = World::new();
        let (first, leadership) = leader(&world, FIRST).await;
        let second = world.client(SECOND).await;
        let election = Election::of(&second);
        assert!(election.try_campaign().await.expect("it can be listed").is_none());
        assert_eq!(ops(&requests_of(&world, session(&second))), [OpCode::GET_CHILDREN]);
        leadership.resign().await.expect("its znode can be deleted");
        let leadership = election.try_campaign().await.expect("it can be listed");
        release(leadership.expect("no other candidate is left")).await;
        world.check_clean(&[&first, &second]).await;
    });
}

#[test]
fn the_candidates_are_listed_in_their_order_with_the_leader_first() {
    run(async {
        let world = World::new();
        let (first, second, observer) =
            (world.client(FIRST).await, world.client(SECOND).await, world.client(THIRD).await);
        let election = Election::of(&observer);
        assert_eq!(election.candidates().await, Ok(Vec::new()));
        assert_eq!(election.leader().await, Ok(None));
        let one = hold(&Election::with(&first, |builder| builder.identity("one"))).await;
        let two = Election::with(&second, |builder| builder.identity("two"));
        let two = campaign(&world, &two).await;
        let candidates = election.candidates().await.expect("it can be listed");
        let shown: Vec<_> =
            candidates.iter().map(|one| (one.position, &one.identity[..], one.session)).collect();
        assert_eq!(shown, [(0, &b"one"[..], session(&first)), (1, &b"two"[..], session(&second))]);
        assert_eq!(candidates[0].path, one.path());
        assert_eq!(election.leader().await, Ok(candidates.into_iter().next()));
        release(one).await;
        let two = granted(two).await;
        let leads = election.leader().await.expect("it can be listed").expect("two leads");
        assert_eq!((leads.position, &leads.identity[..]), (0, &b"two"[..]));
        release(two).await;
        assert_eq!(election.leader().await, Ok(None));
        world.check_clean(&[&first, &second, &observer]).await;
    });
}

#[test]
fn to_see_the_leader_costs_a_list_and_a_read_however_many_candidates_there_are() {
    run(async {
        let world = World::new().pace(Pace::of(20));
        let (first, leadership) = leader(&world, FIRST).await;
        let second = world.client(SECOND).await;
        let election = Election::of(&second);
        let waiting: Vec<_> = (0..20).map(|_| campaigning(&election)).collect();
        world.until("all are candidates", |_| world.contenders().len() == 21).await;
        let observer = world.client(THIRD).await;
        let leads = Election::of(&observer).leader().await.expect("it can be listed");
        assert_eq!(leads.expect("one leads").path, leadership.path());
        let expected = [OpCode::GET_CHILDREN, OpCode::GET_DATA];
        assert_eq!(ops(&requests_of(&world, session(&observer))), expected);
        waiting.into_iter().for_each(|candidate| candidate.abort());
        release(leadership).await;
        world.check_clean(&[&first, &second, &observer]).await;
    });
}

/// The leader resigns between the list and the read, so the read finds nothing.
#[test]
fn a_leader_that_leaves_while_it_is_looked_for_is_not_taken_for_an_empty_election() {
    run(async {
        let world = World::new();
        let (first, leadership) = leader(&world, FIRST).await;
        let (second, observer) = (world.client(SECOND).await, world.client(THIRD).await);
        let next = campaign(&world, &Election::of(&second)).await;
        let pause = Action::Pause(Duration::from_millis(500));
        world.server.inject(at_op(session(&observer), OpCode::GET_DATA, pause));
        let election = Election::of(&observer);
        let (leads, leadership) = tokio::join!(election.leader(), async {
            sleep_ms(100).await;
            release(leadership).await;
            granted(next).await
        });
        let leads = leads.expect("it can be listed").expect("one leads at any time");
        assert_eq!(leads.path, leadership.path());
        let (list, read) = (OpCode::GET_CHILDREN, OpCode::GET_DATA);
        assert_eq!(ops(&requests_of(&world, session(&observer))), [list, read, list, read]);
        release(leadership).await;
        world.check_clean(&[&first, &second, &observer]).await;
    });
}

#[test]
fn each_naming_has_names_of_its_own() {
    let custom = ElectionNaming::custom("x-{id}-{sequence}").expect("it has an id");
    for (naming, mark, other) in [
        (ElectionNaming::default(), "-latch-", "a-lock-0000000000"),
        (ElectionNaming::leader_latch(), "-latch-", "a__lock__0000000000"),
        (ElectionNaming::leader_selector(), "-lock-", "a-latch-0000000000"),
        (ElectionNaming::kazoo(), "__lock__", "a-latch-0000000000"),
        (custom, "-", "a-latch-0000000000"),
    ] {
        run(async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let election = Election::with(&client, |builder| builder.naming(naming.clone()));
            assert_eq!(election.path(), LOCK);
            let leadership = hold(&election).await;
            let name = leadership.path().strip_suffix("0000000000").expect("the first");
            assert!(name.ends_with(mark), "{name}");
            release(leadership).await;
            let path = format!("{LOCK}/{other}");
            world.server.admin_create(&path, b"", None);
            let mixed = LockError::MixedKinds { path };
            assert_eq!(election.campaign().await.map(drop), Err(mixed.clone()), "{naming:?}");
            assert_eq!(election.leader().await, Err(mixed.clone()));
            assert_eq!(election.candidates().await, Err(mixed.clone()));
            assert_eq!(election.run_while_leader(async |_| ()).await, Err(mixed));
        });
    }
}

#[test]
fn with_the_names_of_a_mutex_a_lock_at_the_same_path_excludes_the_leader() {
    run(async {
        let world = World::new();
        let (first, second) = (world.client(FIRST).await, world.client(SECOND).await);
        let held = hold(&FairLock::of(&first)).await;
        let named = |naming| Election::with(&second, |builder| builder.naming(naming));
        let candidate = campaign(&world, &named(ElectionNaming::leader_selector())).await;
        release(held).await;
        let leadership = granted_now(&world, candidate).await;
        settle().await;
        assert!(FairLock::of(&first).try_acquire().await.expect("it can be listed").is_none());
        release(leadership).await;
        world.check_clean(&[&first, &second]).await;
    });
}
