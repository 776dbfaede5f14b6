//! Names of the contenders of a fair lock.

use zk_session::ConfigError;

use crate::queue::naming::NameForm;

/// The form of contender names in the directory of a [`FairLock`](crate::FairLock). All contenders
/// that share a lock must use the same form.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Naming(pub(crate) NameForm);

impl Naming {
    /// `<id>-lock-<sequence>`, as Curator's `InterProcessMutex`. The default.
    pub fn curator() -> Self {
        Self(NameForm::known("-lock-", "lock-"))
    }

    /// `<id>__lock__<sequence>`, as kazoo's `Lock`.
    pub fn kazoo() -> Self {
        Self(NameForm::known("__lock__", "__lock__"))
    }

    /// A form of your own, such as `x-{id}-{sequence}`: to share a queue with programs whose names
    /// can carry our id. Every znode whose name begins and ends like this is a contender of the
    /// queue.
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
    /// The form cannot carry an id, or the sequence cannot be separated from the text before it.
    pub fn custom(form: &str) -> Result<Self, ConfigError> {
        NameForm::custom(form).map(Self)
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self::curator()
    }
}
