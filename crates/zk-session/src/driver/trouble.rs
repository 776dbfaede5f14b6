//! What is said of connections that end and of attempts that fail: enough for whoever operates the
//! client, and never a flood.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::connect_string::Host;
use crate::machine::{Change, DisconnectCause, Stage};
use crate::time::Time;

/// Time between two warnings that there is no connection.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// An outage is worth a warning when it lasts that long, or when there were more failures than
/// there are servers.
const OUTAGE: Duration = Duration::from_secs(10);
/// Failures after which each connection is not told of any more, but the outage as a whole.
const FAILURES_TOLD: u32 = 3;

/// What handles can see of the connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Why the last connection ended, or could not be made, and which server it was.
    pub(crate) last_failure: Option<String>,
    /// The server that is being tried, and how far it has come.
    attempt: Option<(Host, Stage)>,
}

impl Seen {
    /// Why there is no connection.
    pub(crate) fn why_not(&self) -> Option<String> {
        self.last_failure.clone().or_else(|| {
            let (host, stage) = self.attempt.as_ref()?;
            Some(match stage {
                Stage::Idle | Stage::Connecting => format!("{host}: it has not accepted yet"),
                Stage::Handshaking => {
                    format!("{host}: it accepted, but has not answered the handshake yet")
                }
                Stage::Ready => format!("{host}: it has answered no request yet"),
            })
        })
    }
}

/// Tells of the connections of a session.
#[derive(Debug)]
pub(super) struct Trouble {
    seen: watch::Sender<Seen>,
    /// Cause of the last end of a connection.
    cause: String,
    /// How far the attempt has come.
    stage: Stage,
    servers: u32,
    failures: u32,
    since: Option<Time>,
    warned: Option<Time>,
}

impl Trouble {
    pub(super) fn new(seen: watch::Sender<Seen>, servers: u32) -> Self {
        Self {
            seen,
            cause: String::new(),
            stage: Stage::Idle,
            servers,
            failures: 0,
            since: None,
            warned: None,
        }
    }

    /// An attempt begins.
    pub(super) fn trying(&mut self, host: Host, now: Time) {
        self.since.get_or_insert(now);
        self.seen.send_modify(|seen| seen.attempt = Some((host, Stage::Connecting)));
    }

    /// The attempt has come that far.
    pub(super) fn reached(&mut self, stage: Stage) {
        if std::mem::replace(&mut self.stage, stage) == stage {
            return;
        }
        self.seen.send_modify(|seen| {
            if let Some((_, reached)) = &mut seen.attempt {
                *reached = stage;
            }
        });
    }

    /// The machine has ended the connection.
    pub(super) fn ended(&mut self, cause: &DisconnectCause, failures: u32, now: Time) {
        if cause.is_failure() {
            self.failed(cause, failures, now);
        } else {
            debug!(%cause, "connection ended");
            self.cause = cause.to_string();
        }
    }

    /// The transport has failed, at this stage of the connection.
    pub(super) fn broke(&mut self, error: &io::Error, stage: Stage, failures: u32, now: Time) {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        match stage {
            Stage::Idle | Stage::Connecting => {
                self.failed(&format_args!("cannot connect: {error}"), failures, now);
            }
            Stage::Handshaking if is_end => self.failed(
                &"the peer closed the connection and did not answer the handshake (a server \
                  without a quorum, or not a ZooKeeper server)",
                failures,
                now,
            ),
            Stage::Handshaking => {
                self.failed(&format_args!("no answer to the handshake: {error}"), failures, now);
            }
            Stage::Ready if is_end => {
                self.failed(&"the server closed the connection", failures, now);
            }
            Stage::Ready => self.failed(error, failures, now),
        }
    }

    /// `failures`: since a connection was proven; with this one, unless it is followed at once.
    fn failed(&mut self, cause: &dyn Display, failures: u32, now: Time) {
        debug!(%cause, attempts = failures, "connection ended");
        self.cause = cause.to_string();
        let mut text = self.cause.clone();
        self.seen.send_modify(|seen| {
            if let Some((host, _)) = seen.attempt.take() {
                text = format!("{host}: {cause}");
            }
            seen.last_failure = Some(text.clone());
        });
        self.failures = failures;
        let is_long = self.since.is_some_and(|since| now.saturating_since(since) >= OUTAGE);
        let is_due = |warned: Time| now.saturating_since(warned) >= WARNING_INTERVAL;
        if (is_long || failures > self.servers) && self.warned.is_none_or(is_due) {
            self.warned = Some(now);
            warn!(attempts = failures, cause = %text, "no server keeps a connection");
        }
    }

    /// Looks whether the connection is proven by now.
    pub(super) fn look(&mut self, failures: u32, is_connected: bool) {
        if failures > 0 || !is_connected {
            return;
        }
        self.since = None;
        let attempts = std::mem::take(&mut self.failures);
        if attempts > FAILURES_TOLD {
            info!(attempts, "the connection holds again");
        }
    }

    /// What the session has come to.
    pub(super) fn tell(&self, change: Change) {
        let Self { cause, failures, .. } = self;
        let is_told = *failures <= FAILURES_TOLD;
        match change {
            Change::Connected { session, connection, resumed } => {
                if is_told {
                    info!(%session, connection, resumed, "connected");
                } else {
                    debug!(%session, connection, resumed, "connected");
                }
            }
            Change::Suspended { session } if is_told => info!(%session, %cause, "suspended"),
            Change::Suspended { session } => debug!(%session, %cause, "suspended"),
            Change::Lapsed { session } => info!(%session, "guard deadline passed"),
            Change::Ended { session, cause } => info!(%session, ?cause, "session ended"),
            Change::AuthFailed => info!("authentication failed"),
            Change::Closing => debug!("closing"),
        }
    }
}
