//! The interface between a lock recipe and the engine.
//!
//! The engine does not depend on any specific lock. It is generic over a [`Recipe`], which each
//! kind of guard implements in the folder of its lock, and is compiled once for each recipe. The
//! traits are public in a private module: other crates can neither name nor implement them.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::SessionId;
use zk_session::recipe::Operation;

use super::error::LockError;
use super::outcome::{Changed, Held, NotChanged, NotHeld, Released, Tally, Znode};
use crate::machine::{FailedAction, Input, Leaving, Machine, News, Removal, SessionView, Step};
use crate::timed_out::Predecessor;

/// A way to obtain, hold and give back a lock.
#[cfg_attr(not(feature = "tokio"), expect(unreachable_pub, reason = "the kinds make it public"))]
pub trait Recipe: Sized + Send + Sync + 'static {
    /// What the machines of the recipe know about the lock: its path, its names, its options.
    type Profile: Debug + Send + Sync + 'static;
    /// One attempt to obtain the lock.
    type Attempt: Attempt<Removal = Self::Removal>;
    /// The removal of everything that an attempt may have left.
    type Removal: LockRemoval;
    /// What the lock can become while it is held; `Infallible` if it cannot change.
    type Change: Change<Self::Removal>;

    /// Each contender znode has its own name, so a holder can be asked to release the lock.
    const HAS_UNIQUE_NAMES: bool;

    /// Returns the path that identifies the lock.
    fn path(profile: &Self::Profile) -> &ByteString;

    /// Creates an attempt with its own id. Without `may_wait`, the attempt ends if the lock is
    /// taken.
    fn attempt(profile: &Arc<Self::Profile>, id: u128, may_wait: bool) -> Self::Attempt;

    /// Returns the read that shows whether the lock is taken.
    fn look(profile: &Self::Profile) -> (Operation, FailedAction);

    /// Returns whether a new attempt would have to wait, according to the response to
    /// [`look`](Self::look).
    ///
    /// # Errors
    ///
    /// Fails if the path belongs to a lock of another kind.
    fn is_taken(profile: &Self::Profile, seen: &Response) -> Result<bool, LockError>;
}

/// One attempt to obtain a lock. After it is granted, it accepts more input, and repeats or revokes
/// the grant. The owner of the lock needs its removal too, so an attempt always has one.
pub trait Attempt:
    Leaving + Machine<Output = Result<Held, NotHeld>> + Debug + Send + 'static
{
    /// Returns the number of contenders ahead, if the attempt knows it.
    fn ahead(&self) -> Option<usize>;

    /// Returns the contender that the attempt waits for, if the attempt knows it.
    fn predecessor(&self) -> Option<Predecessor>;

    /// Returns whether the attempt knows that nobody is ahead, so that it waits only for a proof.
    fn is_first(&self) -> bool {
        self.ahead() == Some(0)
    }

    /// Returns whether the attempt is known to wait for its own session only.
    fn is_behind_own_session(&self) -> bool {
        false
    }

    /// Returns whether such a wait is probably a mistake.
    fn must_warn_of_own_session(&self) -> bool {
        self.is_behind_own_session()
    }

    /// Returns whether the attempt needs a persistent watch of the lock's path, whose news are handed
    /// to [`told`](Self::told).
    fn follows(&self) -> bool {
        false
    }

    /// Advances by one report of the persistent watch.
    fn told(&mut self, _: SessionView, news: News) -> Step<Self::Output> {
        unreachable!("this attempt follows no persistent watch: {news:?}")
    }

    /// Returns the counts since the last call.
    fn take_tally(&mut self) -> Tally;
}

/// The removal of everything that an attempt may have left.
pub trait LockRemoval: Removal<Removed = Released> {
    /// Records that the znode is no longer certainly ours.
    fn doubt(&mut self);

    /// Returns the number of flights issued again because a lost connection had left their outcome
    /// open.
    fn replays(&self) -> u64;

    /// Returns the path of a contender znode of this attempt.
    fn path_of(&self, znode: &Znode) -> ByteString;
}

/// A change of a lock while it is held. `R` is the removal of the lock.
pub trait Change<R>:
    Machine<Output = Result<Changed, NotChanged>> + Sized + Send + 'static
{
    /// The request that a guard sends for the change. If a lock cannot change, this type has no
    /// values.
    type Request: Debug + Send + 'static;

    /// Prepares the change. Until the change is decided, the removal covers both the old and the
    /// new znode.
    fn begin(request: Self::Request, removal: &mut R, session: SessionId, znode: Znode) -> Self;

    /// Makes the removal cover only this znode from now on.
    fn settle(removal: &mut R, znode: &Znode);

    /// Returns the number of flights issued again because a lost connection had left their outcome
    /// open.
    fn replays(&self) -> u64;
}

/// The request that the guard of a lock sends to its keeper to change the lock.
pub(crate) type ChangeRequest<K> =
    <<K as Recipe>::Change as Change<<K as Recipe>::Removal>>::Request;

impl Machine for Infallible {
    type Output = Result<Changed, NotChanged>;

    fn start(&mut self, _: SessionView) -> Step<Self::Output> {
        match *self {}
    }

    fn handle(&mut self, _: SessionView, _: Input) -> Step<Self::Output> {
        match *self {}
    }
}

impl<R> Change<R> for Infallible {
    type Request = Self;

    fn begin(request: Self, _: &mut R, _: SessionId, _: Znode) -> Self {
        request
    }

    fn settle(_: &mut R, _: &Znode) {}

    fn replays(&self) -> u64 {
        match *self {}
    }
}
