//! The read/write lock as a writer uses it.

use zk_recipes::{
    Acquire, Client, ConfigError, FencingToken, Guard, LockBuilder, LockError, LockStats, RwLock,
    RwNaming, Side, TryAcquire, kind,
};

use super::{Case, Downgrading};

/// A read/write lock that is acquired for writing.
#[derive(Clone, Debug)]
pub struct Writer(pub RwLock);

impl Case for Writer {
    type Kind = kind::Write;
    type Lock = RwLock;
    type Naming = RwNaming;
    type Rival = Self;

    const NAME: &'static str = "write";
    const MARK: Option<&'static str> = Some("-__WRIT__");
    const IS_FAIR: bool = true;
    const HAS_DOWNGRADE: bool = true;

    fn builder(client: &Client, path: &str) -> Result<LockBuilder<RwLock, RwNaming>, ConfigError> {
        RwLock::builder(client, path)
    }

    fn build(builder: LockBuilder<RwLock, RwNaming>) -> Result<Self, ConfigError> {
        builder.build().map(Self)
    }

    fn acquire(&self) -> Acquire<kind::Write> {
        self.0.write()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Write> {
        self.0.try_write()
    }

    fn side(&self) -> Side<kind::Write> {
        self.0.write_side()
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.0.contenders().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.0.stats()
    }

    fn token(guard: &Guard<kind::Write>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }

    fn downgrade(guard: Guard<kind::Write>) -> Result<Downgrading, Guard<kind::Write>> {
        Ok(Box::pin(guard.downgrade()))
    }
}
