//! A row for each operation. The suites of this file's users take part in all rows, so an operation
//! that is added here is tested with cuts, ends of sessions, and members that lag.

use std::future::Future;
use std::pin::Pin;

use jute_codec::{ErrorCode, OpCode};
use zk_recipes::{
    Acl, Client, CreateMode, CreateOptions, FairLock, Guard, Multi, Outcome, RecipeError,
    SessionId, SettledClient, SettledError, Version,
};
use zk_session::{
    Host, Member, MultiRead, Permissions, Reconfig, Stat, Ttl, WatchItem, WatchMode, Watcher,
};
use zk_tests::scene::FIRST;
use zk_tests::world::World;
use zk_testserver::{CommitRecord, ServerConfig, ServerVersion};

use crate::{PATH, create_directories, settled};

/// The digest of `super:pw`.
const SUPER: &str = "super:0bX78nEegDzJM3ju0iLBEJdWzjg=";
/// What the server records of a create.
const CREATES: &[OpCode] =
    &[OpCode::CREATE, OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL];
/// The directory of the lock of the guard.
const LOCK: &str = "/held";

/// What a caller was told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    Applied,
    /// It is in force, and may have been applied by another caller.
    InForce,
    NotApplied(String),
    Unknown(String),
}

impl From<SettledError> for Told {
    fn from(error: SettledError) -> Self {
        match error.outcome() {
            Outcome::NotApplied => Self::NotApplied(error.to_string()),
            Outcome::Unknown => Self::Unknown(error.to_string()),
        }
    }
}

impl From<RecipeError> for Told {
    fn from(error: RecipeError) -> Self {
        Self::NotApplied(error.to_string())
    }
}

/// What the operation of a row finds.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) settled: SettledClient,
    guard: Option<Guard>,
    /// The session at first.
    session: Option<SessionId>,
    /// The metadata of the znode at first.
    stat: Stat,
}

type Running<'a> = Pin<Box<dyn Future<Output = Result<Told, Told>> + 'a>>;

/// An operation.
pub(crate) struct Row {
    /// The method.
    pub(crate) name: &'static str,
    /// What an applied operation commits; nothing, if it only reads.
    ops: &'static [OpCode],
    needs_guard: bool,
    /// Once the session has ended, the operation cannot go on in the next one.
    pub(crate) is_bound: bool,
    run: for<'a> fn(&'a Scene) -> Running<'a>,
}

impl Row {
    pub(crate) fn is_read(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether the version of what it changes decides, in any session, and no marker.
    pub(crate) fn has_version(&self) -> bool {
        self.ops.iter().any(|op| matches!(*op, OpCode::SET_ACL | OpCode::RECONFIG))
    }

    /// Creates a scene, with a client that the world connects.
    pub(crate) async fn scene(&self, world: World, client: Client) -> Scene {
        create_directories(&world);
        world.server.admin_create(PATH, b"old", None);
        let guard = if self.needs_guard {
            let lock = FairLock::new(&client, LOCK).expect("the path is valid");
            Some(lock.acquire().await.expect("nobody else wants it"))
        } else {
            None
        };
        let stat = client.exists(PATH).await.expect("it can be read").expect("it exists");
        let settled = settled(&client);
        let session = client.session_id();
        Scene { world, client, settled, guard, session, stat }
    }

    /// Runs the operation.
    pub(crate) async fn run(&self, scene: &Scene) -> Told {
        (self.run)(scene).await.unwrap_or_else(|told| told)
    }

    /// Counts how often the operation was applied.
    pub(crate) fn applied(&self, world: &World) -> usize {
        let is_own = |commit: &&CommitRecord| {
            let path = commit.path.as_deref().unwrap_or_default();
            let is_subject = path.starts_with("/data/") || path.starts_with("/zookeeper");
            commit.error == ErrorCode::OK
                && commit.session.0 != 0
                && (is_subject || commit.op == OpCode::RECONFIG)
                && self.ops.contains(&commit.op)
        };
        world.server.commits().iter().filter(is_own).count()
    }

    /// Checks that what the caller was told is what the server has done.
    #[track_caller]
    pub(crate) fn check(&self, told: &Told, world: &World) {
        let applied = self.applied(world);
        let is_true = match told {
            Told::Applied | Told::InForce => applied == usize::from(!self.is_read()),
            Told::NotApplied(_) => applied == 0,
            Told::Unknown(_) => applied <= 1,
        };
        assert!(is_true, "{}: {applied} times, told {told:?}\n{}", self.name, world.trace());
    }
}

/// Returns the configuration of a server on which all rows succeed.
pub(crate) fn config() -> ServerConfig {
    let lines: Vec<_> = (1..=3).map(|id| member(id).to_string()).collect();
    ServerConfig::default()
        .version(ServerVersion::V3_9)
        .reconfig_enabled(true)
        .extended_types(true)
        .super_digest(SUPER)
        .dynamic_config(&lines.join("\n"))
}

/// Connects the client of a scene.
pub(crate) async fn client(world: &World) -> Client {
    world.client_with(FIRST, |builder| builder.auth("digest", "super:pw")).await
}

fn member(id: u64) -> Member {
    let client = Host { name: "0.0.0.0".into(), port: 2181 };
    Member::new(id, &format!("h{id}"), 2888, 3888).client(client)
}

fn acl() -> Vec<Acl> {
    vec![
        Acl::new(Permissions::ALL, "digest", "somebody:hash"),
        Acl::new(Permissions::READ, "world", "anyone"),
    ]
}

/// Changes the znode, and waits until the watcher says so: the reply has arrived, so the watch can be
/// relied on. It ends with its session.
async fn fires(scene: &Scene, mut watcher: Watcher, change: fn(&World)) -> Result<Told, Told> {
    change(&scene.world);
    scene.world.server.disconnect_all();
    match watcher.changed().await {
        Ok(event) => assert_eq!(event.path, watcher.path()),
        Err(ended) => {
            let has_ended = scene.client.session_id() != scene.session;
            assert!(has_ended, "{ended:?}\n{}", scene.world.trace());
        }
    }
    Ok(Told::Applied)
}

fn write(world: &World) {
    world.server.admin_set_data(PATH, b"changed");
}

fn create(world: &World) {
    world.server.admin_create("/data/x/child", b"", None);
}

fn created(
    path: &'static str,
    mode: impl Into<CreateOptions>,
) -> impl FnOnce(&Scene) -> Running<'_> {
    let options = mode.into();
    move |scene| {
        Box::pin(async move {
            let created = scene.settled.create(path, "new", options).await?;
            let path = created.path.expect("nobody deletes it");
            if let Some(found) = scene.world.server.stat(&path) {
                let stat = created.stat.expect("nobody deletes it");
                assert_eq!(stat.czxid, found.czxid, "\n{}", scene.world.trace());
            }
            Ok(Told::Applied)
        })
    }
}

macro_rules! row {
    ($name:literal, $ops:expr, |$scene:ident| $body:expr) => {
        Row {
            name: $name,
            ops: $ops,
            needs_guard: false,
            is_bound: false,
            run: |$scene: &Scene| Box::pin(async move { $body }),
        }
    };
}

macro_rules! read {
    ($name:literal, |$settled:ident| $call:expr, $found:pat $(if $condition:expr)?) => {
        row!($name, &[], |scene| {
            let $settled = &scene.settled;
            match $call.await? {
                $found $(if $condition)? => Ok(Told::Applied),
                #[allow(unreachable_patterns, reason = "some replies have only one form")]
                other => panic!("{other:?}\n{}", scene.world.trace()),
            }
        })
    };
}

macro_rules! watched {
    ($name:literal, |$settled:ident| $call:expr, $change:expr) => {
        row!($name, &[], |scene| {
            let $settled = &scene.settled;
            let (_, watcher) = $call.await?;
            fires(scene, watcher, $change).await
        })
    };
}

macro_rules! create {
    ($path:literal, $mode:expr, $is_bound:expr) => {
        Row {
            name: "create",
            ops: CREATES,
            needs_guard: false,
            is_bound: $is_bound,
            run: |scene: &Scene| created($path, $mode)(scene),
        }
    };
}

/// Returns all rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = reads();
    rows.extend(watches());
    rows.extend(writes());
    rows
}

fn reads() -> Vec<Row> {
    vec![
        read!("get_data", |it| it.get_data(PATH), (data, _) if data == "old"),
        read!("get_children", |it| it.get_children("/data"), names if names == ["x"]),
        read!("get_children_with_stat", |it| it.get_children_with_stat("/data"), (names, _) if names.len() == 1),
        read!("exists", |it| it.exists(PATH), Some(_)),
        read!("exists", |it| it.exists("/missing"), None),
        read!("get_acl", |it| it.get_acl(PATH), (acl, _) if acl == Acl::open()),
        read!("multi_read", |it| it.multi_read(MultiRead::new().get_data(PATH).get_data("/missing")), results if matches!(results.as_slice(), [Ok(_), Err(_)])),
        read!("count_descendants", |it| it.count_descendants("/data"), 1),
        read!("get_ephemerals", |it| it.get_ephemerals("/data"), paths if paths.is_empty()),
        read!("who_am_i", |it| it.who_am_i(), identities if !identities.is_empty()),
        read!("get_config", |it| it.get_config(), config if config.members.len() == 3),
        read!("catch_up", |it| it.catch_up(), ()),
        read!("sync", |it| it.sync(PATH), ()),
    ]
}

fn watches() -> Vec<Row> {
    vec![
        watched!("get_data_and_watch", |it| it.get_data_and_watch(PATH), write),
        watched!("get_children_and_watch", |it| it.get_children_and_watch(PATH), create),
        watched!(
            "get_children_with_stat_and_watch",
            |it| it.get_children_with_stat_and_watch(PATH),
            create
        ),
        watched!("exists_and_watch", |it| it.exists_and_watch(PATH), write),
        row!("get_config_and_watch", &[], |scene| {
            let (config, watcher) = scene.settled.get_config_and_watch().await?;
            assert_eq!((config.members.len(), watcher.path()), (3, "/zookeeper/config"));
            Ok(Told::Applied)
        }),
        row!("watch", &[], |scene| {
            let mut stream = scene.settled.watch(PATH, WatchMode::Persistent).await?;
            write(&scene.world);
            let item = stream.next().await;
            let is_seen = matches!(item, Ok(WatchItem::Event(_) | WatchItem::Gap { .. }) | Err(_));
            assert!(is_seen, "{item:?}\n{}", scene.world.trace());
            Ok(Told::Applied)
        }),
    ]
}

fn writes() -> Vec<Row> {
    vec![
        create!("/data/new", CreateMode::Persistent, false),
        create!("/data/new", CreateMode::Ephemeral, true),
        create!("/data/new-", CreateMode::PersistentSequential, false),
        create!("/data/new-", CreateMode::EphemeralSequential, true),
        create!("/data/new", CreateMode::Container, false),
        create!("/data/new", CreateMode::PersistentTtl(ttl()), false),
        row!("create_with_parents", CREATES, |scene| {
            // Its parents are no ephemerals, so they are not counted twice.
            let options = CreateOptions::from(CreateMode::Persistent);
            let created = scene.settled.create_with_parents("/data/new", "new", options).await?;
            assert_eq!(created.path.as_deref(), Some("/data/new"));
            Ok(Told::Applied)
        }),
        row!("set_data", &[OpCode::SET_DATA], |scene| {
            scene.settled.set_data(PATH, "new", None).await?;
            Ok(Told::Applied)
        }),
        row!("set_data", &[OpCode::SET_DATA], |scene| {
            scene.settled.set_data(PATH, "new", Some(Version(0))).await?;
            Ok(Told::Applied)
        }),
        row!("delete", &[OpCode::DELETE], |scene| {
            scene.settled.delete(PATH, None).await?;
            Ok(Told::Applied)
        }),
        row!("delete", &[OpCode::DELETE], |scene| {
            scene.settled.delete(PATH, Some(Version(0))).await?;
            Ok(Told::Applied)
        }),
        row!("commit", &[OpCode::SET_DATA], |scene| {
            let multi = Multi::new().check("/data", None).set_data(PATH, "new", None);
            scene.settled.commit(multi).await?;
            Ok(Told::Applied)
        }),
        Row {
            needs_guard: true,
            is_bound: true,
            ..row!("commit_under", &[OpCode::SET_DATA], |scene| {
                let guard = scene.guard.as_ref().expect("this row has one");
                let multi = Multi::new().set_data(PATH, "new", None);
                let outcomes = scene.settled.commit_under(guard, multi).await?;
                assert!(outcomes.is_none_or(|outcomes| outcomes.len() == 1));
                Ok(Told::Applied)
            })
        },
        row!("set_acl", &[OpCode::SET_ACL], |scene| set_acl(scene, None).await),
        row!("set_acl", &[OpCode::SET_ACL], |scene| set_acl(scene, Some(scene.stat)).await),
        row!("reconfig", &[OpCode::RECONFIG], |scene| {
            reconfig(scene, Reconfig::incremental().leave(3)).await
        }),
        row!("reconfig", &[OpCode::RECONFIG], |scene| {
            let config = scene.settled.get_config().await?;
            let change = Reconfig::incremental().join(member(4).observer());
            let version = config.version.expect("it is an ensemble");
            reconfig(scene, change.expect_version(version)).await
        }),
    ]
}

async fn set_acl(scene: &Scene, expected: Option<Stat>) -> Result<Told, Told> {
    let set = scene.settled.set_acl(PATH, acl(), expected).await?;
    assert_eq!(set.stat.czxid, scene.stat.czxid);
    assert_eq!(set.stat.aversion, Version(1));
    Ok(if set.is_certain { Told::Applied } else { Told::InForce })
}

async fn reconfig(scene: &Scene, change: Reconfig) -> Result<Told, Told> {
    let set = scene.settled.reconfig(change.clone()).await?;
    assert!(change.is_in_force(&set.config), "{set:?}");
    Ok(if set.is_certain { Told::Applied } else { Told::InForce })
}

/// A new operation needs a row.
#[test]
fn every_operation_has_a_row() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/zk-recipes/src/settled");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let text = std::fs::read_to_string(entry.expect("it can be listed").path());
        let text = text.expect("it can be read");
        for (at, _) in text.match_indices("    pub fn ") {
            let item = &text[at + "    pub fn ".len()..];
            let signature = item.split('{').next().unwrap_or_default();
            if signature.contains("-> Call<") {
                let end = signature.find(['(', '<']).expect("it has arguments");
                names.push(signature[..end].to_owned());
            }
        }
    }
    assert!(names.len() >= 25, "{names:?}");
    let rows = rows();
    names.retain(|name| !rows.iter().any(|row| row.name == name));
    assert_eq!(names, Vec::<String>::new(), "add rows for these operations");
}

fn ttl() -> Ttl {
    Ttl::from_millis(600_000).expect("it is in the range")
}
