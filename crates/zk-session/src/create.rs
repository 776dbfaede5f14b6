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
    pub(crate) acl: Vec<Acl>,
}

impl CreateOptions {
    /// Sets the access control list. By default everyone may do everything ([`Acl::open`]).
    #[must_use]
    pub fn acl(self, acl: Vec<Acl>) -> Self {
        Self { acl, ..self }
    }

    pub(crate) fn request(self, path: &str, data: bytes::Bytes) -> CreateRequest {
        CreateRequest {
            path: path.into(),
            data: Some(data),
            acl: self.acl,
            mode: self.mode,
            with_stat: true,
        }
    }
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> Self {
        Self { mode, acl: Acl::open() }
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
