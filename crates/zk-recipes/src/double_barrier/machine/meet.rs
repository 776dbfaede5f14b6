//! Waiting until all participants have entered.
//!
//! The participants are the children of the directory, one ephemeral znode with a unique name each.
//! The data of the directory names the participants of the last *round*, one per line.
//!
//! 1. In one flight, read the directory and then list it, and watch both.
//! 2. If the data names us, all participants of our round have entered.
//! 3. If a participant that the data names is still in the list, the last round has not ended: wait
//!    for an event.
//! 4. If the list contains enough participants, write the names of the first ones as the data,
//!    provided that it still has the version that was read. Whatever the result, continue with 1:
//!    another participant may have been faster, or the write may have been lost.
//! 5. Otherwise wait for an event, and continue with 1.
//!
//! Step 4 is correct because the data is read before the list. All participants that the data names
//! had entered before it was read. So those that are not in the list have left for good, and no
//! participant that has not noticed its round yet is overwritten: it would still be in the list. A
//! round that is formed after the read changes the version.
//!
//! A write that was lost with its connection is harmless: it required the version that was read. If
//! it is applied late, it names participants that had all entered at one moment.
//!
//! All flights belong to the session of our znode. If it ends, so does the znode, and the
//! participant enters again.

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, NameList, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, SessionId, Version};

use crate::machine::{
    FailedAction, Failure, Input, Machine, Pauses, SessionView, Step, Verdict, WatchNumber,
    WatchNumbers, flight, list, read, replayable, take, verdict, write,
};

/// How the names of participants begin.
pub(crate) const MEMBER: &str = "member-";

/// How the wait ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Met {
    /// These participants had all entered at one moment, and we are one of them.
    Together(Vec<ByteString>),
    /// Our znode was deleted.
    Gone,
    /// The session of our znode has ended.
    SessionOver,
}

type MeetStep = Step<Result<Met, Failure>>;

/// Waits until enough participants have entered.
#[derive(Debug)]
pub(crate) struct Meet {
    directory: ByteString,
    own: ByteString,
    session: SessionId,
    count: usize,
    /// Watches of the data and of the list that have not fired.
    data_watch: Option<WatchNumber>,
    list_watch: Option<WatchNumber>,
    watches: WatchNumbers,
    pauses: Pauses,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Looking,
    /// Step 4 is in flight.
    Writing,
    /// Steps 3 and 5.
    Waiting,
    /// A server is overloaded; continue with 1 after a pause.
    Pausing,
}

impl Meet {
    /// Creates the machine of the participant with this name, which this session has created.
    pub(crate) fn new(
        directory: ByteString,
        own: ByteString,
        session: SessionId,
        count: usize,
    ) -> Self {
        Self {
            directory,
            own,
            session,
            count,
            data_watch: None,
            list_watch: None,
            watches: WatchNumbers::default(),
            pauses: Pauses::default(),
            state: State::Looking,
        }
    }

    fn look(&mut self) -> MeetStep {
        self.state = State::Looking;
        let watches = &mut self.watches;
        let data_watch = *self.data_watch.get_or_insert_with(|| watches.issue());
        let list_watch = *self.list_watch.get_or_insert_with(|| watches.issue());
        let operations = vec![
            read(self.directory.clone(), Some(data_watch)),
            list(&self.directory, Some(list_watch)),
        ];
        Step::Submit(flight(Some(self.session), operations))
    }

    fn looked(&mut self, view: SessionView, reply: Reply) -> MeetStep {
        let [data, names] = take(reply).map(replayable);
        match (data, names) {
            (Verdict::SessionOver, _) | (_, Verdict::SessionOver) => {
                Step::Done(Ok(Met::SessionOver))
            }
            (
                Verdict::Done(Response::GetData(data)),
                Verdict::Done(Response::GetChildren(names)),
            ) => {
                self.pauses.reset();
                self.seen(&data, &names)
            }
            (Verdict::Later(error), _) => self.later(view, error, FailedAction::Read),
            (_, Verdict::Later(error)) => self.later(view, error, FailedAction::List),
            (Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. }), _)
            | (_, Verdict::Refused(OpError::Server { code: ErrorCode::NO_NODE, .. })) => {
                Step::Done(Ok(Met::Gone))
            }
            (Verdict::Refused(error), _) => self.failed(FailedAction::Read, error),
            (_, Verdict::Refused(error)) => self.failed(FailedAction::List, error),
            _ => self.look(),
        }
    }

    fn seen(&mut self, data: &DataReply, names: &NameList) -> MeetStep {
        let round = names_in(data.data.as_ref());
        if round.contains(&self.own) {
            return Step::Done(Ok(Met::Together(round)));
        }
        let mut present: Vec<&str> = names.iter().filter(|name| name.starts_with(MEMBER)).collect();
        if !present.contains(&&*self.own) {
            return Step::Done(Ok(Met::Gone));
        }
        let is_over = !round.iter().any(|name| present.contains(&&**name));
        if is_over && present.len() >= self.count {
            present.sort_unstable();
            present.truncate(self.count);
            return self.form(present.join("\n").into(), data.stat.version);
        }
        if self.data_watch.is_none() || self.list_watch.is_none() {
            // A watch fired before this reply was evaluated.
            return self.look();
        }
        self.state = State::Waiting;
        Step::Wait(None)
    }

    fn form(&mut self, data: Bytes, version: Version) -> MeetStep {
        self.state = State::Writing;
        let operation = write(self.directory.clone(), data, version);
        Step::Submit(flight(Some(self.session), vec![operation]))
    }

    fn formed(&mut self, view: SessionView, reply: Reply) -> MeetStep {
        let [written] = take(reply);
        let error = written.as_ref().err().cloned();
        match (verdict(written), error) {
            (Verdict::SessionOver, _) => Step::Done(Ok(Met::SessionOver)),
            (Verdict::Later(error), _) => self.later(view, error, FailedAction::Write),
            (
                Verdict::Refused(OpError::Server {
                    code: ErrorCode::BAD_VERSION | ErrorCode::NO_NODE,
                    ..
                }),
                _,
            ) => self.look(),
            (Verdict::Refused(error), _) => self.failed(FailedAction::Write, error),
            // Give a server that failed time to recover.
            (Verdict::Unknown, Some(error)) if !error.is_connection_loss() => {
                self.later(view, error, FailedAction::Write)
            }
            (Verdict::Done(_) | Verdict::NotApplied | Verdict::Unknown, _) => self.look(),
        }
    }

    fn later(&mut self, view: SessionView, error: OpError, action: FailedAction) -> MeetStep {
        if self.pauses.is_too_many(&error) {
            return self.failed(action, error);
        }
        self.state = State::Pausing;
        Step::Wait(self.pauses.begin(view.now))
    }

    fn failed(&self, action: FailedAction, error: OpError) -> MeetStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }

    fn fired(&mut self, fired: WatchNumber) -> MeetStep {
        let is = |watch: &mut WatchNumber| *watch == fired;
        let is_ours = self.data_watch.take_if(is).is_some() | self.list_watch.take_if(is).is_some();
        if is_ours && self.state == State::Waiting {
            return self.look();
        }
        Step::Wait(self.pauses.until())
    }
}

impl Machine for Meet {
    type Output = Result<Met, Failure>;

    fn start(&mut self, _: SessionView) -> MeetStep {
        self.look()
    }

    fn handle(&mut self, view: SessionView, input: Input) -> MeetStep {
        match (self.state, input) {
            (_, Input::Ended(session)) if session == self.session => {
                Step::Done(Ok(Met::SessionOver))
            }
            (State::Looking, Input::Reply(reply)) => self.looked(view, reply),
            (State::Writing, Input::Reply(reply)) => self.formed(view, reply),
            (State::Pausing, Input::Timer | Input::Suspended) => {
                self.pauses.end();
                self.look()
            }
            (_, Input::Watch { watch, .. }) => self.fired(watch),
            (_, Input::Reply(_) | Input::Timer | Input::Suspended | Input::Ended(_)) => {
                Step::Wait(self.pauses.until())
            }
        }
    }
}

/// Returns the participants that the data names.
fn names_in(data: Option<&Bytes>) -> Vec<ByteString> {
    let text = data.and_then(|data| std::str::from_utf8(data).ok()).unwrap_or_default();
    text.lines().map(ByteString::from).collect()
}
