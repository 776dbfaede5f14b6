//! The fair lock.

use zk_recipes::{
    Acquire, Client, ConfigError, FairLock, FencingToken, Guard, LockBuilder, LockError, LockStats,
    Naming, Side, TryAcquire, kind,
};

use super::Case;

impl Case for FairLock {
    type Kind = kind::Fair;
    type Lock = Self;
    type Naming = Naming;
    type Rival = Self;

    const NAME: &'static str = "fair";
    const MARK: Option<&'static str> = Some("-lock-");
    const IS_FAIR: bool = true;

    fn builder(client: &Client, path: &str) -> Result<LockBuilder<Self, Naming>, ConfigError> {
        Self::builder(client, path)
    }

    fn build(builder: LockBuilder<Self, Naming>) -> Result<Self, ConfigError> {
        builder.build()
    }

    fn acquire(&self) -> Acquire<kind::Fair> {
        self.acquire()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Fair> {
        self.try_acquire()
    }

    fn side(&self) -> Side<kind::Fair> {
        Side::from(self)
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.stats()
    }

    fn token(guard: &Guard<kind::Fair>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
