//! Waiting for the first connection of a client.

use super::states::StateStream;
use crate::driver::shared::Shared;
use crate::error::ConnectError;
use crate::machine::SessionState;
use crate::types::SessionId;

/// Waits until the client is connected for the first time, in the session to resume if there is one.
pub(super) async fn first_connection(
    mut states: StateStream,
    shared: &Shared,
    resumed: Option<SessionId>,
) -> Result<(), ConnectError> {
    let mut status = states.current();
    loop {
        let state = status.state;
        // The session of the ticket is the first one, so any other state shows that it has ended.
        let is_stopped = matches!(state, SessionState::AuthFailed | SessionState::Closed);
        if let Some(session) = resumed
            && status.session != resumed
            && !is_stopped
        {
            return Err(ConnectError::NotResumed { session });
        }
        if matches!(state, SessionState::Connected | SessionState::ConnectedReadOnly) {
            return Ok(());
        }
        let next = match state {
            SessionState::AuthFailed => return Err(ConnectError::AuthFailed),
            SessionState::Closed | SessionState::Expired => None,
            SessionState::Connected
            | SessionState::ConnectedReadOnly
            | SessionState::Connecting
            | SessionState::Suspended => states.next().await,
        };
        let Some(next) = next else {
            return Err(ConnectError::Stopped {
                hosts: shared.hosts.to_string(),
                last_failure: shared.why_not_connected(),
            });
        };
        status = next;
    }
}
