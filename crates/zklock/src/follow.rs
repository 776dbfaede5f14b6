//! Following locks: persistent watches report what has changed, only that is read again, and what
//! happens to the connection is said.
//!
//! A watch does not report the changes while there is no connection, so everything is read again
//! after each reconnect.

use std::future::pending;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use zk_recipes::zk_session::{StateStream, WatchEnded, WatchItem, WatchMode, WatchOptions};
use zk_recipes::{Client, OpError, SessionId, SessionState};

use crate::clock::day_now;
use crate::connect::{PACE, explained, passes};
use crate::duration::Short;
use crate::exit::{Failure, of_signal};
use crate::signals::Signals;
use crate::survey::Changed;

/// How many events may wait while locks are read. More of them mean that everything is read again.
const EVENTS_MAX: usize = 8 * 1024;

/// How many events the tasks may hand over at a time.
const HANDED_OVER_MAX: usize = 64;

/// Something that is read.
pub(crate) type Read<T> = Pin<Box<dyn Future<Output = Result<T, OpError>>>>;

/// Whether to go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Flow {
    Continue,
    /// Reads a lock, and shows it.
    Read(String),
    End,
}

/// What is shown of the locks.
pub(crate) trait View {
    type Update;

    /// Begins to read what has changed.
    fn read(&self, client: &Client, changed: Changed) -> Read<Self::Update>;

    /// Applies what was read. Returns whether there is anything new to show.
    fn apply(&mut self, update: Self::Update) -> Result<bool, Failure>;

    /// Shows everything, after an update.
    fn show(&mut self) -> Result<Flow, Failure>;

    /// Shows what has happened to the connection.
    fn show_link(&mut self, link: &Link) -> Result<Flow, Failure>;

    /// Waits for what a user does, and acts on it. Must be cancel safe.
    async fn input(&mut self) -> Result<Flow, Failure> {
        pending().await
    }
}

/// The connection, as users see it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) is_connected: bool,
    /// When the connection was lost, or there was one again.
    pub(crate) since: SystemTime,
    /// How long there was none, before the current one.
    pub(crate) without: Option<Duration>,
    session: Option<SessionId>,
    /// Another session than that before.
    is_new_session: bool,
}

impl Link {
    fn new(session: Option<SessionId>) -> Self {
        let since = day_now();
        Self { is_connected: true, since, without: None, session, is_new_session: false }
    }

    /// Returns what happened last, in words.
    pub(crate) fn in_words(&self, now: SystemTime) -> String {
        let ago = Short(now.duration_since(self.since).unwrap_or_default());
        match (self.is_connected, self.without) {
            (false, _) => format!("no connection for {ago}; what you see is from before"),
            (true, None) => "connected".to_owned(),
            (true, Some(without)) => {
                let session = if self.is_new_session { " with a new session" } else { "" };
                format!("connected again{session} {ago} ago, after {}", Short(without))
            }
        }
    }

    /// Returns what happened last, as a word for programs.
    pub(crate) fn word(&self) -> &'static str {
        match (self.is_connected, self.is_new_session) {
            (false, _) => "lost",
            (true, false) => "restored",
            (true, true) => "restored with a new session",
        }
    }

    /// Returns whether a state of the session changes what users see.
    fn update(&mut self, state: SessionState, session: Option<SessionId>) -> bool {
        let is_connected = state == SessionState::Connected;
        // A stream skips states that nobody has waited for, such as those between two sessions.
        let was_skipped = is_connected && self.is_connected && session != self.session;
        if is_connected == self.is_connected && !was_skipped {
            return false;
        }
        let now = day_now();
        if is_connected {
            let begun = if was_skipped { now } else { self.since };
            self.without = Some(now.duration_since(begun).unwrap_or_default());
            self.is_new_session = session != self.session;
            self.session = session;
        }
        self.is_connected = is_connected;
        self.since = now;
        true
    }
}

/// Shows locks until the view ends or a signal arrives, and returns the exit status.
pub(crate) async fn follow<V: View>(
    client: &Client,
    paths: &[String],
    view: &mut V,
) -> Result<u8, Failure> {
    let mut signals = Signals::catch().map_err(|error| Failure::own(error.to_string()))?;
    let mut events = Events::begin(client, paths);
    let mut link = Link::new(client.session_id());
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changed = Changed::Nothing;
    // The first read waits for all watches, so that it need not be repeated.
    let mut unwatched = paths.len();
    // What is being read, and the changes that it covers.
    let mut reading: Option<(Changed, Read<V::Update>)> = None;
    loop {
        let is_due = reading.is_none() && unwatched == 0 && changed != Changed::Nothing;
        let flow = tokio::select! {
            signal = signals.next() => return Ok(of_signal(signal)),
            event = events.next(&mut link) => match event? {
                Event::Everything => {
                    unwatched = unwatched.saturating_sub(1);
                    changed = Changed::Everything;
                    Flow::Continue
                }
                Event::Path(path) => {
                    changed.add_event(&path);
                    Flow::Continue
                }
                Event::Link => view.show_link(&link)?,
            },
            read = finished(&mut reading) => {
                let (covered, _) = reading.take().unwrap_or_else(|| unreachable!("it was read"));
                match read {
                    Ok(update) => {
                        // What was read after a reconnect is shown after the reconnect.
                        if events.see_link(&mut link) && view.show_link(&link)? == Flow::End {
                            return Ok(0);
                        }
                        if view.apply(update)? { view.show()? } else { Flow::Continue }
                    }
                    Err(error) if passes(&error) => {
                        changed.add(covered);
                        Flow::Continue
                    }
                    Err(error) => return Err(explained(&error, error == OpError::AuthFailed)),
                }
            }
            _ = pace.tick(), if is_due => {
                let due = std::mem::take(&mut changed);
                reading = Some((due.clone(), view.read(client, due)));
                Flow::Continue
            }
            flow = view.input() => flow?,
        };
        match flow {
            Flow::Continue => {}
            Flow::Read(path) => changed.add_lock(&path),
            Flow::End => return Ok(0),
        }
    }
}

/// Waits until what is being read has arrived, or without end.
async fn finished<T>(reading: &mut Option<(Changed, Read<T>)>) -> Result<T, OpError> {
    match reading {
        Some((_, read)) => read.await,
        None => pending().await,
    }
}

/// What the watches and the connection report.
enum Event {
    /// The watch of a path is there, or is there again.
    Everything,
    Path(String),
    Link,
}

/// The watches of paths, each with a task that sets it again with each session.
struct Events {
    events: mpsc::Receiver<Result<Event, String>>,
    states: StateStream,
    // Its tasks end with it.
    _tasks: JoinSet<()>,
}

impl Events {
    fn begin(client: &Client, paths: &[String]) -> Self {
        let (sender, events) = mpsc::channel(HANDED_OVER_MAX);
        let mut tasks = JoinSet::new();
        for path in paths {
            let (client, path, sender) = (client.clone(), path.clone(), sender.clone());
            tasks.spawn(async move {
                let Err(problem) = watch(&client, &path, &sender).await;
                // Without a receiver, nobody needs to know.
                let _ = sender.send(Err(format!("{path}: {problem}"))).await;
            });
        }
        Self { events, states: client.states(), _tasks: tasks }
    }

    /// Looks at the connection as it is now. Returns whether users see a change.
    fn see_link(&mut self, link: &mut Link) -> bool {
        let status = self.states.current();
        link.update(status.state, status.session)
    }

    /// Waits for the next event. Cancel safe.
    async fn next(&mut self, link: &mut Link) -> Result<Event, Failure> {
        loop {
            tokio::select! {
                event = self.events.recv() => {
                    let ended = || Err("the watches have ended".to_owned());
                    return event.unwrap_or_else(ended).map_err(Failure::own);
                }
                status = self.states.next() => {
                    let ended = || Failure::own("the client has ended");
                    let status = status.ok_or_else(ended)?;
                    if link.update(status.state, status.session) {
                        return Ok(Event::Link);
                    }
                }
            }
        }
    }
}

/// Watches a path and what is below, until that is impossible.
async fn watch(
    client: &Client,
    path: &str,
    sender: &mpsc::Sender<Result<Event, String>>,
) -> Result<std::convert::Infallible, String> {
    let options = WatchOptions::new(WatchMode::Recursive).capacity(EVENTS_MAX);
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        let mut stream = match client.watch(path, options).await {
            Ok(stream) => stream,
            Err(error) if passes(&error) => continue,
            Err(OpError::Unsupported { .. }) => {
                return Err("the server cannot report changes, which needs ZooKeeper 3.6; ask \
                            again and again instead"
                    .to_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        let mut item = Ok(None);
        while let Ok(found) = &item {
            let event = match found {
                Some(WatchItem::Event(event)) => Event::Path(event.path.to_string()),
                // A new watch, a gap, or what later versions report: a read shows it.
                None | Some(_) => Event::Everything,
            };
            sender.send(Ok(event)).await.map_err(|_| "nobody listens".to_owned())?;
            item = stream.next().await.map(Some);
        }
        match item {
            Err(WatchEnded::SessionExpired) | Ok(_) => {}
            Err(ended) => return Err(ended.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine, nobody sees the client without a connection.
    #[test]
    fn another_session_is_told_although_no_loss_was_seen() {
        let mut link = Link::new(Some(SessionId(1)));
        assert!(!link.update(SessionState::Connected, Some(SessionId(1))));
        assert!(link.update(SessionState::Connected, Some(SessionId(2))));
        assert_eq!(link.word(), "restored with a new session");
        let said = link.in_words(link.since + Duration::from_secs(2));
        assert_eq!(said, "connected again with a new session 2s ago, after 0s");
        assert!(!link.update(SessionState::Connected, Some(SessionId(2))));
        assert!(link.update(SessionState::Suspended, Some(SessionId(2))));
        assert!(link.update(SessionState::Connected, Some(SessionId(2))));
        assert_eq!(link.word(), "restored");
    }
}
