//! Sessions: ids, passwords, and expiry in buckets of a tick.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jute_codec::SessionId;

/// The state of a session on the server.
#[derive(Debug)]
pub(crate) struct Session {
    timeout: Duration,
    deadline: Duration,
    /// The close of the session is in the log but not applied yet.
    pub(crate) is_closing: bool,
    /// The connection of its client.
    pub(crate) connection: Option<u64>,
    /// The most recent times at which the client was active. They cover a tick, with at most one
    /// time per millisecond. [`Sessions::forget`] needs them.
    touches: VecDeque<Duration>,
    /// When the leader itself last learned of the session: at its start, or when it was resumed.
    known_since: Duration,
}

/// All sessions that have not been closed.
#[derive(Debug)]
pub(crate) struct Sessions {
    tick: Duration,
    next_id: SessionId,
    sessions: BTreeMap<SessionId, Session>,
    deadlines: BTreeSet<(Duration, SessionId)>,
}

impl Sessions {
    pub(crate) fn new(first_id: SessionId, tick: Duration) -> Self {
        Self { tick, next_id: first_id, sessions: BTreeMap::new(), deadlines: BTreeSet::new() }
    }

    /// Sets the id of the next session.
    #[cfg(feature = "tokio")]
    pub(crate) fn continue_from(&mut self, next_id: SessionId) {
        self.next_id = next_id;
    }

    /// Starts a session.
    pub(crate) fn create(
        &mut self,
        timeout: Duration,
        connection: u64,
        now: Duration,
    ) -> SessionId {
        let id = self.next_id;
        self.next_id = SessionId(id.0.checked_add(1).unwrap_or(1));
        self.insert(id, timeout, connection, now);
        id
    }

    fn insert(&mut self, id: SessionId, timeout: Duration, connection: u64, now: Duration) {
        let session = Session {
            timeout,
            deadline: self.deadline(timeout, now),
            is_closing: false,
            connection: Some(connection),
            touches: VecDeque::new(),
            known_since: now,
        };
        self.deadlines.insert((session.deadline, id));
        self.sessions.insert(id, session);
    }

    /// Resumes a session on a new connection. Returns false if the session does not exist or is
    /// closing. A session to adopt need not exist.
    pub(crate) fn resume(
        &mut self,
        id: SessionId,
        timeout: Duration,
        connection: u64,
        now: Duration,
        is_adopted: bool,
    ) -> bool {
        if is_adopted && !self.sessions.contains_key(&id) {
            self.insert(id, timeout, connection, now);
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_closing) else {
            return false;
        };
        session.timeout = timeout;
        session.connection = Some(connection);
        session.known_since = now;
        session.touches.clear();
        self.touch(id, now)
    }

    /// Discards the activity of a session within `unreported` before `now`, which moves its
    /// deadline back.
    pub(crate) fn forget(&mut self, id: SessionId, unreported: Duration, now: Duration) {
        let Some(session) = self.sessions.get(&id).filter(|session| !session.is_closing) else {
            return;
        };
        // Only activity before this moment was reported to the leader. `known_since` is a lower
        // bound: the leader itself took part in starting or resuming the session.
        let known = now.saturating_sub(unreported);
        let last = session.touches.iter().rev().find(|touch| **touch <= known).copied();
        let last = last.unwrap_or_default().max(session.known_since);
        let deadline = self.deadline(session.timeout, last);
        if let Some(session) = self.sessions.get_mut(&id) {
            self.deadlines.remove(&(session.deadline, id));
            self.deadlines.insert((deadline, id));
            session.deadline = deadline;
        }
    }

    /// Restarts the timeout of a session. Returns false if the session does not exist or is
    /// closing.
    pub(crate) fn touch(&mut self, id: SessionId, now: Duration) -> bool {
        let Some(timeout) = self.sessions.get(&id).map(|session| session.timeout) else {
            return false;
        };
        let deadline = self.deadline(timeout, now);
        let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_closing) else {
            return false;
        };
        if session.touches.back().is_none_or(|last| *last + Duration::from_millis(1) <= now) {
            session.touches.push_back(now);
            // Keep one time that is older than a tick, because `forget` may discard a whole tick.
            let is_old = |touch: &Duration| *touch + self.tick <= now;
            while session.touches.get(1).is_some_and(is_old) {
                session.touches.pop_front();
            }
        }
        if deadline > session.deadline {
            self.deadlines.remove(&(session.deadline, id));
            self.deadlines.insert((deadline, id));
            session.deadline = deadline;
        }
        true
    }

    /// Restarts the timeouts of all sessions.
    pub(crate) fn touch_all(&mut self, now: Duration) {
        for id in self.ids() {
            self.touch(id, now);
        }
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.deadlines.remove(&(session.deadline, id));
        }
    }

    /// Returns the session that expires next, and when.
    pub(crate) fn next_expiry(&self) -> Option<(Duration, SessionId)> {
        self.deadlines.first().copied()
    }

    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }

    /// Returns the deadline of a session that was active at `now`. As on real servers, sessions
    /// expire at the end of the tick in which their timeout passes.
    fn deadline(&self, timeout: Duration, now: Duration) -> Duration {
        let tick = self.tick.as_nanos();
        let nanos = ((now + timeout).as_nanos() / tick + 1) * tick;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Returns the password of a session: the output of `java.util.Random` for its id. It is a
/// checksum, not a secret.
pub(crate) fn password(id: SessionId) -> [u8; 16] {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut state = ((id.0 as u64 ^ 0xB341_5C00) ^ MULTIPLIER) & MASK;
    let mut password = [0; 16];
    for word in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        word.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_equal_those_of_real_servers() {
        let expected: u128 = 0xfb87_11b0_6c99_9b89_d126_a822_9595_c670;
        assert_eq!(password(SessionId(0x0100_000d_a097_0000)), expected.to_be_bytes());
    }

    #[test]
    fn sessions_expire_at_the_end_of_a_tick() {
        let ms = Duration::from_millis;
        let mut sessions = Sessions::new(SessionId(1), ms(500));
        let id = sessions.create(ms(1000), 0, ms(0));
        assert_eq!(sessions.next_expiry(), Some((ms(1500), id)));
        assert!(sessions.touch(id, ms(499)));
        assert_eq!(sessions.next_expiry(), Some((ms(1500), id)));
        assert!(sessions.touch(id, ms(500)));
        assert_eq!(sessions.next_expiry(), Some((ms(2000), id)));
        sessions.remove(id);
        assert_eq!(sessions.next_expiry(), None);
        assert!(!sessions.touch(id, ms(501)));
    }
}
