//! Routes replies, watch events and changes of the session to their recipients.

use std::collections::{BTreeMap, VecDeque};

use jute_codec::EventType;
use tokio::sync::oneshot;

use super::command::{AuthSender, Command, ReplySink, WatchSender};
use super::connection_log::ConnectionLog;
use super::ends::{LastEnd, Queued};
use super::lane_event::LaneEvent;
use super::lanes::Lanes;
use super::latest::Writer;
use super::meter::Meter;
use crate::error::{AuthError, WatchEnded};
use crate::machine::status::SessionTerms;
use crate::machine::token_map::TokenMap;
use crate::machine::{
    Change, EndCause, OwnerId, Reply, SessionMachine, SessionState, SessionTicket, Status, Token,
    WatchId, WatchNews,
};
use crate::time::Time;
use crate::types::WatchedEvent;

/// Knows the recipients of replies, watch events and changes of the session.
pub(super) struct Router {
    /// The status that was published last.
    published: Status,
    status: Writer<Status>,
    pub(super) log: ConnectionLog,
    pub(super) meter: Meter,
    queued: Queued,
    last_end: LastEnd,
    /// Recipients of replies.
    sinks: TokenMap<ReplySink>,
    pub(super) lanes: Lanes,
    /// Recipients of watch events that are not lanes.
    watchers: BTreeMap<OwnerId, WatchSender>,
    /// Callers that wait for the result of a change of the credentials.
    auth_changes: BTreeMap<Token, AuthSender>,
    /// Callers that wait for the end of the session.
    closers: Vec<oneshot::Sender<EndCause>>,
    /// Callers that wait for the ticket of the session, in the order of their requests.
    heirs: VecDeque<oneshot::Sender<Option<SessionTicket>>>,
}

impl Router {
    pub(super) fn new(
        status: Writer<Status>,
        log: ConnectionLog,
        meter: Meter,
        queued: Queued,
        last_end: LastEnd,
    ) -> Self {
        let published = *status.borrow();
        Self {
            published,
            status,
            log,
            meter,
            queued,
            last_end,
            sinks: TokenMap::default(),
            lanes: Lanes::default(),
            watchers: BTreeMap::new(),
            auth_changes: BTreeMap::new(),
            closers: Vec::new(),
            heirs: VecDeque::new(),
        }
    }

    /// Returns the status that was published last.
    pub(super) fn status(&self) -> Status {
        self.published
    }

    pub(super) fn handle_command(
        &mut self,
        machine: &mut SessionMachine,
        now: Time,
        command: Command,
    ) {
        match command {
            Command::Cancel(token) => {
                self.sinks.remove(token);
                machine.cancel(now, token);
            }
            Command::ChangeAuth(token, change, sender) => {
                self.auth_changes.insert(token, sender);
                machine.change_auth(now, token, change);
            }
            Command::Close(closer) => {
                self.closers.push(closer);
                machine.close(now);
            }
            // The caller has given up, so nobody could continue the session.
            Command::HandOver(heir) if heir.is_closed() => {}
            Command::HandOver(heir) => {
                self.heirs.push_back(heir);
                machine.hand_over(now);
            }
            Command::RemoveOwner(owner) => {
                let was_lane = self.lanes.close(owner);
                self.watchers.remove(&owner);
                machine.remove_owner(owner);
                machine.set_lease_needed(now, self.lanes.is_lease_needed());
                if was_lane && self.lanes.is_empty() {
                    machine.set_relied_on(now, false);
                }
            }
            Command::HoldLock(id, holds_lock) => self.lanes.set_holds_lock(id, holds_lock),
            Command::OpenLane(id, sender) => {
                if self.lanes.is_empty() {
                    machine.set_relied_on(now, true);
                }
                self.lanes.open(id, sender);
            }
            Command::NeedLease(id, need) => {
                self.lanes.set_needs_lease(id, need.is_some());
                machine.set_lease_needed(now, self.lanes.is_lease_needed());
                if let Some(need) = need {
                    // Publish the status first: a reader that finds the need kept must not see an
                    // older one.
                    let status = machine.status();
                    self.publish(status);
                    self.lanes.keep_need(id, need, status.is_leased(now));
                }
            }
            Command::WakeLane(id, at) => self.lanes.set_alarm(id, at),
            Command::Recall(token) => machine.recall(now, token),
            Command::Reconnect => machine.reconnect(now),
            Command::SetHosts(hosts) => {
                machine.set_hosts(now, hosts);
                self.log.set_server_count(machine.server_count());
            }
            Command::FollowHosts(hosts) => {
                machine.follow_hosts(now, hosts);
                self.log.set_server_count(machine.server_count());
            }
            Command::SetDeadline(token, at) => machine.set_deadline(now, token, at),
            Command::Submit { token, owner, flight, sink, extras } => {
                let (watcher, quota) = match extras {
                    Some(extras) => (extras.watcher, extras.quota),
                    None => (None, None),
                };
                // Registered before the flight is submitted, so that no event can arrive before the
                // watcher is known.
                self.watchers.extend(watcher.map(|watcher| (owner, watcher)));
                let is_counted = sink.is_counted();
                if is_counted {
                    self.queued.remove();
                }
                match quota {
                    Some(quota) => machine.submit_limited(now, token, owner, flight, quota),
                    None if is_counted => machine.submit(now, token, owner, flight),
                    None => machine.submit_uncounted(now, token, owner, flight),
                }
                self.sinks.insert(token, sink);
            }
        }
    }

    /// Publishes the status to the handles.
    pub(super) fn publish(&mut self, new: Status) {
        if new == self.published {
            return;
        }
        self.published = new;
        self.status.send_if_modified(|status| {
            // Acknowledgements, and the deadlines that they move, change too often to wake readers
            // each time. Only the start and the end of a lease wake them, and a deadline that has
            // become an earlier one than they wait for.
            let Status {
                acknowledged,
                guard_deadline,
                lease_deadline,
                leased_until,
                slow_commits,
                renewal_time,
                overdue_from,
                ..
            } = *status;
            let same = Status {
                acknowledged,
                guard_deadline,
                lease_deadline,
                leased_until,
                slow_commits,
                renewal_time,
                overdue_from,
                ..new
            };
            let is_news = same != *status
                || lease_deadline.is_none() != new.lease_deadline.is_none()
                || slow_commits.is_none() != new.slow_commits.is_none()
                || status
                    .risk_deadline()
                    .zip(new.risk_deadline())
                    .is_some_and(|(old, new)| new < old);
            *status = new;
            is_news
        });
    }

    /// Passes a change of the session on to all recipients.
    pub(super) fn announce(&mut self, change: Change, terms: SessionTerms, now: Time) {
        let holds_lock = self.lanes.is_lock_held();
        let acknowledged = self.published.acknowledged;
        self.log.session_changed(change, terms, acknowledged, holds_lock, now);
        if let Change::Connected { resumed: false, .. } = change {
            // If the runtime drops the task, nobody knows how this session ends.
            self.last_end.set(EndCause::Abandoned);
        }
        if let Change::Ended { cause, .. } = change {
            self.last_end.set(cause);
            let ended = match cause {
                EndCause::Closed | EndCause::Abandoned => WatchEnded::Closed,
                EndCause::Expired | EndCause::GaveUp | EndCause::Swapped => {
                    WatchEnded::SessionExpired
                }
            };
            for (_, watcher) in std::mem::take(&mut self.watchers) {
                watcher.end(ended);
            }
        }
        self.lanes.push_to_all(change);
    }

    pub(super) fn deliver_reply(&mut self, token: Token, reply: Reply) {
        match self.sinks.remove(token) {
            Some(ReplySink::Lane(id)) => self.lanes.push(id, LaneEvent::Reply { token, reply }),
            Some(ReplySink::Once(sender) | ReplySink::Own(sender)) => drop(sender.send(reply)),
            None => {}
        }
    }

    pub(super) fn deliver_auth_change(&mut self, token: Token, result: Result<(), AuthError>) {
        if let Some(sender) = self.auth_changes.remove(&token) {
            let _ = sender.send(result);
        }
    }

    pub(super) fn deliver_watch_event(&mut self, id: WatchId, event: WatchedEvent) {
        let WatchId { owner, number } = id;
        if let Some(watcher) = self.watchers.remove(&owner) {
            match watcher {
                WatchSender::Once(watcher) => drop(watcher.send(match event.kind {
                    EventType::CHILD_WATCH_REMOVED | EventType::DATA_WATCH_REMOVED => {
                        Err(WatchEnded::Removed)
                    }
                    _ => Ok(event),
                })),
                WatchSender::Stream(_) => unreachable!("a stream has no one-shot watch"),
            }
        } else {
            self.lanes.push(owner, LaneEvent::Watch { number, kind: event.kind });
        }
    }

    /// Passes on the ticket of the session. The first caller gets the ticket, and later ones learn
    /// that there is none left.
    pub(super) fn hand_over(&mut self, ticket: Option<SessionTicket>) {
        // A refusal answers the newest request, and a ticket answers the oldest.
        let heir = if ticket.is_some() || self.heirs.len() == 1 {
            self.heirs.pop_front()
        } else {
            self.heirs.pop_back()
        };
        if let Some(heir) = heir {
            let _ = heir.send(ticket);
        }
    }

    pub(super) fn deliver_news(&mut self, id: WatchId, news: WatchNews) {
        if let Some(WatchSender::Stream(stream)) = self.watchers.get(&id.owner) {
            stream.push(news);
        }
    }

    /// Publishes the counters, which include the events that the machine is about to hand out, and
    /// the number of operations that it has accepted.
    pub(super) fn count(&mut self, machine: &mut SessionMachine) {
        self.queued.accepted(machine.outstanding());
        self.meter.count(machine);
    }

    /// Logs the end of an outage if the connection is proven.
    pub(super) fn check_outage(&mut self, machine: &SessionMachine) {
        let is_connected = self.published.state == SessionState::Connected;
        self.log.check_outage(machine.failures(), is_connected);
    }

    /// Tells all recipients that the client has stopped.
    pub(super) fn stop(&mut self) {
        self.lanes.stop();
        for closer in self.closers.drain(..) {
            let _ = closer.send(self.last_end.get());
        }
    }
}

/// A runtime that shuts down drops the task. The session is then no longer kept alive, so its
/// handles must not continue as if it were connected. Lanes notice the end of their queues.
impl Drop for Router {
    fn drop(&mut self) {
        if !self.published.state.is_final() {
            self.status.send_if_modified(|status| {
                status.state = SessionState::Closed;
                true
            });
        }
    }
}
