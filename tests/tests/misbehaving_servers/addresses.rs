//! A host name with several addresses: the client connects to the server that accepts connections.
//! These tests use loopback TCP, which has many addresses.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::time::timeout;
use zk_recipes::Client;
use zk_session::{Host, Tcp};
use zk_tests::scene::spawn;
use zk_testserver::{ServerConfig, TestServer};

/// Time within which a connection on loopback is established, unless the server does not accept it.
const A_MOMENT: Duration = Duration::from_millis(500);
/// A client tries the next address after a quarter of a second, so it needs far less time than
/// this. It gives up an attempt after a much longer time.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Returns a transport that resolves the name to 127.0.0.2, 127.0.0.3 and 127.0.0.4. Only the last
/// address has a server.
fn resolver() -> Tcp {
    Tcp::with_resolver(|host: Host| async move {
        assert_eq!(host.name, "zk.test");
        Ok((2..=4).map(|last| SocketAddr::from((address(last), host.port))).collect())
    })
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

async fn connects(port: u16, seed: u64) {
    let client = Client::builder(format!("zk.test:{port}"))
        .transport(resolver())
        .seed(seed)
        .connect()
        .await
        .expect("one address serves");
    client.exists("/").await.expect("it is connected");
    client.close().await;
}

fn run(test: impl Future<Output = io::Result<()>>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test).expect("loopback works");
}

#[test]
fn addresses_that_accept_and_close_do_not_keep_a_client_from_the_one_that_serves() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let port = server.listen("127.0.0.4:0").await?.port();
        let closed = Arc::new(AtomicUsize::new(0));
        for last in 2..=3 {
            let listener = TcpListener::bind((address(last), port)).await?;
            let closed = Arc::clone(&closed);
            spawn(async move {
                while listener.accept().await.is_ok() {
                    closed.fetch_add(1, Relaxed);
                }
            });
        }
        // The seeds cover every address as the first one.
        for seed in 0..6 {
            connects(port, seed).await;
        }
        assert!(closed.load(Relaxed) > 0, "the others were never tried");
        Ok(())
    });
}

#[test]
fn addresses_that_refuse_or_swallow_connections_cost_a_moment_only() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let port = server.listen("127.0.0.4:0").await?.port();
        // No server listens at .2. At .3 the backlog has room for one connection, and no server
        // accepts it.
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((address(3), port)))?;
        let _full = socket.listen(1)?;
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(A_MOMENT, TcpStream::connect((address(3), port))).await {
            waiting.push(stream?);
            assert!(waiting.len() < 10, "a queue of one is never full");
        }
        for seed in 0..6 {
            let connected = timeout(CONNECT_MAX, connects(port, seed)).await;
            assert!(connected.is_ok(), "with seed {seed} that took {CONNECT_MAX:?}");
        }
        // The backlog was full until the end.
        assert!(timeout(A_MOMENT, TcpStream::connect((address(3), port))).await.is_err());
        Ok(())
    });
}
