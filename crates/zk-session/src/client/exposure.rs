//! Can a stranger touch this znode?

use std::future::Future;
use std::pin::Pin;

use jute_codec::{ErrorCode, Request, Response};

use super::{Client, unexpected};
use crate::chroot::translate::Root;
use crate::error::OpError;
use crate::machine::Operation;
use crate::operation::exposure::{Exposure, Level, List};
use crate::operation::op::Op;
use crate::path;

/// Number of lists that are requested at a time.
const IN_FLIGHT_MAX: usize = 64;

impl Client {
    /// Finds out what clients without credentials may do with a znode, from its access control list
    /// and those of its ancestors up to the root of the server. The znode need not exist.
    ///
    /// ```
    /// # async fn check(client: &zk_session::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use zk_session::Answer;
    ///
    /// let exposure = client.exposure("/locks/reports").await?;
    /// if exposure.strangers_may_touch() != Answer::No {
    ///     return Err("the lock is not safe from strangers".into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A list that this client may not read, because it has neither READ nor ADMIN, makes the answer
    /// [`Answer::Unknown`](crate::Answer::Unknown). An entry for addresses (`ip`) counts as one for
    /// strangers, since it lets in everybody there. The lists are those that the session's server
    /// knows, read one after the other, so call [`catch_up`](Self::catch_up) first if somebody has
    /// just changed them. A server with `skipACL=yes` ignores all lists, and does not say so.
    ///
    /// It costs one read for each znode on the path, all in one round trip. It changes nothing, so
    /// repeat it after a [`ConnectionLoss`](OpError::ConnectionLoss). Cancel safe.
    ///
    /// # Errors
    ///
    /// [`OpError::InvalidPath`], or why a list could not be read, except for NO_AUTH and NO_NODE.
    pub fn exposure(
        &self,
        path: &str,
    ) -> Pin<Box<dyn Future<Output = Result<Exposure, OpError>> + Send>> {
        let (client, path) = (self.clone(), path.to_owned());
        Box::pin(async move {
            path::validate(&path)?;
            let path = client.shared().chroot.to_server(&path.into());
            let ends = path.match_indices('/').map(|(at, _)| at.max(1));
            let mut paths: Vec<_> = ends.filter_map(|end| path.get(..end)).collect();
            if path != "/" {
                paths.push(&path);
            }
            paths.reverse();
            let mut levels = Vec::with_capacity(paths.len());
            for paths in paths.chunks(IN_FLIGHT_MAX) {
                let reads: Vec<_> = paths.iter().map(|path| client.list_of(path)).collect();
                for (path, read) in paths.iter().zip(reads) {
                    levels.push(Level { path: (*path).into(), list: read.await? });
                }
            }
            Ok(Exposure::new(levels))
        })
    }

    /// Reads a list, given the path on the server.
    fn list_of(&self, path: &str) -> Op<List> {
        let operation = Operation::new(Request::GetAcl(path.into()));
        self.enqueue(Root::Server, operation, None, |answer| match answer.result {
            Ok(Response::GetAcl(reply)) => Ok(List::Known(reply.acl)),
            Ok(other) => unexpected(&other),
            Err(OpError::ChrootMissing { .. }) => Ok(List::Missing),
            Err(error) if error.server_code() == Some(ErrorCode::NO_NODE) => Ok(List::Missing),
            Err(error) if error.server_code() == Some(ErrorCode::NO_AUTH) => Ok(List::Unreadable),
            Err(error) => Err(error),
        })
    }
}
