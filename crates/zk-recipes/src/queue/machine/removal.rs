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
use jute_codec::Response;
use zk_session::{Outcome, SessionId};

use super::standing::with_prefix;
use crate::lock::outcome::{Released, Znode};
use crate::lock::recipe::LockRemoval;
use crate::machine::{
    Answer, Answers, Input, Machine, Needs, Refusal, Removal, SessionView, Step, barrier, child,
    delete, flight, list, name_of, read,
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

    /// Records that the reply to the create of the attempt will be the first input.
    pub(crate) fn expect_create(&mut self) {
        self.state = State::Draining;
    }

    /// Deletes the known znodes, starts a sweep, or finishes.
    fn proceed(&mut self) -> RemovalStep {
        if !self.known.is_empty() {
            self.state = State::Deleting;
            let directory = self.profile.directory();
            let paths = self.known.iter().map(|name| child(directory, name));
            let mut deletes: Vec<_> = paths.map(delete).collect();
            if self.profile.removes_directory {
                // The server executes this behind the others, in the same round trip.
                deletes.push(delete(directory.clone()));
            }
            return Step::Submit(flight(self.session, deletes), Needs::Each);
        }
        if self.is_tainted || self.must_sweep {
            return self.sweep();
        }
        self.done()
    }

    fn done(&mut self) -> RemovalStep {
        if self.is_directory_left {
            self.state = State::Deleting;
            let directory = self.profile.directory().clone();
            return Step::Submit(flight(self.session, vec![delete(directory)]), Needs::Each);
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
        let directory = self.profile.directory();
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        Step::Submit(flight(self.session, operations), Needs::All)
    }

    fn created(&mut self, answers: Answers) -> RemovalStep {
        self.session = self.session.or(answers.session);
        // If the flight creates the directory first, the delete below shows whether there is one.
        let created = answers.results.into_iter().nth(usize::from(self.profile.removes_directory));
        let created = created.unwrap_or_else(|| Answer::unknown(None));
        let is_unsent = matches!(&created, Answer::Unknown { error, .. }
            if error.outcome() == Outcome::NotApplied);
        // An earlier flight of the attempt may have created the directory too.
        self.is_directory_left |= self.profile.removes_directory && !is_unsent;
        match created {
            Answer::Done(Response::Create2(created)) => self.known.extend(name_of(&created.path)),
            Answer::SessionEnded => return ended_with_session(),
            Answer::Unknown { .. } => self.is_tainted |= !is_unsent,
            Answer::Done(_) | Answer::Refused(_) => {}
        }
        self.proceed()
    }

    fn swept(&mut self, answers: Answers) -> RemovalStep {
        self.session = self.session.or(answers.session);
        self.replays += answers.replays;
        let [barrier, listed] = answers.take();
        match (barrier, listed) {
            (Answer::SessionEnded, _) | (_, Answer::SessionEnded) => ended_with_session(),
            // Any definite result shows that the barrier was passed.
            (_, Answer::Done(Response::GetChildren(names))) => {
                let mut found = with_prefix(&self.profile, &names, &self.prefix);
                found.retain(|(_, name)| !self.given_up.contains(name));
                if found.is_empty() {
                    return self.done();
                }
                self.read(found.into_iter().map(|(_, name)| name).collect())
            }
            (_, listed) if listed.is_no_node() => {
                self.is_directory_left = false;
                self.done()
            }
            (_, Answer::Refused(error)) => {
                self.state = State::Idle;
                Step::Done(Err(Refusal { path: self.profile.directory().clone(), error }))
            }
            (_, Answer::Done(_) | Answer::Unknown { .. }) => self.sweep(),
        }
    }

    fn read(&mut self, names: Vec<ByteString>) -> RemovalStep {
        let directory = self.profile.directory();
        let reads = names.iter().map(|name| read(child(directory, name), None)).collect();
        self.state = State::Reading(names);
        Step::Submit(flight(self.session, reads), Needs::Each)
    }

    fn owners_read(&mut self, names: Vec<ByteString>, answers: Answers) -> RemovalStep {
        self.replays += answers.replays;
        for (name, answer) in names.into_iter().zip(answers.results) {
            match answer {
                Answer::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own == data.stat.ephemeral_owner) {
                        self.known.push(name);
                    }
                }
                Answer::SessionEnded => return ended_with_session(),
                answer if answer.is_no_node() => {}
                // The name contains our id, so try to delete the znode. If the znode belongs to
                // another client, the server also refuses the delete.
                Answer::Done(_) | Answer::Refused(_) | Answer::Unknown { .. } => {
                    self.known.push(name);
                }
            }
        }
        if self.known.is_empty() {
            // The remaining znodes belong to other sessions.
            return self.done();
        }
        self.proceed()
    }

    fn deleted(&mut self, answers: Answers) -> RemovalStep {
        self.replays += answers.replays;
        self.has_lost_delete |= answers.is_repeated;
        let known = std::mem::take(&mut self.known);
        let has_known = !known.is_empty();
        let mut results = answers.results.into_iter();
        for (name, answer) in known.into_iter().zip(&mut results) {
            match answer {
                Answer::Done(_) => self.has_deleted = true,
                Answer::SessionEnded => return ended_with_session(),
                answer if answer.is_no_node() => {}
                Answer::Refused(error) | Answer::Unknown { error, .. } => {
                    let path = child(self.profile.directory(), &name);
                    self.refusal.get_or_insert(Refusal { path, error });
                    self.given_up.push(name);
                }
            }
        }
        if matches!(results.next(), Some(Answer::SessionEnded)) {
            return ended_with_session();
        }
        // A directory that another contender is in will be removed by that contender, and a server
        // removes empty containers itself.
        self.is_directory_left = false;
        if has_known { self.proceed() } else { self.done() }
    }
}

impl Machine for QueueRemoval {
    type Output = Result<Released, Refusal>;

    const GIVES_UP: bool = false;

    fn start(&mut self, _: SessionView) -> RemovalStep {
        if matches!(self.state, State::Draining) {
            return Step::Wait(None);
        }
        self.proceed()
    }

    fn handle(&mut self, _: SessionView, input: Input) -> RemovalStep {
        match (self.state.clone(), input) {
            // While draining, the end of any session proves nothing: only the reply to the create
            // shows in which session it was sent.
            (State::Draining, Input::Answered(answers)) => self.created(answers),
            (State::Draining, _) => Step::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => ended_with_session(),
            (State::Sweeping, Input::Answered(answers)) => self.swept(answers),
            (State::Reading(names), Input::Answered(answers)) => self.owners_read(names, answers),
            (State::Deleting, Input::Answered(answers)) => self.deleted(answers),
            (_, _) => Step::Wait(None),
        }
    }
}

impl Removal for QueueRemoval {
    type Removed = Released;

    const REMOVED: &'static str = "the contender znode";

    fn retry(&mut self) {
        self.known.append(&mut self.given_up);
        // If there is no name, the server refused the list of a sweep.
        self.must_sweep |= self.known.is_empty();
    }

    fn must_sweep_after(&self, released: &Released) -> Option<&ByteString> {
        // The end of the session has ended what a create may have left.
        (self.is_tainted && *released != Released::EndedWithSession)
            .then_some(self.profile.directory())
    }

    fn sweep_again(&mut self) {
        self.must_sweep = true;
    }
}

impl LockRemoval for QueueRemoval {
    /// Does nothing, because a znode with a unique name can be deleted in any case.
    fn doubt(&mut self) {}

    fn replays(&self) -> u64 {
        self.replays
    }

    fn path_of(&self, znode: &Znode) -> ByteString {
        child(self.profile.directory(), &znode.name)
    }
}

fn ended_with_session() -> RemovalStep {
    Step::Done(Ok(Released::EndedWithSession))
}
