//! The options that all locks have: their fields, defaults, ranges and setters.

#[cfg(feature = "tokio")]
use std::fmt;
#[cfg(feature = "tokio")]
use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Acl;
#[cfg(feature = "tokio")]
use zk_session::{Client, ConfigError, OptionDefect, recipe::Session};

#[cfg(feature = "tokio")]
use super::state::AtRiskPolicy;
#[cfg(feature = "tokio")]
use crate::error::{check_acl, check_path};
#[cfg(feature = "tokio")]
use crate::machine::{WATCH_CHECK, WATCH_CHECK_MIN};

/// The options that all locks have, as far as their machines need them.
#[derive(Clone, Debug, Default)]
pub struct LockOptions {
    /// The path that identifies the lock: its directory, or the znode of an exclusive lock.
    pub path: ByteString,
    /// The access control list of the contender znodes.
    pub acl: Vec<Acl>,
    /// The data of the contender znodes. An exclusive lock stores it behind the attempt's id.
    pub identity: Bytes,
    /// How often a waiter checks for missed watches when no event arrives.
    pub watch_check: Option<Duration>,
}

/// The options that all locks have, as far as acquires and guards need them.
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GuardOptions {
    pub(crate) at_risk: AtRiskPolicy,
}

/// Options of a lock of type `L`, such as [`FairLock`](crate::FairLock), whose contenders have
/// names of the form `N`.
#[cfg(feature = "tokio")]
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockBuilder<L, N = ()> {
    client: Client,
    options: LockOptions,
    holding: GuardOptions,
    pub(crate) naming: N,
    lock: PhantomData<fn() -> L>,
}

#[cfg(feature = "tokio")]
impl<L, N: Default> LockBuilder<L, N> {
    pub(crate) fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        check_path("path of the lock", path)?;
        let options = LockOptions {
            path: path.into(),
            acl: Session::of(client).default_acl(),
            identity: identity().into(),
            watch_check: Some(WATCH_CHECK),
        };
        let (client, holding) = (client.clone(), GuardOptions::default());
        Ok(Self { client, options, holding, naming: N::default(), lock: PhantomData })
    }
}

// `docs/recipes/fair.md` shows these options, with the beginnings of their comments and the defaults
// at their ends.
#[cfg(feature = "tokio")]
impl<L, N> LockBuilder<L, N> {
    /// Sets the access control list of contender znodes and missing directories. All clients that
    /// share the lock need READ, CREATE and DELETE, so list all of their identities: with
    /// [`Acl::creator_all`], only clients of one identity can share it. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    ///
    /// If the list lets nobody create and delete, missing directories get that of the client. A
    /// directory that exists keeps its list, and a client that may delete in it can take the lock
    /// from its holder.
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.options.acl = acl;
        self
    }

    /// Sets the data of the contender znodes, for people who inspect the queue. Every client that may
    /// read the znodes can read it, so it must not contain a secret. Default: host name and process
    /// id.
    pub fn identity(mut self, identity: impl Into<Bytes>) -> Self {
        self.options.identity = identity.into();
        self
    }

    /// Sets how often a waiter checks for missed watches; `None` means never. A check reads the
    /// waiter's znode and the one ahead of it, however long the queue is. Default: 30 s, at least
    /// 10 ms. Each waiter adds up to a quarter of the interval, so that waiters do not check at the
    /// same time.
    ///
    /// From 3.8.4 and 3.9.2 on, servers discard an event about a znode that the client may not read
    /// at that moment. So without checks, somebody who takes READ from the client for a moment can
    /// make it wait forever.
    pub fn watch_check(mut self, interval: Option<Duration>) -> Self {
        self.options.watch_check = interval;
        self
    }

    /// Sets how to treat a lock that is at risk. Default: [`AtRiskPolicy::GoOn`].
    pub fn at_risk(mut self, policy: AtRiskPolicy) -> Self {
        self.holding.at_risk = policy;
        self
    }

    /// Checks the options, and returns them.
    pub(crate) fn checked(self) -> Result<(Client, LockOptions, GuardOptions, N), ConfigError> {
        let Self { client, options, holding, naming, .. } = self;
        check_acl("acl of the lock", &client, &options.acl)?;
        if let Some(short) = options.watch_check.filter(|interval| *interval < WATCH_CHECK_MIN) {
            let (option, value) = ("watch_check", format!("{short:?}"));
            let defect = OptionDefect::ShorterThan(WATCH_CHECK_MIN);
            return Err(ConfigError::Option { option, value, defect });
        }
        Ok((client, options, holding, naming))
    }
}

#[cfg(feature = "tokio")]
impl<L, N: fmt::Debug> fmt::Debug for LockBuilder<L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockBuilder")
            .field("options", &self.options)
            .field("holding", &self.holding)
            .field("naming", &self.naming)
            .finish_non_exhaustive()
    }
}

/// Returns a text that identifies this process to people.
#[cfg(feature = "tokio")]
fn identity() -> String {
    let process = std::process::id();
    #[cfg(unix)]
    if let Ok(host) = nix::unistd::gethostname() {
        return format!("{} pid={process}", host.display());
    }
    format!("pid={process}")
}
