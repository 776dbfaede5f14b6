//! Ids in blocks.

use std::error::Error;
use std::ops::Range;

use zk_recipes::{CreateMode, ErrorCode, SettledClient, SettledError};

/// Hands out numbers, each of them once, and asks the servers once for a block of them.
pub struct Ids {
    settled: SettledClient,
    path: String,
    block: u64,
    left: Range<u64>,
}

impl Ids {
    pub fn new(settled: &SettledClient, path: &str, block: u64) -> Self {
        let settled = settled.clone().behind_barrier();
        Self { settled, path: path.to_owned(), block, left: 0..0 }
    }

    /// Creates the znode, when the service is set up. Returns false if it exists already. `next`
    /// does not create it: if somebody had deleted it, ids would be handed out twice.
    pub async fn create(&self) -> Result<bool, SettledError> {
        match self.settled.create_with_parents(&self.path, "0", CreateMode::Persistent).await {
            Ok(_) => Ok(true),
            Err(error) if error.server_code() == Some(ErrorCode::NODE_EXISTS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an id that nobody else has, and that nobody will get.
    pub async fn next(&mut self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        loop {
            if let Some(id) = self.left.next() {
                return Ok(id);
            }
            self.left = self.reserve().await?;
        }
    }

    /// Reserves a block. If the future is dropped, the block may be skipped.
    async fn reserve(&self) -> Result<Range<u64>, Box<dyn Error + Send + Sync>> {
        loop {
            let (data, stat) = self.settled.get_data(&self.path).await?;
            let first: u64 = str::from_utf8(&data)?.parse()?;
            let end = first.checked_add(self.block).ok_or("there are no more ids")?;
            match self.settled.set_data(&self.path, end.to_string(), Some(stat.version)).await {
                Ok(_) => return Ok(first..end),
                // The block belongs to somebody else: try the next one.
                Err(error) if error.server_code() == Some(ErrorCode::BAD_VERSION) => {}
                // The block may be ours, or may become so. Nobody uses it.
                Err(error) => return Err(error.into()),
            }
        }
    }
}
