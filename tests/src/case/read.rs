//! The read/write lock as a reader uses it.

use zk_recipes::{
    Acquire, Client, ConfigError, FencingToken, Guard, LockBuilder, LockError, LockStats, RwLock,
    RwNaming, Side, TryAcquire, kind,
};

use super::{Case, Writer};

/// A read/write lock that is acquired for reading.
#[derive(Clone, Debug)]
pub struct Reader(pub RwLock);

impl Case for Reader {
    type Kind = kind::Read;
    type Lock = RwLock;
    type Naming = RwNaming;
    type Rival = Writer;

    const NAME: &'static str = "read";
    const MARK: Option<&'static str> = Some("-__READ__");
    const IS_FAIR: bool = true;
    const IS_SHARED: bool = true;
    const IS_FENCED: bool = false;

    fn builder(client: &Client, path: &str) -> Result<LockBuilder<RwLock, RwNaming>, ConfigError> {
        RwLock::builder(client, path)
    }

    fn build(builder: LockBuilder<RwLock, RwNaming>) -> Result<Self, ConfigError> {
        builder.build().map(Self)
    }

    fn acquire(&self) -> Acquire<kind::Read> {
        self.0.read()
    }

    fn try_acquire(&self) -> TryAcquire<kind::Read> {
        self.0.try_read()
    }

    fn side(&self) -> Side<kind::Read> {
        self.0.read_side()
    }

    async fn inspect(&self) -> Result<(), LockError> {
        self.0.contenders().await.map(drop)
    }

    fn stats(&self) -> LockStats {
        self.0.stats()
    }

    fn token(_: &Guard<kind::Read>) -> Option<FencingToken> {
        None
    }
}
