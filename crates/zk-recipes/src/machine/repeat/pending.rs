//! A flight without the results that its machine needs, and what its replies lead to.

use jute_codec::{ErrorCode, Response};
use zk_session::recipe::{Flight, WatchNumber};
use zk_session::{OpError, Time};

use crate::machine::answer::{Answer, Needs};
use crate::machine::step::SessionView;
use crate::machine::verdict::{Verdict, replayable, verdict};

/// A flight without the results that its machine needs.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) flight: Flight,
    pub(super) needs: Needs,
    /// The results that need not be asked for again.
    pub(super) known: Vec<Option<Answer>>,
    /// The operations whose watches have fired, although the machine does not know their results yet,
    /// so that the events mean nothing to it. They are submitted again with the next flight.
    outdated: Vec<usize>,
    pub(super) replays: u64,
    pub(super) is_repeated: bool,
    /// When to submit it, if that is later.
    pub(super) paused_until: Option<Time>,
    /// The code with which a server has refused it last, so that it is submitted again.
    pub(super) refusal: Option<ErrorCode>,
}

/// What a reply leads to.
pub(super) enum Next {
    /// The machine receives these results.
    Answer(Vec<Answer>),
    /// The flight is issued again.
    Again {
        /// The connection was lost.
        is_lost: bool,
    },
    /// The flight is issued again after a pause. After too many of these errors, the machine receives
    /// these results instead.
    Later(OpError, Vec<Answer>),
    /// The machine receives these results, and its next flight waits for a pause.
    Failed(OpError, Vec<Answer>),
}

impl Pending {
    pub(super) fn new(flight: Flight, needs: Needs) -> Box<Self> {
        Box::new(Self {
            flight,
            needs,
            known: Vec::new(),
            outdated: Vec::new(),
            replays: 0,
            is_repeated: false,
            paused_until: None,
            refusal: None,
        })
    }

    /// Returns the flight, with the operations that have no result yet.
    pub(super) fn left(&mut self) -> Flight {
        self.forget_outdated();
        let mut flight = self.flight.clone();
        let mut known = self.known.iter();
        flight.operations.retain(|_| known.next().is_none_or(Option::is_none));
        flight
    }

    /// Takes note that a watch has fired, which may be one of this flight.
    pub(super) fn fired(&mut self, watch: WatchNumber) {
        let mut watches = self.flight.operations.iter().map(|operation| operation.watch);
        self.outdated.extend(watches.position(|own| own == Some(watch)));
    }

    fn forget_outdated(&mut self) {
        for index in self.outdated.drain(..) {
            if let Some(known) = self.known.get_mut(index) {
                *known = None;
            }
        }
    }

    /// Discards what was read behind a write without a result: a server may have refused the write
    /// and answered the read. The read relies on the write, so it is issued again behind it. If they
    /// are given up, the machine must not conclude anything from the read.
    fn forget_reads_behind_open_writes(&mut self) {
        let mut is_behind = false;
        for (operation, known) in self.flight.operations.iter().zip(&mut self.known) {
            if operation.is_write() {
                is_behind |= known.is_none();
            } else if is_behind {
                *known = None;
            }
        }
    }

    /// Returns whether the flight may continue in the next session.
    fn outlives_session(&self, view: SessionView) -> bool {
        self.flight.session.is_none() && !view.has_expired
    }

    pub(super) fn settle(
        &mut self,
        view: SessionView,
        results: Vec<Result<Response, OpError>>,
    ) -> Next {
        match self.needs {
            Needs::All => {
                self.outdated.clear();
                let next = self.settle_repeatable(view, results);
                self.known.clear();
                next
            }
            Needs::Each => self.settle_repeatable(view, results),
            Needs::Once(at) => settle_once(at, results),
            Needs::OneTry => settle_try(results),
        }
    }

    /// Notes the results of operations that may be issued any number of times.
    fn settle_repeatable(
        &mut self,
        view: SessionView,
        results: Vec<Result<Response, OpError>>,
    ) -> Next {
        let outlives_session = self.outlives_session(view);
        self.known.resize_with(self.flight.operations.len(), || None);
        let (mut is_lost, mut is_over, mut later) = (false, false, None);
        let missing = self.known.iter_mut().filter(|known| known.is_none());
        for (known, result) in missing.zip(results) {
            match replayable(result) {
                Verdict::Done(response) => *known = Some(Answer::Done(response)),
                Verdict::Refused(error) => *known = Some(Answer::Refused(error)),
                Verdict::SessionEnded => is_over |= !outlives_session,
                Verdict::Later(error) => later = Some(error),
                Verdict::NotApplied | Verdict::Unknown => is_lost = true,
            }
        }
        self.forget_outdated();
        self.forget_reads_behind_open_writes();
        let or =
            |missing: Answer| move |known: Option<Answer>| known.unwrap_or_else(|| missing.clone());
        if is_over || self.known.iter().all(Option::is_some) {
            let known = std::mem::take(&mut self.known);
            Next::Answer(known.into_iter().map(or(Answer::SessionEnded)).collect())
        } else if let Some(error) = later {
            let known = self.known.iter().cloned();
            let answers = known.map(or(Answer::Refused(error.clone()))).collect();
            Next::Later(error, answers)
        } else {
            Next::Again { is_lost }
        }
    }
}

fn settle_once(at: usize, results: Vec<Result<Response, OpError>>) -> Next {
    let error = results.get(at).and_then(|result| result.as_ref().err()).cloned();
    let verdict = error.clone().map(|error| verdict(Err(error)));
    let beside = results.iter().enumerate().filter(|(index, _)| *index != at);
    let failure = first_failure(beside.map(|(_, result)| result));
    let answers = results.into_iter().enumerate().map(|(index, result)| {
        if index == at { Answer::of_write(result) } else { Answer::of_read(result) }
    });
    match (verdict, error) {
        (Some(Verdict::NotApplied), _) => Next::Again { is_lost: true },
        // These errors pass, but a machine that goes on after too many others receives them too.
        (Some(Verdict::Later(error)), _) => {
            let mut answers: Vec<_> = answers.collect();
            if let Some(answer) = answers.get_mut(at) {
                *answer = Answer::Refused(error.clone());
            }
            Next::Later(error, answers)
        }
        (Some(Verdict::Unknown), Some(error)) if !error.is_connection_loss() => {
            Next::Failed(error, answers.collect())
        }
        // The machine may have to issue the others again.
        _ => match failure {
            Some(error) => Next::Failed(error, answers.collect()),
            None => Next::Answer(answers.collect()),
        },
    }
}

fn settle_try(results: Vec<Result<Response, OpError>>) -> Next {
    let failure = first_failure(results.iter());
    let answers = results.into_iter().map(Answer::of_write).collect();
    match failure {
        Some(error) => Next::Failed(error, answers),
        None => Next::Answer(answers),
    }
}

/// Returns why a server could not serve one of these operations at present.
fn first_failure<'a>(
    results: impl Iterator<Item = &'a Result<Response, OpError>>,
) -> Option<OpError> {
    let mut errors = results.filter_map(|result| result.as_ref().err());
    errors.find_map(|error| match replayable(Err(error.clone())) {
        Verdict::Later(error) => Some(error),
        Verdict::Done(_)
        | Verdict::Refused(_)
        | Verdict::NotApplied
        | Verdict::Unknown
        | Verdict::SessionEnded => None,
    })
}
