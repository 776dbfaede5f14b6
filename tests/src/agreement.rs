//! Whether servers of one ensemble have the same znodes.
//!
//! No promise of a lock holds on servers that differ. Those of ZooKeeper 3.8.0 may differ after one of them
//! has joined late: it misses transactions that the others have applied (ZOOKEEPER-4785).

use std::collections::BTreeMap;

use jute_codec::{ErrorCode, Zxid};
use zk_session::{Client, OpError};

/// The znodes at and below a path, by the transactions that created them.
type Znodes = BTreeMap<String, Zxid>;

/// Returns a znode at or below this path that one server has and another one lacks, although both have
/// applied all that was committed, if there is one. Each client is connected to another server, and others
/// may change the znodes meanwhile.
///
/// # Errors
///
/// If a server cannot be asked.
pub async fn difference(servers: &[Client], path: &str) -> Result<Option<String>, OpError> {
    // If a server has a znode before and after another one lacks it, the two differ: a znode that was
    // deleted in between does not come back.
    let mut looks = [Vec::new(), Vec::new(), Vec::new()];
    for look in &mut looks {
        for server in servers {
            look.push(znodes(server, path).await?);
        }
    }
    let [before, between, after] = looks;
    for (one, (before, after)) in before.iter().zip(&after).enumerate() {
        let stays = |(path, czxid): &(&String, &Zxid)| after.get(*path) == Some(*czxid);
        for (path, czxid) in before.iter().filter(stays) {
            let lacks = |(_, znodes): &(usize, &Znodes)| znodes.get(path) != Some(czxid);
            if let Some((other, _)) = between.iter().enumerate().find(lacks) {
                let (one, other) = (one + 1, other + 1);
                return Ok(Some(format!(
                    "server {one} has {path}, created by {czxid}, and server {other} lacks it"
                )));
            }
        }
    }
    Ok(None)
}

async fn znodes(server: &Client, path: &str) -> Result<Znodes, OpError> {
    server.catch_up().await?;
    let mut found = Znodes::new();
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let Some(stat) = server.exists(&path).await? else { continue };
        match server.get_children(&path).await {
            Ok(names) => paths.extend(names.iter().map(|name| format!("{path}/{name}"))),
            Err(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
            Err(error) => return Err(error),
        }
        found.insert(path, stat.czxid);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use zk_session::CreateMode;
    use zk_testserver::ServerConfig;

    use super::*;
    use crate::world::World;

    #[tokio::test(start_paused = true)]
    async fn servers_that_differ_are_told_from_servers_that_lag() {
        let ensemble = ServerConfig::default().members(2).lag(Duration::from_secs(3));
        let ensemble = World::with(ensemble);
        let [leader, follower] = [0, 1].map(|member| Arc::new(AtomicUsize::new(member)));
        let servers =
            [ensemble.moving_client(1, &leader).await, ensemble.moving_client(2, &follower).await];
        for path in ["/a", "/a/b"] {
            servers[0].create(path, "", CreateMode::Persistent).await.expect("it can be created");
        }
        assert_eq!(difference(&servers, "/a").await, Ok(None));

        // Servers of different ensembles stand for servers that have lost a transaction.
        let [one, other] = [World::new(), World::new()];
        let servers = [one.client(1).await, other.client(2).await];
        for server in &servers {
            server.create("/a", "", CreateMode::Persistent).await.expect("it can be created");
        }
        assert_eq!(difference(&servers, "/a").await, Ok(None));
        servers[1].create("/a/b", "", CreateMode::Persistent).await.expect("it can be created");
        let found = difference(&servers, "/a").await.expect("the servers answer");
        let found = found.expect("one server has another znode");
        assert!(found.starts_with("server 2 has /a/b, created by "), "{found}");
        assert!(found.ends_with(", and server 1 lacks it"), "{found}");
    }
}
