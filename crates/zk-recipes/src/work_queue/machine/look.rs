//! Finding the next item of a work queue that nobody has taken.
//!
//! 1. If an earlier list is at hand, read how many items were created so far, and list the leases.
//!    If no item was created since the list, every item that exists is in it. If one of them has no
//!    lease, report them.
//! 2. List the items and the leases. If an item has no lease, report all that have none.
//! 3. Repeat step 2 with watches on both directories. If again no item is available, wait.
//! 4. When a watch fires or the session ends, when an item that was passed over is due, and from time
//!    to time, continue with 3.
//!
//! Items that cannot be delivered, or not yet, are passed over; see [`Aside`].
//!
//! A directory that is missing has no children. If the one of the items is missing, a watch reports
//! its creation. That of the leases needs none: without it, no item has a lease.
//!
//! A list may be stale, and another taker may be faster. So a report is only a proposal: the create
//! of the lease decides, and a read of the item after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jute_codec::{NameList, ReadRequest, Request, Response, Stat};
use zk_session::recipe::Operation;
use zk_session::{OpError, Time, Zxid};

use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, WatchNumber,
    WatchNumbers, exists, flight, list, spread,
};
use crate::work_queue::aside::{Aside, Standing};
use crate::work_queue::layout::{ItemName, Layout};

/// Number of items that others may have removed from a list before a new list is cheaper than
/// trying them one by one.
const MISSES_MAX: usize = 4;
/// Number of names that are kept of a list.
const KEPT_MAX: usize = 1_000;

/// Maximum number of blocked items of one report that are due.
const DUE_MAX: usize = 16;

type LookStep = Step<Result<Found, Failure>>;

/// What a search has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The items without a lease, in their order, without those that takers pass over.
    pub(crate) available: Vec<ItemName>,
    /// Items without a lease that were blocked, and that this look tries again.
    pub(crate) due: Vec<ItemName>,
    /// The first item without a lease that takers pass over because it is blocked.
    pub(crate) blocked: Option<ItemName>,
    /// The items that takers pass over and that are gone.
    pub(crate) gone: Vec<ItemName>,
    /// When to look again for the first of the items that takers pass over.
    due_at: Option<Time>,
}

/// The items of an earlier list that are not known to be gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    /// The first items, in their order, with or without a lease.
    items: Vec<ItemName>,
    /// The transaction that created the directory. In another directory, the same names mean other
    /// items.
    directory: Zxid,
    /// Number of items created in the directory before the list.
    created: i32,
    /// Number of items in the directory at the time of the list.
    length: i32,
    /// Number of items that were removed from the list since then.
    removed: usize,
}

/// A search for items that can be taken.
#[derive(Debug)]
pub(crate) struct Look {
    layout: Arc<Layout>,
    listed: Listed,
    /// The items to pass over.
    aside: Aside,
    may_wait: bool,
    /// The lists set watches.
    is_watching: bool,
    watches: WatchNumbers,
    /// The watches that have not fired: existence of the directory of the items, list of the
    /// items, list of the leases.
    pending: [Option<WatchNumber>; 3],
    /// A watch has fired since the lists were requested.
    has_changed: bool,
    /// The directory of the leases exists.
    has_leases: bool,
    id: u128,
    check_at: Option<Time>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Comparing,
    /// Step 2 or 3 is in flight.
    Listing,
    /// Step 4: waiting.
    Waiting,
}

impl Listed {
    /// Removes an item that is gone.
    pub(crate) fn remove(&mut self, item: &ItemName) {
        if let Ok(at) = self.items.binary_search(item) {
            self.items.remove(at);
            self.removed += 1;
        }
    }

    /// Returns the transaction that created the directory, or `None` without a list.
    pub(crate) fn directory(&self) -> Option<Zxid> {
        (self.directory != Zxid::default()).then_some(self.directory)
    }

    fn new(mut items: Vec<ItemName>, stat: &Stat) -> Self {
        items.truncate(KEPT_MAX);
        let (directory, length) = (stat.czxid, stat.num_children);
        Self { items, directory, created: created(stat), length, removed: 0 }
    }

    /// Returns whether an item that is not in the list can be ahead of those in the list, or too
    /// many of the list are gone.
    fn is_outdated(&self, stat: &Stat) -> bool {
        let gone = usize::try_from(self.length.wrapping_sub(stat.num_children)).unwrap_or(0);
        self.directory != stat.czxid
            || self.created != created(stat)
            || gone > self.removed + MISSES_MAX
    }
}

impl Found {
    /// Returns whether every item has a lease.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_some() && self.due_at.is_none()
    }

    /// Returns whether there is an item to try.
    fn has_some(&self) -> bool {
        !self.available.is_empty() || !self.due.is_empty()
    }
}

impl Look {
    /// Creates a search that begins with an earlier list and passes over some items. Without
    /// `may_wait`, it ends if no item can be taken. Searches with different ids check for missed
    /// watches at different times.
    pub(crate) fn new(
        layout: Arc<Layout>,
        listed: Listed,
        aside: Aside,
        may_wait: bool,
        id: u128,
    ) -> Self {
        Self {
            layout,
            listed,
            aside,
            may_wait,
            is_watching: false,
            watches: WatchNumbers::default(),
            pending: [None; 3],
            has_changed: false,
            has_leases: false,
            id,
            check_at: None,
            state: State::Listing,
        }
    }

    /// Returns whether the directory of the leases exists, so that a lease can be created in one
    /// step.
    pub(crate) fn has_leases(&self) -> bool {
        self.has_leases
    }

    /// Returns the newest list, for the next search.
    pub(crate) fn into_listed(self) -> Listed {
        self.listed
    }

    /// Step 1.
    fn compare(&mut self) -> LookStep {
        self.state = State::Comparing;
        let operations = vec![exists(self.layout.entries.clone()), list(&self.layout.leases, None)];
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn compared(&mut self, view: SessionView, answers: Answers) -> LookStep {
        let [measured, leases] = answers.take();
        if let Answer::Done(Response::Exists(stat)) = &measured
            && !self.listed.is_outdated(stat)
            && let Some(leases) = names(&leases)
        {
            self.has_leases = true;
            let unleased = without(&self.listed.items, leases);
            let found = self.sort(unleased, stat.czxid, view.now);
            if found.has_some() {
                return Step::Done(Ok(found));
            }
        }
        self.listed = Listed::default();
        self.list()
    }

    /// Step 2 or 3.
    fn list(&mut self) -> LookStep {
        self.state = State::Listing;
        self.has_changed = false;
        if self.is_watching {
            for watch in &mut self.pending {
                // A pending watch keeps its number, so that there are never two for one znode.
                *watch = Some(watch.unwrap_or_else(|| self.watches.issue()));
            }
        }
        let [existence, items, leases] = self.pending;
        let path = self.layout.entries.clone();
        let measure = match existence {
            // The number of creates is read before the list, so that it is never too high.
            None => exists(path),
            Some(watch) => {
                Operation::watched(Request::Exists(ReadRequest { path, watch: true }), watch)
            }
        };
        let operations =
            vec![measure, list(&self.layout.entries, items), list(&self.layout.leases, leases)];
        Step::Submit(flight(None, operations), Needs::All)
    }

    fn was_listed(&mut self, view: SessionView, answers: Answers) -> LookStep {
        let [measured, items, leases] = answers.take();
        // A list of a directory that does not exist sets no watch.
        let [_, of_items, of_leases] = &mut self.pending;
        for (watch, list) in [(of_items, &items), (of_leases, &leases)] {
            if !matches!(list, Answer::Done(_)) {
                *watch = None;
            }
        }
        for answer in [&measured, &items, &leases] {
            match answer.clone().response() {
                Err(error) if !error.is_no_node() => return self.failed(error),
                Ok(_) | Err(_) => {}
            }
        }
        let mut listed: Vec<_> =
            names(&items).into_iter().flatten().filter_map(ItemName::parse).collect();
        listed.sort_unstable();
        self.has_leases = names(&leases).is_some();
        let unleased = match names(&leases) {
            Some(leases) => without(&listed, leases),
            None => listed.clone(),
        };
        let directory = if let Answer::Done(Response::Exists(stat)) = &measured {
            stat.czxid
        } else {
            Zxid::default()
        };
        let gone = self.aside.missing_in(&listed);
        let found = Found { gone, ..self.sort(unleased, directory, view.now) };
        if let Answer::Done(Response::Exists(stat)) = &measured {
            self.listed = Listed::new(listed, stat);
        }
        if found.has_some() || !self.may_wait {
            return Step::Done(Ok(found));
        }
        if !self.is_watching || self.has_changed {
            self.is_watching = true;
            return self.list();
        }
        self.state = State::Waiting;
        let check = self.layout.watch_check;
        let check_at = check.map(|interval| view.now + spread(interval, self.id));
        self.check_at = check_at.into_iter().chain(found.due_at).min();
        Step::Wait(self.check_at)
    }

    /// Separates the items that can be taken from those to try again and those to pass over.
    fn sort(&self, unleased: Vec<ItemName>, directory: Zxid, now: Time) -> Found {
        let mut found = Found::default();
        for item in unleased {
            match self.aside.standing(directory, &item, now) {
                Standing::Free => found.available.push(item),
                Standing::Due if found.due.len() < DUE_MAX => found.due.push(item),
                standing @ (Standing::Due | Standing::Aside(_)) => {
                    let until = if let Standing::Aside(until) = standing { until } else { now };
                    found.due_at = found.due_at.into_iter().chain([until]).min();
                    if self.aside.reason(&item).is_some() {
                        found.blocked.get_or_insert(item);
                    }
                }
            }
        }
        found
    }

    fn failed(&self, error: OpError) -> LookStep {
        Step::Done(Err(Failure::new(FailedAction::List, self.layout.directory.clone(), error)))
    }
}

impl Machine for Look {
    type Output = Result<Found, Failure>;

    fn start(&mut self, _: SessionView) -> LookStep {
        if self.listed.items.is_empty() { self.list() } else { self.compare() }
    }

    fn handle(&mut self, view: SessionView, input: Input) -> LookStep {
        if let Input::Watch { watch, .. } = input {
            for pending in &mut self.pending {
                if *pending == Some(watch) {
                    *pending = None;
                    self.has_changed = true;
                }
            }
        }
        if let Input::Ended(_) = input {
            self.pending = [None; 3];
            self.has_changed = true;
        }
        match (self.state, input) {
            (State::Comparing, Input::Answered(answers)) => self.compared(view, answers),
            (State::Listing, Input::Answered(answers)) => self.was_listed(view, answers),
            (State::Waiting, Input::Timer) => self.list(),
            (State::Waiting, _) if self.has_changed => self.list(),
            (State::Waiting, _) => Step::Wait(self.check_at),
            (_, _) => Step::Wait(None),
        }
    }
}

/// Returns the names in a list.
fn names(answer: &Answer) -> Option<&NameList> {
    let Answer::Done(Response::GetChildren(names)) = answer else { return None };
    Some(names)
}

fn without(items: &[ItemName], leases: &NameList) -> Vec<ItemName> {
    let leases: BTreeSet<_> = leases.into_iter().collect();
    items.iter().filter(|item| !leases.contains(item.as_str())).cloned().collect()
}

/// Returns how many children were created in a directory. The version of the list of children
/// counts creates and deletes.
fn created(stat: &Stat) -> i32 {
    stat.cversion.0.wrapping_add(stat.num_children) / 2
}
