//! Removing every contender znode of an attempt.
//!
//! 1. If the create is still pending, wait for its reply.
//! 2. If a create ever had an unknown outcome, pass a write barrier and list the directory: every
//!    contender with the attempt's prefix is a candidate. Otherwise the znode is known, or there is
//!    none.
//! 3. Read the candidates. The znodes that another session owns are not ours.
//! 4. Delete our znodes. Their names are unique, so a lost delete is issued again, and `NO_NODE`
//!    means that the znode is gone.
//! 5. After a sweep (2), sweep again until a sweep finds nothing.
//! 6. If contenders remove the directory, the flight of step 4 ends with a delete of the directory,
//!    and a removal without step 4 ends with that delete. `NOT_EMPTY` means that there are other
//!    contenders. A lost delete is issued again: whenever it is executed, it deletes an empty
//!    directory or nothing.
//!
//! When the session ends, the removal ends too, because the ensemble deletes the znodes. Until
//! then, the removal retries after growing pauses if a server fails or is overloaded. If a server
//! definitely refuses a request, the removal ends with that refusal, and the engine retries later.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, SessionId};

use super::standing::with_prefix;
use crate::lock::outcome::{Refusal, Released, Znode};
use crate::lock::recipe::Removal;
use crate::machine::{
    Input, Machine, Pauses, SessionView, Step, Verdict, barrier, child, delete, flight, list,
    name_of, read, replayable, take, verdict,
};
use crate::queue::profile::QueueProfile;

/// The removal of everything that an attempt may have left in a queue.
#[derive(Clone, Debug)]
pub struct QueueRemoval {
    profile: Arc<QueueProfile>,
    prefix: ByteString,
    session: Option<SessionId>,
    /// Names to delete.
    known: Vec<ByteString>,
    /// The directory has to be deleted, unless other contenders are in it.
    is_directory_left: bool,
    /// A create may still take effect, or may have taken effect without our knowledge.
    is_tainted: bool,
    /// The next start sweeps, even if the outcome of every create is known.
    must_sweep: bool,
    has_deleted: bool,
    has_lost_delete: bool,
    /// Names that a server refuses to delete. The first of these refusals is in `refusal`.
    given_up: Vec<ByteString>,
    refusal: Option<Refusal>,
    pauses: Pauses,
    replays: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Not started, or finished.
    Idle,
    /// Step 1: the flight with the create is pending.
    Draining,
    /// Step 2 is in flight.
    Sweeping,
    /// Step 3 is in flight, for these names.
    Reading(Vec<ByteString>),
    /// Step 4 is in flight, for the known names.
    Deleting,
    /// A server is overloaded; continue after a pause.
    Pausing,
}

type RemovalStep = Step<Result<Released, Refusal>>;

impl QueueRemoval {
    pub(crate) fn new(
        profile: Arc<QueueProfile>,
        prefix: ByteString,
        session: Option<SessionId>,
        known: Option<ByteString>,
        is_tainted: bool,
    ) -> Self {
        Self {
            // A session that has not replied has created nothing so far.
            is_directory_left: profile.removes_directory && session.is_some(),
            profile,
            prefix,
            session,
            known: known.into_iter().collect(),
            is_tainted,
            must_sweep: false,
            has_deleted: false,
            has_lost_delete: false,
            given_up: Vec::new(),
            refusal: None,
            pauses: Pauses::default(),
            replays: 0,
            state: State::Idle,
        }
    }

    /// Returns what the machines of the queue know about the queue.
    pub(crate) fn profile(&self) -> &Arc<QueueProfile> {
        &self.profile
    }

    /// Records that the holder's znode has one of these names from now on.
    pub(crate) fn rename(&mut self, names: Vec<ByteString>) {
        self.known = names;
    }

    /// Deletes the known znodes, starts a sweep, or finishes.
    fn proceed(&mut self) -> RemovalStep {
        if !self.known.is_empty() {
            self.state = State::Deleting;
            let directory = &self.profile.directory;
            let paths = self.known.iter().map(|name| child(directory, name));
            let mut deletes: Vec<_> = paths.map(delete).collect();
            if self.profile.removes_directory {
                // The server executes this behind the others, in the same round trip.
                deletes.push(delete(directory.clone()));
            }
            return Step::Submit(flight(self.session, deletes));
        }
        if self.is_tainted || self.must_sweep {
            return self.sweep();
        }
        self.done()
    }

    fn done(&mut self) -> RemovalStep {
        if self.is_directory_left {
            self.state = State::Deleting;
            let directory = self.profile.directory.clone();
            return Step::Submit(flight(self.session, vec![delete(directory)]));
        }
        self.state = State::Idle;
        if let Some(refusal) = self.refusal.take() {
            return Step::Done(Err(refusal));
        }
        Step::Done(Ok(if self.has_deleted || self.has_lost_delete {
            Released::Released
        } else {
            Released::AlreadyGone
        }))
    }

    fn sweep(&mut self) -> RemovalStep {
        self.must_sweep = false;
        self.state = State::Sweeping;
        let directory = &self.profile.directory;
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        Step::Submit(flight(self.session, operations))
    }

    fn pause(&mut self, view: SessionView) -> RemovalStep {
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view))
    }

    fn created(&mut self, mut reply: Reply) -> RemovalStep {
        self.session = self.session.or(reply.session);
        if self.profile.removes_directory && !reply.results.is_empty() {
            // The delete below shows whether there is a directory.
            drop(reply.results.remove(0));
        }
        // The reads behind the create do not matter here.
        reply.results.truncate(1);
        let [created] = take(reply);
        let created = verdict(created);
        // An earlier flight of the attempt may have created the directory too.
        self.is_directory_left |=
            self.profile.removes_directory && !matches!(created, Verdict::NotApplied);
        match created {
            Verdict::Done(Response::Create2(created)) => self.known.extend(name_of(&created.path)),
            Verdict::SessionOver => return ended_with_session(),
            Verdict::Unknown => self.is_tainted = true,
            Verdict::Done(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Refused(_) => {}
        }
        self.proceed()
    }

    fn swept(&mut self, view: SessionView, reply: Reply) -> RemovalStep {
        self.session = self.session.or(reply.session);
        let [barrier, listed] = take(reply).map(replayable);
        match (barrier, listed) {
            (Verdict::SessionOver, _) | (_, Verdict::SessionOver) => ended_with_session(),
            (Verdict::Later(_), _) | (_, Verdict::Later(_)) => self.pause(view),
            // Any definite result shows that the barrier was passed.
            (
                Verdict::Done(_) | Verdict::Refused(_),
                Verdict::Done(Response::GetChildren(names)),
            ) => {
                let mut found = with_prefix(&self.profile, &names, &self.prefix);
                found.retain(|(_, name)| !self.given_up.contains(name));
                if found.is_empty() {
                    return self.done();
                }
                self.read(found.into_iter().map(|(_, name)| name).collect())
            }
            (Verdict::Done(_) | Verdict::Refused(_), Verdict::Refused(error)) => {
                if error.is_no_node() {
                    self.is_directory_left = false;
                    return self.done();
                }
                self.state = State::Idle;
                Step::Done(Err(Refusal { path: self.profile.directory.clone(), error }))
            }
            _ => {
                self.replays += 1;
                self.sweep()
            }
        }
    }

    fn read(&mut self, names: Vec<ByteString>) -> RemovalStep {
        let directory = &self.profile.directory;
        let reads = names.iter().map(|name| read(child(directory, name), None)).collect();
        self.state = State::Reading(names);
        Step::Submit(flight(self.session, reads))
    }

    fn owners_read(
        &mut self,
        view: SessionView,
        names: Vec<ByteString>,
        reply: Reply,
    ) -> RemovalStep {
        let mut is_complete = true;
        for (name, result) in names.into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own == data.stat.ephemeral_owner) {
                        self.known.push(name);
                    }
                }
                Verdict::SessionOver => return ended_with_session(),
                Verdict::Later(_) => return self.pause(view),
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                // The name contains our id, so try to delete the znode. If the znode belongs to
                // another client, the server also refuses the delete.
                Verdict::Refused(_) => self.known.push(name),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => is_complete = false,
            }
        }
        if self.known.is_empty() && is_complete {
            // The remaining znodes belong to other sessions.
            return self.done();
        }
        self.proceed()
    }

    fn deleted(&mut self, view: SessionView, reply: Reply) -> RemovalStep {
        let mut left = Vec::new();
        let mut is_later = false;
        let known = std::mem::take(&mut self.known);
        let has_known = !known.is_empty();
        let mut results = reply.results.into_iter();
        for (name, result) in known.into_iter().zip(&mut results) {
            match replayable(result) {
                Verdict::Done(_) => self.has_deleted = true,
                Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }) => {}
                Verdict::Refused(error) => {
                    let path = child(&self.profile.directory, &name);
                    self.refusal.get_or_insert(Refusal { path, error });
                    self.given_up.push(name);
                }
                Verdict::SessionOver => return ended_with_session(),
                Verdict::Later(_) => {
                    is_later = true;
                    left.push(name);
                }
                Verdict::NotApplied => {
                    self.replays += 1;
                    left.push(name);
                }
                Verdict::Unknown => {
                    self.replays += 1;
                    self.has_lost_delete = true;
                    left.push(name);
                }
            }
        }
        self.known = left;
        // Only a lost connection is worth another request. A directory that another contender is in
        // will be removed by that contender, and a server removes empty containers itself.
        self.is_directory_left = match results.next().map(replayable) {
            Some(Verdict::SessionOver) => return ended_with_session(),
            Some(Verdict::NotApplied | Verdict::Unknown) => true,
            Some(Verdict::Done(_) | Verdict::Refused(_) | Verdict::Later(_)) | None => false,
        };
        if is_later {
            self.pause(view)
        } else if has_known {
            self.proceed()
        } else {
            self.done()
        }
    }
}

impl Machine for QueueRemoval {
    type Output = Result<Released, Refusal>;

    fn start(&mut self, _: SessionView) -> RemovalStep {
        if matches!(self.state, State::Draining) {
            return Step::Wait(None);
        }
        self.proceed()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> RemovalStep {
        let is_pause_over = self.pauses.end_with(&input);
        match (self.state.clone(), input) {
            // While draining, the end of any session proves nothing: only the reply to the create
            // shows in which session it was sent.
            (State::Draining, Input::Reply(reply)) => self.created(reply),
            (State::Draining, _) => Step::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => ended_with_session(),
            (State::Sweeping, Input::Reply(reply)) => self.swept(view, reply),
            (State::Reading(names), Input::Reply(reply)) => self.owners_read(view, names, reply),
            (State::Deleting, Input::Reply(reply)) => self.deleted(view, reply),
            (State::Pausing, Input::Timer | Input::Suspended) if is_pause_over => self.proceed(),
            (_, Input::Reply(_) | Input::Timer | Input::Watch { .. })
            | (_, Input::Suspended | Input::Ended(_)) => Step::Wait(self.pauses.until()),
        }
    }
}

impl Removal for QueueRemoval {
    fn expect_create(&mut self) {
        self.state = State::Draining;
    }

    /// Does nothing, because a znode with a unique name can be deleted in any case.
    fn doubt(&mut self) {}

    fn retry(&mut self) {
        self.known.append(&mut self.given_up);
        // If there is no name, the server refused the list of a sweep.
        self.must_sweep |= self.known.is_empty();
    }

    fn sweep_again(&mut self) {
        self.must_sweep = true;
    }

    fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    fn replays(&self) -> u64 {
        self.replays
    }

    fn place(&self) -> &ByteString {
        &self.profile.directory
    }

    fn path_of(&self, znode: &Znode) -> ByteString {
        child(&self.profile.directory, &znode.name)
    }
}

fn ended_with_session() -> RemovalStep {
    Step::Done(Ok(Released::EndedWithSession))
}
