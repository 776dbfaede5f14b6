//! Connections to read-only servers: members of an ensemble that have lost contact with the
//! majority, and serve what they know.
//!
//! Such a server knows nothing about the present, so it proves nothing about the session: no
//! acknowledgement counts, no lease is extended, and flights of lanes wait as they do without a
//! connection. The session stays as it is until a server with a quorum has resumed it.
//!
//! Servers from 3.7 on refuse to resume a session while they are read-only, without a reply. So if
//! a server hangs up during a resume, the machine asks the same server once more, without a session.
//! Such a server opens a session of its own, which no other server knows. If the server turns out
//! to accept writes, that session is closed, and the real one is resumed.
//!
//! A session that was opened after such a server has lost the majority is one that it does not know,
//! and the server says that it has expired. That is not a proof either: the machine asks once more
//! without a session, too.
//!
//! While a read-only server is connected, the driver asks the servers of the list in turn whether
//! they accept writes (`isro`). If one does, the machine waits for the replies in flight and moves
//! there. Source of the intervals: `ClientCnxn.SendThread.pingRwServer`.

use std::time::Duration;

use super::link::{Opening, ReadOnly};
use super::{Identity, Phase, SessionMachine};
use crate::host::Host;
use crate::machine::cause::DisconnectCause;
use crate::machine::event::Event;
use crate::machine::hosts::Attempt;
use crate::machine::timer::Timer;
use crate::time::Time;
use crate::types::SessionId;

/// Pause before the first search for a server that accepts writes.
const SEEK_MIN: Duration = Duration::from_millis(100);
/// Maximum pause between searches.
const SEEK_MAX: Duration = Duration::from_secs(60);
/// Time for a server to say whether it accepts writes.
const PROBE_TIME: Duration = Duration::from_secs(1);

impl SessionMachine {
    /// Returns true if a read-only server is acceptable for the next connection.
    pub(super) fn accepts_read_only(&self) -> bool {
        self.config.read_only && !self.is_closing
    }

    /// Returns true if the server that has just hung up, or does not know the session, is to be asked
    /// without a session: it may be a read-only one that does not resume the session.
    pub(super) fn may_be_read_only(&self) -> bool {
        let was_resume = matches!(self.link.phase, Phase::Handshaking(_))
            && (self.identity.is_some() || self.stale.is_some())
            && self.link.opening() != Opening::Anonymous;
        was_resume && self.accepts_read_only()
    }

    /// Uses a connection to a read-only server.
    pub(super) fn adopt_read_only(&mut self, timeout: Duration) {
        self.link.read_only = Some(ReadOnly { timeout, pause: SEEK_MIN });
        // No server without a quorum can know that the session has expired.
        self.timers.stop(Timer::GiveUp);
        self.connection += 1;
        self.arm_heartbeat();
        self.begin_use();
    }

    /// Closes a session that was opened only because a server seemed to be read-only.
    pub(super) fn close_stray(&mut self, id: SessionId, password: bytes::Bytes) {
        self.stale = Some(Identity { id, password });
        self.begin_use();
    }

    /// Schedules the next search.
    pub(super) fn arm_seek(&mut self) {
        let Some(read_only) = &mut self.link.read_only else { return };
        self.timers.set(Timer::Seek, self.now + read_only.pause);
        read_only.pause = (read_only.pause * 2).min(SEEK_MAX);
    }

    /// Requests a search at the next server.
    pub(super) fn seek(&mut self) {
        let (host, number) = self.hosts.next();
        self.events.push_back(Event::Probe { host, attempt: Attempt::new(number, PROBE_TIME) });
        self.arm_seek();
    }

    /// Records that a server says that it accepts writes. The list of servers may have been replaced
    /// since it was asked.
    pub(crate) fn handle_read_write_server(&mut self, now: Time, host: Host) {
        self.advance(now);
        if self.link.is_read_only() && self.hosts.aim(host) {
            self.leave(DisconnectCause::ReadWriteServer);
            self.handle_timeout(now);
        }
    }

    /// Returns the session timeout that applies to the current connection.
    pub(super) fn connection_timeout(&self) -> Duration {
        match &self.link.read_only {
            Some(read_only) => read_only.timeout,
            None => self.timeout.in_force(),
        }
    }
}
