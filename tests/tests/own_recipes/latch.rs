//! A latch: tasks wait until others have counted down.

use std::error::Error;

use zk_recipes::{CreateMode, ErrorCode, SettledClient, SettledError};

/// Lets tasks wait until others have counted down to zero.
pub struct Latch {
    settled: SettledClient,
    path: String,
}

impl Latch {
    pub fn new(settled: &SettledClient, path: &str) -> Self {
        // Otherwise a server that lags behind could offer a count that others have replaced, again
        // and again.
        Self { settled: settled.clone().behind_barrier(), path: path.to_owned() }
    }

    /// Creates the latch. Returns false if it exists already.
    pub async fn create(&self, count: u64) -> Result<bool, SettledError> {
        let data = count.to_string();
        let mode = CreateMode::Persistent;
        match self.settled.create_with_parents(&self.path, data, mode).await {
            Ok(_) => Ok(true),
            Err(error) if error.server_code() == Some(ErrorCode::NODE_EXISTS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Counts down by one, unless the count is zero. Returns what is left.
    pub async fn count_down(&self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        loop {
            let (data, stat) = self.settled.get_data(&self.path).await?;
            let Some(left) = count(&data)?.checked_sub(1) else { return Ok(0) };
            let written = self.settled.set_data(&self.path, left.to_string(), Some(stat.version));
            match written.await {
                Ok(_) => return Ok(left),
                // Somebody else has counted in between. This call has not.
                Err(error) if error.server_code() == Some(ErrorCode::BAD_VERSION) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the count is zero, even if the latch does not exist yet.
    pub async fn wait(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut states = self.settled.changes(&self.path)?;
        loop {
            if let Some((data, _)) = states.next().await?
                && count(&data)? == 0
            {
                return Ok(());
            }
        }
    }
}

fn count(data: &[u8]) -> Result<u64, Box<dyn Error + Send + Sync>> {
    Ok(str::from_utf8(data)?.parse()?)
}
