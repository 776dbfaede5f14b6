//! Reading the contenders of a queue.

use jute_codec::Response;
use zk_session::Client;

use super::naming::Sibling;
use super::profile::QueueProfile;
use crate::engine::drive::run;
use crate::lock::contender::Contender;
use crate::lock::error::LockError;
use crate::machine::{FailedAction, ReadAll, child, list, read};

/// Reads all contenders of a queue, in the order of the queue.
pub(crate) async fn contenders(
    client: &Client,
    profile: &QueueProfile,
) -> Result<Vec<Contender>, LockError> {
    let directory = &profile.directory;
    let mut listing = ReadAll::new(vec![list(directory, None)], FailedAction::List, directory);
    let listed = run(client, &mut listing, None).await??.into_iter().next().flatten();
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
    let mut reading = ReadAll::new(reads, FailedAction::ReadChild, directory);
    let responses = run(client, &mut reading, None).await??;
    let mut found = Vec::new();
    for ((response, (_, role, _)), path) in responses.into_iter().zip(queue).zip(&paths) {
        // If the znode does not exist, the contender has left the queue since the list was read.
        if let Some(Response::GetData(data)) = response {
            found.push(Contender::new(path, found.len(), role, data));
        }
    }
    Ok(found)
}
