//! Following a list of servers that is kept elsewhere.
//!
//! A task beside that of the session looks the list up, so that a slow look-up delays no heartbeat.
//! It ends with the session.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{Instrument as _, Span, info, warn};

use super::beside::Beside;
use super::command::Command;
use super::ends::HandleEnds;
use crate::connect_string::ConnectString;
use crate::error::ConfigError;
use crate::host::Host;

/// Maximum duration of a look-up.
const LOOK_UP_MAX: Duration = Duration::from_secs(10);

/// The result of a look-up.
pub type LookUp = Pin<Box<dyn Future<Output = io::Result<Vec<Host>>> + Send>>;

/// Where the list of servers is kept: DNS SRV records, a service registry, a file. Set with
/// [`ClientBuilder::host_source`](crate::ClientBuilder::host_source).
///
/// Functions that return a future of the list implement it.
pub trait HostSource: Send + Sync + 'static {
    /// Looks up the current list.
    fn look_up(&self) -> LookUp;
}

impl<F, Fut> HostSource for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<Vec<Host>>> + Send + 'static,
{
    fn look_up(&self) -> LookUp {
        Box::pin(self())
    }
}

/// Follows a source for one client.
pub(crate) struct Follower {
    source: Arc<dyn HostSource>,
    /// The client closes when its handles are dropped, and this is none of them.
    commands: mpsc::WeakUnboundedSender<Command>,
    beside: Beside,
    /// The last list, sorted.
    known: Vec<String>,
    is_failing: bool,
}

impl Follower {
    pub(crate) fn new(source: Arc<dyn HostSource>, hosts: &[Host], ends: &HandleEnds) -> Self {
        Self {
            source,
            commands: ends.commands.downgrade(),
            beside: Beside::new(ends.status.clone()),
            known: sorted(hosts),
            is_failing: false,
        }
    }

    /// Spawns the task on the current runtime.
    pub(crate) fn start(self, span: &Span) {
        tokio::spawn(self.run().instrument(span.clone()));
    }

    async fn run(mut self) {
        // The source is the code of the program, and its panic ends this task.
        let _panic = PanicLog;
        while let Some(found) = self.look_up().await {
            match found {
                Ok(hosts) => self.use_list(hosts),
                // A source that stays broken is reported once.
                Err(_) if self.is_failing => {}
                Err(error) => {
                    self.is_failing = true;
                    warn!(%error, "the list of servers cannot be looked up; the last one is kept");
                }
            }
            if !self.beside.pause().await {
                return;
            }
        }
    }

    /// Returns the list, or `None` when the client has stopped.
    async fn look_up(&mut self) -> Option<io::Result<Vec<Host>>> {
        let looking = timeout(LOOK_UP_MAX, self.source.look_up());
        let found = self.beside.unless_stopped(looking).await?;
        Some(found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).and_then(checked))
    }

    fn use_list(&mut self, hosts: Vec<Host>) {
        self.is_failing = false;
        let found = sorted(&hosts);
        if found == self.known {
            return;
        }
        info!(hosts = %found.join(","), "the list of servers has changed");
        self.known = found;
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::SetHosts(hosts));
        }
    }
}

/// Logs a panic that drops it.
struct PanicLog;

impl Drop for PanicLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            warn!("the host source has panicked; the list of servers is no longer followed");
        }
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("known", &self.known).finish_non_exhaustive()
    }
}

pub(super) fn sorted(hosts: &[Host]) -> Vec<String> {
    let mut names: Vec<_> = hosts.iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Refuses a list that no connect string could have.
fn checked(hosts: Vec<Host>) -> io::Result<Vec<Host>> {
    let invalid = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    let text = hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match text.parse::<ConnectString>() {
        Ok(parsed) if parsed.hosts == hosts => Ok(hosts),
        Ok(_) => invalid(format!("a name in the list is not that of one server: {text:?}")),
        Err(ConfigError::NoHosts) => invalid("the list is empty".to_owned()),
        Err(error) => invalid(error.to_string()),
    }
}
