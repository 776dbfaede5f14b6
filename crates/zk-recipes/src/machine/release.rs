//! Removing every contender znode of an attempt.
//!
//! 1. If the create is still under way, wait for its answer.
//! 2. If the outcome of a create was ever unknown, pass a write barrier and list: every contender
//!    with the attempt's prefix is a candidate. Otherwise the znode is known, or there is none.
//! 3. Read the candidates; those that another session owns are not ours.
//! 4. Delete ours. The names are unique, so a lost delete is issued again, and `NO_NODE` means
//!    done.
//! 5. After a sweep (2), sweep again until nothing is found.
//!
//! The end of the session ends the release too: the znodes go with it. Until then a server that
//! fails or is overloaded is asked again, at growing intervals; a definite refusal is reported, and
//! tried again by whoever runs the release.

use std::sync::Arc;

use bytestring::ByteString;
use jute_codec::{ErrorCode, Response};
use zk_session::machine::{Flight, Reply};
use zk_session::{OpError, SessionId, Time};

use super::{
    Input, Patience, Profile, Verdict, View, barrier, child, delete, flight, list, queue, read,
    replayable, verdict,
};

/// How a release ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Released {
    /// The znode was gone already, by somebody else's hand.
    AlreadyGone,
    /// The session has ended, and the znode with it.
    EndedWithSession,
    /// The znode was deleted.
    Released,
}

/// What a release asks for.
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::exhaustive_enums, reason = "the closed vocabulary of the machine")]
pub enum ReleaseStep {
    /// The end.
    Done(Released),
    /// A server refuses the removal. The znode stays until it is tried again, or the session ends.
    Refused {
        /// The znode, or the directory.
        path: ByteString,
        /// Why.
        error: OpError,
    },
    /// Send this and hand in the answer.
    Submit(Flight),
    /// Wait for the next input, at most until a time.
    Wait(Option<Time>),
}

/// What an attempt may have left behind.
#[derive(Clone, Debug)]
pub struct Release {
    profile: Arc<Profile>,
    prefix: ByteString,
    session: Option<SessionId>,
    /// Names to delete.
    known: Vec<ByteString>,
    /// Whether a create may still take effect, or has without our knowledge.
    is_tainted: bool,
    has_deleted: bool,
    has_lost_delete: bool,
    /// Names that a server refuses to delete, and the first refusal.
    given_up: Vec<ByteString>,
    refusal: Option<(ByteString, OpError)>,
    patience: Patience,
    paused_until: Option<Time>,
    replays: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Step 1: the flight that holds the create was sent and not answered.
    Draining,
    /// Step 2 is in flight.
    Sweeping,
    /// Step 3 is in flight, for these.
    Reading(Vec<ByteString>),
    /// Step 4 is in flight, for what is known.
    Deleting,
    /// A server is overloaded; go on later.
    Pausing,
}

impl Release {
    pub(crate) fn new(
        profile: Arc<Profile>,
        prefix: ByteString,
        session: Option<SessionId>,
        known: Option<ByteString>,
        is_tainted: bool,
    ) -> Self {
        Self {
            profile,
            prefix,
            session,
            known: known.into_iter().collect(),
            is_tainted,
            has_deleted: false,
            has_lost_delete: false,
            given_up: Vec::new(),
            refusal: None,
            patience: Patience::default(),
            paused_until: None,
            replays: 0,
            state: State::Sweeping,
        }
    }

    /// Starts. `create_pending`: the flight that holds the create has no answer yet, and its
    /// answer will be handed in.
    pub fn start(&mut self, create_pending: bool) -> ReleaseStep {
        if create_pending {
            self.state = State::Draining;
            return ReleaseStep::Wait(None);
        }
        self.proceed()
    }

    /// Directory of the lock.
    pub fn directory(&self) -> &str {
        &self.profile.directory
    }

    /// What the machines of the lock know.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// From now on the holder's znode has one of these names.
    pub fn rename(&mut self, names: Vec<ByteString>) {
        self.known = names;
    }

    /// True if a create of this attempt had an unknown outcome, so that another sweep after the
    /// next reconnect is worth its price.
    pub fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    /// Flights issued again because a lost connection had left their outcome open.
    pub fn replays(&self) -> u64 {
        self.replays
    }

    /// Tries again to delete what a server has refused to delete.
    pub fn try_again(&mut self) -> ReleaseStep {
        self.known.append(&mut self.given_up);
        if self.known.is_empty() { self.sweep() } else { self.proceed() }
    }

    /// Sweeps once more.
    pub fn sweep_again(&mut self) -> ReleaseStep {
        self.sweep()
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: View, input: Input) -> ReleaseStep {
        if matches!(input, Input::Timer) {
            self.paused_until = None;
        }
        match (self.state.clone(), input) {
            // While draining, the answer of the create tells in which session it was sent.
            (State::Draining, Input::Reply(reply)) => self.created(reply),
            (State::Draining, _) => ReleaseStep::Wait(None),
            (_, Input::Ended(session)) if self.session == Some(session) => self.over(),
            (State::Sweeping, Input::Reply(reply)) => self.swept(view, reply),
            (State::Reading(names), Input::Reply(reply)) => self.owners(view, names, reply),
            (State::Deleting, Input::Reply(reply)) => self.deleted(view, reply),
            (State::Pausing, Input::Timer) => self.proceed(),
            (_, Input::Reply(_) | Input::Timer | Input::Watch { .. })
            | (_, Input::Suspended | Input::Ended(_)) => ReleaseStep::Wait(self.paused_until),
        }
    }

    /// What is left to do.
    fn proceed(&mut self) -> ReleaseStep {
        if !self.known.is_empty() {
            self.state = State::Deleting;
            let paths = self.known.iter().map(|name| child(&self.profile.directory, name));
            return ReleaseStep::Submit(flight(self.session, paths.map(delete).collect()));
        }
        if self.is_tainted {
            return self.sweep();
        }
        self.done()
    }

    fn done(&mut self) -> ReleaseStep {
        if let Some((path, error)) = self.refusal.take() {
            return ReleaseStep::Refused { path, error };
        }
        ReleaseStep::Done(if self.has_deleted || self.has_lost_delete {
            Released::Released
        } else {
            Released::AlreadyGone
        })
    }

    fn sweep(&mut self) -> ReleaseStep {
        self.state = State::Sweeping;
        let directory = &self.profile.directory;
        let operations = vec![barrier(directory.clone()), list(directory, None)];
        ReleaseStep::Submit(flight(self.session, operations))
    }

    fn pause(&mut self, view: View) -> ReleaseStep {
        self.state = State::Pausing;
        self.paused_until = Some(view.now + self.patience.pause());
        ReleaseStep::Wait(self.paused_until)
    }

    fn over(&self) -> ReleaseStep {
        ReleaseStep::Done(Released::EndedWithSession)
    }

    fn created(&mut self, mut reply: Reply) -> ReleaseStep {
        self.session = self.session.or(reply.session);
        match verdict(reply.results.swap_remove(0)) {
            Verdict::Done(Response::Create2(created)) => {
                self.known.extend(name_of(&created.path));
                self.proceed()
            }
            Verdict::SessionOver => self.over(),
            Verdict::Unknown => {
                self.is_tainted = true;
                self.proceed()
            }
            Verdict::Done(_) | Verdict::Later(_) | Verdict::NotApplied | Verdict::Refused(_) => {
                self.proceed()
            }
        }
    }

    fn swept(&mut self, view: View, mut reply: Reply) -> ReleaseStep {
        self.session = self.session.or(reply.session);
        let listed = reply.results.pop().map(replayable);
        match (reply.results.pop().map(replayable), listed) {
            (Some(Verdict::SessionOver), _) | (_, Some(Verdict::SessionOver)) => self.over(),
            (Some(Verdict::Later(_)), _) | (_, Some(Verdict::Later(_))) => self.pause(view),
            // Any definite answer shows that the barrier was passed.
            (
                Some(Verdict::Done(_) | Verdict::Refused(_)),
                Some(Verdict::Done(Response::GetChildren(names))),
            ) => {
                let mut found = queue::with_prefix(&self.profile, &names, &self.prefix);
                found.retain(|(_, name)| !self.given_up.contains(name));
                if found.is_empty() {
                    return self.done();
                }
                self.read(found.into_iter().map(|(_, name)| name).collect())
            }
            (Some(Verdict::Done(_) | Verdict::Refused(_)), Some(Verdict::Refused(error))) => {
                if error == OpError::Server(ErrorCode::NO_NODE) {
                    return self.done();
                }
                ReleaseStep::Refused { path: self.profile.directory.clone(), error }
            }
            _ => {
                self.replays += 1;
                self.sweep()
            }
        }
    }

    fn read(&mut self, names: Vec<ByteString>) -> ReleaseStep {
        let directory = &self.profile.directory;
        let reads = names.iter().map(|name| read(child(directory, name), None)).collect();
        self.state = State::Reading(names);
        ReleaseStep::Submit(flight(self.session, reads))
    }

    fn owners(&mut self, view: View, names: Vec<ByteString>, reply: Reply) -> ReleaseStep {
        let mut is_complete = true;
        for (name, result) in names.into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(Response::GetData(data)) => {
                    if self.session.is_some_and(|own| own.0 == data.stat.ephemeral_owner) {
                        self.known.push(name);
                    }
                }
                Verdict::SessionOver => return self.over(),
                Verdict::Later(_) => return self.pause(view),
                Verdict::Refused(OpError::Server(ErrorCode::NO_NODE)) => {}
                // It carries our id; whoever may not read it could not have made it. Try.
                Verdict::Refused(_) => self.known.push(name),
                Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown => is_complete = false,
            }
        }
        if self.known.is_empty() && is_complete {
            // What is left belongs to other sessions.
            return self.done();
        }
        self.proceed()
    }

    fn deleted(&mut self, view: View, reply: Reply) -> ReleaseStep {
        let mut left = Vec::new();
        let mut is_later = false;
        for (name, result) in std::mem::take(&mut self.known).into_iter().zip(reply.results) {
            match replayable(result) {
                Verdict::Done(_) => self.has_deleted = true,
                Verdict::Refused(OpError::Server(ErrorCode::NO_NODE)) => {}
                Verdict::Refused(error) => {
                    let path = child(&self.profile.directory, &name);
                    self.refusal.get_or_insert((path, error));
                    self.given_up.push(name);
                }
                Verdict::SessionOver => return self.over(),
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
        if is_later { self.pause(view) } else { self.proceed() }
    }
}

/// Name of the znode at a path.
pub(crate) fn name_of(path: &ByteString) -> Option<ByteString> {
    path.rsplit_once('/').map(|(_, name)| path.slice_ref(name))
}
