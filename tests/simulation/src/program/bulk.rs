//! Reads of much data at once, where links are narrow.

use super::task::{Task, together};

/// The znode with much data, which exists from the beginning.
pub const BULK: &str = "/bulk";
/// How many reads a task has pending at most.
pub const READS_MAX: usize = 12;
/// How many creates a task has pending at most.
pub const CREATES_MAX: usize = 5;

/// Reads the znode several times at once.
pub async fn read(task: &mut Task) {
    let count = task.draw.size(1, READS_MAX);
    let reads = (0..count).map(|_| task.client.get_data(BULK));
    let reads = reads.map(|read| task.call_beside("get_data", BULK, None, read));
    drop(together(reads).await);
}
