//! Bounded waits, so that an event that never arrives fails the test instead of blocking it.

use std::env;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use zk_recipes::kind::Kind;
use zk_recipes::{Guard, LockState};
use zk_session::{
    Client, EventType, OpError, SessionState, Status, WatchItem, WatchStream, WatchedEvent, Watcher,
};

/// A time longer than any step of a test takes on the slowest machine. Only failures wait for so
/// long.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Waits for a future that should complete soon.
///
/// # Panics
///
/// If the future does not complete in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come within {PATIENCE:?}"))
}

/// Interval between two looks at the state of a guard.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until a lock that is at risk is held. A lock is at risk until the first write after an
/// outage is acknowledged, and whenever a busy machine delays an acknowledgement, so a test of a
/// real server cannot expect [`LockState::Held`] at a moment of its choice.
///
/// # Panics
///
/// If the lock is lost, or still at risk after [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "a guard has no event for a lock that is held again")]
pub async fn held_again<K: Kind>(what: &str, guard: &Guard<K>) {
    let known = async {
        while guard.state() == LockState::AtRisk {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    soon(what, known).await;
    assert_eq!(guard.state(), LockState::Held, "{what}");
}

/// Waits until the server of a client has applied everything that was committed before the call.
///
/// Begins again if the connection to a server of an ensemble is lost. Such a server shares the
/// machine with others and may be silent for seconds, and a client with a lock gives up a silent
/// connection after a quarter of the session timeout to save its lease.
///
/// # Panics
///
/// If the connection to an in-process server breaks, or no connection lasts long enough.
pub async fn catch_up(client: &Client) {
    let deadline = client.now() + PATIENCE;
    loop {
        match client.catch_up().await {
            Ok(()) => return,
            Err(error @ OpError::ConnectionLoss { .. }) => {
                let may_repeat = env::var_os("ZK_CONNECT").is_some() && client.now() < deadline;
                assert!(may_repeat, "the connection does not hold: {error}");
            }
            Err(error) => panic!("the session does not last: {error}"),
        }
    }
}

/// Returns the names of the children of a directory, or none if the server has removed the
/// directory: it removes containers that are empty, at a time of its own.
///
/// # Panics
///
/// If the server refuses the request for another reason.
pub async fn names_in(client: &Client, directory: &str) -> Vec<String> {
    match client.get_children(directory).await {
        Ok(names) => names.iter().map(ToString::to_string).collect(),
        Err(error) if error.is_no_node() => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Waits for the event of a watch.
///
/// # Panics
///
/// If no event arrives, or the watch ends without an event.
pub async fn event(watcher: &mut Watcher) -> WatchedEvent {
    let path = watcher.path().to_owned();
    soon(&format!("an event on {path}"), watcher.changed()).await.expect("the session lives on")
}

/// Waits for the event of a watch, and returns its type.
///
/// # Panics
///
/// As for [`event`].
pub async fn kind(watcher: &mut Watcher) -> EventType {
    event(watcher).await.kind
}

/// Waits for the next item of a stream.
///
/// # Panics
///
/// If no item arrives, or the stream ends.
pub async fn item(stream: &mut WatchStream) -> WatchItem {
    let path = stream.path().to_owned();
    soon(&format!("an item of {path}"), stream.next()).await.expect("the session lives on")
}

/// Waits for the next item of a stream, which is an event. Returns its type and path.
///
/// # Panics
///
/// As for [`item`], or if it is a gap.
pub async fn change(stream: &mut WatchStream) -> (EventType, String) {
    let item = item(stream).await;
    let WatchItem::Event(event) = item else {
        panic!("{} yields {item:?}, not an event", stream.path())
    };
    (event.kind, event.path.to_string())
}

/// Asserts that a stream has no item. Events precede replies, so after a round trip every past event
/// has arrived.
///
/// # Panics
///
/// If the stream has an item or has ended.
pub async fn assert_idle(client: &Client, stream: &mut WatchStream) {
    client.sync("/").await.expect("the connection holds");
    assert_eq!(stream.try_next(), Ok(None), "{}", stream.path());
}

/// Returns the value of a future if it is ready now, and otherwise `None`.
pub fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Asserts that no event has arrived so far. Events precede replies, so after a round trip every
/// past event has arrived.
///
/// # Panics
///
/// If an event has arrived or the watch has ended.
pub async fn assert_silent(client: &Client, watcher: &mut Watcher) {
    client.sync("/").await.expect("the connection holds");
    let path = watcher.path().to_owned();
    let event = now(watcher.changed());
    assert!(event.is_none(), "the watch on {path} got {event:?}");
}

/// Waits until the status satisfies `condition`, and returns it.
///
/// # Panics
///
/// If the status never satisfies the condition, or the client stops before that.
pub async fn status(client: &Client, what: &str, condition: impl Fn(&Status) -> bool) -> Status {
    let mut states = client.states();
    soon(what, async {
        let mut status = states.current();
        while !condition(&status) {
            status = states.next().await.unwrap_or_else(|| panic!("stopped before {what}"));
        }
        status
    })
    .await
}

/// Waits until the client has a newer connection than in `before`.
///
/// # Panics
///
/// If that never happens.
pub async fn reconnected(client: &Client, before: Status) -> Status {
    status(client, "another connection", |now| {
        now.state == SessionState::Connected && now.connection > before.connection
    })
    .await
}
