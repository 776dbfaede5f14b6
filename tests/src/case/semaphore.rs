//! The semaphore with one permit, which is a mutex: so all properties of locks can be tested. The
//! suite `semaphore` tests several permits.

use zk_recipes::{LockError, Semaphore, kind};

use super::Case;

/// A semaphore with one permit.
pub type OnePermit = Semaphore;

impl Case for OnePermit {
    type Kind = kind::Permit;
    type Rival = Self;

    const NAME: &'static str = "semaphore";
    const MARK: Option<&'static str> = Some("-permit-");
    const IS_FAIR: bool = true;
    const IS_FENCED: bool = false;
    const WATCHES_DIRECTORY: bool = true;

    async fn inspect(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }
}
