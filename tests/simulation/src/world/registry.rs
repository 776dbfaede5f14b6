//! The guards and leases that callers have at this moment. Everything runs in one thread of virtual
//! time, so what they say at one moment can be compared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::{Client, LockState, LostReason};
use zk_testserver::TestServer;

use super::clients::Life;
use super::plan::Plan;
use crate::history::{History, Id, Share, What};

/// Says how a guard stands, or `None` if its caller has given it up.
type Asks = Box<dyn Fn() -> Option<Standing> + Send>;

/// What a guard says at one moment.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs create it")]
pub struct Standing {
    /// What it says.
    pub state: LockState,
    /// Its caller may rely on it: it is held, or at risk with a lease that has not ended.
    pub is_relied_on: bool,
}

impl From<LockState> for Standing {
    fn from(state: LockState) -> Self {
        Self { state, is_relied_on: state == LockState::Held }
    }
}

/// A guard that a caller has.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "programs create it")]
pub struct Guarded<'a> {
    /// The name of what it excludes others from.
    pub lock: &'a str,
    /// Its number.
    pub guard: Id,
    /// How it shares its lock.
    pub share: Share,
    /// Its session and its client, if that keeps a lease.
    pub leased: Option<(SessionId, Client)>,
    /// Its znode, and the transaction that has created it, as far as the caller can know them.
    pub znode: Option<(String, Option<i64>)>,
    /// A lock at risk counts as lost.
    pub is_lost_at_risk: bool,
}

/// What keeps guards held.
#[derive(Clone, Copy, Debug)]
struct Steadiness {
    /// Nothing goes wrong.
    is_steady: bool,
    /// Connections end all the same.
    closes_connections: bool,
}

impl Steadiness {
    /// Returns whether a guard that is held stays so until it is given back.
    fn keeps(self, has_lease: bool, is_lost_at_risk: bool) -> bool {
        // A lease of an item ends by itself, and so does a lock that nothing renews. A lock without a
        // connection is at risk.
        self.is_steady && has_lease && !(self.closes_connections && is_lost_at_risk)
    }
}

/// Guards that are asked rarely. A guard that is asked at the moment at which it is lost remembers
/// that, and this would hide whether it also does so when nobody asks.
#[derive(Clone, Debug)]
struct Shyness {
    /// How often guards are asked.
    interval: Duration,
    /// When they are asked again.
    next: Arc<Mutex<Duration>>,
}

/// The guards of all locks and the leases of all items, by the name of what they exclude others
/// from.
#[derive(Clone)]
pub struct Registry {
    history: History,
    server: TestServer,
    steadiness: Steadiness,
    shyness: Option<Shyness>,
    inner: Arc<Mutex<BTreeMap<String, Lock>>>,
}

#[derive(Default)]
struct Lock {
    guards: Vec<Entry>,
    last: Vec<(Id, Share)>,
}

struct Entry {
    guard: Id,
    share: Share,
    /// The session that must live while the guard says *held*, if its client keeps a lease.
    session: Option<SessionId>,
    /// The client that must have a lease then, if it keeps one.
    client: Option<Client>,
    /// The life of its client. `None`: it was told already that the guard outlives it.
    life: Option<Life>,
    /// It must be held until its caller gives it back or its client ends: nothing goes wrong.
    must_stay: Option<Life>,
    /// Its znode, and the session that owns it.
    znode: Option<(String, Option<i64>, SessionId)>,
    /// The client whose deadlines count while nobody asks the guard, and the life of that client.
    unasked: Option<(Client, Life)>,
    /// A deadline of the client has passed since the guard was asked last.
    has_lapsed: bool,
    is_lost_at_risk: bool,
    was_held: bool,
    said_held: bool,
    was_lost: bool,
    asks: Asks,
}

impl Registry {
    /// Creates an empty registry of guards of sessions of this server.
    pub fn new(history: History, server: TestServer, plan: &Plan) -> Self {
        let closes_connections = plan.closes_connections();
        let steadiness = Steadiness { is_steady: plan.is_steady, closes_connections };
        Self { history, server, steadiness, shyness: None, inner: Arc::default() }
    }

    /// Asks guards of clients with leases only this often, if it is `Some`.
    #[must_use]
    pub fn asking_every(mut self, interval: Option<Duration>) -> Self {
        self.shyness = interval.map(|interval| Shyness { interval, next: Arc::default() });
        self
    }

    /// Returns whether callers leave their guards alone, so that they are asked rarely.
    pub fn is_shy(&self) -> bool {
        self.shyness.is_some()
    }

    /// Adds a guard, and records which guards of its lock are held now.
    pub fn add(
        &self,
        guarded: Guarded<'_>,
        life: Life,
        asks: impl Fn() -> Option<Standing> + Send + 'static,
    ) {
        let Guarded { lock, guard, share, leased, znode, is_lost_at_risk } = guarded;
        let mut inner = self.lock();
        let entry = inner.entry(lock.to_owned()).or_default();
        let has_lease = leased.is_some();
        let stays = self.steadiness.keeps(has_lease, is_lost_at_risk);
        let must_stay = stays.then(|| life.clone());
        let (session, client) = leased.unzip();
        let unasked = client.clone().filter(|_| self.is_shy()).map(|it| (it, life.clone()));
        let znode = znode.and_then(|(path, czxid)| Some((path, czxid, session?)));
        entry.guards.push(Entry {
            guard,
            share,
            session,
            client,
            life: Some(life),
            must_stay,
            znode,
            unasked,
            has_lapsed: false,
            is_lost_at_risk: is_lost_at_risk && has_lease,
            was_held: false,
            said_held: false,
            was_lost: false,
            asks: Box::new(asks),
        });
        entry.look(&self.history, lock, &self.server, !self.is_shy());
    }

    /// Records for all locks which of their guards are held now, unless they are asked rarely.
    pub fn look(&self) {
        let is_due = self.shyness.as_ref().is_none_or(|shyness| {
            let mut next = shyness.next.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.history.now();
            let is_due = *next <= now;
            if is_due {
                *next = now + shyness.interval;
            }
            is_due
        });
        self.look_at_all(is_due);
    }

    /// Records for all locks which of their guards are held now, although they are asked rarely.
    pub fn ask(&self) {
        self.look_at_all(true);
    }

    fn look_at_all(&self, asks: bool) {
        for (name, lock) in &mut *self.lock() {
            lock.look(&self.history, name, &self.server, asks);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Looks whether this answer fits those before.
    fn look(&mut self, history: &History, name: &str, standing: Standing) {
        let (lock, guard) = (name.to_owned(), self.guard);
        match standing.state {
            LockState::Lost(_) => self.was_lost = true,
            _ if std::mem::take(&mut self.was_lost) || self.has_lapsed => {
                history.note(What::Revoked { lock, guard });
            }
            LockState::AtRisk if self.said_held && std::mem::take(&mut self.is_lost_at_risk) => {
                history.note(What::Dared { lock, guard });
            }
            LockState::Held => self.said_held = true,
            LockState::AtRisk => {}
        }
        self.has_lapsed = false;
    }

    /// Notes whether a deadline has passed, after which the guard is lost for ever. Returns whether the
    /// guard may be left alone: its client works, and somebody asks it later.
    fn is_left_alone(&mut self) -> bool {
        let Some((client, life)) = &self.unasked else { return false };
        let (deadline, now) = (client.status().guard_deadline(), client.now());
        self.has_lapsed |= deadline.is_some_and(|deadline| deadline <= now);
        !life.is_ending()
    }

    /// Looks whether the znode is gone if that is why the lock is lost.
    fn check_loss(
        &mut self,
        history: &History,
        name: &str,
        standing: Standing,
        server: &TestServer,
    ) {
        if standing.state != LockState::Lost(LostReason::ZnodeDeleted) {
            return;
        }
        let Some((path, czxid, _)) = self.znode.take() else { return };
        let found = server.stat(&path).map(|stat| stat.czxid.0);
        if czxid.is_some() && found == czxid {
            let lock = name.to_owned();
            history.note(What::Mislaid { lock, guard: self.guard, path });
        }
    }
}

impl Lock {
    /// Without `asks`, it looks only at guards that need not be asked rarely.
    fn look(&mut self, history: &History, name: &str, server: &TestServer, asks: bool) {
        let mut held = Vec::new();
        if self.guards.is_empty() && self.last.is_empty() {
            return;
        }
        let sessions = server.sessions();
        let mut are_all_asked = true;
        self.guards.retain_mut(|entry| {
            if entry.is_left_alone() && !asks {
                are_all_asked = false;
                return true;
            }
            let standing = (entry.asks)();
            if let Some(standing) = standing {
                entry.look(history, name, standing);
                entry.check_loss(history, name, standing, server);
            }
            let Entry { guard, share, session, client, life, must_stay, znode, was_held, .. } =
                entry;
            match standing.map(|standing| standing.is_relied_on) {
                Some(is_held) => {
                    let has_wavered = *was_held && !is_held;
                    *was_held |= is_held;
                    if has_wavered && must_stay.take().is_some_and(|life| !life.is_ending()) {
                        history.note(What::Wavered { lock: name.to_owned(), guard: *guard });
                    }
                    held.extend(is_held.then_some((*guard, *share)));
                    if is_held && session.is_some_and(|session| !sessions.contains(&session)) {
                        let (lock, session) = (name.to_owned(), session.take());
                        history.note(What::Outlived { lock, guard: *guard, session });
                    }
                    let is_gone =
                        |(path, czxid, session): &mut (String, Option<i64>, SessionId)| {
                            let found = server.stat(path).map(|stat| stat.czxid.0);
                            let is_own =
                                found.is_some() && czxid.is_none_or(|it| found == Some(it));
                            !is_own && sessions.contains(session)
                        };
                    if is_held && let Some((path, ..)) = znode.take_if(is_gone) {
                        let lock = name.to_owned();
                        history.note(What::Vanished { lock, guard: *guard, path });
                    }
                    let has_none = |client: &mut Client| !client.status().is_leased(client.now());
                    if is_held && client.take_if(has_none).is_some() {
                        history.note(What::Unleased { lock: name.to_owned(), guard: *guard });
                    }
                    if is_held && life.take_if(|life| life.is_closed()).is_some() {
                        history.note(What::HeldByClosed { lock: name.to_owned(), guard: *guard });
                    }
                    true
                }
                None => false,
            }
        });
        if are_all_asked && held != self.last {
            self.last.clone_from(&held);
            history.note(What::Held { lock: name.to_owned(), guards: held });
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::on_server;

    fn entry() -> Entry {
        Entry {
            guard: 1,
            share: Share::Alone,
            session: None,
            client: None,
            life: None,
            must_stay: None,
            znode: None,
            unasked: None,
            has_lapsed: false,
            is_lost_at_risk: false,
            was_held: true,
            said_held: true,
            was_lost: false,
            asks: Box::new(|| Some(LockState::Held.into())),
        }
    }

    #[test]
    fn a_guard_that_forgets_a_deadline_is_seen() {
        let revoked = |has_lapsed, states: &[LockState]| {
            on_server(async |_| {
                let (history, mut entry) = (History::new(), Entry { has_lapsed, ..entry() });
                states.iter().for_each(|state| entry.look(&history, "/a", (*state).into()));
                history.events().len()
            })
        };
        let lost = LockState::Lost(LostReason::DeadlinePassed);
        assert_eq!(revoked(false, &[LockState::Held]), 0);
        assert_eq!(revoked(true, &[LockState::Held, LockState::Held]), 1);
        assert_eq!(revoked(true, &[LockState::AtRisk]), 1);
        assert_eq!(revoked(true, &[lost, lost]), 0);
    }

    #[test]
    fn a_lock_that_is_lost_at_risk_need_not_outlive_a_connection_to_an_old_server() {
        let steady = Steadiness { is_steady: true, closes_connections: false };
        let old = Steadiness { closes_connections: true, ..steady };
        assert!(steady.keeps(true, true) && steady.keeps(true, false));
        assert!(old.keeps(true, false) && !old.keeps(true, true));
        assert!(!steady.keeps(false, false), "nothing renews it");
    }
}
