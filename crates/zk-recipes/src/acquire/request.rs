//! The parameters of an acquire.

use std::sync::Arc;

use zk_session::Time;

use crate::guard::Terms;
use crate::lock::recipe::Recipe;

/// The parameters of an acquire.
pub(crate) struct AcquireRequest<K: Recipe> {
    pub(crate) profile: Arc<K::Profile>,
    /// When to give up.
    pub(crate) deadline: Option<Time>,
    /// The client may hold the lock already, so waiting behind its own session is not a mistake.
    pub(crate) is_beside_own: bool,
    pub(crate) terms: Terms,
}
