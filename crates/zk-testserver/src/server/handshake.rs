//! Handshakes: start a session, resume one, or report that it has expired.

use std::time::Duration;

use bytes::Bytes;
use jute_codec::{ConnectRequest, ConnectResponse, OpCode, Reader, Record as _, SessionId};

use crate::commit::Write;
use crate::connection::{Phase, frame, head};
use crate::fault::{Action, Reception};
use crate::session;

use super::Server;

impl Server {
    /// Handles the first frame of a connection.
    pub(super) fn handle_handshake(&mut self, id: u64, payload: Bytes, now: Duration) {
        let Ok(mut request) = ConnectRequest::decode(&mut Reader::new(payload)) else {
            return self.close(id);
        };
        let fault = self.faults.at_connect();
        let mut cut_at = None;
        match self.begin_fault(fault, now) {
            Some(Action::CutBefore) => return self.close(id),
            Some(Action::Freeze) => return self.freeze(id),
            Some(Action::CutAfter) => cut_at = Some(0),
            Some(Action::CutAtReplyByte(length)) => cut_at = Some(length),
            Some(Action::Delay(duration)) => self.stall(id, now.saturating_add(duration)),
            Some(Action::Expire) => self.expire(request.session_id, now),
            Some(Action::SwapSession) => {
                self.disconnect_session(request.session_id);
                request.session_id = SessionId::NONE;
            }
            // `Faults::inject` refuses these actions at handshakes.
            Some(
                Action::LateCommit(_)
                | Action::Error(_)
                | Action::ErrorAfter(_)
                | Action::CutOff(_)
                | Action::Pause(_),
            )
            | None => {}
        }
        let is_deposed = self.is_deposed(self.member_of(id), now);
        let reception = if is_deposed { Reception::Open } else { self.reception(now) };
        let response = if reception == Reception::Expired {
            Some(expired(&request))
        } else {
            self.connect(id, &request, now)
        };
        if let (Some(response), Some(connection)) = (&response, self.connections.get_mut(id))
            && !is_refusal(response)
        {
            connection.phase = Phase::Session(response.session_id);
        }
        let Some(response) = response else { return self.close(id) };
        let is_closing = is_refusal(&response) || reception == Reception::HangUp;
        if let Some(bytes) = frame(|out| response.encode(out)) {
            self.send(id, &head(bytes, cut_at.unwrap_or(usize::MAX)));
        }
        if is_closing || cut_at.is_some() {
            self.close(id);
        }
    }

    /// Starts or resumes a session. Returns `None` if the client must connect to another server.
    fn connect(
        &mut self,
        id: u64,
        request: &ConnectRequest,
        now: Duration,
    ) -> Option<ConnectResponse> {
        let is_cut_off = self.is_partitioned(self.member_of(id));
        if self.config.version.is_keeper() {
            let timeout = self.config.negotiate(request.timeout_ms);
            return Some(match is_cut_off {
                true => without_leader(timeout),
                false => {
                    let session = self.open_session(id, timeout, now);
                    keeper(timeout, session)
                }
            });
        }
        if is_cut_off {
            return self.connect_to_island(id, request, now);
        }
        if self.is_deposed(self.member_of(id), now) {
            return self.connect_to_deposed(id, request);
        }
        if request.last_zxid_seen > self.replica(id).zxid {
            return None;
        }
        let timeout = self.config.negotiate(request.timeout_ms);
        let session = if request.session_id == SessionId::NONE {
            Some(self.open_session(id, timeout, now))
        } else {
            let session = request.session_id;
            // Real servers close the old connection before they check the password, so knowing the
            // id suffices to disconnect a client.
            self.disconnect_session(session);
            let is_resumed = session::password(session) == request.password.as_ref()
                && self.sessions.resume(session, timeout, id, now, false);
            // A follower asks the leader whether the session is alive.
            self.hear_from_leader(self.member_of(id), now);
            is_resumed.then_some(session)
        };
        Some(match session {
            Some(session) => accepted(request, timeout, session),
            None => expired(request),
        })
    }

    fn open_session(&mut self, id: u64, timeout: Duration, now: Duration) -> SessionId {
        let session = self.sessions.create(timeout, id, now);
        self.propose_as_server(OpCode::CREATE_SESSION, session, Write::CreateSession, now);
        self.catch_up(self.member_of(id), now);
        session
    }

    /// Closes the connection of a session, if there is one.
    fn disconnect_session(&mut self, session: SessionId) {
        if let Some(older) = self.sessions.get_mut(session).and_then(|known| known.connection) {
            self.close(older);
        }
    }

    pub(super) fn freeze(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.freeze();
        }
    }

    pub(super) fn stall(&mut self, id: u64, until: Duration) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.stall(until);
        }
    }
}

/// Returns the response that reports a session.
pub(super) fn accepted(
    request: &ConnectRequest,
    timeout: Duration,
    session: SessionId,
) -> ConnectResponse {
    let timeout_ms = milliseconds(timeout);
    let password = Bytes::copy_from_slice(&session::password(session));
    ConnectResponse { timeout_ms, session_id: session, password, ..expired(request) }
}

/// Returns the response that reports an expired session.
pub(super) fn expired(request: &ConnectRequest) -> ConnectResponse {
    ConnectResponse {
        protocol_version: 0,
        timeout_ms: 0,
        session_id: SessionId::NONE,
        password: Bytes::from_static(&[0; 16]),
        read_only: request.read_only.map(|_| false),
    }
}

/// Returns the response of a Keeper that has opened a session. It has neither a password nor the
/// flag of a read-only server (`KeeperTCPHandler::sendHandshake`).
fn keeper(timeout: Duration, session_id: SessionId) -> ConnectResponse {
    ConnectResponse {
        protocol_version: 0,
        timeout_ms: milliseconds(timeout),
        session_id,
        password: Bytes::from_static(&[0; 16]),
        read_only: None,
    }
}

/// Returns the response of a Keeper without a leader.
fn without_leader(timeout: Duration) -> ConnectResponse {
    ConnectResponse { protocol_version: 42, ..keeper(timeout, SessionId(-1)) }
}

/// Returns whether the server closes the connection after this response.
fn is_refusal(response: &ConnectResponse) -> bool {
    response.session_id == SessionId::NONE || response.protocol_version != 0
}

fn milliseconds(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
