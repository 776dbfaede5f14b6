//! Options of a shared value.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use zk_session::recipe::Session;
use zk_session::{Acl, Client, ConfigError};

use crate::error::{check_acl, check_path};

/// Options of a [`SharedValue`](crate::SharedValue).
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct SharedValueBuilder {
    client: Client,
    profile: ValueProfile,
}

/// The options, checked.
#[derive(Clone, Debug)]
pub(crate) struct ValueProfile {
    pub(crate) path: ByteString,
    pub(crate) initial: Bytes,
    pub(crate) acl: Vec<Acl>,
    pub(crate) timeout: Option<Duration>,
}

impl SharedValueBuilder {
    pub(crate) fn new(client: &Client, path: &str) -> Result<Self, ConfigError> {
        check_path("path of the shared value", path)?;
        let (path, acl) = (path.into(), Session::of(client).default_acl());
        let profile = ValueProfile { path, initial: Bytes::new(), acl, timeout: None };
        Ok(Self { client: client.clone(), profile })
    }

    /// Sets the value of a znode that does not exist yet. Default: empty.
    pub fn initial(mut self, initial: impl Into<Bytes>) -> Self {
        self.profile.initial = initial.into();
        self
    }

    /// Sets the access control list of the znode and of its ancestors, if they have to be created,
    /// and of the markers of writes. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.profile.acl = acl;
        self
    }

    /// Makes each operation give up after this time, unless it has a
    /// [timeout of its own](crate::Call::timeout). Default: none, so an operation waits for as long as
    /// the client has no connection, and for other writers.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.profile.timeout = Some(timeout);
        self
    }

    /// Checks the options, and returns the parts from which a value is built.
    pub(super) fn finish(self) -> Result<(Client, ValueProfile), ConfigError> {
        check_acl("acl of the shared value", &self.client, &self.profile.acl)?;
        Ok((self.client, self.profile))
    }
}

impl fmt::Debug for SharedValueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValueBuilder").field("profile", &self.profile).finish_non_exhaustive()
    }
}
