//! The one policy for flights that were lost, and for servers that refuse or fail.
//!
//! A machine says what it [`Needs`] of a flight, and [`Repeating`] submits the flight until the
//! machine has it:
//!
//! 1. After a lost connection, the flight is submitted again at once. It waits for the next
//!    connection by itself.
//! 2. If a server is overloaded, or has failed in a way that may be temporary, a pause comes first.
//!    Pauses grow, and differ between lanes, so that machines that were refused together do not come
//!    back together. The end of the connection ends a pause: the next server may accept the flight,
//!    and others may be waiting for this machine.
//! 3. If the code says that the refusal will pass (throttling, a server without a quorum, a client
//!    whose queue is full), this goes on until the caller's deadline. Any other code that leaves the
//!    outcome open, such as a system error, may be permanent. After too many of these, the machine
//!    receives the error as a refusal.
//! 4. A flight that is meant for any session continues in the next one. If none follows, the machine
//!    receives the end of the session.
//!
//! If a machine needs the result of each operation, those that have arrived are kept until the others
//! are there. But its watches may fire in the meantime, also between two operations of one flight:
//! these are submitted again. And a read says nothing about a write in front of it that has no
//! result, because another client may write before the write is repeated: it is submitted again with
//! the write, and given up with it.
//!
//! If an operation must not be applied twice and its outcome is unknown, the machine learns this at
//! once, because it may be dropped at any moment and must know then what it may have left. If a
//! server has failed, its next flight waits for a pause.

mod pending;

use jute_codec::ErrorCode;
use zk_session::recipe::{Flight, Reply};
use zk_session::{OpError, Outcome, Time};

use self::pending::{Next, Pending};
use super::answer::{Answer, Answers, Needs};
use super::pause::Pauses;
use super::step::{Input, Machine, SessionView, Step};

/// A machine whose flights are issued again for it.
#[derive(Clone, Debug)]
pub struct Repeating<M> {
    /// The machine.
    pub machine: M,
    pending: Option<Box<Pending>>,
    pauses: Pauses,
    /// Whether reads that succeed are progress.
    stuck: Stuck,
    /// The next flight waits for a pause.
    is_pause_due: bool,
}

/// Whether reads that succeed are progress. If they are not, the pauses go on growing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stuck {
    /// Reads that succeed are progress.
    No,
    /// A server has failed to answer a write. The reads only find out what has become of it.
    WithWrite,
    /// The machine has asked for a pause.
    Asked,
}

impl<M: Machine> Repeating<M> {
    /// Prepares a machine.
    pub fn new(machine: M) -> Self {
        let (pending, pauses) = (None, Pauses::default());
        Self { machine, pending, pauses, stuck: Stuck::No, is_pause_due: false }
    }

    /// Returns the code with which a server has refused what is pending, if it is tried again because
    /// of that.
    pub fn refusal(&self) -> Option<ErrorCode> {
        self.pending.as_ref()?.refusal
    }

    /// Returns the first step of the machine.
    pub fn start(&mut self, view: SessionView) -> Step<M::Output> {
        let step = self.machine.start(view);
        self.take_over(view, step)
    }

    /// Advances by one input.
    pub fn handle(&mut self, view: SessionView, input: Input) -> Step<M::Output> {
        if let (Input::Watch { watch, .. }, Some(pending)) = (&input, &mut self.pending) {
            pending.fired(*watch);
        }
        let until = self.paused_until();
        let ends_pause = match input {
            Input::Timer => until.is_some_and(|until| until <= view.now),
            Input::Suspended => until.is_some(),
            Input::Reply(_) | Input::Answered(_) | Input::Ended(_) | Input::Watch { .. } => false,
        };
        // The machine has not asked for this timer.
        if ends_pause && matches!(input, Input::Timer) {
            return self.resume();
        }
        let input = match input {
            Input::Reply(reply) if self.pending.is_some() => return self.replied(view, reply),
            // Another machine has submitted the flight.
            Input::Reply(reply) => Input::Answered(Answers::from(reply)),
            other @ (Input::Answered(_)
            | Input::Suspended
            | Input::Ended(_)
            | Input::Timer
            | Input::Watch { .. }) => other,
        };
        let step = self.machine.handle(view, input);
        if ends_pause && matches!(step, Step::Wait(_)) {
            return self.resume();
        }
        self.take_over(view, step)
    }

    /// Follows a step that the machine has taken without an input.
    pub(crate) fn take_over(
        &mut self,
        view: SessionView,
        step: Step<M::Output>,
    ) -> Step<M::Output> {
        if matches!(step, Step::Wait(_)) && self.pending.is_some() {
            // The machine waits for its results.
            return Step::Wait(self.paused_until());
        }
        self.follow(view, step)
    }

    /// Follows a step that takes the place of what was pending.
    fn follow(&mut self, view: SessionView, step: Step<M::Output>) -> Step<M::Output> {
        self.pending = None;
        let is_pause_due = std::mem::take(&mut self.is_pause_due);
        match step {
            Step::Submit(flight, needs) if is_pause_due => self.submit_later(view, flight, needs),
            Step::Submit(flight, needs) => {
                self.pending = Some(Pending::new(flight.clone(), needs));
                Step::Submit(flight, needs)
            }
            Step::SubmitLater(flight, needs) => {
                self.stuck = Stuck::Asked;
                self.submit_later(view, flight, needs)
            }
            Step::Done(_) | Step::Wait(_) => {
                self.pauses.reset();
                self.stuck = Stuck::No;
                step
            }
        }
    }

    fn submit_later(&mut self, view: SessionView, flight: Flight, needs: Needs) -> Step<M::Output> {
        self.pending = Some(Pending::new(flight, needs));
        self.pause(view)
    }

    fn pause(&mut self, view: SessionView) -> Step<M::Output> {
        let until = Some(self.pauses.begin(view.now, view.seed));
        if let Some(pending) = &mut self.pending {
            pending.paused_until = until;
        }
        Step::Wait(until)
    }

    fn paused_until(&self) -> Option<Time> {
        self.pending.as_ref().and_then(|pending| pending.paused_until)
    }

    /// Continues after a pause, or after a loss.
    fn resume(&mut self) -> Step<M::Output> {
        match &mut self.pending {
            Some(pending) => {
                pending.paused_until = None;
                Step::Submit(pending.left(), pending.needs)
            }
            None => Step::Wait(None),
        }
    }

    fn replied(&mut self, view: SessionView, reply: Reply) -> Step<M::Output> {
        let Some(pending) = self.pending.as_mut() else { return Step::Wait(None) };
        let Reply { session, connection, results, .. } = reply;
        let known = pending.known.iter().flatten().count();
        let is_in_doubt = results
            .iter()
            .any(|result| result.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown));
        let next = pending.settle(view, results);
        if pending.known.iter().flatten().count() > known {
            self.pauses.reset();
        }
        let (mut results, failure) = match next {
            Next::Again { is_lost } => {
                pending.replays += u64::from(is_lost);
                pending.refusal = None;
                pending.is_repeated |= is_in_doubt;
                return self.resume();
            }
            Next::Later(error, results) => {
                if !(M::GIVES_UP && self.pauses.is_too_many(&error)) {
                    pending.refusal = error.server_code();
                    pending.is_repeated |= is_in_doubt;
                    return self.pause(view);
                }
                (results.into_iter().map(|result| result.or_refused(&error)).collect(), None)
            }
            Next::Failed(error, results) => (results, Some(error)),
            Next::Answer(results) => (results, None),
        };
        let is_unknown = |answer: &Answer| matches!(answer, Answer::Unknown { .. });
        let is_write_unknown = match pending.needs {
            Needs::Once(at) => results.get(at).is_none_or(is_unknown),
            Needs::OneTry => results.iter().any(is_unknown),
            Needs::All | Needs::Each => false,
        };
        let refusal = failure.as_ref().and_then(OpError::server_code);
        if let Some(error) = failure {
            self.is_pause_due = true;
            if is_write_unknown && self.stuck == Stuck::No {
                self.stuck = Stuck::WithWrite;
            }
            let is_too_often = M::GIVES_UP && self.pauses.is_too_many(&error);
            for result in &mut results {
                result.finish(is_too_often.then_some(&error));
            }
        } else {
            let is_write = matches!(pending.needs, Needs::Once(_) | Needs::OneTry);
            if is_write && !is_write_unknown && self.stuck == Stuck::WithWrite {
                self.stuck = Stuck::No;
            }
            if self.stuck == Stuck::No {
                self.pauses.reset();
            }
        }
        let (replays, is_repeated) = (pending.replays, pending.is_repeated);
        self.pending = None;
        let answers = Answers { session, connection, results, replays, is_repeated };
        let step = self.machine.handle(view, Input::Answered(answers));
        let step = self.follow(view, step);
        if let Some(pending) = &mut self.pending {
            pending.refusal = refusal;
        }
        step
    }
}

#[cfg(test)]
mod tests;
