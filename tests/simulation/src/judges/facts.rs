//! What has happened to the clients of a run, and when: the reasons for which calls may fail.

use std::collections::BTreeMap;
use std::time::Duration;

use jute_codec::{ErrorCode, OpCode};
use zk_testserver::{Outcome, RequestRecord};

use super::Case;
use crate::history::{Event, What};

/// By how much earlier a request may seem to have arrived, because the clock of the servers counts in
/// fractions.
const SLACK: Duration = Duration::from_millis(1);

/// A request that a server has not executed, or not with success.
#[derive(Clone, Copy, Debug)]
struct Answer<'a> {
    at: Duration,
    /// `None`: the reply has a code for each of its parts.
    code: Option<ErrorCode>,
    path: Option<&'a str>,
}

/// What has happened.
#[derive(Debug, Default)]
pub(super) struct Facts<'a> {
    /// By the numbers of the clients. `None`: the client of the session is not known.
    answers: BTreeMap<Option<usize>, Vec<Answer<'a>>>,
    /// When clients have lost their sessions.
    lost_sessions: Vec<Duration>,
    /// Since when others have deleted or created what recipes use.
    tampered: Option<Duration>,
    /// Since when others have deleted it.
    deleted: Option<Duration>,
    /// Since when the numbers of some directory are near their end.
    ended: Option<Duration>,
}

impl<'a> Facts<'a> {
    /// Collects what has happened in a run.
    pub(super) fn of(case: &Case<'a>) -> Self {
        let mut facts = Self::default();
        for request in case.requests {
            let client = case.sessions.get(&request.session).copied();
            facts.answer(client, request);
        }
        case.events.iter().for_each(|event| facts.see(event));
        facts
    }

    /// A server has answered this request.
    pub(super) fn answer(&mut self, client: Option<usize>, request: &'a RequestRecord) {
        let code = match request.outcome {
            Outcome::Applied(ErrorCode::OK) if request.op == OpCode::MULTI_READ => None,
            Outcome::Applied(ErrorCode::OK) | Outcome::AppliedUnanswered(ErrorCode::OK) => return,
            // The connection may be cut behind the whole reply.
            Outcome::Applied(code) | Outcome::AppliedUnanswered(code) | Outcome::Refused(code) => {
                Some(code)
            }
            Outcome::Misreported { reported, .. } => Some(reported),
            _ => return,
        };
        let answer = Answer { at: request.at, code, path: request.path.as_deref() };
        self.answers.entry(client).or_default().push(answer);
    }

    /// Something has happened.
    pub(super) fn see(&mut self, event: &Event) {
        match &event.what {
            What::LostSession { .. } => self.lost_sessions.push(event.at),
            What::Deleted { .. } | What::Intruded { .. } => {
                self.deleted.get_or_insert(event.at);
                self.tampered.get_or_insert(event.at);
            }
            What::Fault { text, .. } if text.starts_with("Stranger") => {
                self.tampered.get_or_insert(event.at);
            }
            What::Fault { text, .. } if text.starts_with("SequenceEnd") => {
                self.ended.get_or_insert(event.at);
            }
            _ => {}
        }
    }

    /// Returns whether a server has answered a request of this client between these times, and perhaps
    /// of this path, with one of these codes.
    pub(super) fn is_answered(
        &self,
        client: Option<usize>,
        from: Duration,
        to: Duration,
        path: Option<&str>,
        is_it: impl Fn(ErrorCode) -> bool,
    ) -> bool {
        let of_clients = [client, None].into_iter().filter_map(|it| self.answers.get(&it));
        of_clients.flatten().any(|answer| {
            let is_of_path = answer.path.is_none() || path.is_none() || answer.path == path;
            let is_then = from <= answer.at + SLACK && answer.at <= to + SLACK;
            is_then && is_of_path && answer.code.is_none_or(&is_it)
        })
    }

    /// Returns whether a client has lost its session between these times.
    pub(super) fn is_session_lost(&self, from: Duration, to: Duration) -> bool {
        self.lost_sessions.iter().any(|at| (from..=to).contains(at))
    }

    /// Returns whether others had deleted or created what recipes use by this time.
    pub(super) fn is_tampered_by(&self, at: Duration) -> bool {
        self.tampered.is_some_and(|since| since <= at)
    }

    /// Returns whether others had deleted something of a recipe by this time.
    pub(super) fn is_deleted_by(&self, at: Duration) -> bool {
        self.deleted.is_some_and(|since| since <= at)
    }

    /// Returns whether the numbers of a directory were near their end by this time.
    pub(super) fn is_ended_by(&self, at: Duration) -> bool {
        self.ended.is_some_and(|since| since <= at)
    }
}
