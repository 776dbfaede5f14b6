//! The exclusive lock, which has one znode and no queue.

use jute_codec::OpCode;
use zk_recipes::{ExclusiveLock, FencingToken, Guard, LockError, kind};

use super::Case;

impl Case for ExclusiveLock {
    type Kind = kind::Exclusive;
    type Rival = Self;

    const NAME: &'static str = "exclusive";
    const MARK: Option<&'static str> = None;
    const IS_FAIR: bool = false;
    // The check in the multi would also pass with the znode of another holder, so the guard reads
    // the znode too.
    const PROOF: &'static [OpCode] = &[OpCode::MULTI, OpCode::GET_DATA];

    async fn inspect(&self) -> Result<(), LockError> {
        self.holder().await.map(drop)
    }

    fn token(guard: &Guard<kind::Exclusive>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
