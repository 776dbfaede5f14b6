//! Options for creating znodes.

use bytestring::ByteString;
use jute_codec::{Acl, CreateMode, CreateRequest};

use crate::types::Stat;

/// Options for a new znode: its mode and its access control list.
///
/// ```
/// use zk_session::{Acl, CreateMode, CreateOptions};
///
/// let options = CreateOptions::from(CreateMode::EphemeralSequential).acl(Acl::creator_all());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CreateOptions {
    pub(crate) mode: CreateMode,
    /// `None` means the default of the client.
    pub(crate) acl: Option<Vec<Acl>>,
    pub(crate) container_parents: bool,
    /// `None` means the default of the client.
    pub(crate) parent_acl: Option<Vec<Acl>>,
}

impl CreateOptions {
    /// Sets the access control list. Default: that of the client
    /// ([`ClientBuilder::default_acl`](crate::ClientBuilder::default_acl)).
    #[must_use]
    pub fn acl(self, acl: Vec<Acl>) -> Self {
        Self { acl: Some(acl), ..self }
    }

    /// Sets the access control list of ancestors that
    /// [`create_with_parents`](crate::Client::create_with_parents) creates. Default: that of the
    /// client ([`ClientBuilder::default_acl`](crate::ClientBuilder::default_acl)), whatever the
    /// list of the znode itself is: that list may let nobody create children. Has no effect on other
    /// creates.
    ///
    /// Whether a znode can be deleted depends on the list of its parent.
    #[must_use]
    pub fn parent_acl(self, parent_acl: Vec<Acl>) -> Self {
        Self { parent_acl: Some(parent_acl), ..self }
    }

    /// Makes [`create_with_parents`](crate::Client::create_with_parents) create missing ancestors as
    /// containers, which servers delete some time after their last child. By default they are
    /// persistent. Servers before 3.5.1 do not know containers; the call then fails, because a
    /// persistent znode would stay for ever. Has no effect on other creates.
    #[must_use]
    pub fn container_parents(self) -> Self {
        Self { container_parents: true, ..self }
    }

    /// Returns the request. Without a list of its own, the znode gets that of `default_acl`.
    pub(crate) fn request(
        self,
        path: &str,
        data: bytes::Bytes,
        default_acl: impl FnOnce() -> Vec<Acl>,
    ) -> CreateRequest {
        CreateRequest {
            path: path.into(),
            data: Some(data),
            acl: self.acl.unwrap_or_else(default_acl),
            mode: self.mode,
            with_stat: true,
        }
    }
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> Self {
        Self { mode, acl: None, container_parents: false, parent_acl: None }
    }
}

/// A znode that was created.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Created {
    /// Its path, with the number that a sequential mode appended.
    pub path: ByteString,
    /// Its metadata.
    pub stat: Stat,
}
