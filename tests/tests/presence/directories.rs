//! Parents that this client may not create, or that refuse children, and that others change.

use std::time::Duration;

use jute_codec::OpCode;
use zk_recipes::{
    Absence, Acl, Client, CreateMode, CreateOptions, ErrorCode, FailedAction, Multi, Permissions,
    Presence, PresenceState, RecipeError,
};
use zk_session::recipe::Session;
use zk_tests::scene::{FIRST, SECOND, partition, sent_since, session, spawn};
use zk_tests::world::{World, run_within, sleep_ms};

use crate::{AT_ONCE, LONG, is_present, until_present};

/// The owner of the presence may not create anything directly below it.
const TOP: &str = "/top";
/// The paths of presences, each with the ancestors that are missing.
const DEPTHS: [(&str, &[&str]); 3] = [
    ("/top/p", &["/top"]),
    ("/top/a/p", &["/top/a"]),
    ("/top/a/b/c/p", &["/top/a", "/top/a/b", "/top/a/b/c"]),
];

/// Everyone may read the znode, but only the administrator may change it.
fn closed() -> Vec<Acl> {
    [Acl::read(), Acl::creator_all()].concat()
}

fn persistent(acl: Vec<Acl>) -> CreateOptions {
    CreateOptions::from(CreateMode::Persistent).acl(acl)
}

async fn create(admin: &Client, path: &str, acl: Vec<Acl>) {
    admin.create(path, "", persistent(acl)).await.expect("the administrator may create it");
}

/// Connects the administrator, who alone may create znodes below the root and below [`TOP`], unless
/// that is missing.
async fn administrator(world: &World, missing: &[&str]) -> Client {
    let admin = world.client_with(SECOND, |builder| builder.auth("digest", "admin:secret")).await;
    if missing.contains(&TOP) {
        admin.set_acl("/", closed(), None).await.expect("everyone may change the root");
    } else {
        create(&admin, TOP, closed()).await;
    }
    admin
}

/// How the owner has come to wait for the parents.
#[derive(Clone, Copy, Debug)]
enum Since {
    /// The presence begins, and keeps trying.
    Begin,
    /// It was present, and everything was deleted.
    Deletion,
    /// It was present, its session has ended, and everything was deleted.
    SessionEnd,
}

const SINCE: [Since; 3] = [Since::Begin, Since::Deletion, Since::SessionEnd];

/// Returns a presence that waits for these ancestors.
async fn waiting(
    world: &World,
    since: Since,
    client: &Client,
    admin: &Client,
    (path, missing): (&str, &[&str]),
) -> Waiting {
    let trying = Presence::builder(client, path).expect("the path is valid").keep_trying();
    if matches!(since, Since::Begin) {
        return Waiting::Begin(spawn(
            async move { trying.begin("mine").await.expect("in the end") },
        ));
    }
    for (at, path) in missing.iter().enumerate() {
        let is_last = at + 1 == missing.len();
        create(admin, path, if is_last { Acl::open() } else { closed() }).await;
    }
    let presence = trying.begin("mine").await.expect("nothing is in the way");
    match since {
        Since::SessionEnd => world.server.expire(session(client)),
        Since::Begin | Since::Deletion => assert!(world.server.admin_delete(path)),
    }
    for path in missing.iter().rev() {
        assert!(world.server.admin_delete(path));
    }
    Waiting::Later(presence)
}

enum Waiting {
    Begin(tokio::task::JoinHandle<Presence>),
    Later(Presence),
}

impl Waiting {
    /// Checks that the presence is absent because it may not create this ancestor.
    fn check_refused(&self, world: &World, path: &str) {
        match self {
            Self::Begin(beginning) => assert!(!beginning.is_finished(), "{}", world.trace()),
            Self::Later(presence) => {
                assert_eq!(presence.state(), refused(path), "{}", world.trace());
            }
        }
    }

    async fn until_present(self, world: &World, client: &Client) -> (Presence, Duration) {
        let began = client.now();
        match self {
            Self::Begin(beginning) => {
                let presence = beginning.await.expect("no panic");
                (presence, client.now().saturating_since(began))
            }
            Self::Later(mut presence) => {
                let took = until_present(world, client, &mut presence).await;
                (presence, took)
            }
        }
    }
}

fn refused(path: &str) -> PresenceState {
    PresenceState::Absent(Absence::Refused(RecipeError::Refused {
        code: ErrorCode::NO_AUTH,
        action: FailedAction::Create,
        path: path.to_owned(),
    }))
}

async fn check_removed(world: &World, client: &Client, path: &str) {
    for _ in 0..1_000 {
        if Session::of(client).janitor_slots_busy() == 0 {
            break;
        }
        sleep_ms(10).await;
    }
    assert!(world.server.stat(path).is_none(), "left behind\n{}", world.trace());
    world.check_history();
}

/// The pauses have grown to their full length by then.
const A_WHILE_MS: u64 = 31_000;

#[test]
fn a_parent_that_another_client_creates_is_used_at_once() {
    for since in SINCE {
        for place @ (path, missing) in DEPTHS {
            run_within(LONG, async {
                let world = World::new();
                let admin = administrator(&world, missing).await;
                let client = world.client(FIRST).await;
                let waiting = waiting(&world, since, &client, &admin, place).await;
                for (at, path) in missing.iter().enumerate() {
                    sleep_ms(A_WHILE_MS).await;
                    waiting.check_refused(&world, path);
                    let is_last = at + 1 == missing.len();
                    create(&admin, path, if is_last { Acl::open() } else { closed() }).await;
                }
                let (presence, took) = waiting.until_present(&world, &client).await;
                assert!(took < AT_ONCE, "{since:?} {path}: {took:?}\n{}", world.trace());
                drop(presence);
                check_removed(&world, &client, path).await;
            });
        }
    }
}

/// All at once, or only the one that was refused, below which the presence creates the others.
#[test]
fn parents_that_appear_together_or_are_created_by_the_presence_are_used_at_once() {
    for together in [true, false] {
        for since in SINCE {
            run_within(LONG, async {
                let world = World::new();
                let (path, missing) = DEPTHS[2];
                let admin = administrator(&world, missing).await;
                let client = world.client(FIRST).await;
                let waiting = waiting(&world, since, &client, &admin, DEPTHS[2]).await;
                sleep_ms(A_WHILE_MS).await;
                let missing = if together { missing } else { &missing[..1] };
                let create =
                    |multi: Multi, path: &&str| multi.create(path, "", persistent(Acl::open()));
                let multi = missing.iter().fold(Multi::new(), create);
                admin.commit(multi).await.expect("the administrator may create them");
                let (presence, took) = waiting.until_present(&world, &client).await;
                assert!(took < AT_ONCE, "{since:?} {together}: {took:?}\n{}", world.trace());
                drop(presence);
                check_removed(&world, &client, path).await;
            });
        }
    }
}

/// What sets the watch may be gone by then: its connection, or its session.
#[test]
fn a_parent_is_noticed_after_reconnects_and_in_later_sessions() {
    for ends_session in [false, true] {
        run_within(LONG, async {
            let world = World::new();
            let (path, missing) = DEPTHS[1];
            let admin = administrator(&world, missing).await;
            let client = world.client(FIRST).await;
            let waiting = waiting(&world, Since::Begin, &client, &admin, DEPTHS[1]).await;
            for _ in 0..10 {
                sleep_ms(A_WHILE_MS).await;
                if ends_session {
                    world.server.expire(session(&client));
                } else {
                    partition(&world, 100);
                }
            }
            sleep_ms(A_WHILE_MS).await;
            create(&admin, path.trim_end_matches("/p"), Acl::open()).await;
            let (presence, took) = waiting.until_present(&world, &client).await;
            assert!(took < AT_ONCE, "{ends_session}: {took:?}\n{}", world.trace());
            drop(presence);
            check_removed(&world, &client, path).await;
        });
    }
}

#[test]
fn a_refusal_that_lasts_costs_few_requests_and_no_memory() {
    for place @ (path, missing) in DEPTHS {
        run_within(LONG, async {
            let world = World::new();
            let admin = administrator(&world, missing).await;
            let client = world.client(FIRST).await;
            let waiting = waiting(&world, Since::Deletion, &client, &admin, place).await;
            sleep_ms(A_WHILE_MS).await;
            world.server.clear_requests();
            sleep_ms(600_000).await;
            waiting.check_refused(&world, missing[0]);
            let sent = sent_since(&world, &client);
            // For each pause a create with its test, the parents, and two tests of them.
            let pauses = sent.iter().filter(|op| **op == OpCode::CREATE2).count();
            assert!((96..=120).contains(&pauses), "{path}: {pauses}");
            let parents = path.matches('/').count() - 1;
            let most = pauses * (4 + parents);
            assert!(sent.len() <= most, "{path}: {} of {most}", sent.len());
            let watches = client.stats().watches;
            assert!(watches <= 3, "{watches} watches of {path}");
            drop(waiting);
            check_removed(&world, &client, path).await;
        });
    }
}

/// Servers report nothing of a znode that may not be read.
#[test]
fn a_parent_that_may_not_be_read_is_noticed_after_a_pause() {
    for since in SINCE {
        run_within(LONG, async {
            let world = World::new();
            let (path, missing) = DEPTHS[1];
            let admin = administrator(&world, missing).await;
            let client = world.client(FIRST).await;
            let waiting = waiting(&world, since, &client, &admin, DEPTHS[1]).await;
            sleep_ms(A_WHILE_MS).await;
            let all_but_read = Permissions(Permissions::ALL.0 & !Permissions::READ.0);
            create(&admin, missing[0], vec![Acl::new(all_but_read, "world", "anyone")]).await;
            let (presence, took) = waiting.until_present(&world, &client).await;
            assert!(took <= Duration::from_millis(6_300), "{took:?}\n{}", world.trace());
            drop(presence);
            check_removed(&world, &client, path).await;
        });
    }
}

/// A parent with permissions for others, and one that is ephemeral.
#[test]
fn a_parent_that_refuses_children_is_replaced_as_soon_as_it_is_deleted() {
    for is_ephemeral in [false, true] {
        run_within(LONG, async {
            let world = World::new();
            let admin = administrator(&world, &[""]).await;
            let client = world.client(FIRST).await;
            let parent = if is_ephemeral {
                world.server.admin_create("/e", b"", Some(session(&admin)));
                "/e"
            } else {
                TOP
            };
            let path = format!("{parent}/p");
            let trying = Presence::builder(&client, &path).expect("the path is valid");
            let beginning = spawn(async move { trying.keep_trying().begin("mine").await });
            sleep_ms(A_WHILE_MS).await;
            // A change of the data changes nothing, and is no reason to stop watching.
            world.server.admin_set_data(parent, b"!");
            sleep_ms(100).await;
            assert!(!beginning.is_finished(), "{}", world.trace());
            assert!(world.server.admin_delete(parent));
            let deleted = client.now();
            let presence = beginning.await.expect("no panic").expect("the parent is gone");
            let took = client.now().saturating_since(deleted);
            assert!(took < AT_ONCE, "{parent}: {took:?}\n{}", world.trace());
            assert!(is_present(&presence));
            drop(presence);
            check_removed(&world, &client, &path).await;
        });
    }
}

#[test]
fn a_chroot_that_is_created_is_used_at_once() {
    for path in ["/p", "/a/b/p"] {
        run_within(LONG, async {
            let world = World::new();
            let client = world.client(FIRST).await;
            let rooted = client.rooted_at("/app").expect("the path is valid");
            let trying = Presence::builder(&rooted, path).expect("the path is valid");
            let beginning = spawn(async move { trying.keep_trying().begin("mine").await });
            sleep_ms(A_WHILE_MS).await;
            assert!(!beginning.is_finished(), "{}", world.trace());
            world.server.admin_create("/app", b"", None);
            let created = client.now();
            let presence = beginning.await.expect("no panic").expect("the chroot exists");
            let took = client.now().saturating_since(created);
            assert!(took < AT_ONCE, "{path}: {took:?}\n{}", world.trace());
            drop(presence);
            check_removed(&world, &client, &format!("/app{path}")).await;
        });
    }
}

/// The presence tries once for each change that it sees, and after its pauses.
#[test]
fn a_parent_that_comes_and_goes_costs_one_attempt_for_each_change() {
    run_within(LONG, async {
        let world = World::new();
        let client = world.client(FIRST).await;
        let (path, missing) = DEPTHS[1];
        let admin = administrator(&world, missing).await;
        let waiting = waiting(&world, Since::Deletion, &client, &admin, DEPTHS[1]).await;
        sleep_ms(A_WHILE_MS).await;
        world.server.clear_requests();
        for _ in 0..20 {
            create(&admin, missing[0], closed()).await;
            assert!(world.server.admin_delete(missing[0]));
            sleep_ms(3_000).await;
        }
        let sent = sent_since(&world, &client);
        let attempts = sent.iter().filter(|op| **op == OpCode::CREATE2).count();
        assert!((20..=52).contains(&attempts), "{attempts}\n{}", world.trace());
        waiting.check_refused(&world, missing[0]);
        drop(waiting);
        check_removed(&world, &client, path).await;
    });
}
