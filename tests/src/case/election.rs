//! The election: a queue of candidates, with the machines of the fair lock and other names.

use zk_recipes::{Election, FencingToken, Guard, LockError, kind};

use super::Case;

impl Case for Election {
    type Kind = kind::Lead;
    type Rival = Self;

    const NAME: &'static str = "election";
    const MARK: Option<&'static str> = Some("-latch-");
    const IS_FAIR: bool = true;
    const IS_RENAMED: bool = true;

    async fn inspect(&self) -> Result<(), LockError> {
        self.candidates().await.map(drop)
    }

    fn token(guard: &Guard<kind::Lead>) -> Option<FencingToken> {
        Some(guard.fencing_token())
    }
}
