//! Who may use the znodes that a client creates.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytestring::ByteString;
use jute_codec::{Acl, MultiOp, Permissions, Request};
use tracing::warn;

use crate::abridged::Abridged;
use crate::path::Chroot;

/// Maximum number of directories that are named in warnings. A client that writes into more of them
/// has been warned often enough.
const DIRECTORIES_MAX: usize = 16;

/// The access control list of znodes that are created without a list of their own.
pub(crate) enum DefaultAcl {
    /// The same list for every znode.
    List(Vec<Acl>),
    /// A function of the path on the server.
    ByPath(Box<AclOf>),
}

/// Returns the list of the znode at a path on the server.
type AclOf = dyn Fn(&str) -> Vec<Acl> + Send + Sync;

/// The default access control list of a client, and what it has warned of.
#[derive(Debug)]
pub(crate) struct Access {
    default_acl: DefaultAcl,
    /// Hashes of the directories of which the client has warned; `None` if it warns of none.
    warned: Option<Mutex<Vec<u64>>>,
    /// The client can protect its znodes.
    has_credentials: AtomicBool,
}

impl Access {
    /// Creates the defaults of a client. A client without credentials does not warn, because it can
    /// protect nothing. Neither does one with a default, because what is open by way of exception
    /// has a list of its own.
    pub(crate) fn new(default_acl: Option<DefaultAcl>, has_credentials: bool) -> Self {
        let warned = default_acl.is_none().then(Mutex::default);
        let default_acl = default_acl.unwrap_or_else(|| DefaultAcl::List(Acl::open()));
        Self { default_acl, warned, has_credentials: has_credentials.into() }
    }

    /// Records that the client has credentials now.
    pub(crate) fn has_credentials(&self) {
        self.has_credentials.store(true, Ordering::Relaxed);
    }

    /// Returns the default list, or an empty one if it depends on the path.
    pub(crate) fn constant(&self) -> &[Acl] {
        match &self.default_acl {
            DefaultAcl::List(acl) => acl,
            DefaultAcl::ByPath(_) => &[],
        }
    }

    /// Returns the default list of a znode, given its path below the chroot.
    pub(crate) fn default_acl(&self, chroot: &Chroot, path: &str) -> Vec<Acl> {
        match &self.default_acl {
            DefaultAcl::List(acl) => acl.clone(),
            DefaultAcl::ByPath(acl_of) => {
                let on_server = match chroot.as_str() {
                    "" => Cow::Borrowed(path),
                    _ => chroot.to_server(&ByteString::from(path)).to_string().into(),
                };
                acl_of(&on_server)
            }
        }
    }

    /// Gives each create without a list the default list. The paths are below the chroot.
    pub(crate) fn complete(&self, chroot: &Chroot, request: &mut Request) {
        if let Request::Create(create) = request {
            if create.acl.is_empty() {
                create.acl = self.default_acl(chroot, &create.path);
            }
        } else if let Request::Multi(ops) = request {
            for op in ops {
                if let MultiOp::Create(create) = op
                    && create.acl.is_empty()
                {
                    create.acl = self.default_acl(chroot, &create.path);
                }
            }
        }
    }

    /// Warns if a request creates a znode that everyone may change, once for each directory.
    pub(crate) fn check(&self, request: &Request) {
        let Some(warned) = &self.warned else { return };
        if !self.has_credentials.load(Ordering::Relaxed) {
            return;
        }
        let check = |path: &str, acl: &[Acl]| {
            if acl.iter().any(is_open) {
                warn_once(warned, path);
            }
        };
        if let Request::Create(create) = request {
            check(&create.path, &create.acl);
        } else if let Request::Multi(ops) = request {
            for op in ops {
                if let MultiOp::Create(create) = op {
                    check(&create.path, &create.acl);
                }
            }
        }
    }
}

impl fmt::Debug for DefaultAcl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(acl) => f.debug_tuple("List").field(acl).finish(),
            Self::ByPath(_) => f.debug_tuple("ByPath").finish_non_exhaustive(),
        }
    }
}

/// Returns whether an entry lets everyone change something.
fn is_open(acl: &Acl) -> bool {
    let change =
        Permissions::WRITE | Permissions::CREATE | Permissions::DELETE | Permissions::ADMIN;
    acl.id.scheme == "world" && acl.perms.intersects(change)
}

fn warn_once(warned: &Mutex<Vec<u64>>, path: &str) {
    let directory = match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((directory, _)) => directory,
    };
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    let hash = hasher.finish();
    let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
    if warned.contains(&hash) || warned.len() == DIRECTORIES_MAX {
        return;
    }
    warned.push(hash);
    // Do not hold the lock while a subscriber runs.
    drop(warned);
    warn!(
        directory = ?Abridged(directory),
        path = ?Abridged(path),
        "this client has credentials, but creates a znode that everyone may change and delete; set \
         `default_acl`, to `Acl::open()` if this is intended"
    );
}
