//! What a handle has: the state that all handles of a client share, and a root of its own.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::mpsc::error::SendError;

use super::access::Access;
use super::clock::Clock;
use super::command::{Command, Extras, ReplySink, WatchSender};
use super::ends::HandleEnds;
use super::janitor::Janitor;
use super::notices::Notices;
use crate::chroot::translate::{Root, error_to_client, flight_to_server, reply_to_client};
use crate::connect_string::ConnectString;
use crate::ensemble::ConfigVersion;
use crate::error::{ConnectionFailure, FailureCause, OpError};
use crate::machine::{Flight, Limits, OwnerId, Reply, SessionState, Status, Token};
use crate::path::Chroot;
use crate::random::SplitMix;

/// Stands for the version of no configuration. Versions are zxids, which are not negative.
const NO_VERSION: i64 = -1;

/// The view of a session that handles with the same root share, and the lanes, watchers and
/// operations that come from them. A client begins with one, whose root is its chroot.
pub(crate) struct Shared {
    core: Arc<Core>,
    /// Paths of these handles are below it.
    pub(crate) chroot: Chroot,
}

/// Shared by all handles of a client. When the last handle is dropped, the task closes the session.
pub(crate) struct Core {
    pub(crate) access: Arc<Access>,
    pub(crate) clock: Clock,
    pub(crate) ends: HandleEnds,
    /// The hosts of the connect string, for messages.
    pub(crate) hosts: Box<str>,
    pub(crate) janitor: Janitor,
    pub(crate) notices: Notices,
    /// Limit on the flights that are on their way to the task.
    pub(crate) queued_max: usize,
    /// The version of the configuration whose servers the client uses, or `NO_VERSION`.
    followed: AtomicI64,
    next_id: AtomicU64,
    id_seed: [u64; 2],
}

/// A [`Shared`] that does not keep the client open. It can be upgraded as long as any handle of the
/// client is left, even one with another root.
pub(crate) struct WeakShared {
    core: Weak<Core>,
    chroot: Chroot,
}

impl WeakShared {
    pub(crate) fn upgrade(&self) -> Option<Arc<Shared>> {
        let core = self.core.upgrade()?;
        Some(Arc::new(Shared { core, chroot: self.chroot.clone() }))
    }
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
        let hosts = hosts.into_boxed_str();
        let followed = AtomicI64::new(NO_VERSION);
        let core = Core {
            access,
            clock,
            ends,
            hosts,
            janitor,
            notices,
            queued_max,
            followed,
            next_id,
            id_seed,
        };
        Self { core: Arc::new(core), chroot }
    }

    /// Returns the view of the same session below another root, given its path on the server.
    pub(crate) fn rooted_at(&self, chroot: Chroot) -> Self {
        Self { core: Arc::clone(&self.core), chroot }
    }

    /// Returns whether both are views of one session.
    pub(crate) fn is_of_same_client(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    pub(crate) fn downgrade(&self) -> WeakShared {
        WeakShared { core: Arc::downgrade(&self.core), chroot: self.chroot.clone() }
    }

    /// Submits a flight, and warns of znodes that will be open to everyone. Flights reach the server
    /// in the order of these calls. An error has the paths of this view, and so has the reply after
    /// [`receive`](Self::receive).
    pub(crate) fn submit(
        &self,
        mut flight: Flight,
        root: Root,
        owner: OwnerId,
        sink: ReplySink,
        watcher: Option<WatchSender>,
        quota: Option<(OwnerId, Limits)>,
    ) -> Result<Token, OpError> {
        if root == Root::Client {
            flight_to_server(&self.chroot, &mut flight);
        }
        for operation in &flight.operations {
            self.access.check(&operation.request);
        }
        self.enqueue(flight, owner, sink, watcher, quota).map_err(|mut error| {
            error_to_client(&self.chroot, &mut error);
            error
        })
    }

    /// Gives a reply from the session's task the paths of this view.
    pub(crate) fn receive(&self, reply: &mut Reply) {
        reply_to_client(&self.chroot, reply);
    }
}

impl Deref for Shared {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Core {
    pub(crate) fn status(&self) -> Status {
        *self.ends.status.borrow()
    }

    /// Returns the version of the configuration whose servers the client uses.
    pub(crate) fn followed(&self) -> Option<ConfigVersion> {
        let version = self.followed.load(Ordering::Relaxed);
        (version != NO_VERSION).then_some(ConfigVersion(version))
    }

    pub(super) fn set_followed(&self, version: ConfigVersion) {
        self.followed.store(version.0, Ordering::Relaxed);
    }

    /// Returns why there is no connection: the session's task does not run, or the last failure, or
    /// how far the first attempt has progressed.
    pub(crate) fn why_not_connected(&self) -> Option<ConnectionFailure> {
        self.not_run().or_else(|| self.ends.connection.borrow().why_not_connected())
    }

    /// Adds to the error of a deadline that has passed why there is no connection.
    pub(crate) fn explain(&self, error: &mut OpError) {
        if let OpError::TimedOut { failure, .. } = error
            && self.status().state != SessionState::Connected
        {
            *failure = self.why_not_connected().map(Box::new);
        }
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
        let _ = self.dispatch(command);
    }

    fn dispatch(&self, command: Command) -> Result<(), SendError<Command>> {
        // A task that has ended never runs again.
        if !self.ends.commands.is_closed() {
            self.ends.pulse.hasten(&self.clock);
        }
        self.ends.commands.send(command)
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

    fn enqueue(
        &self,
        flight: Flight,
        owner: OwnerId,
        sink: ReplySink,
        watcher: Option<WatchSender>,
        quota: Option<(OwnerId, Limits)>,
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
        let has_extras = watcher.is_some() || quota.is_some();
        let extras = has_extras.then(|| Box::new(Extras { watcher, quota }));
        let command = Command::Submit { token, owner, flight, sink, extras };
        self.dispatch(command).map_err(|SendError(command)| {
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
