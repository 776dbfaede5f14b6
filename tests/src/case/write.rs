//! The read/write lock as a writer uses it.

use zk_recipes::{FencingToken, Guard, Lock, LockError, kind};

use super::{Case, Downgrading};

/// A read/write lock that is acquired for writing.
pub type Writer = Lock<kind::Write>;

impl Case for Writer {
    type Kind = kind::Write;
    type Rival = Self;

    const NAME: &'static str = "write";
    const MARK: Option<&'static str> = Some("-__WRIT__");
    const IS_FAIR: bool = true;
    const HAS_DOWNGRADE: bool = true;

    async fn inspect(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }

    fn token(guard: &Guard<kind::Write>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }

    fn downgrade(guard: Guard<kind::Write>) -> Result<Downgrading, Guard<kind::Write>> {
        Ok(Box::pin(guard.downgrade()))
    }
}
