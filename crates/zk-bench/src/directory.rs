//! A znode of this run, under which everything happens.

use std::time::{SystemTime, UNIX_EPOCH};

use zk_session::{Client, CreateMode, ErrorCode, OpError};

use crate::Outcome;

/// Where this run makes its znodes; no other run uses the same.
pub(crate) fn path() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("/zk-bench-{:08x}", now.as_millis() as u32 ^ std::process::id() << 16)
}

pub(crate) async fn make(client: &Client) -> Outcome<String> {
    let path = path();
    client.create(&path, "", CreateMode::Persistent).await?;
    Ok(path)
}

/// Removes it, and the directories of locks in it. Ephemerals are gone by then, or go now.
pub(crate) async fn remove(client: &Client, path: &str) -> Outcome<()> {
    for name in client.get_children(path).await? {
        let child = format!("{path}/{name}");
        let grandchildren = client.get_children(&child).await?;
        let gone: Vec<_> = grandchildren
            .iter()
            .map(|name| client.delete(&format!("{child}/{name}"), None))
            .collect();
        for gone in gone {
            missing_is_fine(gone.await)?;
        }
        missing_is_fine(client.delete(&child, None).await)?;
    }
    missing_is_fine(client.delete(path, None).await)
}

fn missing_is_fine(deleted: Result<(), OpError>) -> Outcome<()> {
    match deleted {
        Ok(()) | Err(OpError::Server(ErrorCode::NO_NODE)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
