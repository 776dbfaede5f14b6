//! Two legitimate peers, a stranger without credentials, and the attacks of the stranger.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use zk_recipes::{Acl, Client, ClientBuilder, CreateMode, CreateOptions, ErrorCode, Permissions};
use zk_session::{OpError, Version};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::{catch_up, soon};

/// The id that a server derives from [`CREDENTIALS`].
pub(crate) const ALICE: &str = "conformance:5BRLTtJskCRSj+MoK6cC4JtJ7W0=";
const BOB_CREDENTIALS: &str = "bob:secret";
const BOB: &str = "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=";

/// Where the znodes of a recipe are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The library creates the parents too.
    Missing,
    /// The parent exists, and everyone may change it.
    BelowOpen,
    /// The parent exists, and only the peers may change it.
    BelowProtected,
}

/// The identities of the peers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Identities {
    /// Both peers have one identity, and the list is [`Acl::creator_all`].
    Same,
    /// Each peer has an identity of its own, and the list names both.
    Different,
}

/// How the peers say which list their znodes have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// `.acl` of the recipe.
    Recipe,
    /// `default_acl` of the client.
    Default,
    /// `default_acl_by_path` of the client.
    DefaultByPath,
}

/// One combination of all of these.
pub(crate) struct Scene {
    /// Removes the znodes in the end.
    _fixture: Fixture,
    pub(crate) peers: [Client; 2],
    pub(crate) stranger: Client,
    /// The list for `.acl`, if the clients do not know it.
    pub(crate) acl: Option<Vec<Acl>>,
    /// The directory below which the recipe works.
    pub(crate) base: &'static str,
    /// The paths that the test has created itself.
    before: BTreeSet<String>,
    /// The parent of the directory is protected.
    pub(crate) is_parent_protected: bool,
    what: String,
}

impl Scene {
    /// Runs a test in every combination.
    pub(crate) async fn each<F: Future<Output = ()>>(test: impl Fn(Arc<Self>) -> F) {
        for place in [Place::Missing, Place::BelowOpen, Place::BelowProtected] {
            for identities in [Identities::Same, Identities::Different] {
                for told in [Told::Recipe, Told::Default, Told::DefaultByPath] {
                    let scene = Arc::new(Self::new(place, identities, told).await);
                    eprintln!("{}", scene.what);
                    test(Arc::clone(&scene)).await;
                }
            }
        }
    }

    async fn new(place: Place, identities: Identities, told: Told) -> Self {
        let fixture = Fixture::start().await;
        // The stranger creates the chroot, so everyone may change it.
        let stranger = fixture.client().await;
        let (acl, other) = match identities {
            Identities::Same => (Acl::creator_all(), CREDENTIALS),
            Identities::Different => {
                let all = |id| Acl::new(Permissions::ALL, "digest", id);
                (vec![all(ALICE), all(BOB)], BOB_CREDENTIALS)
            }
        };
        let (acl, default) = match told {
            Told::Recipe => (Some(acl.clone()), None),
            Told::Default | Told::DefaultByPath => (None, Some(acl.clone())),
        };
        let default_of = |builder: ClientBuilder| match (&default, told) {
            (Some(acl), Told::DefaultByPath) => {
                let (acl, below) = (acl.clone(), format!("{}/", fixture.chroot()));
                builder.default_acl_by_path(move |path| {
                    if path.starts_with(&below) { acl.clone() } else { Acl::open() }
                })
            }
            (Some(acl), _) => builder.default_acl(acl.clone()),
            (None, _) => builder,
        };
        let connect = |credentials| default_of(fixture.builder().auth("digest", credentials));
        let peers = [connect(CREDENTIALS), connect(other)];
        let [one, other] = peers;
        let peers = [one.connect().await.unwrap(), other.connect().await.unwrap()];
        let parent = match place {
            Place::Missing => None,
            Place::BelowOpen => Some(Acl::open()),
            Place::BelowProtected => acl.clone().or(default),
        };
        let base = if parent.is_some() { "/base/x" } else { "/missing/base/x" };
        if let Some(acl) = parent {
            let options = CreateOptions::from(CreateMode::Persistent).acl(acl);
            peers[0].create("/base", "", options).await.unwrap();
        }
        let what = format!("{place:?}, {identities:?} identities, told {told:?}");
        let before = BTreeSet::new();
        let is_parent_protected = !matches!(place, Place::BelowOpen);
        let mut scene = Self {
            _fixture: fixture,
            peers,
            stranger,
            acl,
            base,
            before,
            is_parent_protected,
            what,
        };
        scene.before = scene.paths().await;
        scene
    }

    /// Returns the path of a znode below the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Returns the paths of all znodes, as a peer sees them.
    async fn paths(&self) -> BTreeSet<String> {
        let client = &self.peers[0];
        catch_up(client).await;
        let mut found = BTreeSet::new();
        let mut pending = vec![String::new()];
        while let Some(path) = pending.pop() {
            let children = client.get_children(if path.is_empty() { "/" } else { &path }).await;
            // Ephemeral znodes may go at any moment.
            for name in children.unwrap_or_default() {
                let child = format!("{path}/{name}");
                found.insert(child.clone());
                pending.push(child);
            }
        }
        found
    }

    /// Waits until this number of znodes exist that the recipe has created.
    pub(crate) async fn until_created(&self, count: usize) {
        soon("the znodes", async {
            while self.paths().await.difference(&self.before).count() < count {}
        })
        .await;
    }

    /// Lets the stranger try everything with each znode that the recipe has created, of which there
    /// are at least this number. The server may remove an empty container meanwhile.
    pub(crate) async fn attack(&self, count_min: usize) {
        let all = self.paths().await;
        let created: Vec<_> = all.difference(&self.before).cloned().collect();
        assert!(created.len() >= count_min, "{}: only {created:?}", self.what);
        catch_up(&self.stranger).await;
        let mut removable = BTreeSet::new();
        for path in &created {
            let is_removable = self.may_be_removed(path).await;
            if is_removable {
                removable.insert(path.clone());
            }
            self.attack_znode(path, is_removable).await;
        }
        let left = self.paths().await;
        let is_lost = |path: &&String| !left.contains(*path) && !removable.contains(*path);
        let lost: Vec<_> = created.iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "{}: {lost:?} are gone", self.what);
        let forged: Vec<_> = left.iter().filter(|path| path.contains(FORGED)).collect();
        assert!(forged.is_empty(), "{}: {forged:?}", self.what);
    }

    /// Returns true if the znode may be a container that the server removes at any moment, or if it
    /// is gone already. Servers do not report which znodes are containers.
    async fn may_be_removed(&self, path: &str) -> bool {
        let stat = self.peers[0].exists(path).await.unwrap();
        stat.is_none_or(|stat| {
            stat.num_children == 0 && stat.cversion > Version(0) && stat.ephemeral_owner.is_none()
        })
    }

    async fn attack_znode(&self, path: &str, is_removable: bool) {
        let client = &self.stranger;
        let is_gone = |code| is_removable && code == Some(ErrorCode::NO_NODE);
        let refused = |attack: &str, result: Result<(), OpError>| {
            let code = result.expect_err(attack).server_code();
            let is_refused = code == Some(ErrorCode::NO_AUTH) || is_gone(code);
            assert!(is_refused, "{}: {attack} {path}: {code:?}", self.what);
        };
        let deleted = client.delete(path, None).await;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if parent.is_empty() || self.before.contains(parent) {
            // Everyone may delete the children of an open directory, but not with children of their
            // own.
            let code = deleted.err().and_then(|error| error.server_code());
            let is_refused = matches!(code, Some(ErrorCode::NOT_EMPTY | ErrorCode::NO_AUTH));
            assert!(is_refused || is_gone(code), "{}: delete {path}: {code:?}", self.what);
        } else {
            refused("delete", deleted);
        }
        for mode in [CreateMode::Persistent, CreateMode::EphemeralSequential] {
            let child = format!("{path}/{FORGED}");
            refused("create", client.create(&child, "99", mode).await.map(drop));
        }
        refused("set data", client.set_data(path, "99", None).await.map(drop));
        refused("read", client.get_data(path).await.map(drop));
        refused("list", client.get_children(path).await.map(drop));
        refused("set list", client.set_acl(path, Acl::open(), None).await.map(drop));
    }
}

/// The beginning of the names of forged znodes: that of an item of a work queue.
const FORGED: &str = "entry-000-";
