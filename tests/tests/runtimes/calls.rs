//! Calls with names, and ways to make them.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;

use zk_tests::scene::spawn;
use zk_tests::wait::PATIENCE;

use crate::Caller;

/// A call with its name. It completes with a description of its error.
pub(crate) type Call = (&'static str, Pin<Box<dyn Future<Output = Result<(), String>> + Send>>);

pub(crate) fn call<T, E: Display>(
    name: &'static str,
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Call {
    let future = async move {
        let output = future.await;
        output.map(drop).map_err(|error| error.to_string())
    };
    (name, Box::pin(future))
}

/// Returns whether an error says that the client has ended.
pub(crate) fn names_the_end(error: &str) -> bool {
    let reasons = ["Closed", "the client is closed", "the client was closed", "client has stopped"];
    reasons.iter().any(|reason| error.contains(reason))
}

/// Starts calls as tasks.
pub(crate) fn start(calls: Vec<Call>) -> Vec<Call> {
    let start = |(name, future)| {
        let task = spawn(future);
        let output = async move { task.await.expect("a call does not panic") };
        (name, Box::pin(output) as Pin<Box<_>>)
    };
    calls.into_iter().map(start).collect()
}

/// Waits for a future on its own thread, so that a call that hangs does not hang the test.
#[expect(clippy::disallowed_methods, reason = "a thread that hangs must not be joined")]
pub(crate) fn apart<T: Send + 'static>(
    what: &str,
    caller: Caller,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(caller.wait(future)));
    let ended = ended.recv_timeout(PATIENCE);
    ended.unwrap_or_else(|_| panic!("{what} has panicked, or did not come within {PATIENCE:?}"))
}

/// Makes each call on a thread of its own. The receiver gets the names and the outputs of the calls, in
/// the order in which they complete.
#[expect(clippy::disallowed_methods, reason = "a thread that hangs must not be joined")]
pub(crate) fn each_apart(
    caller: Caller,
    calls: impl IntoIterator<Item = Call>,
) -> mpsc::Receiver<(&'static str, Result<(), String>)> {
    let (sender, ended) = mpsc::channel();
    for (name, call) in calls {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send((name, caller.wait(call))));
    }
    ended
}
