//! Building a lock of its options.

use std::sync::Arc;

use zk_session::{Client, ConfigError};

use super::lock::Lock;
use crate::guard::Terms;
use crate::lock::kind::Kind;
use crate::lock::options::{LockBuilder, LockOptions};
use crate::lock::phase::Observer;
use crate::lock::stats::Counters;

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
        self.build_as(K::METRIC)
    }

    /// Does the same as [`build`](Self::build) for a lock that is a part of another recipe, which has
    /// this name in metrics.
    pub(crate) fn build_as(self, metric: &'static str) -> Result<Lock<K>, ConfigError> {
        let (terms, options, naming) = self.finish(metric)?;
        Lock::with(terms, options, naming)
    }
}

impl<L, N> LockBuilder<L, N> {
    /// Checks the options, and returns the parts from which a lock is built. `metric` is the name
    /// of the recipe in metrics.
    pub(crate) fn finish(
        self,
        metric: &'static str,
    ) -> Result<(Terms, LockOptions, N), ConfigError> {
        let (client, options, holding, naming) = self.checked()?;
        let (observer, counters) = (Observer::default(), Arc::new(Counters::new(metric)));
        let terms = Terms { client, options: holding, observer, counters, hold_for: None };
        Ok((terms, options, naming))
    }
}
