//! The directory of a run, which contains all its znodes.

use std::time::{SystemTime, UNIX_EPOCH};

use zk_session::{Client, CreateMode, ErrorCode, OpError};

use crate::Outcome;

/// Returns the path of the directory. Each run has a different one.
pub(crate) fn path() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/zk-bench-{:08x}", now.as_millis() as u32 ^ std::process::id() << 16)
}

pub(crate) async fn make(client: &Client) -> Outcome<String> {
    let path = path();
    client.create(&path, "", CreateMode::Persistent).await?;
    Ok(path)
}

/// Removes the directory, and the directories of locks in it, including their ephemerals.
pub(crate) async fn remove(client: &Client, path: &str) -> Outcome<()> {
    for name in client.get_children(path).await? {
        let child = format!("{path}/{name}");
        let grandchildren = client.get_children(&child).await?;
        let deletions: Vec<_> = grandchildren
            .iter()
            .map(|name| client.delete(&format!("{child}/{name}"), None))
            .collect();
        for deletion in deletions {
            missing_is_fine(deletion.await)?;
        }
        missing_is_fine(client.delete(&child, None).await)?;
    }
    missing_is_fine(client.delete(path, None).await)
}

fn missing_is_fine(deleted: Result<(), OpError>) -> Outcome<()> {
    match deleted {
        Ok(()) | Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
