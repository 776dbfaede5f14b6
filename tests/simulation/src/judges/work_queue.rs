//! Nothing is lost, forged or delivered after it was acknowledged. That two takers do not have an
//! item at once is the promise of a lock, which `exclusion` judges.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode, SessionId};
use zk_testserver::{CommitRecord, Outcome, RequestRecord};

use super::lives::{Authors, Life, authors, lives};
use super::{Case, is_tampered};
use crate::history::{End, Event, Id, Told, What, Who};
use crate::program::Job;
use crate::program::queue::QUEUE;
use crate::world::plan::{FaultKind, Plan};
use crate::world::strangers::NOTE;

/// The calls that lease items.
const TAKES: [&str; 3] = ["take", "take_batch", "try_take"];
/// How long after the end of a call that has failed, or was dropped, its lease may still be created.
const LEFT_MAX: Duration = Duration::from_secs(60);
/// The length of the name of a znode that an acknowledgement creates below its item.
const PIN: usize = 32;

/// What has happened to an item.
#[derive(Debug, Default)]
struct Item {
    put: Option<Told>,
    is_acked: bool,
    may_be_acked: bool,
    is_remaining: usize,
}

/// Returns which puts have succeeded although the queue was full from their begin to their end. A
/// follower that lags behind may count fewer items.
pub fn judge_limit(events: &[Event], commits: &[CommitRecord], plan: &Plan) -> Vec<String> {
    if !plan.reads_are_current() {
        return Vec::new();
    }
    let entries = format!("{QUEUE}/entries/");
    let is_deletion = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK
            && commit.op == OpCode::DELETE
            && commit.path.as_deref().is_some_and(|path| path.starts_with(&entries))
    };
    let deletions = commits.iter().filter(is_deletion).map(|commit| commit.zxid.0).collect();
    let is_create = |commit: &&CommitRecord| {
        commit.error == ErrorCode::OK
            && matches!(commit.op, OpCode::CREATE | OpCode::CREATE2)
            && commit.path.as_deref().is_some_and(|path| {
                path.strip_prefix(&entries).is_some_and(|name| !name.contains('/'))
            })
    };
    // A batch has one transaction.
    let creates: Vec<i64> = commits.iter().filter(is_create).map(|commit| commit.zxid.0).collect();
    judge_puts(events, &deletions, &creates)
}

fn judge_puts(events: &[Event], deletions: &BTreeSet<i64>, creates: &[i64]) -> Vec<String> {
    let broken = |event: &Event| match event.what {
        What::SaidFull { limit, items, from, to }
            if items + creates.iter().filter(|zxid| (from + 1..=to).contains(zxid)).count()
                < limit =>
        {
            Some(format!("the queue was not full: {event}"))
        }
        What::PutWithin { limit, items, from, to }
            if items >= limit && deletions.range(from + 1..=to).next().is_none() =>
        {
            Some(format!("the queue was full: {event}"))
        }
        _ => None,
    };
    events.iter().filter_map(broken).collect()
}

/// Returns which items were delivered that nobody can acknowledge, and which queues were called empty
/// that had such items. A follower that lags behind may not know of them.
pub fn judge_blocked(events: &[Event], commits: &[CommitRecord], plan: &Plan) -> Vec<String> {
    if !plan.reads_are_current() {
        return Vec::new();
    }
    // A lease that nobody may delete stays, and so does its item.
    let authors = if plan.may_forbid() { Authors::new() } else { authors(commits) };
    judge_notes(events, &lives(commits), &authors)
}

/// Tells the calls during which a client may have leases that others of its calls have created.
#[derive(Debug, Default)]
struct Takes {
    /// The calls that take something and have not ended.
    running: BTreeMap<Id, (Who, Duration)>,
    /// When a call of a client has ended last that may have left a lease.
    left: BTreeMap<usize, Duration>,
    /// The call of each task that has ended last.
    last: BTreeMap<Who, Duration>,
}

impl Takes {
    fn see(&mut self, event: &Event) {
        let Some(who) = event.who else { return };
        match &event.what {
            What::Begun { call, name, .. } if TAKES.contains(name) => {
                self.running.insert(*call, (who, event.at));
            }
            What::Ended { call, end } => {
                let Some((_, begun)) = self.running.remove(call) else { return };
                if *end != End::Done {
                    self.left.insert(who.client, event.at);
                }
                self.last.insert(who, begun);
            }
            _ => {}
        }
    }

    /// Returns whether the client of a task may have had a lease of another call during the call of the
    /// task that has just ended.
    fn has_others(&self, who: Who) -> bool {
        let begun = self.last.get(&who).copied().unwrap_or_default();
        let is_beside = self.running.values().any(|(other, _)| other.client == who.client);
        let is_left = self.left.get(&who.client).is_some_and(|at| begun < *at + LEFT_MAX);
        is_beside || is_left
    }
}

/// Judges blocked items. Without authors, each lease keeps its item from being tried.
fn judge_notes(
    events: &[Event],
    lives: &BTreeMap<&str, Vec<Life>>,
    authors: &Authors<'_>,
) -> Vec<String> {
    let entries = format!("{QUEUE}/entries/");
    let is_note = |path: &str| path.starts_with(&entries) && path.ends_with(&format!("/{NOTE}"));
    let notes = lives.iter().filter(|(path, _)| is_note(path));
    let notes: Vec<(&str, Life)> =
        notes.flat_map(|(path, lives)| lives.iter().map(|life| (*path, *life))).collect();
    let is_there = |(created, deleted): &Life, from: i64, to: i64| {
        *created <= from && deleted.is_none_or(|deleted| deleted > to)
    };
    // An item that is leased is not tried, and one that was given back is left alone for a while. But a
    // call waits for the end of a lease of its own, with which it has found that an item is blocked.
    let was_leased = |note: &str, (from, to): (i64, i64), own: Option<SessionId>| {
        let leased = item_of(note).replace("/entries/", "/taken/");
        let leases = lives.get(leased.as_str()).into_iter().flatten();
        let mut leases = leases.filter(|(created, _)| *created <= to);
        let is_own = |created: i64| {
            let author = authors.get(&(leased.as_str(), created));
            author.is_some_and(|author| Some(*author) == own)
        };
        leases.any(|(created, _)| *created <= from || !is_own(*created))
    };
    let mut takes = Takes::default();
    let broken = |takes: &Takes, event: &Event| match &event.what {
        What::SaidEmpty { from, to, session } => {
            let own = session.filter(|_| event.who.is_some_and(|who| !takes.has_others(who)));
            let mut blocked = notes.iter().filter(|(_, life)| is_there(life, *from, *to));
            let (path, _) = blocked.find(|(path, _)| !was_leased(path, (*from, *to), own))?;
            Some(format!("the queue was called empty, and there is {path}: {event}"))
        }
        What::Taken { path, token, .. } => {
            let is_own = |note: &str| item_of(note) == path;
            notes.iter().find(|(note, life)| is_own(note) && is_there(life, *token, *token))?;
            Some(format!("nobody can acknowledge this item: {event}"))
        }
        _ => None,
    };
    let mut violations = Vec::new();
    for event in events {
        takes.see(event);
        violations.extend(broken(&takes, event));
    }
    violations
}

/// Returns which acknowledgements have met the pin of another one: whoever gives a lease up deletes its
/// own pin before, and the next taker is the only one who has one then. Judged if nobody else deletes
/// leases or creates something below items, and if no lease has a limit, after which others may take
/// the item at once.
pub fn judge_pins(case: &Case<'_>) -> Vec<String> {
    let Case { plan, program, requests, deleted, .. } = case;
    let is_strange = [FaultKind::Stranger, FaultKind::Intruder, FaultKind::Suspension];
    let is_strange = plan.faults.iter().any(|kind| is_strange.contains(kind));
    let has_limit = program.clients.iter().flatten().flatten().any(|job| *job == Job::Options);
    let is_touched = deleted.iter().any(|path| path.starts_with(QUEUE));
    if is_strange || has_limit || is_touched || plan.may_forbid() || !plan.resumes() {
        return Vec::new();
    }
    if plan.reads_are_current() { judge_multis(requests) } else { Vec::new() }
}

fn judge_multis(requests: &[RequestRecord]) -> Vec<String> {
    let entries = format!("{QUEUE}/entries/");
    let is_pin = |path: &str| {
        let name = path.strip_prefix(&entries).and_then(|path| path.split_once('/'));
        name.is_some_and(|(_, name)| {
            name.len() == PIN && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let is_met = |request: &&RequestRecord| {
        use Outcome::{Applied, AppliedUnanswered};
        let code = ErrorCode::NOT_EMPTY;
        request.op == OpCode::MULTI
            && [Applied(code), AppliedUnanswered(code)].contains(&request.outcome)
            && request.path.as_deref().is_some_and(is_pin)
    };
    let met = requests.iter().filter(is_met);
    met.map(|it| format!("{} has met another pin beside {:?} at {:?}", it.session, it.path, it.at))
        .collect()
}

/// Returns the path of the item below which a note is, directly or in the place of a pin.
fn item_of(note: &str) -> &str {
    let item = note.strip_suffix(NOTE).map_or(note, |item| item.trim_end_matches('/'));
    match item.rsplit_once('/') {
        Some((above, _)) if above.contains("/entry-") => above,
        _ => item,
    }
}

/// Returns how the promise was broken.
pub fn judge(events: &[Event], deleted: &BTreeSet<String>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut items: BTreeMap<&str, Item> = BTreeMap::new();
    let mut directory = None;
    let mut is_drained = false;
    for event in events {
        match &event.what {
            What::Put { item, told, .. } => items.entry(item).or_default().put = Some(*told),
            What::Taken { queue, item, is_held, .. } => {
                directory = Some(queue);
                let known = items.entry(item).or_default();
                // A taker whose lease is lost may have read the item before it was acknowledged.
                if known.is_acked && *is_held {
                    violations.push(format!("{item} was taken after it was acknowledged"));
                }
            }
            What::Acked { item, told, .. } => {
                let known = items.entry(item).or_default();
                known.is_acked |= *told == Told::Applied;
                known.may_be_acked |= *told != Told::NotApplied;
            }
            What::Remaining { queue, item } => {
                directory = Some(queue);
                items.entry(item).or_default().is_remaining += 1;
            }
            What::Drained { queue } => {
                directory = Some(queue);
                is_drained = true;
            }
            _ => {}
        }
    }
    // An administrator may have deleted items, leases, or the markers that tell producers that their
    // puts succeeded.
    let is_safe = directory.is_some_and(|directory| !is_tampered(deleted, directory));
    if !is_safe {
        return Vec::new();
    }
    for (name, item) in items {
        let was_seen = item.is_remaining > 0 || item.is_acked;
        if item.put == Some(Told::NotApplied) && was_seen {
            violations.push(format!("{name} was put by a call that said it was not"));
        }
        if item.put.is_none() && was_seen {
            violations.push(format!("{name} was put by nobody"));
        }
        if item.is_acked && item.is_remaining > 0 {
            violations.push(format!("{name} is in the queue after it was acknowledged"));
        }
        if item.is_remaining > 1 {
            violations.push(format!("{name} is in the queue {} times", item.is_remaining));
        }
        let is_gone = item.is_remaining == 0 && !item.may_be_acked;
        if is_drained && item.put == Some(Told::Applied) && is_gone {
            violations.push(format!("{name} was put, nobody has acknowledged it, and it is gone"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judges::tests::{connect, history, on_server};

    fn put(told: Told) -> What {
        What::Put { queue: "/queue".to_owned(), item: "a".to_owned(), told }
    }

    fn taken() -> What {
        taken_by_lease(true)
    }

    fn taken_by_lease(is_held: bool) -> What {
        let (queue, item) = ("/queue".to_owned(), "a".to_owned());
        What::Taken { queue, item, path: String::new(), lease: 1, token: 1, is_held }
    }

    fn acked(told: Told) -> What {
        What::Acked { queue: "/queue".to_owned(), item: "a".to_owned(), lease: 1, told }
    }

    fn remaining() -> What {
        What::Remaining { queue: "/queue".to_owned(), item: "a".to_owned() }
    }

    fn drained() -> What {
        What::Drained { queue: "/queue".to_owned() }
    }

    fn count(whats: Vec<What>) -> usize {
        judge(&history(whats), &BTreeSet::new()).len()
    }

    #[test]
    fn an_item_that_nobody_can_acknowledge_is_seen() {
        let lives = BTreeMap::from([("/queue/entries/entry-1/note", vec![(5, Some(9))])]);
        let count = |what| judge_notes(&history(vec![what]), &lives, &Authors::new()).len();
        let empty = |from, to| count(What::SaidEmpty { from, to, session: None });
        assert_eq!((empty(5, 8), empty(4, 8), empty(5, 9)), (1, 0, 0));
        let mut leased = lives.clone();
        leased.insert("/queue/taken/entry-1", vec![(7, Some(8))]);
        let said = |to, session| What::SaidEmpty { from: 5, to, session };
        let empty =
            |to| judge_notes(&history(vec![said(to, None)]), &leased, &Authors::new()).len();
        assert_eq!((empty(6), empty(7), empty(8)), (1, 0, 0));
        let own = Some(SessionId(1));
        let by = |author, begun: Vec<What>, said| {
            let authors = [(("/queue/taken/entry-1", 7), SessionId(author))].into();
            let whats = begun.into_iter().chain([said]).collect();
            judge_notes(&history(whats), &leased, &authors).len()
        };
        let begun = |call| {
            let (name, on, timeout) = ("try_take", QUEUE.to_owned(), None);
            What::Begun { call, name, on, timeout }
        };
        let ended = |call, end| What::Ended { call, end };
        let alone = || vec![begun(1), ended(1, End::Done)];
        assert_eq!(by(1, alone(), said(8, own)), 1, "it has not waited for its own lease");
        assert_eq!(by(2, alone(), said(8, own)), 0, "another taker has the item");
        let beside = || vec![begun(2), begun(1), ended(1, End::Done)];
        assert_eq!(by(1, beside(), said(8, own)), 0, "another call may have it");
        let after = vec![begun(2), ended(2, End::Dropped), begun(1), ended(1, End::Done)];
        assert_eq!(by(1, after, said(8, own)), 0, "a call before may have left it");
        let taken = |token| {
            let (queue, item, is_held) = (QUEUE.to_owned(), "item-1".to_owned(), true);
            let path = "/queue/entries/entry-1".to_owned();
            count(What::Taken { queue, item, path, lease: 1, token, is_held })
        };
        assert_eq!((taken(4), taken(6), taken(9)), (0, 1, 0));
        assert_eq!(item_of("/queue/entries/entry-1/0a0b/note"), "/queue/entries/entry-1");
    }

    #[test]
    fn the_usual_life_of_an_item_breaks_nothing() {
        let (applied, unknown) = (Told::Applied, Told::Unknown);
        assert_eq!(count(vec![put(applied), taken(), acked(applied), drained()]), 0);
        assert_eq!(count(vec![put(applied), taken(), acked(unknown), drained()]), 0);
        assert_eq!(count(vec![put(applied), taken(), remaining(), drained()]), 0);
        assert_eq!(count(vec![put(unknown), drained()]), 0);
        assert_eq!(count(vec![put(Told::NotApplied), drained()]), 0);
    }

    #[test]
    fn a_lost_item_is_seen() {
        assert_eq!(count(vec![put(Told::Applied), drained()]), 1);
        assert_eq!(count(vec![put(Told::Applied), taken(), acked(Told::NotApplied), drained()]), 1);
    }

    #[test]
    fn a_second_delivery_after_an_acknowledgement_is_seen() {
        assert_eq!(count(vec![put(Told::Applied), taken(), acked(Told::Applied), taken()]), 1);
        assert_eq!(count(vec![put(Told::Applied), taken(), acked(Told::Applied), remaining()]), 1);
        let late = taken_by_lease(false);
        assert_eq!(count(vec![put(Told::Applied), taken(), acked(Told::Applied), late]), 0);
    }

    #[test]
    fn a_forged_item_is_seen() {
        assert_eq!(count(vec![remaining()]), 1);
    }

    #[test]
    fn an_item_that_was_put_twice_is_seen() {
        assert_eq!(count(vec![put(Told::Applied), remaining(), remaining(), drained()]), 1);
    }

    #[test]
    fn a_put_that_was_applied_in_spite_of_its_outcome_is_seen() {
        assert_eq!(count(vec![put(Told::NotApplied), remaining()]), 1);
    }

    #[test]
    fn an_item_that_an_administrator_has_deleted_is_not_lost() {
        let deleted = BTreeSet::from(["/queue/entries/entry-1".to_owned()]);
        let events = history(vec![put(Told::Applied), drained()]);
        assert_eq!(judge(&events, &deleted).len(), 0);
    }

    #[test]
    fn a_put_into_a_full_queue_is_seen() {
        let count = |items: usize, deletions: &[i64]| {
            let put = What::PutWithin { limit: 3, items, from: 5, to: 9 };
            judge_puts(&history(vec![put]), &deletions.iter().copied().collect(), &[]).len()
        };
        assert_eq!(count(3, &[]), 1);
        assert_eq!(count(2, &[]), 0);
        assert_eq!(count(3, &[7]), 0, "an item has left meanwhile");
        assert_eq!(count(3, &[4, 10]), 1);
    }

    #[test]
    fn a_queue_that_is_called_full_and_is_not_is_seen() {
        let count = |items: usize, creates: &[i64]| {
            let full = What::SaidFull { limit: 3, items, from: 5, to: 9 };
            judge_puts(&history(vec![full]), &BTreeSet::new(), creates).len()
        };
        assert_eq!(count(3, &[]), 0);
        assert_eq!(count(2, &[]), 1);
        assert_eq!(count(1, &[6, 6]), 0, "others have put two meanwhile");
        assert_eq!(count(2, &[4, 10]), 1);
    }

    #[test]
    fn an_acknowledgement_that_meets_the_pin_of_another_one_is_seen() {
        let requests = on_server(async |server| {
            let client = connect(&server).await;
            client.get_children("/").await.unwrap();
            server.requests()
        });
        let count = |op, path: &str, outcome| {
            let mut request = requests.last().unwrap().clone();
            (request.op, request.path, request.outcome) = (op, Some(path.to_owned()), outcome);
            judge_multis(&[request]).len()
        };
        let pin = format!("{QUEUE}/entries/entry-100-0000000001/{:032x}", 7);
        let met = Outcome::Applied(ErrorCode::NOT_EMPTY);
        assert_eq!(count(OpCode::MULTI, &pin, met), 1);
        assert_eq!(count(OpCode::MULTI, &pin, Outcome::Applied(ErrorCode::OK)), 0);
        assert_eq!(count(OpCode::DELETE, &pin, met), 0);
        assert_eq!(count(OpCode::MULTI, &format!("{QUEUE}/entries/entry-1"), met), 0);
    }
}
