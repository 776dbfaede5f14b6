//! A TCP proxy with faults, between a client and a real server.
//!
//! It forwards bytes, and does not parse the protocol. Connections are numbered in the order of
//! their arrival. A fault applies to the connections below a number, so it hits every connection
//! that exists when it begins, and no later one.
#![expect(
    clippy::disallowed_methods,
    reason = "the proxy represents the network, which has a clock of its own"
)]

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::random::SplitMix64;

/// A running proxy. Dropping it cuts its connections and closes its port.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    shared: Shared,
    tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback interface and forwards to `upstream`.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free loopback port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let shared = Shared::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, upstream, shared.clone()));
        Self { addr, shared, tasks }
    }

    /// Returns the address to which clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Resets every connection, in both directions, now.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Discards the next bytes from the server on each connection, and resets the connection.
    ///
    /// This is the fault that locks must survive: the request was applied, and its reply is lost.
    pub fn lose_replies(&self) {
        self.shared.lose_replies();
    }

    /// Resets every connection that arrives within the next `time`. Existing ones stay open.
    pub fn refuse_for(&self, time: Duration) {
        self.shared.refuse_for(time);
    }

    /// Forwards new connections again, even if [`Proxy::refuse_for`] has not ended yet.
    pub fn admit_all(&self) {
        self.shared.control.send_modify(|control| control.refuse_until = None);
    }

    /// Stops forwarding in both directions. Connections stay open, as in a network partition.
    pub fn pause(&self) {
        self.shared.control.send_modify(|control| control.paused = true);
    }

    /// Forwards again, beginning with the bytes that arrived during the pause.
    pub fn resume(&self) {
        self.shared.control.send_modify(|control| control.paused = false);
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        *self.shared.statistics.borrow()
    }

    /// Waits until the statistics satisfy `condition`, and returns them.
    pub async fn until(&self, condition: impl FnMut(&Statistics) -> bool) -> Statistics {
        let mut statistics = self.shared.statistics.subscribe();
        *statistics.wait_for(condition).await.expect("the sender is ours")
    }

    /// Begins a fault after each of a series of random intervals, until the proxy is dropped.
    ///
    /// The seed determines the faults and the intervals. Which connections and bytes the faults hit
    /// depends on the traffic.
    pub fn chaos(&mut self, seed: u64, mean_interval: Duration) {
        self.tasks.spawn(chaos(self.shared.clone(), SplitMix64::new(seed), mean_interval));
    }
}

/// Counts since the start of a proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Statistics {
    /// Connections that were accepted and forwarded.
    pub accepted: u64,
    /// Connections reset on arrival because of [`Proxy::refuse_for`].
    pub refused: u64,
    /// Connections closed because the server could not be reached.
    pub unreachable: u64,
    /// Connections reset by a fault.
    pub cut: u64,
    /// Connections among these that [`Proxy::lose_replies`] reset after it had discarded a reply.
    pub lost: u64,
    /// Connections forwarded at this moment.
    pub open: u64,
}

#[derive(Clone, Debug, Default)]
struct Shared {
    control: watch::Sender<Control>,
    statistics: watch::Sender<Statistics>,
}

impl Shared {
    fn cut_all(&self) {
        self.control.send_modify(|control| control.cut_below = control.arrivals);
    }

    fn lose_replies(&self) {
        self.control.send_modify(|control| control.lose_below = control.arrivals);
    }

    fn refuse_for(&self, time: Duration) {
        let until = Instant::now() + time;
        self.control.send_modify(|control| {
            control.refuse_until = control.refuse_until.max(Some(until));
        });
    }

    fn count(&self, change: impl FnOnce(&mut Statistics)) {
        self.statistics.send_modify(change);
    }

    /// Returns the number of a new connection, or `None` if the connection must be refused.
    fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut number = None;
        self.control.send_modify(|control| {
            if control.refuse_until.is_none_or(|until| until <= now) {
                number = Some(control.arrivals);
                control.arrivals += 1;
            }
        });
        number
    }
}

/// The active faults. Connections watch them.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// The number of the next connection.
    arrivals: u64,
    cut_below: u64,
    lose_below: u64,
    refuse_until: Option<Instant>,
    paused: bool,
}

async fn accept(listener: TcpListener, upstream: SocketAddr, shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("the proxy can accept");
        // Otherwise ended connections would accumulate until the proxy is dropped.
        while connections.try_join_next().is_some() {}
        match shared.admit() {
            Some(number) => {
                connections.spawn(serve(client, upstream, number, shared.clone()));
            }
            None => {
                reset(client);
                shared.count(|statistics| statistics.refused += 1);
            }
        }
    }
}

async fn serve(mut client: TcpStream, upstream: SocketAddr, number: u64, shared: Shared) {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        reset(client);
        shared.count(|statistics| statistics.unreachable += 1);
        return;
    };
    for stream in [&client, &server] {
        // If this fails, the connection is slower but still correct.
        let _ = stream.set_nodelay(true);
    }
    shared.count(|statistics| {
        statistics.accepted += 1;
        statistics.open += 1;
    });
    let end = forward(&mut client, &mut server, number, &shared).await;
    // The streams are closed before they are counted, so that a test that waits for the count finds
    // them closed.
    match end {
        End::Closed => drop((client, server)),
        End::Cut | End::Lost => {
            reset(client);
            reset(server);
        }
    }
    shared.count(|statistics| {
        statistics.open -= 1;
        statistics.cut += u64::from(end != End::Closed);
        statistics.lost += u64::from(end == End::Lost);
    });
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// A peer has closed, or a socket has failed.
    Closed,
    /// A fault has ended the connection.
    Cut,
    /// A fault has ended the connection and discarded a reply.
    Lost,
}

async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    number: u64,
    shared: &Shared,
) -> End {
    let mut control = shared.control.subscribe();
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    tokio::select! {
        biased;
        _ = control.wait_for(|control| number < control.cut_below) => End::Cut,
        end = async {
            // The first error ends both directions. An end of file ends only its own direction.
            tokio::try_join!(
                pump(client_read, server_write, shared, |_| false),
                pump(server_read, client_write, shared, |control| number < control.lose_below),
            )
        } => match end {
            Err(PumpError::Lost) => End::Lost,
            Ok(_) | Err(PumpError::Io) => End::Closed,
        },
    }
}

enum PumpError {
    /// A fault discards the bytes that have arrived.
    Lost,
    Io,
}

impl From<io::Error> for PumpError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    loses: impl Fn(&Control) -> bool,
) -> Result<(), PumpError> {
    let mut control = shared.control.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut chunk).await?;
        // The check follows the read, because the read may have begun long before the pause.
        let lost = {
            let control = control.wait_for(|control| !control.paused).await;
            loses(&control.expect("`shared` holds the sender"))
        };
        if length == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        if lost {
            return Err(PumpError::Lost);
        }
        to.write_all(chunk.get(..length).expect("a read stays within its buffer")).await?;
    }
}

/// Closes the stream with a reset, which the peer sees at once and which discards unsent bytes.
fn reset(stream: TcpStream) {
    // If this fails, the peer sees an ordinary close, which also means a lost connection.
    let _ = stream.set_zero_linger();
}

async fn chaos(shared: Shared, mut random: SplitMix64, mean_interval: Duration) {
    loop {
        sleep(random.around(mean_interval)).await;
        match random.below(4) {
            0 => shared.cut_all(),
            1 => {
                shared.refuse_for(random.around(mean_interval / 4));
                shared.cut_all();
            }
            // This fault happens twice as often as the others, because it leaves outcomes unknown.
            _ => shared.lose_replies(),
        }
    }
}

const CHUNK_BYTES: usize = 64 * 1024;
