//! Operations that may be issued any number of times, issued until there is a reply.
//!
//! These are reads, and what sets a watch. Each is issued by the client itself, so a watch that comes
//! with the reply belongs to a watcher that survives lost connections. If the reply was lost, so was
//! its watcher, and the next reply has another one.

use bytestring::ByteString;
use zk_session::{Client, Op, OpError, SessionState, Time};

use crate::action::FailedAction;
use crate::engine::drive::{at_most, rest};
use crate::error::RecipeError;
use crate::machine::{Failure, Pauses, Verdict, replayable};

/// How an operation is issued again.
pub(super) struct Again<'a> {
    /// The handle that issues the operation. If it is bound to a session, the operation ends with
    /// that session, and otherwise it continues in the next one.
    pub(super) client: &'a Client,
    pub(super) is_bound: bool,
    /// A write barrier is sent ahead of the operation.
    pub(super) has_barrier: bool,
    pub(super) deadline: Option<Time>,
    /// What the operation does, and where, for errors.
    pub(super) action: FailedAction,
    pub(super) path: &'a ByteString,
}

impl Again<'_> {
    /// Issues the operation until there is a reply. The barrier and the operation belong together: if
    /// one of them has to be issued again, both are.
    pub(super) async fn run<T>(
        &self,
        mut issue: impl FnMut(&Client) -> Op<T>,
    ) -> Result<T, RecipeError> {
        let Self { client, has_barrier, deadline, .. } = *self;
        let (mut pauses, mut refusal) = (Pauses::default(), None);
        loop {
            if is_over(client, deadline) {
                return Err(RecipeError::timed_out_after(refusal));
            }
            // Both are enqueued before one of them is awaited, so they are sent together.
            let barrier = has_barrier.then(|| until(client, client.catch_up(), deadline));
            let operation = until(client, issue(client), deadline);
            let passed = match barrier {
                Some(barrier) => barrier.await,
                None => Ok(()),
            };
            let error = match passed {
                Ok(()) => {
                    let mut found = operation.await;
                    // The client may permit fewer requests than these two. Behind a barrier that has
                    // passed, a read is as good later.
                    if has_barrier && matches!(found, Err(OpError::QueueFull { .. })) {
                        found = until(client, issue(client), deadline).await;
                    }
                    match found {
                        Ok(found) => return Ok(found),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if matches!(error, OpError::TimedOut { .. }) {
                return Err(RecipeError::timed_out_after(refusal));
            }
            refusal = error.server_code();
            match replayable(Err(error.clone())) {
                Verdict::SessionEnded if self.is_bound => return Err(self.failed(error)),
                Verdict::SessionEnded if client.state() == SessionState::Expired => {
                    return Err(self.failed(error));
                }
                Verdict::Refused(error) => return Err(self.failed(error)),
                Verdict::Later(error) => {
                    if pauses.is_too_many(&error) {
                        return Err(self.failed(error));
                    }
                    // Boxed, because each call would have room for it, and nearly none pauses.
                    Box::pin(pause(client, deadline, &mut pauses)).await;
                }
                Verdict::Done(_)
                | Verdict::NotApplied
                | Verdict::SessionEnded
                | Verdict::Unknown => {}
            }
        }
    }

    fn failed(&self, error: OpError) -> RecipeError {
        if let OpError::InvalidPath { path, defect } = error {
            let option = "path to read";
            return zk_session::ConfigError::Path { option, path, defect }.into();
        }
        RecipeError::of(Failure::new(self.action, self.path.clone(), error))
    }
}

/// Returns whether the deadline has passed.
pub(super) fn is_over(client: &Client, deadline: Option<Time>) -> bool {
    deadline.is_some_and(|deadline| deadline <= client.now())
}

/// Limits an operation to the time that is left.
pub(super) fn until<T, E>(client: &Client, op: Op<T, E>, deadline: Option<Time>) -> Op<T, E> {
    match deadline {
        Some(deadline) => op.timeout(deadline.saturating_since(client.now())),
        None => op,
    }
}

/// Waits for the next pause, at most until the deadline.
pub(super) async fn pause(client: &Client, deadline: Option<Time>, pauses: &mut Pauses) {
    at_most(client, deadline, rest(client, pauses)).await;
}
