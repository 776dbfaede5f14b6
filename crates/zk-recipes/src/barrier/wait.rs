//! Waiting for a barrier.

use bytestring::ByteString;
use jute_codec::{DataReply, Response};
use zk_session::{Client, Time};

use crate::engine::monitor::Monitored;
use crate::error::RecipeError;
use crate::machine::Aspect;

/// Waits until the barrier is open, or has been open since the wait began.
pub(super) async fn wait(
    client: Client,
    path: ByteString,
    deadline: Option<Time>,
) -> Result<(), RecipeError> {
    // A server reports the deletion of a znode only to those who may read it, and some versions
    // test its existence for everyone. So a wait has to read it: those who would never be woken are
    // refused at once.
    let mut monitored = Monitored::new(&client, &path, Aspect::Lifetime);
    let mut closed_by = None;
    loop {
        let Some(Response::GetData(DataReply { stat, .. })) = monitored.next(deadline).await?
        else {
            return Ok(());
        };
        // The znode of a barrier that was opened and closed again is another one.
        if closed_by.is_some_and(|closed_by| closed_by != stat.czxid) {
            return Ok(());
        }
        closed_by = Some(stat.czxid);
    }
}
