//! The state that the handles of a client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::error::SendError;

use super::access::Access;
use super::clock::Clock;
use super::command::{Command, ReplySink, WatchSender};
use super::ends::HandleEnds;
use super::janitor::Janitor;
use super::notices::Notices;
use crate::chroot::translate::{Root, error_to_client, flight_to_server};
use crate::connect_string::ConnectString;
use crate::error::{ConnectionFailure, FailureCause, OpError};
use crate::machine::{Flight, OwnerId, Status, Token};
use crate::path::Chroot;
use crate::random::SplitMix;

/// Shared by all handles of a client. When the last handle is dropped, the task closes the session.
pub(crate) struct Shared {
    pub(crate) access: Arc<Access>,
    pub(crate) chroot: Chroot,
    pub(crate) clock: Clock,
    pub(crate) ends: HandleEnds,
    /// The hosts of the connect string, for messages.
    pub(crate) hosts: String,
    pub(crate) janitor: Janitor,
    pub(crate) notices: Notices,
    /// Limit on the flights that are on their way to the task.
    pub(crate) queued_max: usize,
    next_id: AtomicU64,
    id_seed: [u64; 2],
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "one caller, which names all of them")]
    pub(crate) fn new(
        access: Arc<Access>,
        chroot: Chroot,
        clock: Clock,
        ends: HandleEnds,
        hosts: String,
        janitor: Janitor,
        queued_max: usize,
        id_seed: [u64; 2],
    ) -> Self {
        let next_id = AtomicU64::new(1);
        let notices = Notices::default();
        Self { access, chroot, clock, ends, hosts, janitor, notices, queued_max, next_id, id_seed }
    }

    pub(crate) fn status(&self) -> Status {
        *self.ends.status.borrow()
    }

    /// Returns why there is no connection: the session's task does not run, or the last failure, or
    /// how far the first attempt has progressed.
    pub(crate) fn why_not_connected(&self) -> Option<ConnectionFailure> {
        self.not_run().or_else(|| self.ends.connection.borrow().why_not_connected())
    }

    /// Returns the last failure. If the session's task does not run, that is the failure.
    pub(crate) fn last_failure(&self) -> Option<ConnectionFailure> {
        self.not_run().or_else(|| self.ends.connection.borrow().last_failure.clone())
    }

    /// Returns a failure if the session's task should have run and has not.
    fn not_run(&self) -> Option<ConnectionFailure> {
        let stall = self.ends.pulse.stall(self.clock.now())?;
        let attempted = self.ends.connection.borrow().server().cloned();
        let host = attempted.or_else(|| {
            let hosts = self.hosts.parse::<ConnectString>().ok()?.hosts;
            hosts.into_iter().next()
        })?;
        Some(ConnectionFailure { host, cause: FailureCause::NotRun(stall) })
    }

    /// Sends a command to the task. If the task has ended, the command is dropped: the session is
    /// over, so there is nothing left to cancel, close or wake.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.ends.commands.send(command);
    }

    /// Returns a number that no other flight, watcher or lane of this client has.
    fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn fresh_owner(&self) -> OwnerId {
        OwnerId(self.fresh_id())
    }

    pub(crate) fn fresh_token(&self) -> Token {
        Token(self.fresh_id())
    }

    /// Returns a random 128-bit number. The seed is random, and a counter makes all numbers of a
    /// client different.
    pub(crate) fn unique_id(&self) -> u128 {
        let [high, low] =
            self.id_seed.map(|seed| SplitMix(seed.wrapping_add(self.fresh_id())).next());
        u128::from(high) << 64 | u128::from(low)
    }

    /// Returns a random number that belongs to this owner, without drawing one.
    pub(crate) fn seed_of(&self, owner: OwnerId) -> u64 {
        let [seed, _] = self.id_seed;
        SplitMix(seed.wrapping_sub(owner.0)).next()
    }

    /// Returns the error of a request that is submitted after the client has stopped.
    fn refusal(&self) -> OpError {
        self.status().state.refusal()
    }

    /// Submits a flight, and warns of znodes that will be open to everyone. Flights reach the server
    /// in the order of these calls. An error has the client's path.
    pub(crate) fn submit(
        &self,
        mut flight: Flight,
        root: Root,
        owner: OwnerId,
        sink: ReplySink,
        watcher: Option<WatchSender>,
    ) -> Result<Token, OpError> {
        if root == Root::Client {
            flight_to_server(&self.chroot, &mut flight);
        }
        for operation in &flight.operations {
            self.access.check(&operation.request);
        }
        self.enqueue(flight, owner, sink, watcher).map_err(|mut error| {
            error_to_client(&self.chroot, &mut error);
            error
        })
    }

    fn enqueue(
        &self,
        flight: Flight,
        owner: OwnerId,
        sink: ReplySink,
        watcher: Option<WatchSender>,
    ) -> Result<Token, OpError> {
        let is_counted = sink.is_counted();
        if is_counted && let Err(count) = self.ends.queued.add(self.queued_max) {
            // A task that has stopped never makes room again, so do not suggest a retry.
            let is_stopped = self.ends.commands.is_closed();
            let target = flight.target();
            return Err(if is_stopped {
                self.refusal().about(target)
            } else {
                OpError::QueueFull { waiting: count, target }
            });
        }
        let token = self.fresh_token();
        let command = Command::Submit { token, owner, flight, sink, watcher };
        self.ends.commands.send(command).map_err(|SendError(command)| {
            if is_counted {
                self.ends.queued.remove();
            }
            let Command::Submit { flight, .. } = command else {
                unreachable!("it was built above")
            };
            self.refusal().about(flight.target())
        })?;
        Ok(token)
    }
}
