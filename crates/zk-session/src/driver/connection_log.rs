//! Logs the connections of a session, and keeps the last failure for handles.
//!
//! The log contains enough to find the cause of an outage, at a bounded rate.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::failure::{ConnectionFailure, FailureCause};
use crate::host::Host;
use crate::machine::status::ConnectionStage;
use crate::machine::{Change, DisconnectCause};
use crate::time::Time;

/// Minimum time between two warnings that there is no connection.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// An outage causes a warning if it lasts this long, or if there were more failures than servers.
const OUTAGE_MIN: Duration = Duration::from_secs(10);
/// Each connection is logged until this many failures have occurred; after that, only the outage is
/// logged.
const FAILURES_LOGGED: u32 = 3;

/// The view that handles have of the connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionView {
    /// The last failure.
    pub(crate) last_failure: Option<ConnectionFailure>,
    /// The server of the current connection or attempt, and how far it has progressed.
    attempt: Option<(Host, ConnectionStage)>,
}

impl ConnectionView {
    /// Returns why there is no connection.
    pub(crate) fn why_not_connected(&self) -> Option<ConnectionFailure> {
        self.last_failure.clone().or_else(|| {
            let (host, stage) = self.attempt.clone()?;
            let cause = match stage {
                ConnectionStage::Idle | ConnectionStage::Connecting => FailureCause::NotAccepted,
                ConnectionStage::Handshaking => FailureCause::NoHandshake,
                ConnectionStage::Ready => FailureCause::NoReply,
            };
            Some(ConnectionFailure { host, cause })
        })
    }
}

/// Logs the connections of one session.
#[derive(Debug)]
pub(super) struct ConnectionLog {
    view: watch::Sender<ConnectionView>,
    /// Why the last connection ended.
    last_cause: Option<FailureCause>,
    /// How far the connection has progressed.
    stage: ConnectionStage,
    server_count: u32,
    /// Failures since the last proven connection.
    failures: u32,
    /// When the first attempt since the last proven connection began.
    outage_since: Option<Time>,
    /// When the last warning was logged.
    warned: Option<Time>,
}

impl ConnectionLog {
    pub(super) fn new(view: watch::Sender<ConnectionView>, server_count: u32) -> Self {
        Self {
            view,
            last_cause: None,
            stage: ConnectionStage::Idle,
            server_count,
            failures: 0,
            outage_since: None,
            warned: None,
        }
    }

    /// Records that an attempt begins.
    pub(super) fn attempt_started(&mut self, host: Host, now: Time) {
        self.outage_since.get_or_insert(now);
        self.view.send_modify(|view| view.attempt = Some((host, ConnectionStage::Connecting)));
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

    /// Records that the machine has ended the connection.
    pub(super) fn connection_ended(&mut self, cause: DisconnectCause, failures: u32, now: Time) {
        let is_failure = cause.is_failure();
        let cause = FailureCause::Disconnected(cause);
        if is_failure {
            self.failed(cause, failures, now);
        } else {
            debug!(%cause, "connection ended");
            self.last_cause = Some(cause);
        }
    }

    /// Records that the transport has failed at this stage of the connection.
    pub(super) fn transport_failed(
        &mut self,
        error: &io::Error,
        stage: ConnectionStage,
        failures: u32,
        now: Time,
    ) {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        let cause = match stage {
            ConnectionStage::Idle | ConnectionStage::Connecting => {
                FailureCause::Connect(error.into())
            }
            ConnectionStage::Handshaking if is_end => FailureCause::HandshakeClosed,
            ConnectionStage::Handshaking => FailureCause::Handshake(error.into()),
            ConnectionStage::Ready if is_end => FailureCause::Closed,
            ConnectionStage::Ready => FailureCause::Transport(error.into()),
        };
        self.failed(cause, failures, now);
    }

    /// Records a failure. `failures` counts the failures since the last proven connection,
    /// including this one unless the next attempt follows without a pause.
    fn failed(&mut self, cause: FailureCause, failures: u32, now: Time) {
        debug!(%cause, attempts = failures, "connection ended");
        self.last_cause = Some(cause.clone());
        self.view.send_modify(|view| {
            if let Some((host, _)) = view.attempt.clone() {
                view.last_failure = Some(ConnectionFailure { host, cause });
            }
        });
        self.failures = failures;
        let is_long =
            self.outage_since.is_some_and(|since| now.saturating_since(since) >= OUTAGE_MIN);
        let is_due = |warned: Time| now.saturating_since(warned) >= WARNING_INTERVAL;
        if (is_long || failures > self.server_count) && self.warned.is_none_or(is_due) {
            self.warned = Some(now);
            let failure = self.view.borrow().last_failure.as_ref().map(ToString::to_string);
            let cause = failure.unwrap_or_default();
            warn!(attempts = failures, %cause, "no server keeps a connection");
        }
    }

    /// Ends the outage if the connection is proven, which resets the number of failures.
    pub(super) fn check_outage(&mut self, failures: u32, is_connected: bool) {
        if failures > 0 || !is_connected {
            return;
        }
        self.outage_since = None;
        let attempts = std::mem::take(&mut self.failures);
        if attempts > FAILURES_LOGGED {
            info!(attempts, "the connection holds again");
        }
    }

    /// Logs a change of the session.
    pub(super) fn session_changed(&self, change: Change) {
        let is_logged = self.failures <= FAILURES_LOGGED;
        match change {
            Change::Connected { session, connection, resumed } => {
                if is_logged {
                    info!(%session, connection, resumed, "connected");
                } else {
                    debug!(%session, connection, resumed, "connected");
                }
            }
            Change::Suspended { session } => {
                let cause = self.last_cause.as_ref().map(ToString::to_string).unwrap_or_default();
                if is_logged {
                    info!(%session, %cause, "suspended");
                } else {
                    debug!(%session, %cause, "suspended");
                }
            }
            Change::Lapsed { session } => info!(%session, "guard deadline passed"),
            Change::Ended { session, cause } => info!(%session, ?cause, "session ended"),
            Change::AuthFailed => info!("authentication failed"),
            Change::Closing => debug!("closing"),
        }
    }
}
