//! Leaving a session to another client.
//!
//! The machine stops as it does when it is closed, except that it sends no closeSession. It waits
//! for the replies in flight first, so that their outcomes are known, and stops at once if the
//! connection ends.

use bytes::Bytes;

use super::{Identity, Phase, SessionMachine};
use crate::error::{OpError, Outcome};
use crate::machine::event::Event;
use crate::machine::seen::Seen;
use crate::machine::session_timeout::SessionTimeout;
use crate::machine::status::{Change, SessionState};
use crate::machine::ticket::SessionTicket;
use crate::machine::timer::Timer;
use crate::time::Time;

impl SessionMachine {
    /// Stops the machine without ending its session. An event reports the ticket of the session, or
    /// that there is none.
    pub(crate) fn hand_over(&mut self, now: Time) {
        self.advance(now);
        if self.is_closing || matches!(self.link.phase, Phase::Stopped(_)) {
            self.events.push_back(Event::HandedOver(None));
            return;
        }
        self.is_closing = true;
        self.is_handing_over = true;
        self.arm_renewal();
        // Guards are lost before another client can have their znodes.
        self.emit(Change::Closing);
        self.refuse_waiting(&OpError::closed(Outcome::NotApplied));
        self.refuse_parked(&OpError::closed(Outcome::NotApplied));
        self.timers.set(Timer::Close, now + self.timeout.in_force());
        self.finish_hand_over();
    }

    /// Stops if no reply is missing, or none can arrive any more.
    pub(super) fn finish_hand_over(&mut self) {
        if self.is_handing_over
            && (self.link.phase != Phase::Established || self.link.inflight().len() == 0)
        {
            self.stop(SessionState::Closed);
        }
    }

    /// Returns what another client needs to continue the session.
    pub(super) fn ticket(&self, identity: &Identity) -> SessionTicket {
        SessionTicket {
            session: identity.id,
            password: identity.password.clone(),
            // What a relative zxid has not covered yet was not seen.
            last_zxid: self.watches.restore_zxid().unwrap_or_else(|| self.seen.zxid()),
            next_xid: self.next_xid,
            granted: self.timeout.granted(),
            created: self.timeout.created(),
        }
    }

    /// Starts with the session of a ticket instead of a new one.
    pub(super) fn adopt_ticket(&mut self, ticket: SessionTicket) {
        let SessionTicket { session, password, last_zxid, next_xid, granted, created } = ticket;
        self.identity = Some(Identity { id: session, password: Bytes::copy_from_slice(&password) });
        self.seen = Seen::inherited(last_zxid);
        self.watches.interrupted(last_zxid);
        self.next_xid = next_xid;
        self.timeout = SessionTimeout::inherited(created, granted);
        self.validity.inherited(self.timeout.in_force());
        let give_up = self.config.give_up.max(granted);
        self.timers.set(Timer::GiveUp, self.now + give_up);
    }
}
