//! What a machine needs of a flight, and what it receives.

use jute_codec::{ErrorCode, Response};
use zk_session::recipe::Reply;
use zk_session::{OpError, Outcome, SessionId};

use super::verdict::{Verdict, replayable, verdict};

/// What a machine needs of a flight, and which of its operations may be issued again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// Each operation may be issued any number of times, and they belong together: all of them are
    /// issued until one flight has a result for each.
    All,
    /// Each operation may be issued any number of times, and none depends on the connection of
    /// another: those without a result are issued again, and with a write the reads behind it.
    Each,
    /// The operation at this index must not be applied twice. The flight is issued again only if this
    /// operation certainly was not applied. The results of the others may be missing.
    Once(usize),
    /// Nothing is issued again, because the machine has to look first.
    OneTry,
}

/// The result of an operation.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The operation was executed, with this response.
    Done(Response),
    /// The operation was refused. Or, if it may be issued again, servers have failed too often.
    Refused(OpError),
    /// The session has ended, and everything that belongs to it is gone.
    SessionEnded,
    /// There is no result, for this reason, which says whether the operation may have been applied.
    Unknown {
        /// The reason.
        error: OpError,
        /// Servers have failed too often to try again.
        is_final: bool,
    },
}

/// The results of a flight, in the order of its operations.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The session in which the flight was executed.
    pub session: Option<SessionId>,
    /// The connection on which it was executed.
    pub connection: u64,
    /// The results.
    pub results: Vec<Answer>,
    /// Number of times that the flight was lost with its connection and issued again.
    pub replays: u64,
    /// The flight was issued before, and its operations may have been applied then.
    pub is_repeated: bool,
}

impl Answer {
    /// Returns the answer to a read that is not issued again.
    pub(super) fn of_read(result: Result<Response, OpError>) -> Self {
        let error = result.as_ref().err().cloned();
        Self::of(replayable(result), error)
    }

    /// Returns the answer to an operation that is not issued again, and may be a write.
    pub(super) fn of_write(result: Result<Response, OpError>) -> Self {
        let error = result.as_ref().err().cloned();
        Self::of(verdict(result), error)
    }

    fn of(verdict: Verdict, error: Option<OpError>) -> Self {
        match verdict {
            Verdict::Done(response) => Self::Done(response),
            Verdict::Refused(error) => Self::Refused(error),
            Verdict::SessionEnded => Self::SessionEnded,
            Verdict::Later(_) | Verdict::NotApplied | Verdict::Unknown => Self::unknown(error),
        }
    }

    /// Returns the answer to an operation without a result.
    pub(crate) fn unknown(error: Option<OpError>) -> Self {
        let error = error.unwrap_or_else(|| OpError::connection_loss(Outcome::Unknown));
        Self::Unknown { error, is_final: false }
    }

    /// Returns the answer to an operation that is not issued again because of this refusal. A
    /// connection that is lost right behind the refusal is not the reason.
    pub(super) fn or_refused(self, refusal: &OpError) -> Self {
        match self {
            Self::Unknown { .. } => Self::Refused(refusal.clone()),
            Self::Done(_) | Self::Refused(_) | Self::SessionEnded => self,
        }
    }

    /// Says whether servers have refused too often to try again, and then with which refusal. A
    /// connection that is lost right behind the refusal is not the reason.
    pub(super) fn finish(&mut self, refusal: Option<&OpError>) {
        let Self::Unknown { error, is_final } = self else { return };
        *is_final = refusal.is_some();
        // The error also says whether the operation may have been applied.
        let says_the_same = |refusal: &&OpError| refusal.outcome() == error.outcome();
        if let Some(refusal) = refusal.filter(says_the_same)
            && error.is_connection_loss()
        {
            *error = refusal.clone();
        }
    }

    /// Returns whether the operation was refused because the znode does not exist.
    pub(crate) fn is_no_node(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_no_node())
    }

    /// Returns whether the operation was refused with this code.
    pub(crate) fn is_refused_with(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Refused(error) if error.server_code() == Some(code))
    }

    /// Returns the response, or why there is none: for machines to which all sessions are the same.
    pub(crate) fn response(self) -> Result<Response, OpError> {
        match self {
            Self::Done(response) => Ok(response),
            Self::Refused(error) | Self::Unknown { error, .. } => Err(error),
            Self::SessionEnded => Err(OpError::session_expired(Outcome::Unknown)),
        }
    }
}

impl From<Answer> for Verdict {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Done(response) => Self::Done(response),
            Answer::Refused(error) => Self::Refused(error),
            Answer::SessionEnded => Self::SessionEnded,
            Answer::Unknown { .. } => Self::Unknown,
        }
    }
}

impl Answers {
    /// Takes the results.
    pub(crate) fn take<const N: usize>(self) -> [Answer; N] {
        debug_assert_eq!(self.results.len(), N, "there is an answer for each operation");
        let mut results = self.results.into_iter();
        [(); N].map(|()| results.next().unwrap_or_else(|| Answer::unknown(None)))
    }
}

impl From<Reply> for Answers {
    /// Returns the results of a flight that is not issued again.
    fn from(reply: Reply) -> Self {
        let Reply { session, connection, results, .. } = reply;
        let results = results.into_iter().map(Answer::of_write).collect();
        Self { session, connection, results, replays: 0, is_repeated: false }
    }
}
