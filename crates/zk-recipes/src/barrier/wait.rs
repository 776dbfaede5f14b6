//! Waiting for a barrier.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::{Client, Time};

use crate::engine::limited::limited;
use crate::engine::monitor::Monitored;
use crate::error::RecipeError;
use crate::machine::Aspect;

/// A pending wait for a [`Barrier`](crate::Barrier): set a timeout, then `.await` it.
#[must_use = "nothing is waited for until this is awaited"]
pub struct BarrierWait {
    client: Client,
    path: ByteString,
    deadline: Option<Time>,
}

/// A wait in progress. Dropping it leaves nothing.
#[must_use = "futures do nothing unless polled"]
pub struct BarrierWaiting {
    inner: Pin<Box<dyn Future<Output = Result<(), RecipeError>> + Send>>,
}

impl BarrierWait {
    pub(super) fn new(client: &Client, path: &ByteString) -> Self {
        Self { client: client.clone(), path: path.clone(), deadline: None }
    }

    /// Makes the wait give up after this time with [`RecipeError::TimedOut`]. Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = Some(self.client.now() + timeout);
        self
    }

    async fn run(self) -> Result<(), RecipeError> {
        let Self { client, path, deadline } = self;
        let waiting = async {
            // A server reports the deletion of a znode only to those who may read it, and some
            // versions test its existence for everyone. So a wait has to read it: those who would
            // never be woken are refused at once.
            let mut monitored = Monitored::new(&client, &path, Aspect::Lifetime);
            let mut closed_by = None;
            loop {
                let Some(Response::GetData(DataReply { stat, .. })) =
                    monitored.next(deadline).await?
                else {
                    return Ok(());
                };
                // The znode of a barrier that was opened and closed again is another one.
                if closed_by.is_some_and(|closed_by| closed_by != stat.czxid) {
                    return Ok(());
                }
                closed_by = Some(stat.czxid);
            }
        };
        limited(&client, &path, deadline, RecipeError::timed_out, waiting).await
    }
}

impl IntoFuture for BarrierWait {
    type Output = Result<(), RecipeError>;
    type IntoFuture = BarrierWaiting;

    fn into_future(self) -> BarrierWaiting {
        BarrierWaiting { inner: Box::pin(self.run()) }
    }
}

impl Future for BarrierWaiting {
    type Output = Result<(), RecipeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx)
    }
}

impl fmt::Debug for BarrierWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWait")
            .field("path", &self.path)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BarrierWaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaiting").finish_non_exhaustive()
    }
}
