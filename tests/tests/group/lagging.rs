//! Watches whose session moves between members of the ensemble that lag: nothing goes back, and
//! nothing is missed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zk_recipes::{GroupChange, GroupWatch};
use zk_session::Zxid;
use zk_tests::random::SplitMix64;
use zk_tests::scene::{FIRST, SECOND, session};
use zk_tests::world::{MOVES, World, run, sleep_ms};

use crate::{changes, create_directory, group, path, refuse_persistent_watches, stored, watch};

/// An event tells of a leave, and no reply with a greater zxid follows. The next server has received
/// the deletion and not applied it, so it resumes the session and still shows the member.
#[test]
fn a_member_that_has_left_stays_away_when_the_session_moves_to_a_server_that_lags() {
    for (version, from, to) in MOVES {
        run(async {
            let world = World::slow_member(version, to);
            create_directory(&world);
            let member = Arc::new(AtomicUsize::new(from));
            let client = world.moving_client(FIRST, &member).await;
            let other = world.client(SECOND).await;
            let owner = session(&other);
            world.server.admin_create(&path("a"), b"1", Some(owner));
            world.server.admin_create(&path("b"), b"1", Some(owner));
            world.server.catch_up_all();
            let mut watch = group(&client).watch();
            assert_eq!(changes(&mut watch).await, ["joined a 1", "joined b 1"]);
            sleep_ms(20_000).await;
            assert!(world.server.admin_delete(&path("a")));
            assert_eq!(
                watch.next().await.map(|change| crate::said(&change)),
                Ok("left a 1".into())
            );
            member.store(to, Ordering::SeqCst);
            world.server.member(from).disconnect_member();
            let more = changes(&mut watch).await;
            assert!(more.is_empty(), "{version:?}, to {to}: {more:?}\n{}", world.trace());
        });
    }
}

/// What the watch has reported: the data and the czxid of each member, and the czxid of those that
/// have left.
#[derive(Default)]
struct Reported {
    members: BTreeMap<String, (String, Zxid)>,
    newest: BTreeMap<String, Zxid>,
    reports: usize,
}

impl Reported {
    fn apply(&mut self, change: &GroupChange) {
        self.reports += 1;
        match change {
            GroupChange::Joined(member) => {
                let newest = self.newest.insert(member.id.clone(), member.czxid);
                assert!(newest.is_none_or(|newest| newest < member.czxid), "{change:?}");
                let data = String::from_utf8_lossy(&member.data).into_owned();
                let known = self.members.insert(member.id.clone(), (data, member.czxid));
                assert!(known.is_none(), "{change:?}");
            }
            GroupChange::Left(member) => {
                let known = self.members.remove(&member.id);
                assert!(known.is_some_and(|(_, czxid)| czxid == member.czxid), "{change:?}");
            }
            GroupChange::Changed(member) => {
                let known = self.members.get_mut(&member.id).expect("it has joined");
                let data = String::from_utf8_lossy(&member.data).into_owned();
                // The data are numbers that grow.
                let number = |data: &str| data.parse::<u64>().expect("a number");
                assert!(number(&known.0) < number(&data), "{change:?}");
                known.0 = data;
            }
            _ => panic!("{change:?}"),
        }
    }

    async fn follow(&mut self, watch: &mut GroupWatch, ms: u64) {
        while let Ok(change) = watch.next_within(Duration::from_millis(ms)).await {
            self.apply(&change);
        }
    }
}

#[test]
fn a_session_that_moves_between_servers_that_lag_never_takes_a_watch_back() {
    let mut reports = 0;
    for seed in 0..80 {
        run(async {
            let mut random = SplitMix64::new(seed);
            let world = World::lagging(seed);
            let server = &world.server;
            create_directory(&world);
            let other = world.client(SECOND).await;
            let owner = session(&other);
            let (is_old, watches_data) = (seed % 3 == 0, seed % 5 != 0);
            if is_old {
                refuse_persistent_watches(server, 200);
            }
            let member = Arc::new(AtomicUsize::new(0));
            let client = world.moving_client(FIRST, &member).await;
            let mut watch = watch(&client, watches_data);
            let mut reported = Reported::default();
            for round in 0..150_u64 {
                let id = path(["a", "b", "c", "d"][random.below(4) as usize]);
                let data = round.to_string();
                match random.below(20) {
                    0..6 if server.data(&id).is_none() => {
                        server.admin_create(&id, data.as_bytes(), Some(owner));
                    }
                    6..9 if server.data(&id).is_some() => {
                        server.admin_set_data(&id, data.as_bytes());
                    }
                    9..16 => drop(server.admin_delete(&id)),
                    16..19 => {
                        member.store(random.below(3) as usize, Ordering::SeqCst);
                        server.disconnect_all();
                    }
                    19 if random.below(6) == 0 => {
                        for session in server.sessions().into_iter().filter(|one| *one != owner) {
                            server.expire(session);
                        }
                    }
                    _ => {}
                }
                reported.follow(&mut watch, random.below(150)).await;
            }
            sleep_ms(5_000).await;
            if !watches_data {
                // Changed data are reported when a member joins or leaves.
                server.admin_create(&path("last"), b"0", Some(owner));
            }
            reported.follow(&mut watch, 5_000).await;
            let members = reported.members.iter();
            let members: Vec<_> =
                members.map(|(id, (data, _))| (id.clone(), data.clone())).collect();
            assert_eq!(members, stored(&world), "seed {seed}\n{}", world.trace());
            reports += reported.reports;
        });
    }
    assert!(reports > 2_000, "{reports} reports");
}
