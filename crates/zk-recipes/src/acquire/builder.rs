//! Options of a lock.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::Acl;
use zk_session::recipe::Session;
use zk_session::{Client, ConfigError, OptionDefect};

use super::lock::Lock;
use crate::error::{check_acl, check_path};
use crate::guard::Terms;
use crate::lock::kind::Kind;
use crate::lock::options::LockOptions;
use crate::lock::phase::Observer;
use crate::lock::state::AtRiskPolicy;
use crate::lock::stats::Counters;

/// Default interval of a waiter's check for missed watches.
const WATCH_CHECK: Duration = Duration::from_secs(30);
/// The shortest interval of that check. With a shorter one, the check would be a hot loop.
const WATCH_CHECK_MIN: Duration = Duration::from_millis(10);

/// Options of a lock of type `L`, such as [`FairLock`](crate::FairLock), whose contenders have
/// names of the form `N`.
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct LockBuilder<L, N = ()> {
    client: Client,
    options: LockOptions,
    at_risk: AtRiskPolicy,
    pub(crate) naming: N,
    lock: PhantomData<fn() -> L>,
}

impl<K: Kind> Lock<K> {
    /// Returns a builder for a lock at a path: the directory of the contenders, or the znode of an
    /// exclusive lock.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a valid absolute znode path below the root.
    pub fn builder(
        client: &Client,
        path: &str,
    ) -> Result<LockBuilder<Self, K::Naming>, ConfigError> {
        LockBuilder::new(client, path)
    }
}

impl<K: Kind> LockBuilder<Lock<K>, K::Naming> {
    /// Checks the options and builds the lock.
    ///
    /// # Errors
    ///
    /// Fails if the access control list is empty, the interval of the watch check is too short, or
    /// a semaphore has no permits.
    pub fn build(self) -> Result<Lock<K>, ConfigError> {
        let (terms, options, naming) = self.finish(K::METRIC)?;
        Lock::with(terms, options, naming)
    }
}

impl<L, N: Default> LockBuilder<L, N> {
    pub(crate) fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        check_path("path of the lock", path)?;
        let options = LockOptions {
            path: path.into(),
            acl: Session::of(client).default_acl(),
            identity: identity().into(),
            watch_check: Some(WATCH_CHECK),
        };
        let (client, at_risk) = (client.clone(), AtRiskPolicy::default());
        Ok(Self { client, options, at_risk, naming: N::default(), lock: PhantomData })
    }
}

impl<L, N> LockBuilder<L, N> {
    /// Sets the access control list of everything that the lock creates: the contender znodes, and
    /// missing directories. All clients that share the lock need READ, CREATE and DELETE, so list
    /// all of their identities: with [`Acl::creator_all`], only clients of one identity can share
    /// it. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    ///
    /// If the list lets nobody create and delete, missing directories get that of the client. A
    /// directory that exists keeps its list, and a client that may delete in it can take the lock
    /// from its holder.
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.options.acl = acl;
        self
    }

    /// Sets the data of the contender znodes. It shows people who inspect the queue which process
    /// each contender belongs to. Every client that may read the znodes can read it, so it must not
    /// contain a secret. Default: host name and process id.
    pub fn identity(mut self, identity: impl Into<Bytes>) -> Self {
        self.options.identity = identity.into();
        self
    }

    /// Sets how often a waiter checks for missed watches when no event arrives; `None` means never.
    /// A check reads the waiter's znode and the one ahead of it, however long the queue is. The
    /// interval must be at least 10 ms. Default: 30 s. Each waiter adds up to a quarter of the
    /// interval, so that waiters do not check at the same time.
    pub fn watch_check(mut self, interval: Option<Duration>) -> Self {
        self.options.watch_check = interval;
        self
    }

    /// Sets how a lock that is at risk is treated. Default: [`AtRiskPolicy::GoOn`].
    pub fn at_risk(mut self, policy: AtRiskPolicy) -> Self {
        self.at_risk = policy;
        self
    }

    /// Checks the options, and returns the parts from which a lock is built. `metric` is the name
    /// of the recipe in metrics.
    pub(crate) fn finish(
        self,
        metric: &'static str,
    ) -> Result<(Terms, LockOptions, N), ConfigError> {
        let Self { client, options, at_risk, naming, .. } = self;
        check_acl("acl of the lock", &client, &options.acl)?;
        if let Some(short) = options.watch_check.filter(|interval| *interval < WATCH_CHECK_MIN) {
            let (option, value) = ("watch_check", format!("{short:?}"));
            let defect = OptionDefect::ShorterThan(WATCH_CHECK_MIN);
            return Err(ConfigError::Option { option, value, defect });
        }
        let (observer, counters) = (Observer::default(), Arc::new(Counters::new(metric)));
        let terms = Terms { client, at_risk, observer, counters, hold_for: None };
        Ok((terms, options, naming))
    }
}

impl<L, N: fmt::Debug> fmt::Debug for LockBuilder<L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockBuilder")
            .field("options", &self.options)
            .field("at_risk", &self.at_risk)
            .field("naming", &self.naming)
            .finish_non_exhaustive()
    }
}

/// Returns a text that identifies this process to people.
fn identity() -> String {
    let process = std::process::id();
    #[cfg(unix)]
    if let Ok(host) = nix::unistd::gethostname() {
        return format!("{} pid={process}", host.display());
    }
    format!("pid={process}")
}
