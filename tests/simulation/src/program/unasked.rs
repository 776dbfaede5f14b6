//! Holders who do not ask their guard for its state, and rely on being told of a loss.

use std::pin::pin;
use std::time::Duration;

use zk_recipes::kind::Kind;
use zk_recipes::{Client, Guard, LockState, SessionId, SessionState};

use super::task::Task;
use crate::history::What;

/// After how long the guard must still be held. A lock that was never held is not lost at risk.
const HELD_AFTER: Duration = Duration::from_secs(1);
/// How long the client has then to renew its lease: an interval is a twentieth of the session timeout.
const RENEWED_AFTER: Duration = Duration::from_secs(3);
/// For how long the lock is kept at least, in milliseconds.
const KEPT_MS: (u64, u64) = (5_000, 40_000);
/// How often the holder looks at the client, which says nothing to the guard.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// For how many looks in a row a reply must be overdue.
const LOOKS: u32 = 5;

/// Keeps a lock whose guard treats risk as loss until a drawn time has passed, or its holder is told of
/// the loss. While a reply is overdue, the lock is at risk, so its holder is told.
pub(super) async fn keep<K: Kind>(task: &mut Task, name: &str, guard: &Guard<K>) {
    task.rest(HELD_AFTER).await;
    // The rest of a lease from before the grant does not count: the lock is held with a lease once a
    // write has renewed it.
    let before = task.client.status().lease_deadline();
    let is_held = guard.state() == LockState::Held;
    task.rest(RENEWED_AFTER).await;
    let is_renewed = task.client.status().lease_deadline() > before;
    if !is_held || !is_renewed || guard.state() != LockState::Held {
        return;
    }
    let mut lost = pin!(guard.lost());
    let mut left = task.draw.ms(KEPT_MS.0, KEPT_MS.1);
    let mut overdue = Overdue::default();
    while !left.is_zero() && !task.is_calm() && !task.life.is_ending() {
        tokio::select! {
            biased;
            _ = &mut lost => return,
            () = task.rest(LOOK_INTERVAL) => {}
        }
        left = left.saturating_sub(LOOK_INTERVAL);
        if overdue.look(Moment::of(&task.client)) {
            task.push(What::Unheard { lock: name.to_owned() });
            return;
        }
    }
}

/// What a client says of its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Moment {
    session: Option<SessionId>,
    connection: u64,
    is_overdue: bool,
}

impl Moment {
    fn of(client: &Client) -> Self {
        let (status, now) = (client.status(), client.now());
        let is_overdue = status.state == SessionState::Connected
            && status.risk_deadline().is_some_and(|deadline| deadline <= now);
        Self { session: status.session, connection: status.connection, is_overdue }
    }
}

/// For how long a reply has been overdue on one connection.
#[derive(Debug, Default)]
struct Overdue {
    last: Option<Moment>,
    looks: u32,
}

impl Overdue {
    /// Returns whether the reply has been overdue for so long that the holder must know.
    fn look(&mut self, moment: Moment) -> bool {
        let is_same = self.last.replace(moment) == Some(moment);
        self.looks = match moment.is_overdue {
            true if is_same => self.looks + 1,
            true => 1,
            false => 0,
        };
        self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_is_overdue_for_long_is_seen() {
        let late = Moment { session: Some(SessionId(1)), connection: 1, is_overdue: true };
        let (other, prompt) =
            (Moment { connection: 2, ..late }, Moment { is_overdue: false, ..late });
        let is_seen = |moments: &[Moment]| {
            let mut overdue = Overdue::default();
            moments.iter().any(|moment| overdue.look(*moment))
        };
        assert!(is_seen(&[prompt, late, late, late, late, late]));
        assert!(!is_seen(&[late, late, late, late, prompt, late]));
        assert!(!is_seen(&[late, late, late, other, other, other]), "it is another connection");
    }
}
