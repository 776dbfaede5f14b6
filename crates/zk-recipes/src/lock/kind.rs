//! Kinds of locks, as types: what a [`Lock`](crate::Lock) and its [`Guard`](crate::Guard) can do
//! depends on their kind.

use std::fmt::{Debug, DebugStruct};

use zk_session::ConfigError;

use super::options::LockOptions;
use super::recipe::Recipe;

/// A kind of lock. Each lock defines its kinds in its own folder.
pub trait Kind: Recipe {
    /// The option that only locks of this kind have: the form of the contenders' names, or the
    /// number of permits.
    type Naming: Clone + Debug + Default + Send + Sync + 'static;

    /// Name of the lock's type.
    #[doc(hidden)]
    const LOCK: &'static str;
    /// Name of the recipe in metrics.
    #[doc(hidden)]
    const METRIC: &'static str;

    /// Returns what the machines know about a lock with these options.
    ///
    /// # Errors
    ///
    /// The options are invalid.
    #[doc(hidden)]
    fn profile(options: LockOptions, naming: Self::Naming) -> Result<Self::Profile, ConfigError>;

    /// Adds what identifies a lock to the output of its `Debug`.
    #[doc(hidden)]
    fn describe(profile: &Self::Profile, output: &mut DebugStruct<'_, '_>) {
        output.field("directory", Self::path(profile));
    }
}

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
