//! The read/write lock as a reader uses it.

use zk_recipes::{Lock, LockError, kind};

use super::{Case, Writer};

/// A read/write lock that is acquired for reading.
pub type Reader = Lock<kind::Read>;

impl Case for Reader {
    type Kind = kind::Read;
    type Rival = Writer;

    const NAME: &'static str = "read";
    const MARK: Option<&'static str> = Some("-__READ__");
    const IS_FAIR: bool = true;
    const IS_SHARED: bool = true;
    const IS_FENCED: bool = false;

    async fn inspect(&self) -> Result<(), LockError> {
        self.contenders().await.map(drop)
    }
}
