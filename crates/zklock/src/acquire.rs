//! Obtaining a lock, with progress for those who wait.

use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::time::Duration;

use serde_json::json;
use zk_recipes::kind::Kind;
use zk_recipes::{Client, FencingToken, Guard, Lock, LockError, Phase};

use crate::clock::{boot_now, day_now};
use crate::connect::{close, connect, explained};
use crate::duration::Short;
use crate::exit::{self, Failure};
use crate::kind::{Task, TokenOf};
use crate::options::{Connection, Obtain};
use crate::queue::{self, Entry, Found};
use crate::report::Reporter;
use crate::show::millis;
use crate::signals::Signals;

/// How long a release may take. Then the end of the session frees the lock.
const RELEASE_MAX: Duration = Duration::from_secs(5);

type Looking = Pin<Box<dyn Future<Output = Option<Entry>>>>;

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    ends_at: Option<Duration>,
}

impl Limit {
    /// Begins to count.
    pub(crate) fn begin(options: &Obtain) -> Self {
        let timeout = options.timeout.filter(|_| !options.is_try);
        Self { ends_at: timeout.map(|timeout| boot_now() + timeout) }
    }

    /// Returns how much time is left, if it is limited.
    pub(crate) fn left(self) -> Option<Duration> {
        self.ends_at.map(|at| at.saturating_sub(boot_now()))
    }
}

/// What a verb needs to obtain a lock: a connection, and the receivers of reports.
pub(crate) struct Begun {
    pub(crate) client: Client,
    pub(crate) limit: Limit,
    pub(crate) reporter: Reporter,
    pub(crate) signals: Signals,
}

/// A lock that was obtained.
pub(crate) struct Obtained<K: Kind> {
    pub(crate) guard: Guard<K>,
    /// The fencing token, if the kind has one.
    pub(crate) token: Option<i64>,
    pub(crate) session: String,
}

impl Begun {
    /// Connects, unless a signal arrives before there is a connection.
    pub(crate) async fn begin(options: &Obtain, connection: &Connection) -> Result<Self, Failure> {
        let reporter = Reporter::new(&options.path, options.quiet, options.events)?;
        let mut signals = Signals::catch().map_err(|error| Failure::own(error.to_string()))?;
        let limit = Limit::begin(options);
        let client = tokio::select! {
            connected = connect(connection, limit.left()) => connected?,
            signal = signals.next() => {
                let message = format!("signal {signal} arrived before there was a connection");
                return Err(Failure { status: exit::of_signal(signal), message });
            }
        };
        Ok(Self { client, limit, reporter, signals })
    }

    /// Acquires the lock, or says why not.
    pub(crate) async fn obtain<K: Kind>(
        &mut self,
        lock: &Lock<K>,
        options: &Obtain,
        token: TokenOf<K>,
    ) -> Result<Obtained<K>, Failure> {
        let Self { client, limit, reporter, signals } = self;
        let guard = acquire(lock, client, options, *limit, reporter, signals).await?;
        let token = token(&guard).map(FencingToken::get);
        let session = guard.session().to_string();
        self.reporter.event("held", json!({ "token": token, "session": session }));
        Ok(Obtained { guard, token, session })
    }

    /// Releases the lock, and says so.
    pub(crate) async fn release<K: Kind>(&mut self, guard: Guard<K>) {
        match guard.release().timeout(RELEASE_MAX).await {
            Ok(_) => self.reporter.event("released", json!({})),
            Err(error) => self.reporter.warn(&format!(
                "not released: {error}; the lock is free when its session has ended"
            )),
        }
    }
}

/// Performs a task with the lock that the options describe, and ends the session. `what` is a part of
/// the identity, unless the options have one.
pub(crate) async fn perform(
    client: Client,
    options: &Obtain,
    what: &str,
    task: impl Task,
) -> Result<u8, Failure> {
    let identity = options.identity.clone().unwrap_or_else(|| identity(what));
    let Obtain { path, kind, naming, .. } = options;
    let result = kind.perform(&client, path, *naming, &identity, task).await;
    close(&client).await;
    result
}

/// Returns what others see of this process: the host, the process, and what it runs. Arguments may
/// contain secrets.
fn identity(what: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{host} pid={} {what}", std::process::id())
}

async fn acquire<K: Kind>(
    lock: &Lock<K>,
    client: &Client,
    options: &Obtain,
    limit: Limit,
    reporter: &mut Reporter,
    signals: &mut Signals,
) -> Result<Guard<K>, Failure> {
    let conflict = |message: String| Failure { status: options.conflict_exit_code, message };
    if options.is_try {
        let tried = tokio::select! {
            tried = lock.try_acquire() => tried,
            signal = signals.next() => return Err(interrupted(signal)),
        };
        let taken = || conflict(format!("{}: the lock is taken", options.path));
        return tried.map_err(|error| failure(&options.path, &error))?.ok_or_else(taken);
    }
    let acquire = lock.acquire();
    let acquire = match limit.left() {
        Some(left) => acquire.timeout(left),
        None => acquire,
    };
    let (acquire, mut phases) = acquire.phases();
    let mut acquiring = acquire.into_future();
    let mut looking: Option<(usize, Looking)> = None;
    let mut has_phases = reporter.is_heard();
    loop {
        tokio::select! {
            biased;
            acquired = &mut acquiring => return acquired.map_err(|error| {
                if error.is_timed_out() { conflict(error.to_string()) } else { failure(&options.path, &error) }
            }),
            signal = signals.next() => return Err(interrupted(signal)),
            phase = phases.next(), if has_phases => match phase {
                Some(Phase::Queued { ahead }) => {
                    looking = Some((ahead, Box::pin(look(client.clone(), options.path.clone()))));
                }
                Some(_) => {}
                None => has_phases = false,
            },
            (ahead, holder) = seen(&mut looking), if looking.is_some() => {
                looking = None;
                show(reporter, ahead, holder);
            }
        }
    }
}

async fn seen(looking: &mut Option<(usize, Looking)>) -> (usize, Option<Entry>) {
    match looking {
        Some((ahead, looking)) => (*ahead, looking.await),
        None => std::future::pending().await,
    }
}

/// Reads the holder of a lock. A failed progress report must not fail the acquire, so the errors
/// are those of the acquire.
async fn look(client: Client, path: String) -> Option<Entry> {
    let Found::There(listing) = queue::list(&client, &path).await.ok()? else { return None };
    if listing.stat.ephemeral_owner.is_some() {
        return queue::read_exclusive(&client, &path).await.ok()?;
    }
    let first = listing.names.get(..1)?;
    queue::read_entries(&client, &path, first).await.ok()?.pop()
}

fn show(reporter: &mut Reporter, ahead: usize, holder: Option<Entry>) {
    let now = day_now();
    let (text, value) = match &holder {
        Some(holder) => {
            let (name, age) = (holder.shown(), holder.age(now));
            let since = age.map(millis);
            let value = json!({ "identity": name, "age_ms": since, "token": holder.token() });
            let since = age.map_or_else(String::new, |age| format!(" for {}", Short(age)));
            (format!("; {name:?} has been first{since}"), value)
        }
        None => (String::new(), json!(null)),
    };
    reporter.say(&format!("waiting, {ahead} ahead{text}"));
    reporter.event("waiting", json!({ "ahead": ahead, "first": value }));
}

/// Returns the failure of a wait that a signal has ended.
pub(crate) fn interrupted(signal: i32) -> Failure {
    let message = format!("signal {signal} ended the wait for the lock");
    Failure { status: exit::of_signal(signal), message }
}

fn failure(path: &str, error: &LockError) -> Failure {
    let LockError::MixedKinds { path: found } = error else {
        return explained(error, *error == LockError::AuthFailed);
    };
    let name = found.rsplit_once('/').map_or(found.as_str(), |(_, name)| name);
    let kind = queue::parse(name).map_or("a lock of another kind", |name| name.lock());
    Failure::own(format!(
        "{path}: the znode {name:?} belongs to {kind}; all contenders of a path need the same --kind \
         and --naming"
    ))
}
