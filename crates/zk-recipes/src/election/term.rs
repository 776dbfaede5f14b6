//! Work that only the leader does: campaigning again and again until the work is complete.

use std::time::Duration;

use tracing::debug;
use zk_session::SessionState;
use zk_session::recipe::Abridged;

use crate::acquire::lock::Lock;
use crate::engine::drive::rest;
use crate::guard::Guard;
use crate::lock::error::LockError;
use crate::lock::kind::Kind;
use crate::machine::Pauses;

/// A leadership that lasted this long did not end at once, so the pauses begin with the shortest
/// again. It is about twice the longest pause: an election whose leaderships always end after this time
/// spends most of its time with a leader.
const LASTED_MIN: Duration = Duration::from_secs(10);

/// See [`Election::run_while_leader`](super::Election::run_while_leader).
pub(super) async fn run_while_leader<K: Kind, T>(
    lock: &Lock<K>,
    mut body: impl AsyncFnMut(&Guard<K>) -> T,
) -> Result<T, LockError> {
    let (client, path) = (lock.client(), lock.path());
    let mut pauses = Pauses::default();
    loop {
        match lock.acquire().await {
            Ok(leadership) => {
                let since = client.now();
                match leadership.run(body(&leadership)).await {
                    Ok(output) => {
                        // The keeper logs a refusal, and retries. The output is worth more to the
                        // caller than the error.
                        let _ = leadership.release().await;
                        return Ok(output);
                    }
                    Err(stopped) => {
                        debug!(path = %Abridged(path), %stopped, "the leadership has ended");
                    }
                }
                if client.now().saturating_since(since) >= LASTED_MIN {
                    pauses.reset();
                }
            }
            // The client has ended with its session, so each candidacy would end at once.
            Err(error @ LockError::Lost(_)) if client.state() == SessionState::Expired => {
                return Err(error);
            }
            // Others have deleted the znodes of this candidate too often. That is a loss as well.
            Err(LockError::Lost(reason)) => {
                debug!(path = %Abridged(path), %reason, "the candidacy has ended");
            }
            Err(error) => return Err(error),
        }
        rest(client, &mut pauses).await;
    }
}
