//! Options of a barrier.

use std::fmt;
use std::time::Duration;

use bytestring::ByteString;
use zk_session::recipe::Session;
use zk_session::{Acl, Client, ConfigError, Time};

use crate::error::{check_acl, check_path};

/// Options of a [`Barrier`](crate::Barrier).
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct BarrierBuilder {
    profile: Profile,
}

/// A client and the options, checked.
#[derive(Clone)]
pub(super) struct Profile {
    pub(super) client: Client,
    pub(super) path: ByteString,
    pub(super) acl: Vec<Acl>,
    timeout: Option<Duration>,
}

impl Profile {
    /// Returns the deadline of an operation that begins now.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.timeout.map(|timeout| self.client.now() + timeout)
    }
}

impl BarrierBuilder {
    pub(super) fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        check_path("path of the barrier", path)?;
        let (client, path) = (client.clone(), path.into());
        let acl = Session::of(&client).default_acl();
        Ok(Self { profile: Profile { client, path, acl, timeout: None } })
    }

    /// Sets the access control list of the barrier's znode, of the markers beside it, and of missing
    /// ancestors. Those who close and open need CREATE and DELETE, and those who wait need READ.
    /// Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.profile.acl = acl;
        self
    }

    /// Makes each [`close`](crate::Barrier::close), [`open`](crate::Barrier::open) and
    /// [`is_open`](crate::Barrier::is_open) give up after this time with
    /// [`TimedOut`](crate::RecipeError::TimedOut). A barrier may then have been closed or opened.
    /// Default: none, so an operation waits for as long as the client has no connection.
    ///
    /// Each of them can have a [timeout of its own](crate::Call::timeout) instead. This one does not
    /// apply to a wait.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.profile.timeout = Some(timeout);
        self
    }

    /// Checks the options, and returns the parts from which a barrier is built.
    pub(super) fn finish(self) -> Result<Profile, ConfigError> {
        let Profile { client, acl, .. } = &self.profile;
        check_acl("acl of the barrier", client, acl)?;
        Ok(self.profile)
    }
}

impl fmt::Debug for BarrierBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierBuilder")
            .field("path", &self.profile.path)
            .field("acl", &self.profile.acl)
            .field("timeout", &self.profile.timeout)
            .finish_non_exhaustive()
    }
}
