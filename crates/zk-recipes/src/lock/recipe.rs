//! What a lock recipe tells the engine.
//!
//! The engine knows no lock by name. It is generic over a [`Recipe`], which each kind of guard
//! implements in the folder of its lock, and is compiled once for each of them. The traits are
//! public in a private module: other crates can neither name nor implement them.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::Response;
use zk_session::SessionId;
use zk_session::recipe::Operation;

use super::error::LockError;
use super::outcome::{Changed, Held, NotChanged, NotHeld, Refusal, Released, Tally, Znode};
use crate::machine::{FailedAction, Input, Machine, SessionView, Step};

/// A way to obtain, hold and give back a lock.
#[cfg_attr(not(feature = "tokio"), expect(unreachable_pub, reason = "the kinds make it public"))]
pub trait Recipe: Sized + Send + Sync + 'static {
    /// What its machines know about the lock: its path, its names, its options.
    type Profile: Debug + Send + Sync + 'static;
    /// One attempt to obtain the lock.
    type Attempt: Attempt<Removal = Self::Removal>;
    /// The removal of everything that an attempt may have left.
    type Removal: Removal;
    /// What the lock can become while it is held; `Infallible` if it cannot change.
    type Change: Change<Self::Removal>;

    /// Each contender znode has a name of its own. If all of them have the same name, a check that
    /// the znode exists does not prove that it is ours.
    const HAS_UNIQUE_NAMES: bool;

    /// The path by which the lock is known.
    fn path(profile: &Self::Profile) -> &ByteString;

    /// An attempt with an id of its own. Without `may_wait` it ends when the lock is taken.
    fn attempt(profile: &Arc<Self::Profile>, id: u128, may_wait: bool) -> Self::Attempt;

    /// The read that shows whether the lock is taken.
    fn look(profile: &Self::Profile) -> (Operation, FailedAction);

    /// Whether a new attempt would have to wait, according to the response to that read.
    ///
    /// # Errors
    ///
    /// The path belongs to a lock of another kind.
    fn is_taken(profile: &Self::Profile, seen: &Response) -> Result<bool, LockError>;
}

/// One attempt to obtain a lock. After it is granted, it accepts more input, and repeats or revokes
/// the grant.
pub trait Attempt: Machine<Output = Result<Held, NotHeld>> + Debug + Send + 'static {
    /// The removal of what the attempt may have left.
    type Removal;

    /// Contenders ahead, as far as the attempt knows.
    fn ahead(&self) -> Option<usize>;

    /// Returns what was counted since the last call.
    fn take_tally(&mut self) -> Tally;

    /// Ends the attempt, for a cancellation or after the grant. `true` if the pending flight
    /// contains the create, so that its reply has to be handed to the removal.
    fn abandon(self) -> (Self::Removal, bool);
}

/// The removal of everything that an attempt may have left. It can be started again after it has
/// ended.
pub trait Removal: Machine<Output = Result<Released, Refusal>> + Debug + Send + 'static {
    /// The create of the attempt is still pending: its reply will be the first one handed in.
    fn expect_create(&mut self);

    /// It is no longer certain that the znode is ours.
    fn doubt(&mut self);

    /// After a refusal: the next start retries what was refused.
    fn retry(&mut self);

    /// The next start looks for znodes that a lost request may have left.
    fn sweep_again(&mut self);

    /// True if a create of the attempt had an unknown outcome, so that another look after the next
    /// reconnect is worth its cost.
    fn is_tainted(&self) -> bool;

    /// Flights issued again because a lost connection had left their outcome open.
    fn replays(&self) -> u64;

    /// The path of a contender znode of this attempt.
    fn path_of(&self, znode: &Znode) -> ByteString;
}

/// A change of a lock while it is held. `R` is the removal of the lock.
pub trait Change<R>:
    Machine<Output = Result<Changed, NotChanged>> + Sized + Send + 'static
{
    /// What a guard sends to ask for the change. A guard of a lock that cannot change has no value
    /// of this type.
    type Request: Debug + Send + 'static;

    /// Prepares the change. Until it is decided, the removal covers the znodes before and after it.
    fn begin(request: Self::Request, removal: &mut R, session: SessionId, znode: Znode) -> Self;

    /// From now on the removal covers this znode only.
    fn settle(removal: &mut R, znode: &Znode);

    /// Flights issued again because a lost connection had left their outcome open.
    fn replays(&self) -> u64;
}

/// What the guard of a lock sends to its keeper to have the lock changed.
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
