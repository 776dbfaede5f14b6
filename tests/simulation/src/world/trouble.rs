//! Until when something goes wrong, so that a judge knows when nothing does; who waits for what; and
//! which znodes belong to guards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::SessionId;
use tokio::sync::Notify;
use zk_recipes::SessionState;
use zk_testserver::TestServer;

use super::World;
use super::clients::Life;
use super::plan::FaultKind;
use crate::history::{Id, What};
use crate::judges::checks::{Checks, Target, Watcher};
use crate::judges::far::Far;
use crate::judges::patience::{Moment, Patience, Waiting};
use crate::judges::turns::parse;
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::caches;
use crate::program::groups::GROUP;
use crate::program::locks::RESIZED;
use crate::program::queue::QUEUE;
use crate::program::values::{COUNTER, VALUE};
use crate::program::views::ELECTION;

/// How long it takes until a client has noticed that its connection is dead.
const FROZEN: Duration = Duration::from_secs(45);
/// For how long a fault that has struck a request has consequences otherwise.
pub(super) const STRUCK: Duration = Duration::from_secs(15);
/// The same if servers may refuse a removal, which is tried again after up to a minute.
pub(super) const FORBIDDEN: Duration = Duration::from_secs(75);

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
    /// The number of links that had been cut at the last look.
    cuts: u64,
    calls: BTreeMap<Id, Call>,
    /// By the number of their client, what tells callers to give up.
    give_ups: BTreeMap<usize, Arc<Notify>>,
    /// By the number of their client, what tells that a call has begun.
    begins: BTreeMap<usize, Arc<Notify>>,
    /// Tells that a call of something shared has succeeded, and of which client.
    relay: Arc<Notify>,
    relayed_by: usize,
    lookout: Option<Lookout>,
    kept: BTreeSet<String>,
    views: BTreeMap<Id, View>,
}

/// Looks out for a call of one of these names.
#[derive(Debug)]
struct Lookout {
    names: Vec<&'static str>,
    /// The name and the client of the first one.
    begun: Option<(&'static str, usize)>,
    told: Arc<Notify>,
}

/// What a caller follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "each is compared")]
pub enum ViewOf {
    /// The leader of the election.
    Leader,
    /// The shared value.
    Value,
    /// A znode and what is below it, down to this depth.
    Tree(&'static str, usize),
    /// The members of the group, and whether their data belongs to them.
    Group(bool),
    /// Whether a znode of the tree is still in the state that its watcher has seen.
    Znode,
    /// The same for the children of a znode.
    Children,
}

/// The states of some things, by their names.
pub type States = BTreeMap<String, String>;

#[derive(Debug)]
struct View {
    of: ViewOf,
    client: usize,
    life: Life,
    /// `None`: nothing was shown yet.
    shown: Option<States>,
    /// The caller does something else.
    is_left_alone: bool,
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
        self.show("", Some(shown));
    }

    /// The caller is told that the thing of this name has this state, or that it is not there.
    pub fn show(&self, name: &str, state: Option<String>) {
        if let Some(view) = self.trouble.lock().views.get_mut(&self.view) {
            let shown = view.shown.get_or_insert_default();
            match state {
                Some(state) => drop(shown.insert(name.to_owned(), state)),
                None => drop(shown.remove(name)),
            }
        }
    }

    /// The caller was told that these are the states.
    pub fn replace(&self, shown: States) {
        if let Some(view) = self.trouble.lock().views.get_mut(&self.view) {
            view.shown = Some(shown);
        }
    }

    /// The caller begins to do something else, or goes on to look.
    pub fn leave_alone(&self, is_left_alone: bool) {
        if let Some(view) = self.trouble.lock().views.get_mut(&self.view) {
            view.is_left_alone = is_left_alone;
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

/// Describes the state of a znode by the transactions that have created and changed it.
pub fn znode_text(state: (i64, i64)) -> String {
    format!("{:#x}, {:#x}", state.0, state.1)
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

    /// No fault waits for its moment any more. The last ones may have struck since the last look.
    pub fn disarm(&self, until: Duration) {
        let mut inner = self.lock();
        inner.armed = 0;
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

    /// Tells the callers of a client to give up what they wait for.
    pub fn give_up(&self, client: usize) {
        self.give_ups_of(client).notify_waiters();
    }

    /// Waits until the callers of this client are told to give up.
    pub async fn given_up(&self, client: usize) {
        self.give_ups_of(client).notified().await;
    }

    /// Waits until a call of this client begins.
    pub async fn begun(&self, client: usize) {
        let begins = Arc::clone(self.lock().begins.entry(client).or_default());
        begins.notified().await;
    }

    /// Waits until a call of one of these names begins. Returns its name and the number of its client.
    /// Only one task does this at a time.
    pub async fn begun_one_of(&self, names: &[&'static str]) -> (&'static str, usize) {
        let told = Arc::new(Notify::new());
        let lookout = Lookout { names: names.to_vec(), begun: None, told: Arc::clone(&told) };
        self.lock().lookout = Some(lookout);
        loop {
            told.notified().await;
            let lookout = self.lock().lookout.take_if(|it| it.begun.is_some());
            if let Some(begun) = lookout.and_then(|it| it.begun) {
                return begun;
            }
        }
    }

    fn give_ups_of(&self, client: usize) -> Arc<Notify> {
        Arc::clone(self.lock().give_ups.entry(client).or_default())
    }

    /// A client has begun a call.
    pub fn begin(&self, call: Id, name: &'static str, on: &str, client: usize, life: Life) {
        let begun = Call { name, on: on.to_owned(), client, life };
        let mut inner = self.lock();
        inner.calls.insert(call, begun);
        if let Some(lookout) = &mut inner.lookout
            && lookout.names.contains(&name)
        {
            lookout.begun.get_or_insert((name, client));
            lookout.told.notify_one();
        }
        if let Some(begins) = inner.begins.get(&client) {
            begins.notify_waiters();
        }
    }

    /// A call of this client has succeeded.
    pub fn succeed(&self, client: usize, on: &str) {
        if [RESIZED, VALUE, COUNTER, BARRIER].contains(&on) {
            let mut inner = self.lock();
            inner.relayed_by = client;
            inner.relay.notify_waiters();
        }
    }

    /// Waits until a call of another client has succeeded of something that all share.
    pub async fn relayed(&self, client: usize) {
        loop {
            let relay = Arc::clone(&self.lock().relay);
            relay.notified().await;
            if self.lock().relayed_by != client {
                return;
            }
        }
    }

    /// A call has ended.
    pub fn end(&self, call: Id) {
        self.lock().calls.remove(&call);
    }

    /// A caller follows something.
    pub fn view(&self, view: Id, of: ViewOf, client: usize, life: &Life) -> Shows {
        let (life, shown, is_left_alone) = (life.clone(), None, false);
        let follows = View { of, client, life, shown, is_left_alone };
        self.lock().views.insert(view, follows);
        Shows { trouble: self.clone(), view }
    }

    /// Returns the numbers of the clients that follow a tree or watch a znode in it.
    pub fn readers(&self) -> Vec<usize> {
        let inner = self.lock();
        let reads = |view: &&View| matches!(view.of, ViewOf::Tree(..) | ViewOf::Znode);
        inner.views.values().filter(reads).map(|view| view.client).collect()
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
    pub fn look_for_the_overdue(
        &self,
        patience: &mut Patience,
        far: &mut Far,
        checks: &mut Checks,
    ) {
        let moment = self.moment();
        for (what, since) in patience.look(&moment) {
            self.history.note(What::Overdue { what, since });
        }
        for (session, from, to) in far.look(&moment) {
            self.history.note(What::WasFar { session, from, to });
        }
        for (watcher, from, to) in checks.look(&moment) {
            self.history.note(What::WasWaiting { watcher, from, to });
        }
    }

    fn moment(&self) -> Moment {
        let clients = self.clients.all();
        let now = self.history.now();
        let is_calm = self.is_without_trouble(now);
        let alive = self.server.sessions();
        // A caller that is stopped still has its handle.
        let is_stopped = (0..self.count).any(|number| self.freezer.is_stopped(number));
        // A client without handles may have been isolated too, and notices later that its connection
        // is dead.
        let is_isolated = (0..self.count).any(|number| self.network.is_isolated(number));
        let mut abandoned = self.clients.abandoned(is_calm && !is_stopped && !is_isolated);
        abandoned.retain(|session| alive.contains(session));
        let (mut prompt, mut astray, mut away) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (number, (client, life)) in &clients {
            let is_free =
                is_calm && !self.network.is_isolated(*number) && !self.freezer.is_stopped(*number);
            let is_over = life.is_ending() || life.is_closed();
            let seeks = [SessionState::Connecting, SessionState::Suspended];
            if is_free && !is_over && seeks.contains(&client.state()) {
                // A client whose list has changed again may have been connected since the last look.
                let (life, count) = (life.place(), client.status().connection);
                away.insert(format!("client {number}, life {life}, after {count} connections"));
            }
            if let Some(session) = client.session_id()
                && is_free
                && client.state() == SessionState::Connected
                && alive.contains(&session)
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
        let calls: BTreeMap<Id, Waiting> = calls.collect();
        let watcher = |id: Id, client: usize, session: Option<SessionId>, target| {
            let connection = clients.get(&client)?.0.status().connection;
            Some(Watcher { id, session: session?, connection, target })
        };
        let of_calls = inner.calls.iter().filter_map(|(id, call)| {
            let target = match (call.name, call.on.as_str()) {
                ("wait", BARRIER) => Target::At(BARRIER),
                ("enter", MEETING) => Target::At(MEETING),
                ("leave", MEETING) => Target::Below(MEETING),
                _ => return None,
            };
            watcher(*id, call.client, calls.get(id)?.session, target)
        });
        let of_views = inner.views.iter().filter_map(|(id, view)| {
            let target = match view.of {
                ViewOf::Value => Target::At(VALUE),
                ViewOf::Group(_) => Target::At(GROUP),
                _ => return None,
            };
            watcher(*id, view.client, session_of(&view.client, &view.life), target)
        });
        let watchers = of_calls.chain(of_views).collect();
        let ephemerals = self.server.ephemerals();
        let mut views = Vec::new();
        for (id, view) in inner.views.iter().filter(|(_, view)| !view.is_left_alone) {
            let Some(session) = session_of(&view.client, &view.life) else { continue };
            let missing = self.differences(view, &ephemerals).into_iter();
            views.extend(missing.map(|state| (*id, state, session)));
        }
        let round = self.server.data(MEETING).unwrap_or_default();
        let items = self.server.children(&format!("{QUEUE}/entries")).unwrap_or_default();
        Moment {
            now,
            prompt,
            abandoned,
            astray,
            away,
            ephemerals: ephemerals.clone(),
            views,
            resized: stored_permits(&self.server),
            kept: inner.kept.clone(),
            calls,
            watchers,
            participants: self.plan.participants() as usize,
            closed_by: self.server.stat(BARRIER).map(|stat| stat.czxid.0),
            round: String::from_utf8_lossy(&round).lines().map(str::to_owned).collect(),
            items: items.iter().filter(|name| self.is_deliverable(name)).count(),
        }
    }

    /// Returns whether an item can be taken and acknowledged.
    fn is_deliverable(&self, name: &str) -> bool {
        let stat = self.server.stat(&format!("{QUEUE}/entries/{name}"));
        name.starts_with("entry-") && stat.is_some_and(|stat| stat.num_children == 0)
    }

    /// Returns what a caller that follows something was not told yet.
    fn differences(&self, view: &View, ephemerals: &[(String, SessionId)]) -> Vec<String> {
        let nothing = States::new();
        let shown = view.shown.as_ref();
        let one = |state: String| States::from([(String::new(), state)]);
        let real = match view.of {
            ViewOf::Leader => one(leader_text(first_of(ephemerals, ELECTION))),
            ViewOf::Value => {
                let stat = self.server.stat(VALUE);
                one(value_text(stat.map(|stat| (stat.czxid.0, stat.version.0))))
            }
            ViewOf::Tree(root, depth) => {
                let mut found = Vec::new();
                caches::collect(self, root, depth, &mut found);
                let states = found.into_iter().map(|(path, c, m)| (path, znode_text((c, m))));
                states.collect()
            }
            ViewOf::Group(has_data) => self.members(has_data),
            ViewOf::Znode | ViewOf::Children => {
                // A watcher is told once, of anything.
                let watched = shown.into_iter().flatten();
                let changed = watched.filter(|(path, seen)| self.watched(view.of, path) != **seen);
                return changed.map(|(path, _)| format!("the event of {path}")).collect();
            }
        };
        let shown = shown.unwrap_or(&nothing);
        let names: BTreeSet<&String> = real.keys().chain(shown.keys()).collect();
        let old = names.into_iter().filter(|name| real.get(*name) != shown.get(*name));
        old.map(|name| format!("{name} {:?}", real.get(name))).collect()
    }

    /// Describes what a watch of a znode, or of its children, concerns.
    pub fn watched(&self, of: ViewOf, path: &str) -> String {
        let stat = self.server.stat(path);
        stat.map_or_else(
            || "nothing".to_owned(),
            |stat| match of {
                ViewOf::Children => znode_text((stat.czxid.0, stat.pzxid.0)),
                _ => znode_text((stat.czxid.0, stat.mzxid.0)),
            },
        )
    }

    fn members(&self, has_data: bool) -> States {
        let ids = self.server.children(GROUP).unwrap_or_default().into_iter();
        let members = ids.filter_map(|id| {
            let path = format!("{GROUP}/{id}");
            let (stat, data) = (self.server.stat(&path)?, self.server.data(&path)?);
            let data = if has_data { String::from_utf8_lossy(&data) } else { "".into() };
            Some((id, format!("{:#x} {data}", stat.czxid.0)))
        });
        members.collect()
    }

    /// Returns since when nothing has gone wrong that this client could notice, if nothing does now. In
    /// contrast to what looks regularly, this changes nothing.
    pub fn calm_since(&self, client: usize) -> Option<Duration> {
        let now = self.history.now();
        let is_partitioned =
            (0..self.plan.members).any(|member| self.server.member(member).is_partitioned());
        let is_away = self.network.is_isolated(client) || self.freezer.is_stopped(client);
        let kinds = [FaultKind::Freeze, FaultKind::Delay];
        let may_freeze = kinds.iter().any(|kind| self.plan.faults.contains(kind));
        let inner = self.trouble.lock();
        let has_struck = self.server.pending_faults().len() < inner.armed;
        if is_partitioned || is_away || has_struck || (may_freeze && now < self.plan.calm_at) {
            return None;
        }
        // Afterwards, a connection may be dead for a while.
        let free = self.network.free_for(client).map(|it| (now + FROZEN).saturating_sub(it));
        let running = self.freezer.running_for(client).map(|it| now.saturating_sub(it));
        let since = [Some(inner.until), free, running].into_iter().flatten().max()?;
        (since <= now).then_some(since)
    }

    pub(super) fn is_without_trouble(&self, now: Duration) -> bool {
        let is_partitioned =
            (0..self.plan.members).any(|member| self.server.member(member).is_partitioned());
        let mut inner = self.trouble.lock();
        let armed = self.server.pending_faults().len();
        let cuts = self.network.cuts();
        let has_struck = armed < inner.armed || cuts > inner.cuts;
        (inner.armed, inner.cuts) = (armed, cuts);
        let kinds = [FaultKind::Freeze, FaultKind::Delay];
        if kinds.iter().any(|kind| self.plan.faults.contains(kind)) && now < self.plan.calm_at {
            // One may have struck and another one been armed since the last look.
            inner.until = inner.until.max(now + FROZEN);
        }
        if has_struck {
            let lasts = if self.plan.may_forbid() { FORBIDDEN } else { STRUCK };
            inner.until = inner.until.max(now + lasts);
        }
        if is_partitioned {
            inner.until = inner.until.max(now + STRUCK);
        }
        inner.until <= now
    }
}
