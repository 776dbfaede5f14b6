//! Until when something goes wrong, so that a judge knows when nothing does; who waits for what; and
//! which znodes belong to guards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use zk_recipes::SessionState;

use super::World;
use super::clients::Life;
use super::plan::FaultKind;
use crate::history::{Id, What};
use crate::judges::patience::{Moment, Patience, Waiting};
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::queue::QUEUE;

/// How long it takes until a client has noticed that its connection is dead.
const FROZEN: Duration = Duration::from_secs(45);
/// For how long a fault that has struck a request has consequences otherwise.
pub(super) const STRUCK: Duration = Duration::from_secs(15);

/// The trouble of a world.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    until: Duration,
    /// Until then, nobody gives up what it holds.
    linger_until: Duration,
    /// The number of faults that have not struck yet.
    armed: usize,
    calls: BTreeMap<Id, Call>,
    kept: BTreeSet<String>,
}

#[derive(Debug)]
struct Call {
    name: &'static str,
    on: String,
    client: usize,
    life: Life,
}

/// Says that a caller has a guard with this znode, until it is dropped.
#[derive(Debug)]
#[must_use = "the guard is kept until this is dropped"]
pub struct Kept {
    trouble: Trouble,
    path: String,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.trouble.lock().kept.remove(&self.path);
    }
}

impl Trouble {
    /// Something goes wrong until then.
    pub fn add(&self, until: Duration) {
        let mut inner = self.lock();
        inner.until = inner.until.max(until);
    }

    /// Nobody gives up what it holds until then.
    pub fn linger_until(&self, until: Duration) {
        self.lock().linger_until = until;
    }

    /// Returns for how long nobody gives up what it holds.
    pub fn linger(&self, now: Duration) -> Duration {
        self.lock().linger_until.saturating_sub(now)
    }

    /// A client has begun a call.
    pub fn begin(&self, call: Id, name: &'static str, on: &str, client: usize, life: Life) {
        let begun = Call { name, on: on.to_owned(), client, life };
        self.lock().calls.insert(call, begun);
    }

    /// A call has ended.
    pub fn end(&self, call: Id) {
        self.lock().calls.remove(&call);
    }

    /// A caller has a guard with this znode.
    pub fn keep(&self, path: &str) -> Kept {
        self.lock().kept.insert(path.to_owned());
        Kept { trouble: self.clone(), path: path.to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// Records what nobody has done for too long.
    pub fn look_for_the_overdue(&self, patience: &mut Patience) {
        let moment = self.moment();
        for (what, since) in patience.look(&moment) {
            self.history.note(What::Overdue { what, since });
        }
    }

    fn moment(&self) -> Moment {
        let clients = self.clients.all();
        let now = self.history.now();
        let is_calm = self.is_without_trouble(now);
        let alive = self.server.sessions();
        // A caller that is stopped still has its handle.
        let is_stopped = (0..self.count).any(|number| self.freezer.is_stopped(number));
        let mut abandoned = self.clients.abandoned(is_calm && !is_stopped);
        abandoned.retain(|session| alive.contains(session));
        let (mut prompt, mut astray) = (BTreeSet::new(), BTreeSet::new());
        for (number, (client, life)) in &clients {
            if let Some(session) = client.session_id()
                && is_calm
                && client.state() == SessionState::Connected
                && alive.contains(&session)
                && !self.network.is_isolated(*number)
                && !self.freezer.is_stopped(*number)
            {
                prompt.insert(session);
                let server = client.health().server.map(|host| super::member(&host));
                if let Some(member) = server.filter(|member| life.has_left(now, *member)) {
                    astray.insert(format!("client {number} from member {member}"));
                }
            }
        }
        let inner = self.trouble.lock();
        let calls = inner.calls.iter().map(|(id, call)| {
            // A client that ends, or hands its session over, does nothing for its callers.
            let own = clients.get(&call.client).filter(|(_, life)| life.is_same(&call.life));
            let own = own.filter(|(_, life)| !life.is_ending());
            let session = own.and_then(|(client, _)| client.session_id());
            (*id, Waiting { name: call.name, on: call.on.clone(), session })
        });
        let round = self.server.data(MEETING).unwrap_or_default();
        let items = self.server.children(&format!("{QUEUE}/entries")).unwrap_or_default();
        Moment {
            now,
            prompt,
            abandoned,
            astray,
            ephemerals: self.server.ephemerals(),
            kept: inner.kept.clone(),
            calls: calls.collect(),
            closed_by: self.server.stat(BARRIER).map(|stat| stat.czxid.0),
            round: String::from_utf8_lossy(&round).lines().map(str::to_owned).collect(),
            items: items.iter().filter(|name| name.starts_with("entry-")).count(),
        }
    }

    pub(super) fn is_without_trouble(&self, now: Duration) -> bool {
        let is_partitioned =
            (0..self.plan.members).any(|member| self.server.member(member).is_partitioned());
        let mut inner = self.trouble.lock();
        let armed = self.server.pending_faults().len();
        let has_struck = armed < inner.armed;
        inner.armed = armed;
        let kinds = [FaultKind::Freeze, FaultKind::Delay];
        if kinds.iter().any(|kind| self.plan.faults.contains(kind)) && now < self.plan.calm_at {
            // One may have struck and another one been armed since the last look.
            inner.until = inner.until.max(now + FROZEN);
        }
        if has_struck {
            inner.until = inner.until.max(now + STRUCK);
        }
        if is_partitioned {
            inner.until = inner.until.max(now + STRUCK);
        }
        inner.until <= now
    }
}
