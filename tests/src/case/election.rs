//! The election: a queue of candidates, with the machines of the fair lock and other names.

use zk_recipes::{
    Acquire, Client, ConfigError, Election, ElectionNaming, FencingToken, Guard, LockBuilder,
    LockError, LockStats, Side, TryAcquire, kind,
};

use super::Case;

impl Case for Election {
    type Kind = kind::Lead;
    type Lock = Self;
    type Naming = ElectionNaming;
    type Rival = Self;

    const NAME: &'static str = "election";
    const MARK: Option<&'static str> = Some("-latch-");
    const IS_FAIR: bool = true;
    const IS_RENAMED: bool = true;

    fn builder(
        client: &Client,
        path: &str,
    ) -> Result<LockBuilder<Self, ElectionNaming>, ConfigError> {
        Self::builder(client, path)
    }

    fn build(builder: LockBuilder<Self, ElectionNaming>) -> Result<Self, ConfigError> {
        builder.build()
    }

    fn acquire(&self) -> Acquire<kind::Lead> {
        self.campaign()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Lead> {
        self.try_campaign()
    }

    fn side(&self) -> Side<kind::Lead> {
        Side::from(self)
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.candidates().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.stats()
    }

    fn token(guard: &Guard<kind::Lead>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
