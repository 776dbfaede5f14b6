//! The kinds of locks, as types: what a [`Guard`](crate::Guard) can do depends on its kind.

mod sealed {
    pub trait Sealed {}
}

/// A kind of lock.
pub trait Kind: sealed::Sealed + Send + Sync + 'static {}

/// Excludes everybody else, so a fencing token tells holders apart. Readers cannot be told apart:
///
/// ```compile_fail,E0599
/// fn write(guard: &zk_recipes::ReadGuard) {
///     let _ = guard.fencing_token();
/// }
/// ```
pub trait Fenced: Kind {}

/// Has a znode of a unique name, so that a check of it can stand in a transaction. The check of a
/// fixed name would accept the znode of the next holder:
///
/// ```compile_fail,E0599
/// fn write(guard: &zk_recipes::ExclusiveGuard) {
///     let _ = guard.transaction(zk_recipes::Multi::new());
/// }
/// ```
pub trait Queued: Kind {}

/// A [`FairLock`](crate::FairLock).
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Fair {}

/// The reading side of a [`RwLock`](crate::RwLock).
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Read {}

/// The writing side of a [`RwLock`](crate::RwLock).
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Write {}

/// An [`ExclusiveLock`](crate::ExclusiveLock).
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Exclusive {}

impl sealed::Sealed for Fair {}
impl sealed::Sealed for Read {}
impl sealed::Sealed for Write {}
impl sealed::Sealed for Exclusive {}

impl Kind for Fair {}
impl Kind for Read {}
impl Kind for Write {}
impl Kind for Exclusive {}

impl Fenced for Fair {}
impl Fenced for Write {}
impl Fenced for Exclusive {}

impl Queued for Fair {}
impl Queued for Read {}
impl Queued for Write {}
