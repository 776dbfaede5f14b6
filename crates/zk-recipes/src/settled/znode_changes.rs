//! Following a znode through its changes.

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::Response;
use zk_session::{Client, Stat};

use crate::engine::monitor::Monitored;
use crate::error::RecipeError;
use crate::machine::Aspect;
use crate::stream::stream;

/// The states of a znode, one after the other; see
/// [`SettledClient::changes`](crate::SettledClient::changes).
///
/// It keeps the client's session open.
pub struct ZnodeChanges {
    path: ByteString,
    monitored: Monitored,
    has_ended: bool,
}

impl ZnodeChanges {
    pub(super) fn new(client: &Client, path: &str) -> Self {
        let path = ByteString::from(path);
        let monitored = Monitored::new(client, &path, Aspect::Data);
        Self { path, monitored, has_ended: false }
    }

    /// Returns what the znode is now on the first call. Each later call waits for a change, and
    /// returns the newest data and metadata. `None` means that the znode does not exist. Two equal
    /// results may follow each other, and changes that follow each other fast are reported as one.
    ///
    /// **Connection loss** and the end of the session are waited out, and no state is older than one
    /// that was reported before. **Cancel safe**: no change is lost. Each change costs one read, two if
    /// the znode was deleted; while nothing changes, a test of existence every 30 s shows whether an
    /// event was missed. Needs READ.
    ///
    /// # Errors
    ///
    /// [`RecipeError::Refused`] if a server refuses to read the znode; the next call tries again.
    /// [`RecipeError::Closed`] and similar errors if the client has stopped.
    pub async fn next(&mut self) -> Result<Option<(Bytes, Stat)>, RecipeError> {
        Ok(match self.monitored.next(None).await? {
            Some(Response::GetData(found)) => {
                Some((found.data.unwrap_or_default(), found.stat.into()))
            }
            _ => None,
        })
    }

    /// Returns the path of the znode.
    pub fn path(&self) -> &str {
        &self.path
    }
}

stream!(ZnodeChanges, Option<(Bytes, Stat)>, RecipeError);

impl fmt::Debug for ZnodeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZnodeChanges").field("path", &self.path).finish_non_exhaustive()
    }
}
