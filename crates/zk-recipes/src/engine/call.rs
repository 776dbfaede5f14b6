//! A call of a recipe: one deadline, and one watchdog in case the client's runtime does not notice
//! it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytestring::ByteString;
use zk_session::{Client, Time};

use super::drive::at_most;
use super::limited::limited;
use crate::timed_out::MayTimeOut;

/// A call of a recipe: set options, then `.await` it, or hand it to `tokio::spawn` or
/// `tokio::join!`.
///
/// The method that returns the call says what it does, what happens after a lost connection, and
/// what the errors mean. `O` contains the options that only this call has.
///
/// Nothing happens before the call is polled for the first time, with two exceptions. A call that
/// gives something up, such as [`Guard::release`](crate::Guard::release), has done so already, and
/// only waits for the outcome. [`Guard::transaction`](crate::Guard::transaction) has enqueued its
/// request, which is withdrawn if the call is dropped before it was sent.
pub type Call<T, E, O = ()> = ScopedCall<'static, T, E, O>;

/// A [`Call`] that borrows from its caller for as long as `'a`, for example a function.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zk_testserver::TestServer::start(zk_testserver::ServerConfig::default());
/// # let address = server.listen("127.0.0.1:0").await?;
/// # let client = zk_recipes::Client::connect(address.to_string()).await?;
/// let value = zk_recipes::SharedValue::new(&client, "/services/billing/hosts")?;
/// let host = String::from("one ");
/// let adding = value.update(|hosts| [hosts, host.as_bytes()].concat().into());
/// let hosts = adding.timeout(Duration::from_secs(30)).await?;
/// assert_eq!(hosts.bytes(), "one ");
/// # Ok(()) }
/// ```
#[must_use = "a call is complete only after it was awaited"]
pub struct ScopedCall<'a, T, E, O = ()> {
    deadline: Option<Time>,
    pub(crate) options: O,
    state: State<'a, T, E, O>,
}

enum State<'a, T, E, O> {
    /// The call was not polled yet.
    New(Box<dyn Start<'a, T, E, O> + 'a>),
    Running(Pending<'a, T, E>),
    Done,
}

type Pending<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// What a call needs until it begins. It is behind a pointer, because a task that awaits a call has
/// room for it for as long as the task lives, even while it waits for a lock.
trait Start<'a, T, E, O>: Send {
    fn client(&self) -> &Client;
    fn path(&self) -> &ByteString;
    fn start(self: Box<Self>, options: O, deadline: Option<Time>) -> Pending<'a, T, E>;
}

struct Begin<S> {
    client: Client,
    path: ByteString,
    start: S,
}

impl<'a, T, E, O, S> Start<'a, T, E, O> for Begin<S>
where
    S: FnOnce(Client, ByteString, O, Option<Time>) -> Pending<'a, T, E> + Send,
{
    fn client(&self) -> &Client {
        &self.client
    }

    fn path(&self) -> &ByteString {
        &self.path
    }

    fn start(self: Box<Self>, options: O, deadline: Option<Time>) -> Pending<'a, T, E> {
        let Self { client, path, start } = *self;
        start(client, path, options, deadline)
    }
}

impl<'a, T, E, O> ScopedCall<'a, T, E, O> {
    /// Makes the call give up after this time, which begins now, with the error `TimedOut` of its
    /// recipe. A timeout limits only the wait: the client does what it does if the call is dropped.
    /// An earlier timeout of the same call is replaced.
    ///
    /// # Panics
    ///
    /// Panics if the call was polled before.
    pub fn timeout(self, timeout: Duration) -> Self {
        let State::New(begin) = &self.state else {
            panic!("the call has begun without this timeout");
        };
        let deadline = begin.client().now() + timeout;
        self.until(Some(deadline))
    }

    /// Makes the call give up at this time, if there is one.
    pub(crate) fn until(mut self, deadline: Option<Time>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the client and the path of the call, unless it has begun.
    pub(crate) fn about(&self) -> Option<(&Client, &ByteString)> {
        if let State::New(begin) = &self.state {
            Some((begin.client(), begin.path()))
        } else {
            None
        }
    }

    /// Limits a call that is a part of another one to the time that is left for that one.
    pub(crate) fn within(self, left: Option<Duration>) -> Self {
        match left {
            Some(left) => self.timeout(left),
            None => self.until(None),
        }
    }

    /// Creates a call with options of its own. `start` begins it when it is polled for the first
    /// time, and its future gives up at the deadline by itself. `path` is the path that its errors name.
    pub(crate) fn with_options<F>(
        client: &Client,
        path: &ByteString,
        options: O,
        start: impl FnOnce(O, Option<Time>) -> F + Send + 'a,
    ) -> Self
    where
        T: 'a,
        E: MayTimeOut + 'a,
        O: Send + 'a,
        F: Future<Output = Result<T, E>> + Send,
    {
        Self::begin(client, path, options, |client, path, options, deadline| {
            Box::pin(async move {
                let late = || E::timed_out(&path);
                let future = pin!(start(options, deadline));
                limited(&client, &path, deadline, late, future).await
            })
        })
    }

    /// Creates a call that, if the client's runtime is not driven, waits longer than its deadline,
    /// because only that runtime knows its outcome.
    pub(crate) fn without_watchdog<F>(
        client: &Client,
        path: &ByteString,
        options: O,
        start: impl FnOnce(O, Option<Time>) -> F + Send + 'a,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'a,
    {
        Self::begin(client, path, options, |_, _, options, deadline| {
            Box::pin(start(options, deadline))
        })
    }

    fn begin(
        client: &Client,
        path: &ByteString,
        options: O,
        start: impl FnOnce(Client, ByteString, O, Option<Time>) -> Pending<'a, T, E> + Send + 'a,
    ) -> Self {
        let begin = Begin { client: client.clone(), path: path.clone(), start };
        Self { deadline: None, options, state: State::New(Box::new(begin)) }
    }
}

impl<'a, T, E> ScopedCall<'a, T, E> {
    /// Creates a call without other options than its timeout.
    pub(crate) fn new<F>(
        client: &Client,
        path: &ByteString,
        start: impl FnOnce(Option<Time>) -> F + Send + 'a,
    ) -> Self
    where
        T: 'a,
        E: MayTimeOut + 'a,
        F: Future<Output = Result<T, E>> + Send,
    {
        Self::with_options(client, path, (), |(), deadline| start(deadline))
    }

    /// Creates a call that waits for the outcome of something that has begun.
    pub(crate) fn waiting(
        client: &Client,
        path: &ByteString,
        outcome: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> Self
    where
        T: 'a,
        E: MayTimeOut + 'a,
    {
        let about = (client.clone(), path.clone());
        Self::new(client, path, |deadline| async move {
            let (client, path) = about;
            let outcome = at_most(&client, deadline, outcome).await;
            outcome.unwrap_or_else(|| Err(E::timed_out(&path)))
        })
    }
}

#[cfg(test)]
impl<T, E> Call<T, E> {
    /// Returns how many bytes the call takes while it runs.
    pub(crate) fn size(self) -> usize {
        let State::New(begin) = self.state else { panic!("the call has begun") };
        let running = begin.start((), self.deadline);
        size_of_val(&*running)
    }
}

impl<T, E, O: Copy + Unpin> Future for ScopedCall<'_, T, E, O> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let Self { deadline, options, state, .. } = &mut *self;
        let mut running = match std::mem::replace(state, State::Done) {
            State::New(begin) => begin.start(*options, *deadline),
            State::Running(running) => running,
            State::Done => panic!("polled after completion"),
        };
        let outcome = running.as_mut().poll(cx);
        if outcome.is_pending() {
            *state = State::Running(running);
        }
        outcome
    }
}

impl<T, E, O: fmt::Debug> fmt::Debug for ScopedCall<'_, T, E, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("path", &self.about().map(|(_, path)| path))
            .field("deadline", &self.deadline)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
