//! Other suites rely on the fault proxy, so it has its own tests. They use a plain echo server
//! instead of ZooKeeper.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use zk_tests::dead_host::DeadHost;
use zk_tests::proxy::{Proxy, Statistics};

#[tokio::test]
async fn bytes_pass_in_both_directions_and_are_unchanged() {
    let world = World::start().await;
    let mut client = world.connect().await;
    let sent: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let (mut read, mut write) = client.split();
    let (echoed, ()) = tokio::join!(
        async {
            let mut echoed = vec![0; sent.len()];
            read.read_exact(&mut echoed).await.unwrap();
            echoed
        },
        async { write.write_all(&sent).await.unwrap() },
    );
    assert_eq!(echoed, sent);
}

#[tokio::test]
async fn a_half_closed_connection_still_delivers_the_other_half() {
    let world = World::start().await;
    let mut client = world.connect().await;
    client.write_all(b"last words").await.unwrap();
    client.shutdown().await.unwrap();
    let mut echoed = Vec::new();
    client.read_to_end(&mut echoed).await.unwrap();
    assert_eq!(echoed, b"last words");
    world.until(|now| now.open == 0).await;
    assert_eq!(world.proxy.statistics(), Statistics { accepted: 1, ..Statistics::default() });
}

#[tokio::test]
async fn a_cut_ends_every_connection_and_no_later_one() {
    let world = World::start().await;
    let (mut first, mut second) = (world.connect().await, world.connect().await);
    world.proxy.cut_all();
    assert_ended(&mut first).await;
    assert_ended(&mut second).await;
    let mut third = world.connect().await;
    assert_echoes(&mut third).await;
    let expected = Statistics { accepted: 3, cut: 2, open: 1, ..Statistics::default() };
    assert_eq!(world.until(|now| now.cut == 2).await, expected);
}

#[tokio::test]
async fn a_lost_reply_was_seen_by_the_server_and_never_by_the_client() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(server.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();

    proxy.until(|now| now.open == 1).await;
    proxy.lose_replies();
    client.write_all(b"create").await.unwrap();
    let mut request = [0; 6];
    accepted.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"create");
    assert_eq!(proxy.statistics().cut, 0, "a request alone is no reason to cut");

    accepted.write_all(b"created").await.unwrap();
    assert_ended(&mut client).await;
    let ended = proxy.until(|now| now.cut == 1).await;
    assert_eq!(ended.lost, 1);
}

#[tokio::test]
async fn refusal_meets_new_connections_only_and_passes() {
    let world = World::start().await;
    let mut present = world.connect().await;
    world.proxy.refuse_for(Duration::from_millis(50));
    let mut refused = TcpStream::connect(world.proxy.addr()).await.unwrap();
    assert_ended(&mut refused).await;
    assert_echoes(&mut present).await;

    // The client's retries end this wait: they succeed once the refusal is over.
    let retries = async {
        while !echoes(&mut TcpStream::connect(world.proxy.addr()).await.unwrap()).await {}
    };
    timeout(BOUND, retries).await.expect("the refusal ends");
    assert!(world.proxy.statistics().refused >= 1);
}

#[tokio::test]
async fn nothing_passes_during_a_pause_and_everything_after_it() {
    let world = World::start().await;
    let mut client = world.connect().await;
    world.proxy.pause();
    client.write_all(b"late").await.unwrap();
    let mut echoed = [0; 4];
    let early = timeout(Duration::from_millis(30), client.read_exact(&mut echoed)).await;
    assert!(early.is_err(), "the proxy forwarded during a pause");
    world.proxy.resume();
    client.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"late");
}

#[tokio::test]
async fn a_paused_connection_can_be_cut() {
    let world = World::start().await;
    let mut client = world.connect().await;
    world.proxy.pause();
    client.write_all(b"never").await.unwrap();
    world.proxy.cut_all();
    assert_ended(&mut client).await;
}

#[tokio::test]
async fn a_server_that_is_away_costs_the_client_its_connection() {
    let dead = DeadHost::new();
    let proxy = Proxy::start(dead.addr()).await;
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_ended(&mut client).await;
    proxy.until(|now| now.unreachable == 1).await;
}

#[tokio::test]
async fn chaos_cuts_again_and_again_while_traffic_flows() {
    let mut world = World::start().await;
    world.proxy.chaos(42, Duration::from_millis(5));
    let traffic = async {
        loop {
            let mut client = TcpStream::connect(world.proxy.addr()).await.unwrap();
            while echoes(&mut client).await {}
        }
    };
    let seen = tokio::select! {
        () = traffic => unreachable!("traffic never ends"),
        seen = world.until(|now| now.cut >= 20 && now.refused >= 1) => seen,
    };
    assert!(seen.accepted >= seen.cut);
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections_and_its_chaos() {
    let mut world = World::start().await;
    world.proxy.chaos(1, Duration::from_secs(3600));
    let mut client = world.connect().await;
    let addr = world.proxy.addr();
    drop(world);
    assert_ended(&mut client).await;
    let refused = async { while TcpStream::connect(addr).await.is_ok() {} };
    timeout(BOUND, refused).await.expect("the port is closed");
}

/// A proxy in front of a server that sends everything back.
struct World {
    proxy: Proxy,
    _server: JoinSet<()>,
}

impl World {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let addr: SocketAddr = listener.local_addr().expect("a bound socket has an address");
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.expect("the server can accept");
                connections.spawn(async move {
                    let (mut read, mut write) = stream.split();
                    // The proxy may reset the stream at any time.
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Self { proxy: Proxy::start(addr).await, _server: server }
    }

    /// Opens a connection that the proxy certainly forwards.
    async fn connect(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.proxy.addr()).await.expect("the proxy listens");
        assert_echoes(&mut client).await;
        client
    }

    async fn until(&self, condition: impl FnMut(&Statistics) -> bool) -> Statistics {
        timeout(BOUND, self.proxy.until(condition)).await.expect("in time")
    }
}

#[track_caller]
fn assert_echoes(client: &mut TcpStream) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move { assert!(echoes(client).await, "no echo at {caller}") }
}

async fn echoes(client: &mut TcpStream) -> bool {
    let mut echoed = [0];
    client.write_all(&[7]).await.is_ok()
        && client.read_exact(&mut echoed).await.is_ok()
        && echoed == [7]
}

/// Asserts that the connection ends. For a client, a reset and an end of file both mean that the
/// connection is lost.
async fn assert_ended(client: &mut TcpStream) {
    let read = timeout(BOUND, client.read(&mut [0; 16])).await.expect("the end arrives in time");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// A time far longer than any step takes, so that only a bug reaches this limit.
const BOUND: Duration = Duration::from_secs(20);
