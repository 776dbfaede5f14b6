//! The guards and leases that callers have at this moment. Everything runs in one thread of virtual
//! time, so what they say at one moment can be compared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::{ErrorCode, SessionId};
use zk_recipes::{Client, LockState, LostReason, SessionState, Time};
use zk_testserver::{Outcome, RequestRecord, TestServer};

use super::clients::Life;
use super::plan::Plan;
use crate::history::{History, Id, Share, What};
use crate::judges::liveness::patience;
use crate::judges::refusal;

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

/// How long a holder that gets no events may take to find that its znode is gone: it tests the znode
/// every 30 s, or a quarter later.
const TEST_MAX: Duration = Duration::from_secs(45);

/// How long a holder that is connected may be at risk while no server refuses anything: it repeats its
/// proof as often.
const AT_RISK_MAX: Duration = Duration::from_secs(50);
/// For how long a refusal may be the reason why it is.
const REFUSED: Duration = Duration::from_secs(45);

/// Since when a znode has not been there, although its session lives, and on which connection its
/// owner could have found out.
#[derive(Clone, Copy, Debug, Default)]
struct Missing(Option<(Duration, u64)>);

impl Missing {
    /// Looks at a moment. Returns whether the owner should have found out for longer than this.
    fn look(&mut self, now: Duration, connection: Option<u64>, limit: Duration) -> bool {
        let Some(connection) = connection else {
            self.0 = None;
            return false;
        };
        match self.0 {
            Some((since, on)) if on == connection => now - since > limit,
            _ => {
                self.0 = Some((now, connection));
                false
            }
        }
    }
}

/// What keeps guards held.
#[derive(Clone, Copy, Debug)]
struct Steadiness {
    /// Nothing goes wrong.
    is_steady: bool,
    /// Connections end all the same, or bytes wait for others, so that a lock may be at risk.
    is_risky: bool,
}

impl Steadiness {
    /// Returns whether a guard that is held stays so until it is given back.
    fn keeps(self, has_lease: bool, is_lost_at_risk: bool) -> bool {
        // A lease of an item ends by itself, and so does a lock that nothing renews. A lock without a
        // connection is at risk.
        self.is_steady && has_lease && !(self.is_risky && is_lost_at_risk)
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

/// How long these may last, if anything is said about them.
#[derive(Clone, Copy, Debug)]
struct Limits {
    unaware: Option<Duration>,
    at_risk: Option<Duration>,
}

/// The guards of all locks and the leases of all items, by the name of what they exclude others
/// from.
#[derive(Clone)]
pub struct Registry {
    history: History,
    server: TestServer,
    steadiness: Steadiness,
    shyness: Option<Shyness>,
    /// How long a holder may rely on a lock whose znode is gone, if anything is said about it.
    unaware_max: Option<Duration>,
    /// How long a guard may be at risk, if anything is said about it.
    at_risk_max: Option<Duration>,
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
    /// A deadline of the client that had not passed when it was seen.
    deadline: Option<Time>,
    /// It has passed since the guard was asked last.
    has_lapsed: bool,
    /// The same, until it was told that the holder did not notice the deletion.
    noticed: Option<(String, Option<i64>, SessionId)>,
    missing: Missing,
    at_risk: Missing,
    is_lost_at_risk: bool,
    was_held: bool,
    said_held: bool,
    was_lost: bool,
    asks: Asks,
}

impl Registry {
    /// Creates an empty registry of guards of sessions of this server.
    pub fn new(history: History, server: TestServer, plan: &Plan) -> Self {
        let narrow = plan.kinds.narrow;
        let is_steady = plan.is_steady || narrow.is_some_and(|narrow| narrow.is_steady);
        let is_risky = plan.closes_connections() || narrow.is_some();
        let steadiness = Steadiness { is_steady, is_risky };
        // Any other fault may keep the holder from testing its znode.
        let unaware_max = plan.is_silent().then(|| TEST_MAX + patience(plan));
        let slack = 4 * plan.round_trip_max() + plan.unapplied_max();
        let at_risk_max = plan.only_refuses().then(|| AT_RISK_MAX + slack);
        let (shyness, inner) = (None, Arc::default());
        Self { history, server, steadiness, shyness, unaware_max, at_risk_max, inner }
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
            noticed: znode.clone().filter(|_| self.unaware_max.is_some()),
            missing: Missing::default(),
            at_risk: Missing::default(),
            znode,
            unasked,
            deadline: None,
            has_lapsed: false,
            is_lost_at_risk: is_lost_at_risk && has_lease,
            was_held: false,
            said_held: false,
            was_lost: false,
            asks: Box::new(asks),
        });
        entry.look(&self.history, lock, &self.server, self.limits(), !self.is_shy());
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
            lock.look(&self.history, name, &self.server, self.limits(), asks);
        }
    }

    fn limits(&self) -> Limits {
        Limits { unaware: self.unaware_max, at_risk: self.at_risk_max }
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
        // One that had passed before it was known says nothing about the time since the grant.
        let is_known = deadline.is_some() && deadline == self.deadline;
        let is_past = is_known && deadline.is_some_and(|deadline| deadline <= now);
        // Nothing was promised to who was never told that it may rely on the lock.
        self.has_lapsed |= self.was_held && is_past;
        self.deadline = deadline.filter(|deadline| *deadline > now || is_known);
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

impl Entry {
    /// Looks whether the guard is at risk for long without a reason.
    fn check_risk(
        &mut self,
        history: &History,
        name: &str,
        state: LockState,
        server: &TestServer,
        limit: Option<Duration>,
    ) {
        let (Some(limit), Some(session), Some(client)) = (limit, self.session, &self.client) else {
            return;
        };
        let status = client.status();
        // Without a lease, a lock may be at risk for as long as commits are slow.
        let is_fine = status.state == SessionState::Connected && status.is_leased(client.now());
        let connection = (state == LockState::AtRisk && is_fine).then_some(status.connection);
        let now = history.now();
        if !self.at_risk.look(now, connection, limit) {
            return;
        }
        let is_refused = |request: &RequestRecord| {
            let forbidden = Outcome::Applied(ErrorCode::NO_AUTH);
            let is_denied = refusal(request).is_some();
            request.session == session
                && request.at + REFUSED > now
                && (is_denied || request.outcome == forbidden)
        };
        self.at_risk = Missing::default();
        if !server.requests().iter().any(is_refused) {
            history.note(What::StaysAtRisk { lock: name.to_owned(), guard: self.guard });
        }
    }

    /// Looks whether the caller relies on a lock whose znode is gone, and its client could know that.
    fn check_awareness(
        &mut self,
        history: &History,
        name: &str,
        (server, sessions): (&TestServer, &[SessionId]),
        limit: Option<Duration>,
    ) {
        let Some(limit) = limit else { return };
        let Some((path, _, session)) = &self.noticed else { return };
        // If another znode has the path, servers may refuse to say whose it is.
        let is_missing = server.stat(path).is_none();
        let status = self.client.as_ref().map(Client::status);
        let connected = status.filter(|status| {
            is_missing && sessions.contains(session) && status.state == SessionState::Connected
        });
        let connection = connected.map(|status| status.connection);
        if self.missing.look(history.now(), connection, limit) {
            let (lock, path) = (name.to_owned(), path.clone());
            history.note(What::Unaware { lock, guard: self.guard, path });
            self.noticed = None;
        }
    }
}

impl Lock {
    /// Without `asks`, it looks only at guards that need not be asked rarely.
    fn look(
        &mut self,
        history: &History,
        name: &str,
        server: &TestServer,
        limits: Limits,
        asks: bool,
    ) {
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
                if standing.is_relied_on {
                    entry.check_awareness(history, name, (server, &sessions), limits.unaware);
                }
                entry.check_risk(history, name, standing.state, server, limits.at_risk);
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
                    let foreign =
                        znode.as_ref().filter(|_| is_held).and_then(|(path, czxid, own)| {
                            let found = server.stat(path)?;
                            let is_same = *czxid == Some(found.czxid.0);
                            (is_same && found.ephemeral_owner != *own)
                                .then_some(found.ephemeral_owner)
                        });
                    if let Some(owner) = foreign
                        && let Some((path, ..)) = znode.take()
                    {
                        let lock = name.to_owned();
                        history.note(What::Foreign { lock, guard: *guard, path, owner });
                    }
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
            noticed: None,
            missing: Missing::default(),
            at_risk: Missing::default(),
            unasked: None,
            deadline: None,
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
    fn an_owner_has_to_find_out_on_one_connection() {
        let limit = Duration::from_secs(45);
        let look = |looks: &[(u64, Option<u64>)]| {
            let mut missing = Missing::default();
            let looks = looks.iter();
            let looks = looks.map(|(at, on)| missing.look(Duration::from_secs(*at), *on, limit));
            looks.filter(|is_late| *is_late).count()
        };
        assert_eq!(look(&[(0, Some(1)), (45, Some(1)), (46, Some(1))]), 1);
        assert_eq!(look(&[(0, Some(1)), (40, Some(2)), (80, Some(2))]), 0, "it is another one");
        assert_eq!(look(&[(0, Some(1)), (10, None), (20, Some(1)), (60, Some(1))]), 0);
    }

    #[test]
    fn a_lock_that_is_lost_at_risk_need_not_outlive_a_connection_to_an_old_server() {
        let steady = Steadiness { is_steady: true, is_risky: false };
        let old = Steadiness { is_risky: true, ..steady };
        assert!(steady.keeps(true, true) && steady.keeps(true, false));
        assert!(old.keeps(true, false) && !old.keeps(true, true));
        assert!(!steady.keeps(false, false), "nothing renews it");
    }
}
