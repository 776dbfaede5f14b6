//! Following who leads, without being a candidate.
//!
//! 1. List the candidates.
//! 2. If there is one, read the first and watch it: it leads until its znode is gone, because later
//!    candidates have greater numbers. Then go to 1.
//! 3. If there is none, list and watch the directory, until there is a candidate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::Client;

use crate::engine::drive::rest;
use crate::engine::monitor::Monitored;
use crate::guard::FencingToken;
use crate::lock::error::LockError;
use crate::machine::{Aspect, Pauses};
use crate::queue::contenders::{first_of, first_path};
use crate::queue::profile::QueueProfile;
use crate::stream::stream;

/// The leader of an election, as an observer sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Leader {
    /// The data of its znode, which identifies the leader to people and, if the candidates are
    /// built with an [`identity`](crate::LockBuilder::identity) such as an address, to programs.
    pub identity: Bytes,
    /// The fencing token of its leadership, as its guard has it. Each later leader has a greater token.
    pub fencing_token: FencingToken,
    /// Path of its znode.
    pub path: String,
}

/// The leaders of an election, one after the other; see
/// [`Election::observe`](crate::Election::observe).
///
/// **Costs.** While nothing changes, the stream sends a test of existence every 30 s, which shows
/// whether an event was missed. It watches the znode of the leader only, so other candidates that arrive
/// or leave do not wake it. When the leader changes, it sends a read, a list and another read. While
/// there is no candidate, it watches the directory.
///
/// **Permissions.** READ on the directory and on the candidates.
pub struct Leaders {
    client: Client,
    profile: Arc<QueueProfile>,
    stage: Stage,
    /// The token of the leader that was reported last, or `None` if none leads. The outer `None`
    /// means that nothing has been reported.
    reported: Option<Option<FencingToken>>,
    has_ended: bool,
}

/// A list of the candidates in progress. It returns the path of the first, or why there is no list,
/// with the pauses so far.
type Looking = Pin<Box<dyn Future<Output = Result<Option<ByteString>, Failed>> + Send + Sync>>;
type Failed = (LockError, Pauses);

enum Stage {
    /// Step 1 is due.
    Due,
    /// Step 1.
    Looking(Looking),
    /// Step 2: this candidate leads, until it is gone.
    Leading { path: ByteString, znode: Monitored },
    /// Step 3: there is no candidate in the directory.
    Vacant(Monitored),
}

impl Leaders {
    pub(super) fn new(client: &Client, profile: &Arc<QueueProfile>) -> Self {
        let (client, profile) = (client.clone(), Arc::clone(profile));
        Self { client, profile, stage: Stage::Due, reported: None, has_ended: false }
    }

    /// Returns the current leader on the first call, or `None` if there is no candidate. Each later
    /// call waits for a change.
    ///
    /// If leaders change fast, some may be skipped, but the last one is always reported. The
    /// reports are those of one server, which may be a moment behind the leader of the ensemble.
    /// Between two leaders, `None` may or may not be reported.
    ///
    /// After a **connection loss**, and after the session has **expired**, the stream looks again,
    /// and reports the leader if it has changed in the meantime. **Cancel safe**: no change is
    /// lost.
    ///
    /// # Errors
    ///
    /// The errors of [`Election::candidates`](crate::Election::candidates). The stream can be used
    /// afterwards, and no change is lost.
    pub async fn next(&mut self) -> Result<Option<Leader>, LockError> {
        loop {
            match &mut self.stage {
                Stage::Due => self.stage = Stage::Looking(self.look(None)),
                Stage::Looking(looking) => {
                    let first = looking.as_mut().await;
                    self.looked(first)?;
                }
                Stage::Leading { path, znode } => match znode.next(None).await? {
                    Some(Response::GetData(found)) => {
                        let leader = Leader::new(path, found);
                        if self.is_news(Some(leader.fencing_token)) {
                            return Ok(Some(leader));
                        }
                    }
                    Some(_) | None => self.stage = Stage::Due,
                },
                Stage::Vacant(directory) => {
                    let first = match directory.next(None).await? {
                        Some(Response::GetChildren(names)) => first_of(&self.profile, names)?,
                        Some(_) | None => None,
                    };
                    match first {
                        Some(path) => self.stage = self.leading(path),
                        None if self.is_news(None) => return Ok(None),
                        None => {}
                    }
                }
            }
        }
    }

    /// Begins a list, after a pause if the last one has failed. It goes on where it was when the
    /// future of the caller is dropped.
    fn look(&self, failed: Option<Pauses>) -> Looking {
        let (client, profile) = (self.client.clone(), Arc::clone(&self.profile));
        Box::pin(async move {
            let mut pauses = failed.unwrap_or_default();
            if failed.is_some() {
                rest(&client, &mut pauses).await;
            }
            first_path(&client, &profile).await.map_err(|error| (error, pauses))
        })
    }

    fn looked(&mut self, first: Result<Option<ByteString>, Failed>) -> Result<(), LockError> {
        match first {
            Ok(Some(path)) => self.stage = self.leading(path),
            Ok(None) => {
                let directory = self.profile.directory();
                let directory = Monitored::new(&self.client, directory, Aspect::Children);
                self.stage = Stage::Vacant(directory);
            }
            Err((error, pauses)) => {
                self.stage = Stage::Looking(self.look(Some(pauses)));
                return Err(error);
            }
        }
        Ok(())
    }

    fn leading(&self, path: ByteString) -> Stage {
        let znode = Monitored::new(&self.client, &path, Aspect::Lifetime);
        Stage::Leading { path, znode }
    }

    fn is_news(&mut self, leader: Option<FencingToken>) -> bool {
        self.reported.replace(leader) != Some(leader)
    }
}

impl Leader {
    fn new(path: &ByteString, found: DataReply) -> Self {
        Self {
            identity: found.data.unwrap_or_default(),
            fencing_token: FencingToken::new(found.stat.czxid),
            path: path.to_string(),
        }
    }
}

stream!(Leaders, Option<Leader>, LockError);

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders")
            .field("directory", self.profile.directory())
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}
