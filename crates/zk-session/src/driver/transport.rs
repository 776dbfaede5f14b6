//! Opens connections, over TCP or over a transport that the application or a test provides.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::host::Host;
use crate::machine::Attempt;

/// Time after which the next address is tried in parallel, as RFC 8305 recommends.
const STAGGER: Duration = Duration::from_millis(250);
/// A race ends this long before the time of its attempt runs out, so that its error can say what
/// happened to each address.
pub(super) const MARGIN: Duration = Duration::from_millis(5);
/// Maximum number of addresses of one name that are tried in one attempt. The next attempt starts
/// with a different address.
const RACED_MAX: usize = 4;

/// Requested size of the send buffer of a socket; Linux doubles it. Pings and renewals wait behind the
/// bytes in it. On a slow link, the default buffer grows to megabytes, which outlast a lease. This one
/// still sends tens of megabytes per second to a server that is a few milliseconds away.
const SEND_BUFFER: u32 = 64 * 1024;

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens connections to servers.
///
/// A transport runs in the session's task: blocking delays heartbeats, and a panic ends the client.
///
/// A closure that returns a future of a stream is a transport:
///
/// ```
/// use tokio::io::DuplexStream;
/// # async fn pipe() -> std::io::Result<DuplexStream> { Ok(tokio::io::duplex(64).0) }
/// let client = zk_session::Client::builder("in-memory").transport(|_host| pipe());
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Starts to open a connection to `host`. The future is dropped when the time of the attempt
    /// has run out.
    fn connect(&self, host: Host, attempt: Attempt) -> Connecting;

    /// Returns true if others can read and change the bytes on their way to the host. In that case,
    /// a client with credentials logs a warning. Default: false, because only the transport knows.
    fn is_plaintext(&self, host: &Host) -> bool {
        let _ = host;
        false
    }

    /// Returns whether servers learn from the connection who the client is, as from the certificate
    /// of `Tls`. The client then warns when it creates znodes that everyone may
    /// change. Default: false.
    fn has_identity(&self) -> bool {
        false
    }

    /// Returns whether connections go to the servers' port for TLS, as those of `Tls` do.
    /// [`ClientBuilder::follow_ensemble`](crate::ClientBuilder::follow_ensemble) asks, and takes that
    /// port from the configuration of the ensemble. A host of a connect string without a port has
    /// [`DEFAULT_PORT`](crate::DEFAULT_PORT) all the same. Default: false.
    fn uses_secure_port(&self) -> bool {
        false
    }
}

impl<F, Fut, S> Transport for F
where
    F: Fn(Host) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = io::Result<S>> + Send + 'static,
    S: Stream + 'static,
{
    fn connect(&self, host: Host, _: Attempt) -> Connecting {
        let connecting = self(host);
        Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Stream>) })
    }
}

type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
type Resolve = dyn Fn(Host) -> Addresses + Send + Sync;

/// Plain TCP. This is the default transport.
///
/// Each attempt resolves the name and tries up to four of its addresses. The next address is tried
/// when the previous one has failed, or after 250 ms, and the first one that accepts is used. Each
/// attempt starts with a different address, because a server that accepts connections may still be
/// unable to serve.
#[derive(Clone)]
pub struct Tcp {
    resolve: Arc<Resolve>,
}

impl Tcp {
    /// Creates a transport that resolves names with the system's resolver: DNS, and any other
    /// source that is configured there.
    pub fn new() -> Self {
        Self::with_resolver(|host: Host| async move {
            let found = tokio::net::lookup_host((host.name.as_str(), host.port)).await?;
            Ok(found.collect())
        })
    }

    /// Creates a transport that gets addresses from elsewhere, such as a service registry.
    ///
    /// `resolve` is called for each attempt, and the time it takes counts as part of the attempt.
    /// It runs in the session's task: blocking delays heartbeats, and a panic ends the client.
    ///
    /// ```
    /// use std::net::{IpAddr, SocketAddr};
    /// use zk_session::{Client, Tcp};
    ///
    /// let tcp = Tcp::with_resolver(|host| async move {
    ///     Ok(vec![SocketAddr::from(([127, 0, 0, 2], host.port))])
    /// });
    /// let client = Client::builder("zk.internal").transport(tcp);
    /// ```
    pub fn with_resolver<F, Fut>(resolve: F) -> Self
    where
        F: Fn(Host) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let resolve = move |host| -> Addresses { Box::pin(resolve(host)) };
        Self { resolve: Arc::new(resolve) }
    }
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").finish_non_exhaustive()
    }
}

impl Transport for Tcp {
    fn connect(&self, host: Host, attempt: Attempt) -> Connecting {
        let begun = Instant::now();
        let name = host.to_string();
        let resolving = (self.resolve)(host);
        Box::pin(async move {
            let addresses = resolving.await.map_err(|error| {
                io::Error::new(error.kind(), format!("the name cannot be resolved: {error}"))
            })?;
            let addresses = order(addresses, attempt.number());
            let time = attempt.time().saturating_sub(begun.elapsed() + MARGIN);
            let stream = dial(&name, &addresses, time, open).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    /// Bytes for the same machine do not leave it.
    fn is_plaintext(&self, host: &Host) -> bool {
        !host.is_loopback()
    }
}

/// Opens a connection whose socket buffers few bytes.
async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.connect(address).await
}

/// Returns the addresses of one attempt in the order in which to try them.
///
/// Resolvers shuffle their results, so the addresses are sorted first: otherwise several attempts
/// could start with the same address. The address families alternate, starting with the one that
/// the resolver prefers.
fn order(addresses: Vec<SocketAddr>, number: u64) -> Vec<SocketAddr> {
    let Some(preferred) = addresses.first().map(SocketAddr::is_ipv4) else { return addresses };
    let addresses: BTreeSet<_> = addresses.into_iter().collect();
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == preferred);
    let mut mixed = Vec::new();
    let mut first = first.into_iter();
    let mut second = second.into_iter();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            break;
        }
        mixed.extend(pair.into_iter().flatten());
    }
    let count = mixed.len() as u64;
    mixed.rotate_left((number % count) as usize);
    mixed.truncate(RACED_MAX);
    mixed
}

/// Connects to the first address of a host that accepts. An error names the addresses unless the host
/// is one itself, because its caller names the host.
async fn dial<S, F, Fut>(
    host: &str,
    addresses: &[SocketAddr],
    time: Duration,
    connect: F,
) -> io::Result<S>
where
    F: Fn(SocketAddr) -> Fut,
    Fut: Future<Output = io::Result<S>>,
{
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    let mut failures = Vec::new();
    let mut open = Vec::new();
    match timeout(time, race(addresses, time, connect, &mut open, &mut failures)).await {
        Ok(Some(stream)) => return Ok(stream),
        Ok(None) => {}
        Err(_) => {
            let late = open.iter().map(|(address, _)| (*address, io::ErrorKind::TimedOut.into()));
            failures.extend(late);
        }
    }
    let kind =
        failures.last().map_or(io::ErrorKind::TimedOut, |(_, error): &(_, io::Error)| error.kind());
    let texts = failures.iter().map(|(address, error)| {
        let address = address.to_string();
        if address == host { error.to_string() } else { format!("{address}: {error}") }
    });
    Err(io::Error::new(kind, texts.collect::<Vec<_>>().join(", ")))
}

/// An address, and the future of a connection to it.
type Racer<Fut> = (SocketAddr, Pin<Box<Fut>>);

/// Returns the first connection that opens, or `None` if all addresses have failed. The attempts
/// and failures are stored by the caller, who may end the race at any time.
async fn race<S, F, Fut>(
    addresses: &[SocketAddr],
    time: Duration,
    connect: F,
    open: &mut Vec<Racer<Fut>>,
    failures: &mut Vec<(SocketAddr, io::Error)>,
) -> Option<S>
where
    F: Fn(SocketAddr) -> Fut,
    Fut: Future<Output = io::Result<S>>,
{
    // Every address must be tried before the time runs out.
    let stagger = STAGGER.min(time / (addresses.len() as u32 + 1));
    let mut next = addresses.iter();
    loop {
        let patience = match next.next() {
            Some(address) => {
                open.push((*address, Box::pin(connect(*address))));
                if next.len() > 0 { stagger } else { Duration::MAX }
            }
            None if open.is_empty() => return None,
            None => Duration::MAX,
        };
        match timeout(patience, poll_fn(|cx| first_ready(open, cx))).await {
            Ok((_, Ok(stream))) => return Some(stream),
            Ok((address, Err(error))) => {
                debug!(%address, %error, "cannot connect");
                failures.push((address, error));
            }
            Err(_) => {}
        }
    }
}

/// Polls all attempts, and removes and returns the first one that is ready.
fn first_ready<S, Fut>(
    open: &mut Vec<Racer<Fut>>,
    cx: &mut std::task::Context<'_>,
) -> Poll<(SocketAddr, io::Result<S>)>
where
    Fut: Future<Output = io::Result<S>>,
{
    for index in 0..open.len() {
        let Some((address, racer)) = open.get_mut(index) else { break };
        if let Poll::Ready(result) = racer.as_mut().poll(cx) {
            let address = *address;
            open.swap_remove(index);
            return Poll::Ready((address, result));
        }
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 2181))
    }

    fn addresses(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(address).collect()
    }

    /// Dials addresses that act according to `behave`. Returns the winner, the time at which each
    /// address was tried, and the total duration.
    async fn dialled<Fut: Future<Output = io::Result<()>>>(
        count: u8,
        time: Duration,
        behave: impl Fn(u8) -> Fut,
    ) -> (io::Result<u8>, Vec<(u8, Duration)>, Duration) {
        let begun = Instant::now();
        let tried = Mutex::new(Vec::new());
        let winner = dial("zk:2181", &addresses(count), time, |address| {
            let SocketAddr::V4(v4) = address else { panic!("all are IPv4") };
            let last = v4.ip().octets()[3];
            tried.lock().unwrap().push((last, begun.elapsed()));
            let behaviour = behave(last);
            async move { behaviour.await.map(|()| last) }
        })
        .await;
        (winner, tried.into_inner().unwrap(), begun.elapsed())
    }

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_is_tried_at_once_when_one_refuses() {
        let (winner, tried, took) = dialled(3, SECOND * 3, |last| async move {
            if last == 3 { Ok(()) } else { Err(refused()) }
        })
        .await;
        assert_eq!(winner.unwrap(), 3);
        assert_eq!(tried.iter().map(|(last, _)| *last).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(took, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_address_is_tried_after_a_quarter_of_a_second_beside_one_that_is_silent() {
        let (winner, tried, took) = dialled(3, SECOND * 3, |last| async move {
            if last == 3 { Ok(()) } else { pending().await }
        })
        .await;
        assert_eq!(winner.unwrap(), 3);
        assert_eq!(tried, [(1, Duration::ZERO), (2, STAGGER), (3, STAGGER * 2)]);
        assert_eq!(took, STAGGER * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_slow_may_still_win_over_one_that_is_slower() {
        let (winner, ..) = dialled(2, SECOND * 3, |last| async move {
            tokio::time::sleep(if last == 1 { SECOND / 2 } else { SECOND }).await;
            Ok(())
        })
        .await;
        assert_eq!(winner.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn every_address_is_tried_however_short_the_time_and_the_error_names_each() {
        let (winner, tried, took) = dialled(4, SECOND / 2, |last| async move {
            if last == 2 { Err(refused()) } else { pending().await }
        })
        .await;
        let error = winner.unwrap_err().to_string();
        for part in ["127.0.0.2:2181: connection refused", "127.0.0.1:2181: timed out"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!((tried.len(), took), (4, SECOND / 2));
        let (winner, ..) = dialled(2, SECOND, |_| async { Err(refused()) }).await;
        assert_eq!(winner.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_without_an_address_and_one_that_cannot_be_resolved_say_so() {
        let host = || Host { name: "zk".into(), port: 2181 };
        let attempt = Attempt::new(0, Duration::MAX);
        let error = |tcp: Tcp| async move {
            match tcp.connect(host(), attempt).await {
                Ok(_) => panic!("no server listens there"),
                Err(error) => error.to_string(),
            }
        };
        let none = error(Tcp::with_resolver(|_| async { Ok(vec![]) })).await;
        assert_eq!(none, "the name has no address");
        let unknown = error(Tcp::with_resolver(|_| async { Err(io::Error::other("no")) })).await;
        assert_eq!(unknown, "the name cannot be resolved: no");
    }

    #[tokio::test]
    async fn an_error_names_the_addresses_of_a_name_and_no_address_twice() {
        // Nothing listens on the port of a listener that was closed.
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (name, is_named) in [("127.0.0.1", false), ("zk.test", true)] {
            let tcp = Tcp::with_resolver(move |_| async move { Ok(vec![closed]) });
            let host = Host { name: name.into(), port: closed.port() };
            let error = tcp.connect(host, Attempt::new(0, SECOND * 5)).await.map(drop).unwrap_err();
            assert_eq!(error.to_string().contains(&closed.to_string()), is_named, "{error}");
        }
    }

    /// The client can choose the order only of bytes that no socket has taken.
    #[tokio::test]
    async fn requests_wait_in_the_client_and_not_in_the_socket() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = Host { name: "127.0.0.1".into(), port };
        let mut stream = Tcp::new().connect(host, Attempt::new(0, SECOND * 5)).await.unwrap();
        let chunk = vec![0; 16 * 1024];
        let mut taken = 0;
        poll_fn(|cx| {
            while let Poll::Ready(written) = Pin::new(&mut stream).poll_write(cx, &chunk) {
                taken += written.unwrap();
                if taken > 16 * SEND_BUFFER as usize {
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
        assert!((1..4 * SEND_BUFFER as usize).contains(&taken), "the socket took {taken} bytes");
    }

    #[test]
    fn bytes_that_stay_on_the_machine_need_no_protection() {
        let is_plaintext =
            |name: &str| Tcp::new().is_plaintext(&Host { name: name.into(), port: 1 });
        for local in
            ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"]
        {
            assert!(!is_plaintext(local), "{local}");
        }
        for other in ["zk1", "localhost.example.com", "10.0.0.1", "fe80::1", ""] {
            assert!(is_plaintext(other), "{other}");
        }
    }

    #[test]
    fn every_address_comes_first_in_turn_whatever_order_the_resolver_gives() {
        for count in 1..=6 {
            let mut seen = BTreeSet::new();
            for number in 0..u64::from(count) {
                let mut shuffled = addresses(count);
                shuffled.rotate_left((number * 7 % u64::from(count)) as usize);
                shuffled.push(address(1));
                let ordered = order(shuffled, number);
                assert_eq!(ordered.len(), usize::from(count).min(RACED_MAX));
                seen.insert(ordered[0]);
            }
            assert_eq!(seen.len(), usize::from(count));
        }
        assert!(order(vec![], 5).is_empty());
    }

    #[test]
    fn the_families_alternate_and_the_preferred_one_begins() {
        let v6 = |last| SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, last], 2181));
        let mixed = order(vec![v6(1), v6(2), address(1), address(2)], 0);
        assert_eq!(mixed, [v6(1), address(1), v6(2), address(2)]);
        let mixed = order(vec![address(1), v6(1), v6(2)], 1);
        assert_eq!(mixed, [v6(1), v6(2), address(1)]);
    }
}
