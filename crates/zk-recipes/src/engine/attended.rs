//! Running a machine that may leave something on the servers, for a caller who may drop the future
//! at any moment. Every machine that was dropped reaches the janitor here.

use std::future::Future;

use bytestring::ByteString;
use tracing::Span;
use zk_session::recipe::{Session, Slot};
use zk_session::{Client, Time};

use super::drive::{Caller, Writer, drive, reserve};
use super::feed::Feed;
use super::removal;
use crate::error::RecipeError;
use crate::machine::{Failure, Leaving, Machine, Removal, Repeating};

/// A machine whose first request is sent without a lane, which only the answer to a lost request needs.
/// When it is dropped, the janitor removes what it may have left.
pub(crate) struct Laneless<'a, M: Leaving<Removal: Removal>> {
    client: &'a Client,
    /// `None` after the drop, or once the machine has a lane.
    parts: Option<(M, Slot)>,
}

/// What the janitor does with the removal of a machine that was dropped.
pub(crate) trait Duty<R> {
    /// Runs the removal. Its first input may arrive on this feed.
    fn perform(self, feed: Feed, removal: R) -> impl Future<Output = ()> + Send + 'static;
}

/// A machine with a slot of the janitor. When it is dropped, whether the machine has ended or not,
/// the janitor removes what the machine may have left.
pub(crate) struct Attended<M: Leaving, D: Duty<M::Removal> = Removing> {
    /// `None` after the drop, or once the machine was ended.
    parts: Option<Parts<M, D>>,
}

struct Parts<M, D> {
    machine: Repeating<M>,
    feed: Feed,
    slot: Slot,
    duty: D,
}

/// What is left of a machine that was ended.
pub(crate) struct Left<R, D> {
    pub(crate) removal: R,
    pub(crate) feed: Feed,
    pub(crate) slot: Slot,
    pub(crate) duty: D,
}

impl<M: Leaving<Removal: Removal>> Attended<M> {
    /// Prepares the machine. While all slots of the janitor are taken, waits for one, at most until
    /// the deadline.
    pub(crate) async fn new(
        client: &Client,
        machine: M,
        path: &ByteString,
        deadline: Option<Time>,
    ) -> Result<Self, RecipeError> {
        Self::with_duty(client, machine, path, deadline, Removing).await
    }
}

impl<M: Leaving<Removal: Removal>, T: Send + 'static> Attended<M, RemovingBefore<T>> {
    /// Prepares the machine in the same way. The value is dropped when the machine has ended and left
    /// nothing, or once that has been removed.
    pub(crate) async fn before(
        client: &Client,
        machine: M,
        path: &ByteString,
        deadline: Option<Time>,
        value: T,
    ) -> Result<Self, RecipeError> {
        Self::with_duty(client, machine, path, deadline, RemovingBefore(value)).await
    }

    /// Returns the value.
    pub(crate) fn value(&self) -> &T {
        let Parts { duty, .. } = self.parts.as_ref().expect("it is not dropped");
        &duty.0
    }
}

impl<M: Leaving, D: Duty<M::Removal>> Attended<M, D> {
    async fn with_duty(
        client: &Client,
        machine: M,
        path: &ByteString,
        deadline: Option<Time>,
        duty: D,
    ) -> Result<Self, RecipeError> {
        let slot = reserve(client, path, deadline).await?;
        Ok(Self::with(client, slot, machine, duty))
    }

    /// Prepares a machine that has a slot already.
    pub(crate) fn with(client: &Client, slot: Slot, machine: M, duty: D) -> Self {
        let feed = Feed::new(Session::of(client).lane());
        Self { parts: Some(Parts { machine: Repeating::new(machine), feed, slot, duty }) }
    }

    /// Runs a machine that may fail.
    pub(crate) async fn run<T>(&mut self, deadline: Option<Time>) -> Result<T, RecipeError>
    where
        M: Machine<Output = Result<T, Failure>>,
    {
        self.run_to_end(deadline).await?.map_err(RecipeError::of)
    }

    /// Runs the machine to its end, and returns its output, or why it was stopped before.
    pub(crate) async fn run_to_end(
        &mut self,
        deadline: Option<Time>,
    ) -> Result<M::Output, RecipeError> {
        let (machine, feed, _) = self.parts();
        drive(feed, machine, &mut Caller { deadline }).await
    }

    /// Runs the machine of a write to its end, and returns its output, or why it was stopped before.
    /// If it was stopped because the time is up, and its flight is not pending, nothing of that flight
    /// was sent.
    pub(crate) async fn run_write(
        &mut self,
        deadline: Option<Time>,
    ) -> Result<M::Output, RecipeError> {
        let (machine, feed, _) = self.parts();
        let mut writer = Writer::new(feed.lane.now(), deadline);
        drive(feed, machine, &mut writer).await
    }

    /// Returns what a caller needs to run the machine in its own way.
    pub(crate) fn parts(&mut self) -> (&mut Repeating<M>, &mut Feed, &D) {
        let Parts { machine, feed, duty, .. } = self.parts.as_mut().expect("it is not dropped");
        (machine, feed, duty)
    }

    /// Returns the machine, and whether its flight is pending.
    pub(crate) fn state(&self) -> (&M, bool) {
        let Parts { machine, feed, .. } = self.parts.as_ref().expect("it is not dropped");
        (&machine.machine, feed.pending.is_some())
    }

    /// Ends the machine. Returns what removes that which it may have left, if there may be something.
    pub(crate) fn end(mut self) -> Option<Left<M::Removal, D>> {
        self.take()
    }

    fn take(&mut self) -> Option<Left<M::Removal, D>> {
        let Parts { machine, mut feed, slot, duty } = self.parts.take()?;
        let removal = abandon(machine.machine, &mut feed)?;
        Some(Left { removal, feed, slot, duty })
    }
}

impl<M: Leaving, D: Duty<M::Removal>> Drop for Attended<M, D> {
    fn drop(&mut self) {
        if let Some(Left { removal, feed, slot, duty }) = self.take() {
            slot.run(duty.perform(feed, removal));
        }
    }
}

impl<'a, M: Leaving<Removal: Removal>> Laneless<'a, M> {
    pub(crate) fn new(client: &'a Client, machine: M, slot: Slot) -> Self {
        Self { client, parts: Some((machine, slot)) }
    }

    pub(crate) fn machine(&mut self) -> &mut M {
        &mut self.parts.as_mut().expect("it is not dropped").0
    }

    /// Opens a lane for the machine, on which it begins.
    pub(crate) fn with_lane(mut self) -> Attended<M> {
        let (machine, slot) = self.parts.take().expect("it is not dropped");
        Attended::with(self.client, slot, machine, Removing)
    }
}

impl<M: Leaving<Removal: Removal>> Drop for Laneless<'_, M> {
    fn drop(&mut self) {
        let Some((machine, slot)) = self.parts.take() else { return };
        // Nobody waits for its request any more, so the removal cannot either: it is a write of the
        // same session, and follows the request.
        if let Some((removal, _)) = machine.abandon(false) {
            slot.run(Removing.perform(Feed::new(Session::of(self.client).lane()), removal));
        }
    }
}

/// Ends a machine. Returns the removal of what it may have left, which receives the reply to the
/// pending flight only if it needs that reply.
pub(crate) fn abandon<M: Leaving>(machine: M, feed: &mut Feed) -> Option<M::Removal> {
    let abandoned = machine.abandon(feed.pending.is_some());
    match feed.pending {
        // If the request has not been sent yet, there is no need to send it.
        Some(token) if abandoned.as_ref().is_some_and(|(_, needs_reply)| *needs_reply) => {
            feed.lane.recall(token);
        }
        Some(_) | None => feed.pending = None,
    }
    abandoned.map(|(removal, _)| removal)
}

/// Runs the removal, again and again if a server refuses it.
pub(crate) struct Removing;

impl<R: Removal> Duty<R> for Removing {
    async fn perform(self, mut feed: Feed, removal: R) {
        removal::run(&mut feed, removal, Span::none(), |_| {}).await;
    }
}

/// Does the same, and then drops the value, such as a guard whose znode excludes others until what the
/// machine has left is gone too.
pub(crate) struct RemovingBefore<T>(T);

impl<R: Removal, T: Send + 'static> Duty<R> for RemovingBefore<T> {
    async fn perform(self, feed: Feed, removal: R) {
        Removing.perform(feed, removal).await;
        drop(self.0);
    }
}
