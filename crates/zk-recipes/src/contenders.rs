//! Looking at a queue from outside.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, Response};
use zk_session::machine::Operation;
use zk_session::{Client, OpError, SessionId};

use crate::error::{LockError, LostReason};
use crate::machine::exclusive::Mark;
use crate::machine::release::name_of;
use crate::machine::{Patience, Profile, Verdict, child, list, read, replayable};
use crate::naming::{Role, Sibling};
use crate::run::{has_stopped, pause, replay};

/// Reads in one flight.
const BATCH: usize = 100;

/// Somebody who holds a lock or waits for it, of whatever implementation.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Contender {
    /// Path of its znode.
    pub path: String,
    /// Place in the queue, from 0; who is at 0 holds the lock. Readers behind it may hold it too.
    pub position: usize,
    /// Whether it shares the lock with others of its role.
    pub role: Role,
    /// What it says of itself: the data of its znode. Other implementations write other things.
    pub identity: Bytes,
    /// Its session.
    pub session: SessionId,
    /// When it came, by the clock of the server that led the ensemble then.
    pub since: SystemTime,
}

impl Contender {
    /// How long it has been there at a time of the clock here, such as `SystemTime::now()`; zero
    /// if that clock is behind the server's.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.since).unwrap_or_default()
    }

    fn new(path: &ByteString, position: usize, role: Role, data: DataReply) -> Self {
        let ctime = Duration::from_millis(u64::try_from(data.stat.ctime).unwrap_or_default());
        Self {
            path: path.to_string(),
            position,
            role,
            identity: data.data.unwrap_or_default(),
            session: SessionId(data.stat.ephemeral_owner),
            since: UNIX_EPOCH + ctime,
        }
    }
}

/// Everybody in a queue, in its order.
pub(crate) async fn contenders(
    client: &Client,
    profile: &Profile,
) -> Result<Vec<Contender>, LockError> {
    let directory = &profile.directory;
    let Some(listed) = ask(client, vec![list(directory, None)], "list", directory).await?.pop()
    else {
        return Ok(Vec::new());
    };
    let Some(Response::GetChildren(names)) = listed else { return Ok(Vec::new()) };
    let mut queue = Vec::new();
    for name in names {
        match profile.names.sibling(&name) {
            Sibling::Contender(number, role) => queue.push((number, role, name)),
            Sibling::OtherKind => {
                return Err(LockError::MixedKinds { name: name.to_string() });
            }
            Sibling::Exhausted => {
                return Err(LockError::QueueExhausted { directory: directory.to_string() });
            }
            Sibling::Foreign => {}
        }
    }
    queue.sort();
    let paths: Vec<_> = queue.iter().map(|(.., name)| child(directory, name)).collect();
    let reads = paths.iter().map(|path| read(path.clone(), None)).collect();
    let answers = ask(client, reads, "read a contender in", directory).await?;
    let mut found = Vec::new();
    for ((answer, (_, role, _)), path) in answers.into_iter().zip(queue).zip(&paths) {
        // Who has gone since is not there any more.
        if let Some(Response::GetData(data)) = answer {
            found.push(Contender::new(path, found.len(), role, data));
        }
    }
    Ok(found)
}

/// Who holds an exclusive lock.
pub(crate) async fn holder(
    client: &Client,
    path: &ByteString,
) -> Result<Option<Contender>, LockError> {
    let answer = ask(client, vec![read(path.clone(), None)], "read", path).await?.pop().flatten();
    let Some(Response::GetData(mut data)) = answer else { return Ok(None) };
    if data.stat.ephemeral_owner == 0 {
        let name = name_of(path).unwrap_or_default().to_string();
        return Err(LockError::MixedKinds { name });
    }
    data.data = data.data.map(|bytes| Mark::without(&bytes));
    Ok(Some(Contender::new(path, 0, Role::Exclusive, data)))
}

/// Asks until everything has an answer; `None` for what does not exist.
async fn ask(
    client: &Client,
    operations: Vec<Operation>,
    what: &'static str,
    path: &ByteString,
) -> Result<Vec<Option<Response>>, LockError> {
    let mut answers = Vec::with_capacity(operations.len());
    let mut patience = Patience::default();
    loop {
        let batch: Vec<_> = operations.iter().skip(answers.len()).take(BATCH).cloned().collect();
        if batch.is_empty() {
            return Ok(answers);
        }
        let asked = answers.len();
        for result in replay(client, None, batch).await.results {
            match replayable(result) {
                Verdict::Done(response) => answers.push(Some(response)),
                Verdict::Refused(OpError::Server(ErrorCode::NO_NODE)) => answers.push(None),
                Verdict::Refused(error) => return Err(LockError::definite(error, what, path)),
                Verdict::Later(error) if patience.is_over(&error) => {
                    return Err(LockError::definite(error, what, path));
                }
                Verdict::SessionOver if has_stopped(client) => {
                    return Err(LockError::Lost(LostReason::SessionExpired));
                }
                Verdict::Later(_)
                | Verdict::NotApplied
                | Verdict::Unknown
                | Verdict::SessionOver => break,
            }
        }
        if answers.len() == asked {
            pause(client, patience.pause()).await;
        } else {
            patience.reset();
        }
    }
}
