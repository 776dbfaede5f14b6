//! The exclusive lock, which has one znode and no queue.

use jute_codec::OpCode;
use zk_recipes::{
    Acquire, Client, ConfigError, ExclusiveLock, FencingToken, Guard, LockBuilder, LockError,
    LockStats, Side, TryAcquire, kind,
};

use super::Case;

impl Case for ExclusiveLock {
    type Kind = kind::Exclusive;
    type Lock = Self;
    type Naming = ();
    type Rival = Self;

    const NAME: &'static str = "exclusive";
    const MARK: Option<&'static str> = None;
    const IS_FAIR: bool = false;
    // The check in the multi would also pass with the znode of another holder, so the guard reads
    // the znode too.
    const PROOF: &'static [OpCode] = &[OpCode::MULTI, OpCode::GET_DATA];

    fn builder(client: &Client, path: &str) -> Result<LockBuilder<Self>, ConfigError> {
        Self::builder(client, path)
    }

    fn build(builder: LockBuilder<Self>) -> Result<Self, ConfigError> {
        builder.build()
    }

    fn acquire(&self) -> Acquire<kind::Exclusive> {
        self.acquire()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Exclusive> {
        self.try_acquire()
    }

    fn side(&self) -> Side<kind::Exclusive> {
        Side::from(self)
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.holder().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.stats()
    }

    fn token(guard: &Guard<kind::Exclusive>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
