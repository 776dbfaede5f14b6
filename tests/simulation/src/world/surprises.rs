//! Faults at requests of a kind that the world has not had yet.
//!
//! What a client does after something has gone wrong is rare, so faults that are drawn by time seldom
//! strike it. A request counts as new by its operation, by the shape of its path, and by what its
//! session has asked for before. What follows a fault is new, so one often follows another.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jute_codec::{OpCode, SessionId};
use tokio::sync::Notify;
use zk_testserver::{Action, TestServer};

use super::World;
use super::plan::{FaultKind, Plan};
use super::rows::{self, Part};
use crate::draw::Draw;

/// For how long requests of a new kind are waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many of the new requests are struck, in percent.
const STRUCK_PERCENT: u64 = 50;

/// What is known about the requests so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Surprises {
    inner: Arc<Mutex<Inner>>,
    /// Something has gone wrong.
    struck: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The kinds of requests that the world has had.
    seen: BTreeSet<Kind>,
    /// What each session has asked for last, and whether something went wrong there.
    last: BTreeMap<SessionId, (OpCode, bool)>,
    open: Option<Open>,
}

/// What tells requests apart.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Kind {
    op: i32,
    shape: String,
    before: Option<(i32, bool)>,
}

/// A time in which something goes wrong at new requests.
#[derive(Debug)]
struct Open {
    draw: Draw,
    tick: Duration,
    kinds: Vec<FaultKind>,
    /// How many more requests are struck.
    left: usize,
    /// Whether all of them belong to the session of the first one.
    is_of_one: bool,
    of: Option<SessionId>,
    /// What the world has to do, because a server cannot.
    due: Vec<(SessionId, Option<Part>)>,
    struck: Vec<String>,
}

impl Surprises {
    /// Watches the requests of a world that has such faults.
    pub(super) fn new(plan: &Plan, server: &TestServer) -> Self {
        let surprises = Self::default();
        if plan.faults.contains(&FaultKind::Surprise) {
            let decide = surprises.clone();
            server.inject_by(move |session, op, paths| {
                let open = decide.lock().decide(session, op, paths);
                open.and_then(|action| {
                    decide.struck.notify_one();
                    action
                })
            });
        }
        surprises
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets something go wrong at the next requests of new kinds. Returns what has happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let mut kinds = world.plan.faults.clone();
    kinds.retain(|kind| kind.is_of_one_part());
    if kinds.is_empty() {
        return "nothing can go wrong".to_owned();
    }
    world.surprises.lock().open = Some(Open {
        left: draw.size(1, 4),
        is_of_one: draw.chance(60),
        draw: draw.fork(),
        tick: world.plan.tick,
        kinds,
        of: None,
        due: Vec::new(),
        struck: Vec::new(),
    });
    let until = world.history.now() + PATIENCE.min(left);
    loop {
        let (due, is_over) = {
            let mut inner = world.surprises.lock();
            let Some(open) = &mut inner.open else { unreachable!("it is closed below") };
            (mem::take(&mut open.due), open.left == 0)
        };
        for (session, part) in due {
            world.trouble.arm();
            let client = world.sessions().get(&session).copied();
            if let (Some(part), Some(client)) = (part, client) {
                rows::happen(world, draw, &part, client, session, until).await;
            }
        }
        if is_over || world.history.now() >= until {
            break;
        }
        let left = until.saturating_sub(world.history.now());
        tokio::select! {
            biased;
            () = world.surprises.struck.notified() => {}
            () = world.sleep(left) => {}
        }
    }
    let open = world.surprises.lock().open.take();
    open.map_or_else(String::new, |open| open.struck.join(", "))
}

impl Inner {
    /// Returns what goes wrong at a request, if anything does, and what of it the server does.
    fn decide(&mut self, session: SessionId, op: OpCode, paths: &[&str]) -> Option<Option<Action>> {
        let before = self.last.insert(session, (op, false));
        let shape = paths.first().map(|path| shape(path)).unwrap_or_default();
        let kind = Kind { op: op.0, shape, before: before.map(|(op, struck)| (op.0, struck)) };
        let text = format!("{op:?} {} after {before:?} of {session}", kind.shape);
        if !self.seen.insert(kind) {
            return None;
        }
        let open = self.open.as_mut()?;
        let is_it = open.of.is_none_or(|of| of == session);
        if open.left == 0 || !is_it || !open.draw.chance(STRUCK_PERCENT) {
            return None;
        }
        let part = open.draw_part(session)?;
        open.left -= 1;
        open.of = open.is_of_one.then_some(session);
        open.struck.push(format!("{part:?} at {text}"));
        self.last.insert(session, (op, true));
        let (part, action) = match part {
            Part::Faults(mut faults) => (None, faults.pop().map(|fault| fault.action)),
            part => (Some(part), None),
        };
        open.due.push((session, part));
        Some(action)
    }
}

impl Open {
    fn draw_part(&mut self, session: SessionId) -> Option<Part> {
        if !self.struck.is_empty() && self.draw.chance(25) {
            return Some(Part::GiveUp);
        }
        let kind = self.draw.pick(&self.kinds);
        rows::draw_part(self.tick, &mut self.draw, kind, session, true)
    }
}

/// Returns a path without its numbers, so that the contenders of a lock look the same.
fn shape(path: &str) -> String {
    let mut shape = String::new();
    for part in path.split_inclusive(|c: char| !c.is_ascii_hexdigit()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        let is_number = word.len() >= 4 || word.chars().all(|c| c.is_ascii_digit());
        let rest = part.get(word.len()..).unwrap_or_default();
        shape.push_str(if is_number && !word.is_empty() { "#" } else { word });
        shape.push_str(rest);
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::world::plan::SURPRISES_FROM;

    #[test]
    fn contenders_of_a_lock_have_one_shape() {
        let [first, second] = ["59ca17b2", "0b3c77aa"]
            .map(|id| shape(&format!("/locks/a/{id}-86ad-4f6c-__WRIT__0000000012")));
        assert_eq!(first, second);
        assert_ne!(first, shape("/locks/a"));
        assert_ne!(shape("/locks/a"), shape("/locks/b"));
    }

    #[test]
    fn newer_seeds_have_surprises_that_follow_each_other() {
        let mut older = SURPRISES_FROM - 100..SURPRISES_FROM;
        let has_some = |seed| sample::may_have(seed, FaultKind::Surprise);
        assert!(!older.any(has_some), "the older ones have none");
        let surprises = sample::strikes(FaultKind::Surprise);
        for part in ["Faults([", "GiveUp", ", true)) of"] {
            assert!(surprises.iter().any(|it| it.contains(part)), "none has a {part}");
        }
    }
}
