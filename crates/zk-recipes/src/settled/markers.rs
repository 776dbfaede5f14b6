//! The markers that wait for their next transaction.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::Span;
use zk_session::Client;
use zk_session::SessionId;
use zk_session::recipe::Session;

use crate::engine::feed::Feed;
use crate::engine::removal;
use crate::machine::{Marker, Once, Remove, Settled};

/// Maximum number of markers that are kept. More are needed only while more transactions are in
/// flight.
const IDLE_MAX: usize = 64;

/// The markers that wait for their next transaction. When they are dropped, the janitor deletes
/// them.
pub(super) struct Markers {
    client: Client,
    idle: Mutex<Vec<Marker>>,
}

impl Markers {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone(), idle: Mutex::default() }
    }

    /// Takes a marker of this session.
    pub(super) fn take(&self, session: Option<SessionId>) -> Option<Marker> {
        let mut idle = self.idle();
        if let Some(marker) = idle.pop_if(|marker| Some(marker.session) == session) {
            return Some(marker);
        }
        // Markers of earlier sessions have ended with them. A call that is bound to an earlier
        // session gets none, and leaves those of the present one for the others.
        let current = self.client.session_id();
        idle.retain(|marker| Some(marker.session) == current);
        let at = idle.iter().rposition(|marker| Some(marker.session) == session)?;
        Some(idle.swap_remove(at))
    }

    /// Keeps the marker of a transaction, if it can be used again, and there are not too many.
    pub(super) fn keep(&self, once: &mut Once, settled: &Settled) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.extend(once.keep_marker(settled));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Marker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        let session = self.client.session_id();
        let idle = std::mem::take(&mut *self.idle());
        let mut idle = idle.into_iter().filter(|marker| Some(marker.session) == session).peekable();
        let Some(first) = idle.peek().map(|marker| marker.path.clone()) else { return };
        let removals: Vec<_> =
            idle.map(|marker| Remove::new(marker.path, session, true, false)).collect();
        let lane = Session::of(&self.client).lane();
        lane.after_pause(Duration::ZERO, &first, async move |lane| {
            let mut feed = Feed::new(lane);
            for removal in removals {
                removal::run(&mut feed, removal, Span::none(), |_| {}).await;
            }
        });
    }
}
