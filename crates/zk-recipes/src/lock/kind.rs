//! Kinds of locks, as types: what a [`Guard`](crate::Guard) can do depends on its kind.

use super::recipe::Recipe;

/// A kind of lock. Each lock defines its kinds in its own folder.
pub trait Kind: Recipe {}

/// Excludes all other contenders, so a fencing token identifies a holder. Readers share the lock,
/// so no token can tell them apart:
///
/// ```compile_fail,E0599
/// fn write(guard: &zk_recipes::ReadGuard) {
///     let _ = guard.fencing_token();
/// }
/// ```
pub trait Fenced: Kind {}

/// Has a znode with a unique name, so that a transaction can check that znode. If all holders use
/// the same name, the check would accept the znode of the next holder:
///
/// ```compile_fail,E0599
/// fn write(guard: &zk_recipes::ExclusiveGuard) {
///     let _ = guard.transaction(zk_recipes::Multi::new());
/// }
/// ```
pub trait Queued: Kind {}

/// The kind of a [`FairLock`](crate::FairLock). It is declared here, and not in the folder of its
/// lock, because it is the default kind of a [`Guard`](crate::Guard).
#[derive(Clone, Copy, Debug)]
pub enum Fair {}
