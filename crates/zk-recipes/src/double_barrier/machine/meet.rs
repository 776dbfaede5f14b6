//! Waiting until all participants have entered.
//!
//! The participants are the children of the directory, one ephemeral znode with a unique name each.
//! The data of the directory names the participants of the last *round*, one per line.
//!
//! 1. In one flight, read the directory and then list it, and watch both.
//! 2. If the data names us, all participants of our round have entered.
//! 3. The participants in the list that the data does not name are *waiting*. If another one of them
//!    has a lower name than we have, watch the next lower one and ourselves, and wait for an event.
//!    If one of the two is missing, continue with 1.
//! 4. Otherwise we are the first one, and count for all. If a participant that the data names is
//!    still in the list, the last round has not ended: wait for an event.
//! 5. If the list contains enough participants, write the names of the first ones as the data,
//!    provided that it still has the version that was read. Whatever the result, continue with 1:
//!    the directory may have changed, or the write may have been lost.
//! 6. Otherwise wait for an event, and continue with 1.
//! 7. From time to time, do the same without an event: the first one continues with 1, and the others
//!    repeat the tests of step 3 with one of the directory, which shows whether its data have
//!    changed. No server reports a change to those who may no longer read the znode.
//!
//! Only the first one lists the directory whenever a participant arrives or leaves. If all did, *n*
//! participants would list it *n*² times. If the first one is gone, the next one notices, because it
//! watches it; a new participant with a lower name finds out by its own list that it is the first.
//!
//! Step 5 is correct because the data is read before the list. All participants that the data names
//! had entered before it was read. So those that are not in the list have left for good, and no
//! participant that has not noticed its round yet is overwritten: it would still be in the list. A
//! round that is formed after the read changes the version.
//!
//! A write that was lost with its connection is harmless: it required the version that was read. If
//! it is applied late, it names participants that had all entered at one moment.
//!
//! All flights belong to the session of our znode. If it ends, so does the znode, and the
//! participant enters again. It takes along what it knows of the rounds so far (see [`Past`]).

use std::collections::HashSet;

use bytes::Bytes;
use bytestring::ByteString;
use jute_codec::{DataReply, ErrorCode, NameList, Response, Stat};
use zk_session::recipe::Operation;
use zk_session::{OpError, SessionId, Time, Version, Zxid};

use super::past::{Fate, Past, Round};
use crate::machine::{
    Answer, Answers, FailedAction, Failure, Input, Machine, Needs, SessionView, Step, WatchNumber,
    WatchNumbers, child, exists, flight, is_check_due, list, next_check, read, watch_existence,
    write,
};

/// How the names of participants begin.
pub(crate) const MEMBER: &str = "member-";

/// How the wait ended.
#[derive(Clone, Debug)]
pub(crate) enum Met {
    /// The participants of this round had all entered at one moment, and we are one of them.
    Together(Round),
    /// The last round has counted a znode that we had before this one.
    Before,
    /// A round that we have not seen may have counted a znode that we had before this one.
    Unknown,
    /// Our znode was deleted.
    Gone,
    /// The session of our znode has ended.
    SessionEnded,
}

type MeetStep = Step<Result<Met, Failure>>;

/// Waits until enough participants have entered.
#[derive(Debug)]
pub(crate) struct Meet {
    directory: ByteString,
    own: ByteString,
    session: SessionId,
    count: usize,
    past: Past,
    /// Watches of the data and of the list that have not fired.
    data_watch: Option<WatchNumber>,
    list_watch: Option<WatchNumber>,
    /// Watches of the next lower participant and of ourselves, if we are not the first one. One of
    /// them that fires while step 3 is in flight is missing here.
    next_watch: Option<WatchNumber>,
    own_watch: Option<WatchNumber>,
    /// The next lower participant, and the directory when it was chosen.
    next: ByteString,
    directory_at: (Zxid, Version),
    /// When step 7 is due.
    check_at: Time,
    watches: WatchNumbers,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Step 1 is in flight.
    Looking,
    /// The reads of step 3 are in flight.
    Following,
    /// Step 5 is in flight.
    Writing,
    /// Step 3.
    Behind,
    /// Steps 4 and 6.
    First,
}

impl Meet {
    /// Creates the machine of the participant with this name, which this session has created.
    pub(crate) fn new(
        directory: ByteString,
        own: ByteString,
        session: SessionId,
        count: usize,
        past: Past,
    ) -> Self {
        Self {
            directory,
            own,
            session,
            count,
            past,
            data_watch: None,
            list_watch: None,
            next_watch: None,
            own_watch: None,
            next: ByteString::new(),
            directory_at: Default::default(),
            check_at: Time::default(),
            watches: WatchNumbers::default(),
            state: State::Looking,
        }
    }

    /// Returns what the participant knows of earlier rounds.
    pub(crate) fn into_past(self) -> Past {
        self.past
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
        Step::Submit(flight(Some(self.session), operations), Needs::All)
    }

    fn looked(&mut self, view: SessionView, answers: Answers) -> MeetStep {
        let [data, names] = answers.take();
        match (data, names) {
            (Answer::SessionEnded, _) | (_, Answer::SessionEnded) => {
                Step::Done(Ok(Met::SessionEnded))
            }
            (Answer::Done(Response::GetData(data)), Answer::Done(Response::GetChildren(names))) => {
                self.seen(view, &data, &names)
            }
            (data, names) if data.is_no_node() || names.is_no_node() => Step::Done(Ok(Met::Gone)),
            (Answer::Refused(error), _) => self.failed(FailedAction::Read, error),
            (_, Answer::Refused(error)) => self.failed(FailedAction::List, error),
            (_, _) => self.look(),
        }
    }

    fn seen(&mut self, view: SessionView, data: &DataReply, names: &NameList) -> MeetStep {
        let round = round_of(data);
        match self.past.look(&round) {
            Fate::Counted => return Step::Done(Ok(Met::Before)),
            Fate::Unknown => return Step::Done(Ok(Met::Unknown)),
            Fate::NotCounted => {}
        }
        if round.names.contains(&self.own) {
            return Step::Done(Ok(Met::Together(round)));
        }
        let inside: HashSet<&str> = round.names.iter().map(|name| &**name).collect();
        let present = names.iter().filter(|name| name.starts_with(MEMBER));
        let (inside, mut waiting): (Vec<&str>, Vec<&str>) =
            present.partition(|name| inside.contains(name));
        if !waiting.contains(&&*self.own) {
            return Step::Done(Ok(Met::Gone));
        }
        let next = waiting.iter().filter(|name| **name < &*self.own).max();
        if let Some(next) = next {
            return self.follow(next, &data.stat);
        }
        if inside.is_empty() && waiting.len() >= self.count {
            waiting.sort_unstable();
            waiting.truncate(self.count);
            return self.form(waiting.join("\n").into(), data.stat.version);
        }
        if self.data_watch.is_none() || self.list_watch.is_none() {
            // A watch fired before this reply was evaluated.
            return self.look();
        }
        self.wait_for_events(view, State::First)
    }

    /// Watches the next lower participant and ourselves.
    fn follow(&mut self, next: &str, directory: &Stat) -> MeetStep {
        if self.data_watch.is_none() {
            // The data has changed since it was read.
            return self.look();
        }
        self.next = child(&self.directory, next);
        self.directory_at = (directory.czxid, directory.version);
        let (next_watch, own_watch) = (self.watches.issue(), self.watches.issue());
        (self.next_watch, self.own_watch) = (Some(next_watch), Some(own_watch));
        self.test(self.tests(next_watch, own_watch))
    }

    /// Returns the tests of step 3. Tests that are repeated keep the numbers of their watches.
    fn tests(&self, next: WatchNumber, own: WatchNumber) -> Vec<Operation> {
        let own_path = child(&self.directory, &self.own);
        vec![watch_existence(self.next.clone(), next), watch_existence(own_path, own)]
    }

    fn test(&mut self, operations: Vec<Operation>) -> MeetStep {
        self.state = State::Following;
        Step::Submit(flight(Some(self.session), operations), Needs::All)
    }

    fn followed(&mut self, view: SessionView, answers: Answers) -> MeetStep {
        let answers = answers.results;
        if answers.iter().any(|answer| matches!(answer, Answer::SessionEnded)) {
            return Step::Done(Ok(Met::SessionEnded));
        }
        let refusal = answers.iter().find_map(|answer| match answer {
            Answer::Refused(error) if !error.is_no_node() => Some(error.clone()),
            Answer::Done(_)
            | Answer::Refused(_)
            | Answer::SessionEnded
            | Answer::Unknown { .. } => None,
        });
        if let Some(error) = refusal {
            return self.failed(FailedAction::Check, error);
        }
        let is_as_before = |answer: &Answer| {
            matches!(answer, Answer::Done(Response::Exists(stat))
                if (stat.czxid, stat.version) == self.directory_at)
        };
        let are_there = answers.iter().all(|answer| matches!(answer, Answer::Done(_)));
        let watches = [self.data_watch, self.next_watch, self.own_watch];
        if are_there && answers.get(2).is_none_or(is_as_before) && !watches.contains(&None) {
            return self.wait_for_events(view, State::Behind);
        }
        // One of the participants is gone, or the data has changed, or a watch fired before this reply
        // was evaluated.
        self.look()
    }

    fn wait_for_events(&mut self, view: SessionView, state: State) -> MeetStep {
        self.state = state;
        self.check_at = next_check(view);
        Step::Wait(Some(self.check_at))
    }

    /// Step 7, if it is due.
    fn check(&mut self, view: SessionView) -> MeetStep {
        if !is_check_due(view, &mut self.check_at) {
            return Step::Wait(Some(self.check_at));
        }
        match (self.state, self.next_watch, self.own_watch) {
            (State::Behind, Some(next), Some(own)) => {
                let mut operations = self.tests(next, own);
                operations.push(exists(self.directory.clone()));
                self.test(operations)
            }
            _ => self.look(),
        }
    }

    fn form(&mut self, data: Bytes, version: Version) -> MeetStep {
        self.state = State::Writing;
        let operation = write(self.directory.clone(), data, version);
        Step::Submit(flight(Some(self.session), vec![operation]), Needs::Once(0))
    }

    fn formed(&mut self, answers: Answers) -> MeetStep {
        let [written] = answers.take();
        match written {
            Answer::SessionEnded => Step::Done(Ok(Met::SessionEnded)),
            Answer::Refused(OpError::Server {
                code: ErrorCode::BAD_VERSION | ErrorCode::NO_NODE,
                ..
            })
            | Answer::Done(_)
            | Answer::Unknown { is_final: false, .. } => self.look(),
            Answer::Refused(error) | Answer::Unknown { error, .. } => {
                self.failed(FailedAction::Write, error)
            }
        }
    }

    fn failed(&self, action: FailedAction, error: OpError) -> MeetStep {
        Step::Done(Err(Failure::new(action, self.directory.clone(), error)))
    }

    fn fired(&mut self, view: SessionView, fired: WatchNumber) -> MeetStep {
        let is = |watch: &mut WatchNumber| *watch == fired;
        let is_data = self.data_watch.take_if(is).is_some();
        let is_list = self.list_watch.take_if(is).is_some();
        let is_behind =
            self.next_watch.take_if(is).is_some() | self.own_watch.take_if(is).is_some();
        match self.state {
            State::First if is_data | is_list => self.look(),
            State::Behind if is_data | is_behind => self.look(),
            State::Behind | State::First => self.check(view),
            State::Looking | State::Following | State::Writing => Step::Wait(None),
        }
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
                Step::Done(Ok(Met::SessionEnded))
            }
            (State::Looking, Input::Answered(answers)) => self.looked(view, answers),
            (State::Following, Input::Answered(answers)) => self.followed(view, answers),
            (State::Writing, Input::Answered(answers)) => self.formed(answers),
            (_, Input::Watch { watch, .. }) => self.fired(view, watch),
            (State::Behind | State::First, _) => self.check(view),
            (_, _) => Step::Wait(None),
        }
    }
}

/// Returns the round that the data of a directory names.
pub(crate) fn round_of(found: &DataReply) -> Round {
    let data = found.data.as_ref();
    let text = data.and_then(|data| std::str::from_utf8(data).ok()).unwrap_or_default();
    let names = text.lines().map(ByteString::from).collect();
    Round { directory: found.stat.czxid, version: found.stat.version, names }
}
