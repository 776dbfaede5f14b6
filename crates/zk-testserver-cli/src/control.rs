//! Executes commands on the running server.

use jute_codec::SessionId;
use tokio::sync::Notify;
use zk_testserver::{Reception, TestServer};

use crate::command::Command;

/// The server, and the end of the program.
pub(crate) struct Control {
    pub(crate) server: TestServer,
    /// How many members the ensemble has.
    pub(crate) members: u16,
    /// Notified when the program shall end.
    pub(crate) stop: Notify,
}

impl Control {
    /// Executes a command, except for [`Command::Shutdown`], for which the caller notifies `stop`
    /// when it is ready to end.
    ///
    /// # Errors
    ///
    /// Returns a sentence that says why the server cannot do that.
    pub(crate) fn execute(&self, command: &Command) -> Result<(), String> {
        let server = &self.server;
        match command {
            Command::Ping | Command::Shutdown => {}
            Command::CloseConnection(None) => server.disconnect_all(),
            Command::CloseConnection(Some(session)) => {
                self.check_session(*session)?;
                server.disconnect(*session);
            }
            Command::Expire(None) => {
                for session in self.sessions() {
                    server.expire(session);
                }
            }
            Command::Expire(Some(session)) => {
                self.check_session(*session)?;
                server.expire(*session);
            }
            Command::RejectConnections => server.set_reception(Reception::Refused),
            Command::AddDelay(delay) => server.delay_requests(*delay),
            Command::FailRequests(number) => server.fail_requests(*number),
            Command::NoResponse(number) => server.withhold_replies(*number),
            Command::Reset => server.reset(),
            Command::Elect(duration) => server.elect(*duration),
            Command::Inject(fault) => server.inject(fault.clone()),
            Command::Refuse(duration) => server.refuse_for(*duration),
            Command::Throttle(duration) => server.throttle_for(*duration),
            Command::Lag(_) if self.members == 1 => {
                return Err("one server has no followers; start it with --members 3".to_owned());
            }
            Command::Lag(lag) => server.set_lag(*lag),
            Command::Reap => server.reap(),
        }
        Ok(())
    }

    /// Returns the sessions that have not ended, even those that only one member knows.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        let mut sessions = self.server.sessions();
        for member in 0..usize::from(self.members) {
            sessions.extend(self.server.member(member).read_only_sessions());
        }
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// A test whose fault hits no session would pass for no reason.
    fn check_session(&self, session: SessionId) -> Result<(), String> {
        let sessions = self.sessions();
        if sessions.contains(&session) {
            return Ok(());
        }
        let known: Vec<String> = sessions.iter().map(SessionId::to_string).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        Err(format!("{session} is not a session; the sessions are: {known}"))
    }
}
