//! A waiting caller is told soon after the event has happened, even while others are in trouble
//! and even if the caller gives up later.
//!
//! Calls with a timeout hide a wake-up that was lost, and so do checks that look again after a
//! while. So this judge follows what the servers have. It names everything that somebody should do
//! now: the first contender of a queue holds the lock or leaves; whoever waits for an open barrier
//! passes. If the same thing stays to be done for a long time, and the client that should do it is
//! connected and nothing keeps its packets back, then it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::SessionId;

use super::checks::Watcher;
use super::turns::{Contender, parse};
use crate::history::Id;
use crate::program::barriers::{BARRIER, MEETING};
use crate::program::locks::{EXCLUSIVE, PERMITS, RESIZED, WIDE, WIDE_PERMITS};
use crate::program::queue::QUEUE;

/// What the servers have at one moment, and who waits.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Moment {
    /// When it is.
    pub now: Duration,
    /// The sessions of the clients that are connected, and from which nothing is kept back.
    pub prompt: BTreeSet<SessionId>,
    /// The sessions that live although nobody has a handle of their clients any more.
    pub abandoned: BTreeSet<SessionId>,
    /// The clients that use a server which has left their list.
    pub astray: BTreeSet<String>,
    /// The clients that are not connected, although nothing keeps them from it.
    pub away: BTreeSet<String>,
    /// All ephemeral znodes and their owners.
    pub ephemerals: Vec<(String, SessionId)>,
    /// The znodes of the guards that callers have.
    pub kept: BTreeSet<String>,
    /// The calls that have not ended.
    pub calls: BTreeMap<Id, Waiting>,
    /// The transaction that has closed the barrier, if it is closed.
    pub closed_by: Option<i64>,
    /// The names of the last round of the double barrier.
    pub round: Vec<String>,
    /// The number of items in the queue.
    pub items: usize,
    /// What the callers follow that were not told the newest state: their numbers, that state, and
    /// the sessions of their clients.
    pub views: Vec<(Id, String, SessionId)>,
    /// The number of permits of the semaphore whose number changes.
    pub resized: usize,
    /// Who waits for a watch.
    pub watchers: Vec<Watcher>,
    /// How many participants meet at the double barrier.
    pub participants: usize,
}

/// A call that has not ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "tests write it as a literal")]
pub struct Waiting {
    /// Its name.
    pub name: &'static str,
    /// The path that it concerns.
    pub on: String,
    /// The session of its client.
    pub session: Option<SessionId>,
}

impl Waiting {
    fn waits_for_opening(&self) -> bool {
        (self.name, self.on.as_str()) == ("wait", BARRIER)
    }
}

/// A caller has something at a path that should be there.
pub const PRESENT: &str = "present";
/// A holder was asked to give its lock back, and waits to hear that.
pub const ASKED: &str = "asked";

/// Something that was not done for a long time, and since when.
pub type Overdue = (String, Duration);

/// Follows what is to be done.
#[derive(Clone, Debug)]
pub struct Patience {
    limit: Duration,
    /// The directories whose first contender need not hold the lock.
    ignored: Vec<&'static str>,
    since: BTreeMap<String, Duration>,
    /// Since when a call has waited for the barrier that this transaction has closed.
    waiting: BTreeMap<Id, (i64, Duration)>,
    /// The transaction that has closed the barrier for whose opening a call waits.
    closed_by: BTreeMap<Id, i64>,
    told: BTreeSet<String>,
}

impl Patience {
    /// Allows this long for everything that is to be done.
    pub fn new(limit: Duration, ignored: Vec<&'static str>) -> Self {
        Self {
            limit,
            ignored,
            since: BTreeMap::new(),
            waiting: BTreeMap::new(),
            closed_by: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// Looks at a moment. Returns what has been to do for too long since an earlier one, once.
    pub fn look(&mut self, moment: &Moment) -> Vec<Overdue> {
        let due = self.due(moment);
        self.since.retain(|what, _| due.contains(what));
        let mut overdue = Vec::new();
        for what in due {
            let since = *self.since.entry(what.clone()).or_insert(moment.now);
            if moment.now - since >= self.limit && self.told.insert(what.clone()) {
                overdue.push((what, since));
            }
        }
        overdue
    }

    fn due(&mut self, moment: &Moment) -> BTreeSet<String> {
        let mut due = self.turns(moment);
        due.extend(calls(moment));
        due.extend(self.openings(moment));
        due.extend(meetings(moment));
        due.extend(deliveries(moment));
        let views = moment.views.iter().filter(|(.., session)| moment.prompt.contains(session));
        due.extend(views.map(|(view, state, _)| format!("the report of {state} to view {view}")));
        due.extend(moment.astray.iter().map(|client| format!("the move of {client}")));
        due.extend(moment.away.iter().map(|client| format!("the connection of {client}")));
        due.extend(moment.abandoned.iter().map(|session| format!("the end of {session}")));
        due
    }

    /// The calls that wait for a barrier which was open for a moment. They must have had the time to
    /// see that it was closed before.
    fn openings(&mut self, moment: &Moment) -> Vec<String> {
        let mut due = Vec::new();
        self.waiting.retain(|id, _| moment.calls.contains_key(id));
        for (id, call) in moment.calls.iter().filter(|(_, call)| call.waits_for_opening()) {
            if !call.session.is_some_and(|session| moment.prompt.contains(&session)) {
                self.waiting.remove(id);
                continue;
            }
            if let Some(closed_by) = moment.closed_by {
                let (zxid, since) = self.waiting.entry(*id).or_insert((closed_by, moment.now));
                if *zxid != closed_by {
                    (*zxid, *since) = (closed_by, moment.now);
                } else if moment.now - *since >= self.limit {
                    self.closed_by.entry(*id).or_insert(closed_by);
                }
            }
            if self.closed_by.get(id).is_some_and(|zxid| moment.closed_by != Some(*zxid)) {
                due.push(format!("call #{id}, {} {}, after an opening", call.name, call.on));
            }
        }
        due
    }

    /// The contenders whose turn has come, and of which no caller has a guard.
    fn turns(&self, moment: &Moment) -> BTreeSet<String> {
        let mut queues: BTreeMap<&str, Vec<(Contender, &str, SessionId)>> = BTreeMap::new();
        for (path, owner) in &moment.ephemerals {
            let Some((directory, contender)) = parse(path) else { continue };
            if !self.ignored.contains(&directory) && !directory.starts_with(QUEUE) {
                queues.entry(directory).or_default().push((contender, path, *owner));
            }
        }
        let mut due = BTreeSet::new();
        for (directory, contenders) in &mut queues {
            contenders.sort_unstable_by_key(|(contender, ..)| contender.number);
            let readers = contenders.iter().take_while(|(contender, ..)| contender.is_reader);
            let permits = contenders.iter().take_while(|(contender, ..)| contender.is_permit);
            let most = match *directory {
                RESIZED => moment.resized,
                WIDE => WIDE_PERMITS as usize,
                _ => PERMITS as usize,
            };
            let count = readers.count().max(permits.take(most).count()).max(1);
            let first = contenders.iter().take(count);
            let waits = |(_, path, owner): &&(Contender, &str, SessionId)| {
                moment.prompt.contains(owner) && !moment.kept.contains(*path)
            };
            due.extend(first.filter(waits).map(|(_, path, _)| format!("the turn of {path}")));
        }
        due
    }
}

/// The calls that wait for nothing but what the servers have.
fn calls(moment: &Moment) -> Vec<String> {
    let is_present =
        |start: &str| moment.ephemerals.iter().any(|(path, _)| path.starts_with(start));
    let is_free = !is_present(EXCLUSIVE);
    let is_empty = !is_present(MEETING);
    let exists = |path: &str| moment.ephemerals.iter().any(|(other, _)| other == path);
    let is_due = |(_, call): &(&Id, &Waiting)| {
        let is_done = match (call.name, call.on.as_str()) {
            ("acquire", EXCLUSIVE) => is_free,
            ("wait", BARRIER) => moment.closed_by.is_none(),
            ("leave", MEETING) => is_empty,
            (PRESENT, path) => !exists(path),
            // Somebody was told that the holder is asked to give the lock back.
            (ASKED, path) => exists(path),
            _ => false,
        };
        is_done && call.session.is_some_and(|session| moment.prompt.contains(&session))
    };
    let due = moment.calls.iter().filter(is_due);
    due.map(|(id, call)| format!("call #{id}, {} {}", call.name, call.on)).collect()
}

/// The first of enough participants forms a round, and whoever belongs to it enters.
fn meetings(moment: &Moment) -> Vec<String> {
    let members = moment.ephemerals.iter().filter_map(|(path, owner)| {
        let name = path.strip_prefix(MEETING)?.strip_prefix('/')?;
        Some((name, *owner))
    });
    let (inside, mut outside): (Vec<_>, Vec<_>) =
        members.partition(|(name, _)| moment.round.iter().any(|other| other == name));
    outside.sort_unstable();
    let mut due = Vec::new();
    if let Some((first, owner)) = outside.first()
        && inside.is_empty()
        && outside.len() >= moment.participants
        && moment.prompt.contains(owner)
    {
        due.push(format!("the round of {first}"));
    }
    for session in &moment.prompt {
        let enters = |call: &Waiting| call.name == "enter" && call.session == Some(*session);
        let mut calls = moment.calls.iter().filter(|(_, call)| enters(call));
        // With two calls, nobody knows which znode belongs to which.
        if let (Some((id, _)), None) = (calls.next(), calls.next())
            && !outside.iter().any(|(_, owner)| owner == session)
        {
            due.push(format!("call #{id}, enter"));
        }
    }
    due
}

/// The first taker takes an item if there are some and nobody has one.
fn deliveries(moment: &Moment) -> Option<String> {
    let taken = format!("{QUEUE}/taken/");
    let is_taken = moment.ephemerals.iter().any(|(path, _)| path.starts_with(&taken));
    if is_taken || moment.items == 0 {
        return None;
    }
    let takers = moment.ephemerals.iter().filter_map(|(path, owner)| {
        let (directory, contender) = parse(path)?;
        directory.strip_prefix(QUEUE)?;
        Some((contender.number, path, owner))
    });
    let (_, path, owner) = takers.min()?;
    moment.prompt.contains(owner).then(|| format!("the delivery to {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn moment(ephemerals: &[(&str, SessionId)]) -> Moment {
        let owned = |(path, owner): &(&str, SessionId)| ((*path).to_owned(), *owner);
        let ephemerals = ephemerals.iter().map(owned).collect();
        let prompt = BTreeSet::from([ONE]);
        Moment { prompt, ephemerals, participants: 2, ..Moment::default() }
    }

    fn call(name: &'static str, on: &str) -> BTreeMap<Id, Waiting> {
        BTreeMap::from([(7, Waiting { name, on: on.to_owned(), session: Some(ONE) })])
    }

    /// Returns how many things are overdue after ten seconds like this.
    fn count(moment: &Moment) -> usize {
        let mut patience = Patience::new(Duration::from_secs(10), vec!["/locks/b"]);
        let seconds = (0..=11).map(Duration::from_secs);
        let looks = seconds.map(|now| patience.look(&Moment { now, ..moment.clone() }).len());
        looks.sum()
    }

    #[test]
    fn a_client_that_does_not_connect_is_seen() {
        let away = BTreeSet::from(["client 1, life 0".to_owned()]);
        assert_eq!(count(&Moment { away, ..Moment::default() }), 1);
    }

    #[test]
    fn a_first_contender_that_nobody_wakes_is_seen() {
        let first = ("/locks/a/x-lock-0000000003", ONE);
        let waiting = moment(&[("/locks/a/a-lock-0000000004", ONE), first]);
        assert_eq!(count(&waiting), 1);
        let kept = BTreeSet::from([first.0.to_owned()]);
        assert_eq!(count(&Moment { kept, ..waiting.clone() }), 0, "it holds the lock");
        assert_eq!(count(&Moment { prompt: BTreeSet::new(), ..waiting }), 0, "it is cut off");
        let behind = moment(&[("/locks/a/a-lock-0000000002", TWO), first]);
        assert_eq!(count(&behind), 0, "another one is first");
        assert_eq!(count(&moment(&[("/locks/b/x-lock-0000000003", ONE)])), 0, "it may wait");
        assert_eq!(count(&moment(&[("/queue/takers/x-lock-0000000003", ONE)])), 0);
    }

    #[test]
    fn readers_and_permits_have_their_turn_together() {
        let rw = [("/rw/1__READ__0000000001", TWO), ("/rw/2__READ__0000000002", ONE)];
        assert_eq!(count(&moment(&rw)), 1);
        let rw = [("/rw/1__WRIT__0000000001", TWO), ("/rw/2__READ__0000000002", ONE)];
        assert_eq!(count(&moment(&rw)), 0);
        let rw = [("/rw/1__READ__0000000001", TWO), ("/rw/2__WRIT__0000000002", ONE)];
        assert_eq!(count(&moment(&rw)), 0);
        let permit = |number, owner| (format!("/s/x-permit-000000000{number}"), owner);
        let permits = |first| {
            let ephemerals = vec![permit(1, first), permit(2, TWO), permit(3, ONE)];
            count(&Moment { ephemerals, ..moment(&[]) })
        };
        assert_eq!((permits(TWO), permits(ONE)), (0, 1));
    }

    #[test]
    fn a_session_that_outlives_the_last_handle_of_its_client_is_seen() {
        let abandoned = BTreeSet::from([TWO]);
        assert_eq!(count(&Moment { abandoned, ..moment(&[]) }), 1);
    }

    #[test]
    fn a_caller_that_is_not_told_the_newest_state_is_seen() {
        let views = |session| vec![(7, "nobody".to_owned(), session)];
        assert_eq!(count(&Moment { views: views(ONE), ..moment(&[]) }), 1);
        assert_eq!(count(&Moment { views: views(TWO), ..moment(&[]) }), 0, "it is cut off");
    }

    #[test]
    fn the_number_of_permits_that_is_stored_counts() {
        let permits = [
            (format!("{RESIZED}/x-permit-0000000001"), TWO),
            (format!("{RESIZED}/x-permit-0000000002"), ONE),
        ];
        let count =
            |resized| count(&Moment { ephemerals: permits.to_vec(), resized, ..moment(&[]) });
        assert_eq!((count(1), count(2)), (0, 1));
    }

    #[test]
    fn a_client_that_stays_at_a_server_that_has_left_is_seen() {
        let astray = BTreeSet::from(["client 1 from member 2".to_owned()]);
        assert_eq!(count(&Moment { astray, ..moment(&[]) }), 1);
    }

    #[test]
    fn what_was_done_in_time_is_not_overdue() {
        let waiting = moment(&[("/locks/a/x-lock-0000000003", ONE)]);
        let mut patience = Patience::new(Duration::from_secs(10), vec![]);
        let mut looks = 0;
        for second in 0..40 {
            let now = Duration::from_secs(second);
            let busy = Moment { now, ..moment(&[]) };
            let waiting = Moment { now, ..waiting.clone() };
            looks += patience.look(if second % 9 == 0 { &busy } else { &waiting }).len();
        }
        assert_eq!(looks, 0);
    }

    #[test]
    fn a_call_that_could_end_is_seen() {
        let waits = |name, on, moment: Moment| count(&Moment { calls: call(name, on), ..moment });
        assert_eq!(waits("acquire", EXCLUSIVE, moment(&[])), 1);
        assert_eq!(waits("acquire", EXCLUSIVE, moment(&[(EXCLUSIVE, TWO)])), 0);
        assert_eq!(waits("wait", BARRIER, moment(&[])), 1);
        assert_eq!(waits("wait", BARRIER, Moment { closed_by: Some(3), ..moment(&[]) }), 0);
        assert_eq!(waits("leave", MEETING, moment(&[])), 1);
        assert_eq!(waits("leave", MEETING, moment(&[("/meeting/member-1", TWO)])), 0);
    }

    #[test]
    fn a_barrier_that_was_open_for_a_moment_is_seen() {
        let calls = call("wait", BARRIER);
        let count = |closed: &[(u64, Option<i64>)]| {
            let mut patience = Patience::new(Duration::from_secs(10), vec![]);
            let looks = closed.iter().map(|(second, closed_by)| {
                let (now, calls) = (Duration::from_secs(*second), calls.clone());
                patience.look(&Moment { now, calls, closed_by: *closed_by, ..moment(&[]) }).len()
            });
            looks.sum::<usize>()
        };
        assert_eq!(count(&[(0, Some(3)), (10, Some(3)), (11, Some(5)), (21, Some(5))]), 1);
        assert_eq!(count(&[(0, Some(3)), (10, Some(3)), (40, Some(3))]), 0, "it is closed");
        let late = [(0, Some(3)), (9, Some(3)), (10, Some(5)), (30, Some(5))];
        assert_eq!(count(&late), 0, "perhaps it has not looked before");
    }

    #[test]
    fn a_round_that_does_not_form_or_is_not_told_is_seen() {
        let (one, two) = (("/meeting/member-1", ONE), ("/meeting/member-2", TWO));
        assert_eq!(count(&moment(&[one, two])), 1);
        assert_eq!(count(&moment(&[one])), 0, "one is missing");
        let last = vec!["member-0".to_owned()];
        let old = ("/meeting/member-0", TWO);
        assert_eq!(count(&Moment { round: last, ..moment(&[old, one, two]) }), 0);
        let round = vec!["member-1".to_owned(), "member-2".to_owned()];
        let calls = call("enter", MEETING);
        let formed = Moment { round, calls, ..moment(&[one, two]) };
        assert_eq!(count(&formed), 1, "it does not know of its round");
        assert_eq!(count(&Moment { round: vec![], ..moment(&[one]) }), 0, "it waits");
    }

    #[test]
    fn an_item_that_nobody_takes_is_seen() {
        let taker = ("/queue/takers/x-lock-0000000001", ONE);
        let items = |moment| count(&Moment { items: 2, ..moment });
        assert_eq!(items(moment(&[taker])), 1);
        assert_eq!(count(&moment(&[taker])), 0, "there is none");
        assert_eq!(items(moment(&[taker, ("/queue/taken/entry-1", TWO)])), 0);
    }
}
