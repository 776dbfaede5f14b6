//! Names of the contenders of a fair lock.

use zk_session::ConfigError;

use crate::queue::naming::NameForm;

/// The form of contender names in the directory of a [`FairLock`](crate::FairLock). All contenders
/// that share a lock must use the same form.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Naming(pub(crate) NameForm);

impl Naming {
    /// Returns the form `<id>-lock-<sequence>`, which Curator's `InterProcessMutex` uses. This is
    /// the default.
    pub fn curator() -> Self {
        Self(NameForm::known("-lock-", "lock-"))
    }

    /// Returns the form `<id>__lock__<sequence>`, which kazoo's `Lock` uses.
    pub fn kazoo() -> Self {
        Self(NameForm::known("__lock__", "__lock__"))
    }

    /// Returns a form of your own, such as `x-{id}-{sequence}`. Use it to share a queue with
    /// programs whose names can carry our id. Every znode whose name begins and ends like this form
    /// is a contender of the queue.
    ///
    /// ```
    /// # fn main() -> Result<(), zk_recipes::ConfigError> {
    /// use zk_recipes::Naming;
    ///
    /// let naming = Naming::custom("x-{id}-{sequence}")?;
    /// assert!(Naming::custom("x-{sequence}").is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the form cannot carry an id, or if the sequence cannot be separated from the text
    /// before it.
    pub fn custom(form: &str) -> Result<Self, ConfigError> {
        NameForm::custom(form).map(Self)
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::curator()
    }
}
