//! The progress of an acquire and of the lock that it obtained, for observers.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::watch;

use super::error::LostReason;

/// Phase of an acquire, and of the lock it has obtained.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Phase {
    /// The acquire is creating its contender znode.
    Claiming,
    /// The acquire is waiting in the queue.
    Queued {
        /// Number of contenders ahead, including those that do not exclude this one. The number is
        /// updated when the queue is listed, which happens when a contender leaves that this one
        /// watches. An exclusive lock has no queue, and reports 1.
        ahead: usize,
    },
    /// The lock is held.
    Held,
    /// The lock was obtained, but there is no recent proof that it is held.
    AtRisk,
    /// The lock is lost for good.
    Lost(LostReason),
    /// The lock was released.
    Released,
}

/// A stream of phases; see [`Acquire::phases`](crate::Acquire::phases).
///
/// It replaces a listener with callbacks, such as that of ZooKeeper's `WriteLock`: a task that loops
/// over the stream is notified when the lock is acquired ([`Phase::Held`]), at risk, lost or
/// released. The stream needs neither the guard nor the task that acquires, and keeps nothing alive.
///
/// ```
/// use zk_recipes::{Phase, Phases};
///
/// async fn listen(mut phases: Phases) {
///     while let Some(phase) = phases.next().await {
///         match phase {
///             Phase::Held => println!("acquired"),
///             Phase::AtRisk => println!("at risk"),
///             Phase::Lost(reason) => println!("lost: {reason}"),
///             Phase::Released => println!("released"),
///             _ => {}
///         }
///     }
/// }
/// ```
///
/// As a [`Stream`], it yields what [`next`](Self::next) returns. Both may alternate.
pub struct Phases {
    phases: watch::Receiver<Phase>,
    /// Wakes the task that has polled the stream last.
    change: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Phases {
    /// Returns the current phase. It is [`Claiming`](Phase::Claiming) before the acquire is polled.
    pub fn current(&self) -> Phase {
        *self.phases.borrow()
    }

    /// Waits for the next phase. Returns `None` when no other phase can follow: after the acquire
    /// has failed, or after the lock was released or lost. Intermediate phases may be skipped, but
    /// the last one is always returned. While the acquire waits, a lost connection is not reported;
    /// after the grant, it is reported as [`Phase::AtRisk`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Phase> {
        self.phases.changed().await.ok()?;
        Some(*self.phases.borrow_and_update())
    }
}

impl Stream for Phases {
    type Item = Phase;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Phase>> {
        loop {
            if let Poll::Ready(phase) = pin!(self.next()).poll(cx) {
                return Poll::Ready(phase);
            }
            // A future that is dropped wakes nobody.
            let mut phases = self.phases.clone();
            let change = self
                .change
                .get_or_insert_with(|| Box::pin(async move { drop(phases.changed().await) }));
            ready!(change.as_mut().poll(cx));
            self.change = None;
        }
    }
}

impl fmt::Debug for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phases").field("current", &self.current()).finish_non_exhaustive()
    }
}

/// Reports phases to the [`Phases`] of an acquire, if its caller asked for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer(Option<Arc<Mutex<Option<watch::Sender<Phase>>>>>);

impl Observer {
    pub(crate) fn new() -> (Self, Phases) {
        let (sender, phases) = watch::channel(Phase::Claiming);
        (Self(Some(Arc::new(Mutex::new(Some(sender))))), Phases { phases, change: None })
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.with(|sender| sender.as_ref().is_some_and(|sender| !sender.is_closed()))
            .unwrap_or(false)
    }

    pub(crate) fn report(&self, phase: Phase) {
        self.with(|sender| {
            if let Some(sender) = sender {
                sender.send_if_modified(|current| std::mem::replace(current, phase) != phase);
            }
        });
    }

    /// Reports the last phase.
    pub(crate) fn end(&self, phase: Phase) {
        self.report(phase);
        self.with(Option::take);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Option<watch::Sender<Phase>>) -> T) -> Option<T> {
        let mut sender = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut sender))
    }
}
