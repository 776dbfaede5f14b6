//! The semaphore with one permit, which is a mutex: so all properties of locks can be tested. The
//! suite `semaphore` tests several permits.

use zk_recipes::{
    Acquire, Client, ConfigError, FencingToken, Guard, LockBuilder, LockError, LockStats,
    PermitLimit, Semaphore, Side, TryAcquire, kind,
};

use super::Case;

/// A semaphore with one permit.
#[derive(Clone, Debug)]
pub struct OnePermit(pub Semaphore);

impl Case for OnePermit {
    type Kind = kind::Permit;
    type Lock = Semaphore;
    type Naming = PermitLimit;
    type Rival = Self;

    const NAME: &'static str = "semaphore";
    const MARK: Option<&'static str> = Some("-permit-");
    const IS_FAIR: bool = true;
    const IS_FENCED: bool = false;
    const WATCHES_DIRECTORY: bool = true;

    fn builder(
        client: &Client,
        path: &str,
    ) -> Result<LockBuilder<Semaphore, PermitLimit>, ConfigError> {
        Semaphore::builder(client, path)
    }

    fn build(builder: LockBuilder<Semaphore, PermitLimit>) -> Result<Self, ConfigError> {
        builder.build().map(Self)
    }

    fn acquire(&self) -> Acquire<kind::Permit> {
        self.0.acquire()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Permit> {
        self.0.try_acquire()
    }

    fn side(&self) -> Side<kind::Permit> {
        Side::from(&self.0)
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.0.contenders().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.0.stats()
    }

    fn token(_: &Guard<kind::Permit>) -> Option<FencingToken> {
        None
    }
}
