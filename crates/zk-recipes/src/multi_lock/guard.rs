//! The guard of a multi-lock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::error::{MultiLockError, MultiReleaseError};
use super::part::{Boxed, HeldPart};
use crate::engine::call::Call;
use crate::engine::join::join_all;
use crate::lock::error::{LockError, LostReason};
use crate::lock::outcome::Released;
use crate::lock::state::LockState;
use crate::timed_out::MayTimeOut;

/// All locks of a [`MultiLock`](crate::MultiLock), held together.
///
/// The guard is as good as its weakest lock: it is lost when one of its locks is lost, and at risk
/// when one of them is. The other locks stay held until the guard is released or dropped, which
/// releases all of them in the reverse order.
#[must_use = "a dropped guard releases the locks"]
pub struct MultiGuard {
    /// In the order in which they were acquired.
    parts: Vec<Entry>,
}

struct Entry {
    path: String,
    guard: Box<dyn HeldPart>,
}

impl MultiGuard {
    /// Creates a guard without locks, for those that follow.
    pub(super) const fn new() -> Self {
        Self { parts: Vec::new() }
    }

    pub(super) fn push(&mut self, path: &str, guard: Box<dyn HeldPart>) {
        self.parts.push(Entry { path: path.to_owned(), guard });
    }

    /// Returns the weakest state of the locks, computed by this call: lost if one of them is lost,
    /// otherwise at risk if one of them is at risk, otherwise held.
    pub fn state(&self) -> LockState {
        let mut weakest = LockState::Held;
        for (_, state) in self.states() {
            match state {
                LockState::Lost(_) => return state,
                LockState::AtRisk => weakest = state,
                LockState::Held => {}
            }
        }
        weakest
    }

    /// Returns the path and the state of each lock, in the order of the paths.
    pub fn states(&self) -> impl Iterator<Item = (&str, LockState)> {
        self.parts.iter().map(|entry| (&*entry.path, entry.guard.state()))
    }

    /// Waits until one of the locks is lost. Returns an error with the path of that lock and
    /// [`LockError::Lost`].
    ///
    /// A lost **connection** alone does not end the wait. When the guard is released or dropped, the
    /// future completes with [`LostReason::Released`](crate::LostReason::Released). **Cancel safe.** Any number of tasks can wait.
    pub fn lost(&self) -> impl Future<Output = MultiLockError> + Send + use<> {
        let first = self.first_of(self.losses());
        async move {
            let (path, reason) = first.await;
            MultiLockError::new(&path, LockError::Lost(reason))
        }
    }

    /// Waits for the first of these futures, one for each lock. Returns the path of that lock, and what
    /// the future has returned.
    fn first_of<T>(
        &self,
        mut futures: Vec<Boxed<'static, T>>,
    ) -> impl Future<Output = (String, T)> + Send + use<T> {
        let paths: Vec<_> = self.parts.iter().map(|entry| entry.path.clone()).collect();
        poll_fn(move |cx| {
            for (path, future) in paths.iter().zip(&mut futures) {
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready((path.clone(), output));
                }
            }
            Poll::Pending
        })
    }

    /// Waits until somebody asks for one of the locks, as
    /// [`Guard::revocation_requested`](crate::Guard::revocation_requested) does, and returns the path of
    /// that lock. The holder decides; [`release`](Self::release) gives all of them back. Nobody can ask
    /// for an [`ExclusiveLock`](crate::ExclusiveLock).
    ///
    /// After a **connection loss**, the contender znodes are read again. **Cancel safe.** Any number of
    /// tasks can wait. After the guard was lost, released or dropped, the future never completes.
    pub fn revocation_requested(&self) -> impl Future<Output = String> + Send + use<> {
        let asked = self.parts.iter().map(|entry| entry.guard.revocation_requested()).collect();
        let first = self.first_of(asked);
        async move { first.await.0 }
    }

    /// Returns the time, from now, during which no other contender can get any of the locks: the
    /// shortest of the locks. Returns zero if one of them is lost, and `None` if one of them has no
    /// lease. See [`Guard::remaining`](crate::Guard::remaining).
    pub fn remaining(&self) -> Option<Duration> {
        if let LockState::Lost(_) = self.state() {
            return Some(Duration::ZERO);
        }
        let mut shortest = Duration::MAX;
        for entry in &self.parts {
            shortest = shortest.min(entry.guard.remaining()?);
        }
        Some(shortest)
    }

    /// Proves, one lock after another, that the locks are held. Each was held at some moment since
    /// the call began; none of them was released by this guard, so all were held together at the
    /// moment of the first proof.
    ///
    /// After a **connection loss**, the writes are repeated. **Cancel safe.** A
    /// [timeout](Call::timeout) limits all of it.
    ///
    /// # Errors
    ///
    /// The first lock that is lost, or whose proof was refused; see
    /// [`Guard::validate`](crate::Guard::validate).
    pub fn validate(&self) -> Call<(), MultiLockError> {
        let validate = |entry: &Entry| (entry.path.clone(), entry.guard.validate());
        call(self.parts.iter().map(validate).collect(), async |validating| {
            for (path, validating) in validating {
                validating.await.map_err(|error| MultiLockError::new(&path, error))?;
            }
            Ok(())
        })
    }

    /// Runs a body of work while none of the locks is lost, and drops the body when one is lost.
    /// The state is checked before and after each poll of the body. What
    /// [`Guard::run`](crate::Guard::run) says about the limits of this applies here too.
    ///
    /// A lost **connection** puts the locks at risk, and the body continues. **Cancel safe** if the
    /// body is: dropping the future drops the body, and the guard is not affected.
    ///
    /// # Errors
    ///
    /// The lock that was lost, if the body was dropped, or was not started because that lock was
    /// lost already.
    pub async fn run<F: Future>(&self, body: F) -> Result<F::Output, MultiLockError> {
        let mut lost = pin!(self.lost());
        let mut body = pin!(body);
        poll_fn(|cx| {
            // Poll this first, so that a change after the checks below wakes this task again.
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            if let Some(lost) = self.first_lost() {
                return Poll::Ready(Err(lost));
            }
            let polled = body.as_mut().poll(cx);
            // A body that has blocked may have completed long after a lock was lost.
            match self.first_lost() {
                Some(lost) => Poll::Ready(Err(lost)),
                None => polled.map(Ok),
            }
        })
        .await
    }

    /// Releases the locks in the reverse order, and reports how each release ended, in that order.
    /// The releases are sent without waiting for each other. An error of one does not stop the
    /// others.
    ///
    /// **Cancel safe**: this method sends all commands itself, so dropping what it returns changes
    /// nothing. After a **connection loss**, requests are replayed. A [timeout](Call::timeout) limits
    /// the wait for all locks; the error then names those that the call still waited for.
    ///
    /// # Errors
    ///
    /// A [`MultiReleaseError`] with all locks that were not released.
    pub fn release(mut self) -> Call<Vec<(String, Released)>, MultiReleaseError> {
        let entries = std::mem::take(&mut self.parts).into_iter().rev();
        let release = |Entry { path, guard }: Entry| (path, guard.release());
        call(entries.map(release).collect(), async |releasing| {
            let (mut released, mut failed) = (Vec::new(), Vec::new());
            let (paths, releasing): (Vec<_>, Vec<_>) = releasing.into_iter().unzip();
            for (path, ended) in paths.into_iter().zip(join_all(releasing.into_iter()).await) {
                match ended {
                    Ok(how) => released.push((path, how)),
                    Err(error) => failed.push(MultiLockError { path, error }),
                }
            }
            if failed.is_empty() {
                Ok(released)
            } else {
                Err(MultiReleaseError { failed, released })
            }
        })
    }

    pub(super) fn losses(&self) -> Vec<Boxed<'static, LostReason>> {
        self.parts.iter().map(|entry| entry.guard.lost()).collect()
    }

    /// Returns the first lock that is lost, and why.
    pub(super) fn first_lost_index(&self) -> Option<(usize, LostReason)> {
        self.parts.iter().enumerate().find_map(|(index, entry)| match entry.guard.state() {
            LockState::Lost(reason) => Some((index, reason)),
            LockState::Held | LockState::AtRisk => None,
        })
    }

    pub(super) fn first_lost(&self) -> Option<MultiLockError> {
        let (index, reason) = self.first_lost_index()?;
        let entry = self.parts.get(index)?;
        Some(MultiLockError::new(&entry.path, LockError::Lost(reason)))
    }
}

/// Creates a call that consists of one for each lock, which all have its deadline.
fn call<P, T, E, F>(
    parts: Vec<(String, Call<P, LockError>)>,
    start: impl FnOnce(Vec<(String, Call<P, LockError>)>) -> F + Send + 'static,
) -> Call<T, E>
where
    P: 'static,
    T: 'static,
    E: MayTimeOut + 'static,
    F: Future<Output = Result<T, E>> + Send,
{
    let (_, first) = parts.first().expect("`build` refuses a multi-lock without locks");
    let (client, path) = first.about().expect("no part has begun");
    let (client, path) = (client.clone(), path.clone());
    Call::new(&client.clone(), &path, move |deadline| {
        let left = deadline.map(|deadline| deadline.saturating_since(client.now()));
        start(parts.into_iter().map(|(path, part)| (path, part.within(left))).collect())
    })
}

/// Releases the locks in the reverse order, in the background.
impl Drop for MultiGuard {
    fn drop(&mut self) {
        while let Some(entry) = self.parts.pop() {
            drop(entry);
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.states()).finish()
    }
}
