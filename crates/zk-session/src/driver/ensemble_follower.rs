//! Following the servers that the ensemble itself names, in its znode `/zookeeper/config`.
//!
//! A task beside that of the session reads the configuration and watches it, with the session of the
//! client. It ends with the client, and does not keep it open.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jute_codec::{ReadRequest, Request, Response};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::beside::Beside;
use super::command::{Command, ReplySink, WatchSender};
use super::host_source::sorted;
use super::probe::probe;
use super::shared::{Shared, WeakShared};
use super::transport::Transport;
use crate::chroot::translate::Root;
use crate::ensemble::addresses::{Addresses, Vantage};
use crate::ensemble::{CONFIG, ConfigVersion, EnsembleConfig};
use crate::error::{OpError, WatchEnded};
use crate::host::Host;
use crate::machine::{Attempt, Flight, Operation, OwnerId, Reply, WatchNumber};
use crate::random::SplitMix;
use crate::types::WatchedEvent;

/// The shortest pause after a read that failed.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause after a read that a server has refused.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The shortest time between two reads. An ensemble whose configuration changes all the time must not
/// keep each of its clients busy, nor fill their logs.
const SPACING: Duration = Duration::from_secs(2);
/// How long a server may take to show that it can be reached.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How many servers are asked in a row, so that a newer configuration is never far: the one that says
/// that these are gone.
const ASKED_MAX: usize = 10;

/// Follows the ensemble for one client.
pub(crate) struct EnsembleFollower {
    shared: WeakShared,
    beside: Beside,
    transport: Arc<dyn Transport>,
    vantage: Vantage,
    random: SplitMix,
    /// The last list, sorted.
    known: Vec<String>,
    /// The newest version that a server has shown.
    newest: Option<ConfigVersion>,
    /// The servers of that version, if the client does not use them yet.
    pending: Option<Vec<Host>>,
    /// The pause after the next refusal.
    pause: Duration,
    is_told: Told,
}

/// The problems that were logged, and have not ended since.
#[derive(Default)]
struct Told {
    refusal: bool,
    silence: bool,
}

/// The event of a watch of the configuration, or the end of the watch.
type WatchEvent = oneshot::Receiver<Result<WatchedEvent, WatchEnded>>;

/// A read of the configuration that was submitted.
struct Reading {
    owner: OwnerId,
    reply: oneshot::Receiver<Reply>,
    event: WatchEvent,
}

impl EnsembleFollower {
    /// `given` are the servers of the connect string.
    pub(crate) fn new(
        shared: &Shared,
        transport: Arc<dyn Transport>,
        given: &[Host],
        seed: u64,
    ) -> Self {
        Self {
            shared: shared.downgrade(),
            beside: Beside::new(shared.ends.status.clone()),
            vantage: Vantage::new(given, transport.uses_secure_port()),
            transport,
            random: SplitMix(seed),
            known: sorted(given),
            newest: None,
            pending: None,
            pause: PAUSE_MIN,
            is_told: Told::default(),
        }
    }

    /// Runs until the client has stopped.
    pub(crate) async fn run(mut self) {
        while self.follow().await.is_some() {}
    }

    /// Reads the configuration once, and follows it until the watch has fired. Returns `None` when
    /// the client has stopped.
    async fn follow(&mut self) -> Option<()> {
        match self.read().await? {
            Ok((config, event)) => {
                self.pause = PAUSE_MIN;
                self.is_told.refusal = false;
                let next = Instant::now() + SPACING;
                self.consider(&config);
                self.attend(event).await?;
                self.beside.unless_stopped(sleep_until(next)).await
            }
            Err(error) => {
                let pause = self.pause_after(&error);
                self.beside.unless_stopped(sleep(pause)).await
            }
        }
    }

    /// Reads and watches the configuration. The request waits until there is a connection.
    async fn read(&mut self) -> Option<Result<(EnsembleConfig, WatchEvent), OpError>> {
        let Reading { owner, reply, event } = match self.submit()? {
            Ok(reading) => reading,
            Err(error) => return (!self.beside.is_stopped()).then_some(Err(error)),
        };
        let reply = self.beside.unless_stopped(reply).await?.ok()?;
        match reply.results.into_iter().next()? {
            Ok(Response::GetData(reply)) => {
                let text = reply.data.unwrap_or_default();
                Some(Ok((EnsembleConfig::read(&text, reply.stat.into()), event)))
            }
            Ok(other) => {
                unreachable!("the reply was decoded as that of another operation: {other:?}")
            }
            Err(error) => {
                // The watch was not set.
                self.shared.upgrade()?.send(Command::RemoveOwner(owner));
                Some(Err(error))
            }
        }
    }

    fn submit(&self) -> Option<Result<Reading, OpError>> {
        let shared = self.shared.upgrade()?;
        let owner = shared.fresh_owner();
        let (sink, reply) = oneshot::channel();
        let (watcher, event) = oneshot::channel();
        let request = Request::GetData(ReadRequest { path: CONFIG.into(), watch: true });
        let operations = vec![Operation::watched(request, WatchNumber::FIRST)];
        let flight = Flight { operations, session: None, deadline: None };
        let (sink, watcher) = (ReplySink::Own(sink), Some(WatchSender::Once(watcher)));
        let submitted = shared.submit(flight, Root::Server, owner, sink, watcher, None);
        Some(submitted.map(|_| Reading { owner, reply, event }))
    }

    /// Returns the pause before the next read.
    fn pause_after(&mut self, error: &OpError) -> Duration {
        if error.server_code().is_none() {
            // The request waits for the next connection.
            debug!(%error, "the configuration of the ensemble was not read");
            return PAUSE_MIN;
        }
        if !std::mem::replace(&mut self.is_told.refusal, true) {
            warn!(%error, "the ensemble cannot be followed: its configuration cannot be read");
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        pause - pause.mul_f64(self.random.below(1000) as f64 / 2000.0)
    }

    /// Judges what a server has shown. A server may lag behind others, so only a newer version than
    /// any before counts.
    fn consider(&mut self, config: &EnsembleConfig) {
        let Some(version) = config.version else {
            if !config.members.is_empty() {
                warn!("the ensemble cannot be followed: its configuration has no version");
            }
            return;
        };
        if self.newest.is_some_and(|newest| version <= newest) {
            return;
        }
        self.newest = Some(version);
        self.is_told.silence = false;
        let addresses = Addresses::of(config, &self.vantage);
        let (reasons, hosts) = (addresses.reasons(), addresses.hosts);
        if hosts.is_empty() {
            self.pending = None;
            let message =
                "the ensemble cannot be followed: it names no server that the client can use";
            warn!(%version, %reasons, "{message}");
            return;
        }
        if !reasons.is_empty() {
            let message = "the ensemble cannot be followed completely: it names unusable servers";
            warn!(%version, %reasons, "{message}");
        }
        self.pending = Some(hosts);
    }

    /// Waits for the event of the watch, and uses what is pending as soon as a server of it can be
    /// reached.
    async fn attend(&mut self, event: WatchEvent) -> Option<()> {
        let mut event = pin!(event);
        loop {
            if let Some(hosts) = self.pending.take() {
                if self.can_reach(&hosts).await? {
                    self.use_list(hosts)?;
                } else {
                    self.keep_last(hosts);
                }
            }
            let has_pending = self.pending.is_some();
            let beside = &mut self.beside;
            if !has_pending {
                return beside.unless_stopped(event).await.map(|_| ());
            }
            let mut pause = pin!(beside.pause());
            let is_due = poll_fn(|cx| match event.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => pause.as_mut().poll(cx).map(Some),
            });
            match is_due.await {
                None => return Some(()),
                Some(true) => {}
                Some(false) => return None,
            }
        }
    }

    /// Returns whether one of the servers can be reached. The addresses of a configuration are those
    /// of the network of the servers, and the client may be elsewhere.
    async fn can_reach(&mut self, hosts: &[Host]) -> Option<bool> {
        let server = self.shared.upgrade()?.ends.connection.borrow().server().cloned();
        let is_connected = self.beside.is_connected();
        if is_connected && server.is_some_and(|server| hosts.contains(&server)) {
            return Some(true);
        }
        let first = self.random.below(hosts.len() as u64) as usize;
        let (before, from) = hosts.split_at(first);
        for host in from.iter().chain(before).take(ASKED_MAX) {
            let attempt = Attempt::new(self.random.next() >> 32, ANSWER_MAX);
            let asking = probe(&*self.transport, host.clone(), attempt);
            if self.beside.unless_stopped(asking).await?.is_some() {
                return Some(true);
            }
        }
        Some(false)
    }

    fn use_list(&mut self, hosts: Vec<Host>) -> Option<()> {
        let shared = self.shared.upgrade()?;
        let version = self.newest.expect("the list is that of a version");
        shared.set_followed(version);
        let found = sorted(&hosts);
        if found != self.known {
            let (hosts, before) = (found.join(","), self.known.join(","));
            info!(%hosts, %before, %version, "the ensemble has changed");
            self.known = found;
        }
        shared.send(Command::FollowHosts(hosts));
        Some(())
    }

    fn keep_last(&mut self, hosts: Vec<Host>) {
        if !std::mem::replace(&mut self.is_told.silence, true) {
            let (names, version) = (sorted(&hosts).join(","), self.newest.map(|it| it.to_string()));
            let version = version.unwrap_or_default();
            let message = "the ensemble cannot be followed: none of its servers can be reached";
            warn!(hosts = %names, %version, "{message}");
        }
        self.pending = Some(hosts);
    }
}

impl fmt::Debug for EnsembleFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnsembleFollower").field("known", &self.known).finish_non_exhaustive()
    }
}
