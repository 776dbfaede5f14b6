//! Until when something goes wrong, so that a judge knows when nothing does; who waits for what; and
//! which znodes belong to guards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::SessionId;
use zk_recipes::SessionState;
use zk_testserver::TestServer;

use super::World;
use super::clients::Life;
use super::plan::FaultKind;
use crate::history::{Id, What};
use crate::judges::far::Far;
use crate::judges::patience::{Moment, Patience, Waiting};
use crate::judges::turns::parse;
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::locks::RESIZED;
use crate::program::queue::QUEUE;
use crate::program::values::VALUE;
use crate::program::views::ELECTION;

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
    /// The number of faults that had not struck at the last look, and of those since.
    armed: usize,
    calls: BTreeMap<Id, Call>,
    kept: BTreeSet<String>,
    views: BTreeMap<Id, View>,
}

/// What a caller follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each is compared")]
pub enum ViewOf {
    /// The leader of the election.
    Leader,
    /// The shared value.
    Value,
}

#[derive(Debug)]
struct View {
    of: ViewOf,
    client: usize,
    life: Life,
    shown: Option<String>,
}

/// Says what a caller was told last about what it follows, until it is dropped.
#[derive(Debug)]
#[must_use = "the caller follows something until this is dropped"]
pub struct Shows {
    trouble: Trouble,
    view: Id,
}

impl Shows {
    /// The caller is told this.
    pub fn set(&self, shown: String) {
        if let Some(view) = self.trouble.lock().views.get_mut(&self.view) {
            view.shown = Some(shown);
        }
    }
}

impl Drop for Shows {
    fn drop(&mut self) {
        self.trouble.lock().views.remove(&self.view);
    }
}

/// Describes who leads.
pub fn leader_text(path: Option<&str>) -> String {
    path.unwrap_or("nobody").to_owned()
}

/// Describes a value by its czxid and its version.
pub fn value_text(state: Option<(i64, i32)>) -> String {
    state.map_or_else(|| "nothing".to_owned(), |(czxid, version)| format!("{czxid:#x}, {version}"))
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

    /// Another fault waits for its moment.
    pub fn arm(&self) {
        self.lock().armed += 1;
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

    /// A caller follows something.
    pub fn view(&self, view: Id, of: ViewOf, client: usize, life: &Life) -> Shows {
        let follows = View { of, client, life: life.clone(), shown: None };
        self.lock().views.insert(view, follows);
        Shows { trouble: self.clone(), view }
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

/// Returns the first contender of a directory.
fn first_of<'a>(ephemerals: &'a [(String, SessionId)], directory: &str) -> Option<&'a str> {
    let contenders = ephemerals.iter().filter_map(|(path, _)| {
        let (of, contender) = parse(path)?;
        (of == directory).then_some((contender.number, path.as_str()))
    });
    contenders.min().map(|(_, path)| path)
}

/// Returns the number of permits of the semaphore whose number changes.
fn stored_permits(server: &TestServer) -> usize {
    let stored = server.data(RESIZED);
    let stored = stored.and_then(|data| std::str::from_utf8(&data).ok()?.parse().ok());
    stored.unwrap_or(1)
}

impl World {
    /// Records what nobody has done for too long.
    pub fn look_for_the_overdue(&self, patience: &mut Patience, far: &mut Far) {
        let moment = self.moment();
        for (what, since) in patience.look(&moment) {
            self.history.note(What::Overdue { what, since });
        }
        for (session, from, to) in far.look(&moment) {
            self.history.note(What::WasFar { session, from, to });
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
        // A client that ends, or hands its session over, does nothing for its callers.
        let session_of = |number: &usize, life: &Life| {
            let own = clients.get(number).filter(|(_, other)| other.is_same(life));
            own.filter(|(_, life)| !life.is_ending())?.0.session_id()
        };
        let calls = inner.calls.iter().map(|(id, call)| {
            let session = session_of(&call.client, &call.life);
            (*id, Waiting { name: call.name, on: call.on.clone(), session })
        });
        let ephemerals = self.server.ephemerals();
        let value = self.server.stat(VALUE).map(|stat| (stat.czxid.0, stat.version.0));
        let (value, leader) = (value_text(value), leader_text(first_of(&ephemerals, ELECTION)));
        let views = inner.views.iter().filter_map(|(id, view)| {
            let real = match view.of {
                ViewOf::Leader => leader.clone(),
                ViewOf::Value => value.clone(),
            };
            let is_old = view.shown.as_ref() != Some(&real);
            is_old.then_some((*id, real, session_of(&view.client, &view.life)?))
        });
        let round = self.server.data(MEETING).unwrap_or_default();
        let items = self.server.children(&format!("{QUEUE}/entries")).unwrap_or_default();
        Moment {
            now,
            prompt,
            abandoned,
            astray,
            ephemerals: ephemerals.clone(),
            views: views.collect(),
            resized: stored_permits(&self.server),
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
