//! Names of the candidates of an election.

use zk_session::ConfigError;

use crate::queue::naming::NameForm;

/// The form of candidate names in the directory of an [`Election`](crate::Election). All candidates
/// of an election must use the same form.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ElectionNaming(pub(super) NameForm);

impl ElectionNaming {
    /// Returns the form `<id>-latch-<sequence>`, which Curator's `LeaderLatch` uses. This is the
    /// default.
    pub fn leader_latch() -> Self {
        Self(NameForm::known("-latch-", "latch-"))
    }

    /// Returns the form `<id>-lock-<sequence>`, which Curator's `LeaderSelector` uses. Curator's
    /// `InterProcessMutex` and our [`FairLock`](crate::FairLock) have the same names: at the same
    /// path, they exclude the leader.
    pub fn leader_selector() -> Self {
        Self(NameForm::known("-lock-", "lock-"))
    }

    /// Returns the form `<id>__lock__<sequence>`, which kazoo's `Election` uses. Kazoo's `Lock` has
    /// the same names.
    pub fn kazoo() -> Self {
        Self(NameForm::known("__lock__", "__lock__"))
    }

    /// Returns a form of your own, such as `x-{id}-{sequence}`; see
    /// [`Naming::custom`](crate::Naming::custom).
    ///
    /// # Errors
    ///
    /// Fails if the form cannot carry an id, or if the sequence cannot be separated from the text
    /// before it.
    pub fn custom(form: &str) -> Result<Self, ConfigError> {
        NameForm::custom(form).map(Self)
    }
}

impl Default for ElectionNaming {
    fn default() -> Self {
        Self::leader_latch()
    }
}
