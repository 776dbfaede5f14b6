//! Who may use the znodes that a client creates.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use jute_codec::{Acl, MultiOp, Permissions, Request};
use tracing::warn;

/// Maximum number of directories that are named in warnings. A client that writes into more of them
/// has been warned often enough.
const DIRECTORIES_MAX: usize = 16;

/// The default access control list of a client, and what it has warned of.
#[derive(Debug)]
pub(crate) struct Access {
    default_acl: Vec<Acl>,
    /// Hashes of the directories of which the client has warned; `None` if it warns of none.
    warned: Option<Mutex<Vec<u64>>>,
}

impl Access {
    /// Creates the defaults of a client. A client without credentials does not warn, because it can
    /// protect nothing. Neither does one with a default, because what is open by way of exception
    /// has a list of its own.
    pub(crate) fn new(default_acl: Option<Vec<Acl>>, has_credentials: bool) -> Self {
        let warned = (has_credentials && default_acl.is_none()).then(Mutex::default);
        Self { default_acl: default_acl.unwrap_or_else(Acl::open), warned }
    }

    pub(crate) fn default_acl(&self) -> &[Acl] {
        &self.default_acl
    }

    /// Gives a create without a list the default list.
    pub(crate) fn complete(&self, request: &mut Request) {
        if let Request::Create(create) = request
            && create.acl.is_empty()
        {
            create.acl.clone_from(&self.default_acl);
        }
    }

    /// Warns if a request creates a znode that everyone may change, once for each directory.
    pub(crate) fn check(&self, request: &Request) {
        let Some(warned) = &self.warned else { return };
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
        directory,
        path,
        "this client has credentials, but creates a znode that everyone may change and delete; set \
         `default_acl`, to `Acl::open()` if this is intended"
    );
}
