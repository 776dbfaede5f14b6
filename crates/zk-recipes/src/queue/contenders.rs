//! Reading the contenders of a queue.

use bytestring::ByteString;
use jute_codec::{NameList, Response};
use zk_session::{Client, Time};

use super::naming::SEQUENCE_MAX;
use super::profile::QueueProfile;
use crate::acquire::lock::Lock;
use crate::engine::call::Call;
use crate::engine::drive::run;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::lock::kind::Queued;
use crate::lock::role::Role;
use crate::machine::{FailedAction, ReadAll, child, list, read};

impl<K: Queued<Profile = QueueProfile>> Lock<K> {
    /// Reads the queue in its order: those who hold the lock first, then the waiters; all of them,
    /// whatever their kind. Contenders that arrive or leave during the call may be missing or
    /// included.
    ///
    /// After a lost connection, the reads are repeated. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`LockError::Refused`] if the client may not read the directory or a contender;
    /// [`LockError::MixedKinds`] if the directory contains a lock of another kind;
    /// [`LockError::QueueExhausted`] if its sequence counter has reached its end;
    /// [`LockError::TimedOut`] after a [timeout](Call::timeout); [`LockError::Closed`] and similar
    /// errors if the client has stopped.
    pub fn contenders(&self) -> Call<Vec<Contender>, LockError> {
        self.call(async |lock, deadline| {
            let queue = listed(lock.client(), &lock.profile, deadline).await?;
            read_each(lock.client(), &lock.profile, &queue, deadline).await
        })
    }
}

/// Reads the first contender of a queue, which holds the lock. Returns `None` if there is none.
pub(crate) async fn first(
    client: &Client,
    profile: &QueueProfile,
    deadline: Option<Time>,
) -> Result<Option<Contender>, LockError> {
    loop {
        let queue = listed(client, profile, deadline).await?;
        let Some(first) = head(&queue) else { return Ok(None) };
        let read = read_each(client, profile, std::slice::from_ref(first), deadline).await?;
        if let Some(first) = read.into_iter().next() {
            return Ok(Some(first));
        }
        // The first contender has left since the list was read. This loop repeats only as often as
        // that happens, so it needs no other bound.
    }
}

/// A contender in a list: its number, its role and its name.
type Listed = (u32, Role, ByteString);

/// Lists the contenders of a queue, and returns the path of the first, or `None` if there is none.
pub(crate) async fn first_path(
    client: &Client,
    profile: &QueueProfile,
) -> Result<Option<ByteString>, LockError> {
    let queue = listed(client, profile, None).await?;
    Ok(head(&queue).map(|(.., name)| child(profile.directory(), name)))
}

/// Returns the path of the first contender in a list of the directory, or `None` if there is none.
pub(crate) fn first_of(
    profile: &QueueProfile,
    names: NameList,
) -> Result<Option<ByteString>, LockError> {
    let queue = in_order(profile, names)?;
    Ok(head(&queue).map(|(.., name)| child(profile.directory(), name)))
}

/// Returns the contender that holds the lock. One with the last number never does: others may have
/// the same number, so it fails and leaves.
fn head(queue: &[Listed]) -> Option<&Listed> {
    queue.first().filter(|(number, ..)| *number < SEQUENCE_MAX)
}

/// Lists the contenders of a queue, in its order.
async fn listed(
    client: &Client,
    profile: &QueueProfile,
    deadline: Option<Time>,
) -> Result<Vec<Listed>, LockError> {
    let directory = profile.directory();
    let mut listing = ReadAll::new(vec![list(directory, None)], FailedAction::List, directory);
    let listed = run(client, &mut listing, deadline).await?.into_iter().next().flatten();
    match listed {
        Some(Response::GetChildren(names)) => in_order(profile, names),
        Some(_) | None => Ok(Vec::new()),
    }
}

fn in_order(profile: &QueueProfile, names: NameList) -> Result<Vec<Listed>, LockError> {
    let mut queue = Vec::new();
    for name in names {
        if let Some((number, role)) = profile.contender(&name)? {
            queue.push((number, role, name));
        }
    }
    queue.sort();
    Ok(queue)
}

/// Reads the contenders of a list that still exist.
async fn read_each(
    client: &Client,
    profile: &QueueProfile,
    queue: &[Listed],
    deadline: Option<Time>,
) -> Result<Vec<Contender>, LockError> {
    let directory = profile.directory();
    let paths: Vec<_> = queue.iter().map(|(.., name)| child(directory, name)).collect();
    let reads = paths.iter().map(|path| read(path.clone(), None)).collect();
    let mut reading = ReadAll::new(reads, FailedAction::ReadChild, directory);
    let responses = run(client, &mut reading, deadline).await?;
    let mut found = Vec::new();
    for ((response, (_, role, _)), path) in responses.into_iter().zip(queue).zip(&paths) {
        // If the znode does not exist, the contender has left the queue since the list was read.
        if let Some(Response::GetData(data)) = response {
            found.push(Contender::new(path, found.len(), *role, data));
        }
    }
    Ok(found)
}
