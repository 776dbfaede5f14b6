//! Handles whose paths begin at another root.

use std::sync::Arc;

use super::Client;
use crate::error::{ConfigError, OpError};
use crate::path;

impl Client {
    /// Returns a handle to the same session, whose paths are below `path`: a part of a program sees
    /// only its own subtree, as if that were its chroot. The path is one of this handle, so roots
    /// can be nested.
    ///
    /// The handle speaks of paths below its root only: operations, multis, events, the paths that
    /// are returned, and errors. So does every recipe that is built from it. The session is shared,
    /// with its ephemeral znodes, its limits and its end: [`close`](Self::close) closes it for all
    /// handles. Paths of znodes outside of the root, which a failed [`hand_over`](Self::hand_over)
    /// may name, are those of the server.
    ///
    /// The root need not exist, and this call sends nothing. Until somebody creates it, for example
    /// with [`create_with_parents`](Self::create_with_parents) of the handle above, creates below it
    /// fail with [`OpError::ChrootMissing`].
    ///
    /// ```
    /// # async fn start(client: &zk_session::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use zk_session::CreateMode;
    ///
    /// let billing = client.rooted_at("/billing")?;
    /// // This creates `/billing/config` on the server.
    /// billing.create("/config", "x", CreateMode::Persistent).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::Path`] if the path is invalid.
    #[doc(alias = "usingNamespace")]
    pub fn rooted_at(&self, path: &str) -> Result<Self, ConfigError> {
        path::validate(path).map_err(|error| match error {
            OpError::InvalidPath { path, defect } => {
                ConfigError::Path { option: "root", path, defect }
            }
            other => unreachable!("a path is checked, not sent: {other}"),
        })?;
        let shared = self.shared.rooted_at(self.shared.chroot.join(path));
        Ok(Self { shared: Arc::new(shared), terms: self.terms.clone() })
    }

    /// Returns the path on the server of this handle's root: the chroot of the connect string, and
    /// below it what was given to [`rooted_at`](Self::rooted_at). It is `/` without any.
    pub fn root(&self) -> &str {
        match self.shared.chroot.as_str() {
            "" => "/",
            root => root,
        }
    }
}
