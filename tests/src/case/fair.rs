//! The fair lock.

use zk_recipes::{FairLock, FencingToken, Guard, LockError, kind};

use super::Case;

impl Case for FairLock {
    type Kind = kind::Fair;
    type Rival = Self;

    const NAME: &'static str = "fair";
    const MARK: Option<&'static str> = Some("-lock-");
    const IS_FAIR: bool = true;

    async fn inspect(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }

    fn token(guard: &Guard<kind::Fair>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
