//! The kinds of locks, and the one place that builds them.

use std::str::FromStr;

use clap::ValueEnum;
use zk_recipes::kind::{Fenced, Kind};
use zk_recipes::{
    Client, ConfigError, Election, ElectionNaming, ExclusiveLock, FairLock, FencingToken, Guard,
    Lock, Naming as FairNaming, RwLock, RwNaming, Semaphore,
};

use crate::exit::Failure;

/// A kind of lock, as the command line names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockKind {
    Election,
    Exclusive,
    Fair,
    Read,
    Semaphore(u32),
    Write,
}

/// The library whose form of names the entries of a queue have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Naming {
    /// Curator's, which are the library's own
    Curator,
    /// kazoo's
    Kazoo,
}

/// Returns the fencing token of a lock, if its kind has one.
pub(crate) type TokenOf<K> = fn(&Guard<K>) -> Option<FencingToken>;

/// Something to do with a lock of any kind.
pub(crate) trait Task {
    async fn perform<K: Kind>(self, lock: Lock<K>, token: TokenOf<K>) -> Result<u8, Failure>;
}

impl LockKind {
    /// Builds the lock, and performs the task with it.
    pub(crate) async fn perform(
        self,
        client: &Client,
        path: &str,
        naming: Naming,
        identity: &str,
        task: impl Task,
    ) -> Result<u8, Failure> {
        let id = identity.to_owned();
        let is_kazoo = naming == Naming::Kazoo;
        match self {
            Self::Exclusive | Self::Semaphore(_) if is_kazoo => Err(Failure::own(
                "--naming kazoo: only fair, read, write and election have queues that kazoo can \
                 share",
            )),
            Self::Election => {
                let names = if is_kazoo { ElectionNaming::kazoo() } else { <_>::default() };
                let built = Election::builder(client, path)
                    .and_then(|it| it.identity(id).naming(names).build());
                task.perform(built.map_err(failure)?, fenced).await
            }
            Self::Exclusive => {
                let built =
                    ExclusiveLock::builder(client, path).and_then(|it| it.identity(id).build());
                task.perform(built.map_err(failure)?, fenced).await
            }
            Self::Fair => {
                let names = if is_kazoo { FairNaming::kazoo() } else { <_>::default() };
                let built = FairLock::builder(client, path)
                    .and_then(|it| it.identity(id).naming(names).build());
                task.perform(built.map_err(failure)?, fenced).await
            }
            Self::Read | Self::Write => {
                let names = if is_kazoo { RwNaming::kazoo() } else { <_>::default() };
                let built = RwLock::builder(client, path)
                    .and_then(|it| it.identity(id).naming(names).build());
                let lock = built.map_err(failure)?;
                if self == Self::Read {
                    task.perform(lock.read_side(), unfenced).await
                } else {
                    task.perform(lock.write_side(), fenced).await
                }
            }
            Self::Semaphore(permits) => {
                let built = Semaphore::builder(client, path)
                    .and_then(|it| it.identity(id).permits(permits).build());
                task.perform(built.map_err(failure)?, unfenced).await
            }
        }
    }
}

fn failure(error: ConfigError) -> Failure {
    Failure::own(error.to_string())
}

fn fenced<K: Fenced>(guard: &Guard<K>) -> Option<FencingToken> {
    Some(guard.fencing_token())
}

/// Several contenders hold such a lock together, so no token excludes the others.
fn unfenced<K: Kind>(_: &Guard<K>) -> Option<FencingToken> {
    None
}

impl FromStr for LockKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "election" => Ok(Self::Election),
            "exclusive" => Ok(Self::Exclusive),
            "fair" => Ok(Self::Fair),
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => {
                let permits = text.strip_prefix("semaphore=").and_then(|it| it.parse().ok());
                let permits = permits.filter(|permits| *permits > 0).ok_or_else(|| {
                    "write fair, read, write, exclusive, election, or semaphore=N with the number \
                     of permits"
                        .to_owned()
                });
                permits.map(Self::Semaphore)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_has_a_number_of_permits() {
        assert_eq!("semaphore=3".parse(), Ok(LockKind::Semaphore(3)));
        for text in ["semaphore", "semaphore=", "semaphore=0", "semaphore=-1", "mutex", ""] {
            assert!(text.parse::<LockKind>().is_err(), "{text}");
        }
    }
}
