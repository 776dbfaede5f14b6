//! Logs the connections of a session, and keeps the last failure for handles.
//!
//! The log contains enough to find the cause of an outage, at a bounded rate.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::error::{ConnectionFailure, FailureCause, SaslFailure, TlsFailure};
use crate::host::Host;
use crate::machine::status::{ConnectionStage, SessionTerms};
use crate::machine::{Change, DisconnectCause, EndCause};
use crate::time::Time;
use crate::types::SessionId;

/// Minimum time between two warnings that there is no connection.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// An outage causes a warning if it lasts this long, or if there were more failures than servers.
const OUTAGE_MIN: Duration = Duration::from_secs(10);
/// Number of connections in a row that are logged although they end before they are proven. After
/// that, a connection is logged when it is proven, so that servers that end every connection do not
/// fill the log.
const FLAPS_LOGGED: u32 = 3;

/// The view that handles have of the connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionView {
    /// The last failure.
    pub(crate) last_failure: Option<ConnectionFailure>,
    /// The server of the current connection or attempt, and how far it has progressed.
    attempt: Option<(Host, ConnectionStage)>,
    /// The attempt waits for its first SASL message, and has not tried the server yet.
    is_preparing: bool,
    /// When the session was last connected, or lost its connection.
    pub(crate) changed: Option<Time>,
}

impl ConnectionView {
    /// Returns the server of the current connection or attempt.
    pub(crate) fn server(&self) -> Option<&Host> {
        self.attempt.as_ref().map(|(host, _)| host)
    }

    /// Returns why there is no connection.
    pub(crate) fn why_not_connected(&self) -> Option<ConnectionFailure> {
        self.last_failure.clone().or_else(|| {
            let (host, stage) = self.attempt.clone()?;
            let cause = match stage {
                ConnectionStage::Connecting if self.is_preparing => {
                    FailureCause::Sasl(SaslFailure::NotReady)
                }
                ConnectionStage::Idle | ConnectionStage::Connecting => FailureCause::NotAccepted,
                ConnectionStage::Handshaking => FailureCause::NoHandshake,
                ConnectionStage::Ready => FailureCause::NoReply,
            };
            Some(ConnectionFailure { host, cause })
        })
    }
}

/// The moment at which a connection has failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Time,
    /// Failures since the last proven connection. The last one is included unless the next attempt
    /// follows without a pause.
    pub(super) failures: u32,
    /// When the next attempt begins.
    pub(super) next_attempt: Option<Time>,
}

/// Logs the connections of one session.
#[derive(Debug)]
pub(super) struct ConnectionLog {
    view: watch::Sender<ConnectionView>,
    /// Why the last connection ended.
    last_cause: Option<FailureCause>,
    /// How much too late the task runs in this turn.
    stall: Option<Duration>,
    /// How far the connection has progressed.
    stage: ConnectionStage,
    server_count: u32,
    /// Failures since the last proven connection.
    failures: u32,
    /// When the last proven connection ended, or the first attempt began.
    outage_since: Option<Time>,
    /// Connections and sessions that have ended since the last proven connection.
    flaps: u32,
    /// The newest connection, if it is logged only when it is proven.
    unproven: Option<Connection>,
    /// When the last warning was logged.
    warned: Option<Time>,
}

/// What the log says about a connection.
#[derive(Debug)]
struct Connection {
    server: String,
    session: SessionId,
    is_resumed: bool,
    terms: SessionTerms,
    /// Time since the last proven connection ended, or since the first attempt began.
    outage: Duration,
    attempts: u32,
}

impl Connection {
    fn log(&self) {
        let Self { server, session, is_resumed, terms, outage, attempts } = self;
        info!(
            %server,
            %session,
            resumed = is_resumed,
            timeout = ?terms.granted,
            requested = ?terms.requested,
            lease = terms.lease(),
            ?outage,
            attempts,
            "connected"
        );
    }
}

impl ConnectionLog {
    pub(super) fn new(view: watch::Sender<ConnectionView>, server_count: u32) -> Self {
        Self {
            view,
            last_cause: None,
            stall: None,
            stage: ConnectionStage::Idle,
            server_count,
            failures: 0,
            outage_since: None,
            flaps: 0,
            unproven: None,
            warned: None,
        }
    }

    /// Records that the list of servers has changed.
    pub(super) fn set_server_count(&mut self, count: u32) {
        self.server_count = count;
    }

    /// Records that an attempt begins.
    pub(super) fn attempt_started(&mut self, host: Host, now: Time) {
        self.outage_since.get_or_insert(now);
        self.view.send_modify(|view| {
            view.attempt = Some((host, ConnectionStage::Connecting));
            view.is_preparing = false;
        });
    }

    /// Returns a function that records whether the attempt waits for its first SASL message.
    pub(super) fn preparation(&self) -> impl Fn(bool) + Send + use<> {
        let view = self.view.clone();
        move |is_preparing| view.send_modify(|view| view.is_preparing = is_preparing)
    }

    /// Records how far the connection has progressed.
    pub(super) fn stage_reached(&mut self, stage: ConnectionStage) {
        if std::mem::replace(&mut self.stage, stage) == stage {
            return;
        }
        self.view.send_modify(|view| {
            if let Some((_, reached)) = &mut view.attempt {
                *reached = stage;
            }
        });
    }

    /// Records that the task runs, and how much too late.
    pub(super) fn task_runs(&mut self, stall: Option<Duration>) {
        self.stall = stall.map(rounded);
    }

    /// Returns why the client has waited in vain: it has not looked, or the server has not answered.
    fn timeout(&self, cause: FailureCause) -> FailureCause {
        self.stall.map_or(cause, FailureCause::NotRun)
    }

    /// Records that the machine has ended the connection.
    pub(super) fn connection_ended(&mut self, cause: DisconnectCause, moment: Moment) {
        let is_failure = cause.is_failure();
        let is_timeout = cause.is_timeout();
        let mut cause = FailureCause::Disconnected(cause);
        if is_timeout {
            cause = self.timeout(cause);
        }
        if is_failure {
            self.failed(cause, moment);
        } else {
            debug!(%cause, "connection ended");
            self.last_cause = Some(cause);
            self.outage_since.get_or_insert(moment.now);
        }
    }

    /// Records that the transport has failed at this stage of the connection.
    pub(super) fn transport_failed(
        &mut self,
        error: &io::Error,
        stage: ConnectionStage,
        moment: Moment,
    ) {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        let inner = error.get_ref();
        if let Some(failure) = inner.and_then(|inner| inner.downcast_ref::<TlsFailure>()) {
            let mut cause = FailureCause::Tls(failure.clone());
            if matches!(failure, TlsFailure::TimedOut(_)) {
                cause = self.timeout(cause);
            }
            self.failed(cause, moment);
            return;
        }
        if let Some(failure) = inner.and_then(|inner| inner.downcast_ref::<SaslFailure>()) {
            self.failed(FailureCause::Sasl(failure.clone()), moment);
            return;
        }
        let cause = match stage {
            ConnectionStage::Idle | ConnectionStage::Connecting => {
                FailureCause::Connect(error.into())
            }
            ConnectionStage::Handshaking if is_end => FailureCause::HandshakeClosed,
            ConnectionStage::Handshaking => FailureCause::Handshake(error.into()),
            ConnectionStage::Ready if is_end => FailureCause::Closed,
            ConnectionStage::Ready => FailureCause::Transport(error.into()),
        };
        let cause =
            if error.kind() == io::ErrorKind::TimedOut { self.timeout(cause) } else { cause };
        self.failed(cause, moment);
    }

    fn failed(&mut self, cause: FailureCause, Moment { now, failures, next_attempt }: Moment) {
        debug!(%cause, attempts = failures, "connection ended");
        self.last_cause = Some(cause.clone());
        self.unproven = None;
        self.outage_since.get_or_insert(now);
        self.view.send_modify(|view| {
            if let Some((host, _)) = view.attempt.clone() {
                view.last_failure = Some(ConnectionFailure { host, cause });
            }
        });
        self.failures = failures;
        let outage = self.outage(now);
        let is_due = |warned: Time| now.saturating_since(warned) >= WARNING_INTERVAL;
        let is_outage = outage >= OUTAGE_MIN || failures > self.server_count;
        if is_outage && self.warned.is_none_or(is_due) {
            self.warned = Some(now);
            let failure = self.view.borrow().last_failure.as_ref().map(ToString::to_string);
            let cause = failure.unwrap_or_default();
            let next_attempt = rounded(next_attempt.unwrap_or(now).saturating_since(now));
            warn!(?outage, attempts = failures, ?next_attempt, %cause, "still not connected");
        }
    }

    /// Returns the time since the last proven connection ended, or since the first attempt began.
    fn outage(&self, now: Time) -> Duration {
        rounded(self.outage_since.map(|since| now.saturating_since(since)).unwrap_or_default())
    }

    /// Ends the outage if the connection is proven, which resets the number of failures.
    pub(super) fn check_outage(&mut self, failures: u32, is_connected: bool) {
        if failures > 0 || !is_connected {
            return;
        }
        self.outage_since = None;
        self.failures = 0;
        self.flaps = 0;
        if let Some(connection) = self.unproven.take() {
            connection.log();
        }
    }

    /// Logs a change of the session, whose newest acknowledged request was sent at `acknowledged`,
    /// and which holds a lock or not.
    pub(super) fn session_changed(
        &mut self,
        change: Change,
        terms: SessionTerms,
        acknowledged: Option<Time>,
        holds_lock: bool,
        now: Time,
    ) {
        match change {
            Change::Connected { session, resumed, .. } => {
                self.view.send_modify(|view| view.changed = Some(now));
                let connection = Connection {
                    server: self.server(),
                    session,
                    is_resumed: resumed,
                    terms,
                    outage: self.outage(now),
                    attempts: self.failures,
                };
                if self.flaps < FLAPS_LOGGED {
                    connection.log();
                } else {
                    debug!(%session, resumed, "connected");
                    self.unproven = Some(connection);
                }
            }
            Change::Suspended { session } => {
                self.view.send_modify(|view| view.changed = Some(now));
                let server = self.server();
                let cause = self.last_cause.as_ref().map(ToString::to_string).unwrap_or_default();
                let silence = acknowledged.map(|at| now.saturating_since(at)).unwrap_or_default();
                let silence = rounded(silence);
                if self.flaps < FLAPS_LOGGED {
                    info!(%server, %session, %cause, ?silence, "connection lost");
                } else {
                    debug!(%server, %session, %cause, ?silence, "connection lost");
                }
                self.flaps += 1;
            }
            Change::Lapsed { session } => {
                let silence = acknowledged.map(|at| now.saturating_since(at)).unwrap_or_default();
                let silence = rounded(silence);
                if holds_lock {
                    warn!(%session, ?silence, "guard deadline passed; the locks of the session are lost");
                } else {
                    debug!(%session, ?silence, "guard deadline passed");
                }
            }
            Change::Ended { session, cause } => match cause {
                EndCause::Closed | EndCause::Abandoned => info!(%session, %cause, "session closed"),
                EndCause::Expired | EndCause::GaveUp | EndCause::Swapped => {
                    let locks = if holds_lock { " and its locks" } else { "" };
                    if self.flaps < FLAPS_LOGGED {
                        warn!(%session, %cause, "session lost, with its ephemeral znodes{locks}");
                    } else {
                        debug!(%session, %cause, "session lost, with its ephemeral znodes{locks}");
                    }
                    self.flaps += 1;
                }
            },
            // The reply of the server was logged, with its code.
            Change::AuthFailed => debug!("authentication failed"),
            Change::Closing => debug!("closing"),
        }
    }

    /// Returns the server of the current connection, or of the last one.
    fn server(&self) -> String {
        self.view.borrow().server().map(ToString::to_string).unwrap_or_default()
    }
}

/// Rounds to milliseconds, since more digits only make a line harder to read.
fn rounded(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
