//! A configuration whose entries change together.

use std::collections::BTreeMap;

use zk_recipes::{CreateMode, ErrorCode, Multi, SettledClient, SettledError, Version};

pub type Entries = BTreeMap<String, Vec<u8>>;

/// A configuration of several znodes that change together.
///
/// The data of `path` names the version that counts, which is a child with a child for each entry. A
/// version is written with the name that leads to it, in one transaction, and never changes.
pub struct Config {
    settled: SettledClient,
    path: String,
}

/// A version of the configuration, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub name: String,
    pub entries: Entries,
    revision: Version,
}

impl Config {
    pub fn new(settled: &SettledClient, path: &str) -> Self {
        Self { settled: settled.clone().behind_barrier(), path: path.to_owned() }
    }

    /// Creates the configuration, with a version without entries. Returns false if it exists.
    pub async fn create(&self) -> Result<bool, SettledError> {
        let all = Multi::new().create(&self.path, "v0", CreateMode::Persistent);
        let all = all.create(&self.version("v0"), "", CreateMode::Persistent);
        won(self.settled.commit(all).await.map(drop), ErrorCode::NODE_EXISTS)
    }

    /// Reads the version that counts.
    pub async fn load(&self) -> Result<Loaded, SettledError> {
        let (name, stat) = self.settled.get_data(&self.path).await?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let mut entries = Entries::new();
        for key in self.settled.get_children(&self.version(&name)).await? {
            let (data, _) = self.settled.get_data(&self.entry(&name, &key)).await?;
            entries.insert(key.to_string(), data.to_vec());
        }
        Ok(Loaded { name, entries, revision: stat.version })
    }

    /// Replaces the version that was loaded. Returns false if another writer was first: then
    /// nothing has changed.
    pub async fn publish(&self, old: &Loaded, entries: &Entries) -> Result<bool, SettledError> {
        // Each change raises the revision, so no name returns.
        let name = format!("v{}", old.revision.0 + 1);
        let mut all = Multi::new().set_data(&self.path, name.clone(), Some(old.revision));
        all = all.create(&self.version(&name), "", CreateMode::Persistent);
        for (key, data) in entries {
            all = all.create(&self.entry(&name, key), data.clone(), CreateMode::Persistent);
        }
        won(self.settled.commit(all).await.map(drop), ErrorCode::BAD_VERSION)
    }

    /// Makes an earlier version count again. Returns false if another writer was first.
    pub async fn roll_back(&self, old: &Loaded, name: &str) -> Result<bool, SettledError> {
        let all = Multi::new().set_data(&self.path, name.to_owned(), Some(old.revision));
        let all = all.check(&self.version(name), None);
        won(self.settled.commit(all).await.map(drop), ErrorCode::BAD_VERSION)
    }

    fn version(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    fn entry(&self, name: &str, key: &str) -> String {
        format!("{}/{name}/{key}", self.path)
    }
}

fn won(written: Result<(), SettledError>, code: ErrorCode) -> Result<bool, SettledError> {
    match written {
        Err(error) if error.server_code() == Some(code) => Ok(false),
        other => other.map(|()| true),
    }
}
