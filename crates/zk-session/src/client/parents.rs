//! Creating a znode together with its missing ancestors.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use jute_codec::CreateMode;

use super::Client;
use crate::error::OpError;
use crate::operation::create::{CreateOptions, Created};

/// Number of times that the ancestors are created before the call gives up. It reaches this number
/// only if others delete them as fast as they are created.
const ROUNDS_MAX: u32 = 5;

impl Client {
    /// Creates a znode, and its ancestors if they are missing. The ancestors are empty; see
    /// [`CreateOptions::container_parents`] and [`CreateOptions::parent_acl`].
    ///
    /// The znode itself is created first, so the call costs one request if its parent exists, and
    /// no more than three round trips otherwise. Its first request is enqueued at once, and the
    /// others when the future is polled.
    ///
    /// Fails like [`create`](Self::create), and the outcome of the error is that of the znode. If an
    /// ancestor cannot be created, the call fails with that error, which names the ancestor; the
    /// znode was not created. After `ConnectionLoss(Unknown)` the znode may exist, or may still
    /// be created. Ancestors that were created stay in any case. Dropping the future discards the
    /// requests that were not sent.
    pub fn create_with_parents(
        &self,
        path: &str,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Pin<Box<dyn Future<Output = Result<Created, OpError>> + Send>> {
        let (client, path) = (self.clone(), path.to_owned());
        let (data, options) = (data.into(), options.into());
        let first = self.create(&path, data.clone(), options.clone());
        Box::pin(async move {
            let mut created = first.await;
            for _ in 0..ROUNDS_MAX {
                if !matches!(&created, Err(error) if error.is_no_node()) {
                    break;
                }
                let refusal = client.create_ancestors(&path, &options).await;
                created = client.create(&path, data.clone(), options.clone()).await;
                if let (Err(error), Some(refusal)) = (&created, refusal)
                    && error.is_no_node()
                {
                    return Err(refusal);
                }
            }
            created
        })
    }

    /// Creates all ancestors of a path. Returns the first refusal by a server, if there is one. It
    /// matters only if the ancestor is still missing afterwards: without the permission to create an
    /// ancestor, the server refuses the create even if the ancestor exists.
    async fn create_ancestors(&self, path: &str, options: &CreateOptions) -> Option<OpError> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        let ancestors = ends.filter_map(|end| path.get(..end));
        let mode =
            if options.container_parents { CreateMode::Container } else { CreateMode::Persistent };
        let creates: Vec<_> = ancestors
            .map(|ancestor| {
                let acl = options.parent_acl.clone();
                let options = CreateOptions { acl, ..CreateOptions::from(mode) };
                self.create(ancestor, Bytes::new(), options)
            })
            .collect();
        let mut refusal = None;
        for create in creates {
            if let Err(error) = create.await
                && error
                    .server_code()
                    .is_some_and(|code| code != jute_codec::ErrorCode::NODE_EXISTS)
            {
                refusal.get_or_insert(error);
            }
        }
        refusal
    }
}
