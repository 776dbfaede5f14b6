//! Peers that break the rules of SASL and TLS, on purpose or because they are broken.
//!
//! Whatever a peer does, the client names it with the cause, tries again at a bounded rate, sends no
//! request, and can be closed.

#[path = "support/network.rs"]
mod network;
#[path = "support/peer.rs"]
mod peer;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jute_codec::ErrorCode;
use network::{CERTIFICATE, Cut, Network};
use peer::{Peer, challenge};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use zk_session::{
    Client, ClientBuilder, Clock, CloseOutcome, ConnectError, Host, Sasl, SessionState, Tls,
    TlsFailure, Transport,
};
use zk_tests::scene::spawn;
use zk_tests::wait::soon;
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client tries.
const PATIENCE: Duration = Duration::from_secs(30);
/// A client comes at most once a second, after it has come twice in the first.
const ATTEMPTS_MAX: usize = 32;
const MEGABYTE: usize = 1 << 20;

/// Counts the connections over a transport.
fn counted(transport: impl Transport) -> (impl Transport, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let transport = Counted { transport, counter };
    (transport, count)
}

struct Counted<T> {
    transport: T,
    counter: Arc<AtomicUsize>,
}

impl<T: Transport> Transport for Counted<T> {
    fn connect(&self, host: Host, attempt: zk_session::Attempt) -> zk_session::Connecting {
        self.counter.fetch_add(1, Ordering::Relaxed);
        self.transport.connect(host, attempt)
    }
}

fn client(transport: impl Transport) -> ClientBuilder {
    Client::builder("in-process")
        .clock(Clock::tokio())
        .seed(1)
        .session_timeout(SESSION_TIMEOUT)
        .transport(transport)
}

/// Tries to connect for a while, and closes another client that has tried for as long. Returns the
/// error.
async fn fails<T: Transport>(
    label: &str,
    transport: impl Fn() -> T,
    with: impl Fn(ClientBuilder) -> ClientBuilder,
) -> ConnectError {
    let (first, attempts) = counted(transport());
    let builder = with(client(first)).connect_within(PATIENCE);
    let error = builder.connect().await.map(|_| ()).expect_err(label);
    let attempts = attempts.load(Ordering::Relaxed);
    assert!((1..=ATTEMPTS_MAX).contains(&attempts), "{label}: {attempts} attempts");

    let client = with(client(transport())).start().expect("the options are valid");
    let waiting = client.get_data("/");
    sleep_ms(3_000).await;
    let limit = SESSION_TIMEOUT + Duration::from_secs(1);
    let closed = tokio::time::timeout(limit, client.close()).await;
    let closed = closed.unwrap_or_else(|_| panic!("{label}: close does not return"));
    assert!(matches!(closed, CloseOutcome::Closed | CloseOutcome::Abandoned), "{closed:?}");
    soon(label, waiting).await.expect_err(label);
    error
}

/// Returns the error of a client with DIGEST-MD5.
fn sasl(peer: Peer) -> ConnectError {
    let label = format!("{peer:?}");
    run(async move {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let transport = move || {
            let requests = Arc::clone(&counter);
            move |_: Host| {
                let (ours, theirs) = tokio::io::duplex(2 * MEGABYTE);
                let requests = Arc::clone(&requests);
                spawn(async move { peer.serve(theirs, requests).await });
                async move { io::Result::Ok(ours) }
            }
        };
        let digest = |builder: ClientBuilder| builder.sasl(Sasl::digest_md5("alice", "secret"));
        let error = fails(&label, transport, digest).await;
        assert_eq!(requests.load(Ordering::Relaxed), 0, "{label}: nothing precedes SASL");
        error
    })
}

#[test]
fn a_peer_that_breaks_the_rules_of_sasl_is_named_and_gets_no_request() {
    let other = "the server uses another SASL mechanism than DIGEST-MD5";
    let cases: [(Peer, &str); 24] = [
        (Peer::Replies(|| None), "no SASL configuration"),
        (Peer::Replies(|| Some(Bytes::new())), "it has no nonce"),
        (Peer::Replies(|| Some(vec![0xff; 64].into())), other),
        (Peer::Replies(|| Some("garbage".into())), other),
        (Peer::Replies(|| Some(vec![0x60; 2_047].into())), other),
        (Peer::Replies(|| Some(vec![b','; 2_047].into())), "it has no nonce"),
        (Peer::Replies(|| Some(vec![b'='; 2_047].into())), "it has no nonce"),
        (Peer::Replies(|| Some("a=b,".repeat(511).into())), "it has no nonce"),
        (Peer::Replies(|| Some("a=b,".repeat(512).into())), "longer than 2,047 bytes"),
        (Peer::Replies(|| Some(vec![b','; 65_000].into())), "longer than 2,047 bytes"),
        (Peer::Replies(|| Some(vec![b','; MEGABYTE - 100].into())), "is too long"),
        (Peer::Replies(|| Some(vec![b'x'; 8 * MEGABYTE].into())), "8388"),
        (Peer::Replies(|| Some("nonce=\"".into())), "a quotation mark is not closed"),
        (Peer::Replies(|| Some("nonce=\"\\".into())), "a quotation mark is not closed"),
        // It asks again and again.
        (Peer::Replies(|| challenge("")), "did not prove its identity"),
        (Peer::Replies(|| challenge(&format!(",x=\"{}\"", "x".repeat(1_500)))), "identity"),
        (Peer::Replies(|| challenge(",rspauth=00000000000000000000000000000000")), "identity"),
        (Peer::Refuses(ErrorCode::MARSHALLING_ERROR), "MARSHALLING_ERROR"),
        (Peer::Refuses(ErrorCode(-9999)), "-9999"),
        (Peer::RepliesShort, "SetSASLResponse"),
        (Peer::RepliesUnasked, "xid"),
        (Peer::RepliesTwice, "xid"),
        (Peer::IsSilent, "SASL"),
        (Peer::Closes, "closed the connection"),
    ];
    for (number, (peer, expected)) in cases.into_iter().enumerate() {
        let text = sasl(peer).to_string();
        assert!(text.contains(expected) && text.contains("in-process:2181"), "{number}: {text}");
        assert!(text.len() < 500, "{number}: {text}");
    }
    let text = sasl(Peer::SendsPings).to_string();
    assert!(text.contains("SASL"), "{text}");
    for code in [ErrorCode::AUTH_FAILED, ErrorCode::SESSION_CLOSED_REQUIRE_SASL_AUTH] {
        assert_eq!(sasl(Peer::Refuses(code)), ConnectError::AuthFailed);
    }
}

#[test]
fn names_and_passwords_of_any_length_and_letters_work() {
    let long = "x".repeat(100_000);
    let cases =
        [("alice", "\u{0}\"\\,= \n"), ("al\"i\\ce,=", "p"), ("ü€😀", "ß😀"), (&long, &long)];
    for (name, password) in cases {
        run(async move {
            let config = ServerConfig::default().sasl_user(name, password).sasl_required(true);
            let server = TestServer::start(config);
            let builder = client(server.connector()).sasl(Sasl::digest_md5(name, password));
            let client = builder.connect().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            client.exists("/").await.expect("it is authenticated");
            client.close().await;
            let builder = self::client(server.connector()).sasl(Sasl::digest_md5(name, "wrong"));
            let refused = builder.connect().await.map(|_| ());
            assert_eq!(refused, Err(ConnectError::AuthFailed));
        });
    }
    for (name, password) in [("", "secret"), ("alice", "")] {
        let started = Client::builder("zk").sasl(Sasl::digest_md5(name, password)).start();
        let error = started.map(|_| ()).expect_err("it is empty").to_string();
        assert!(error.contains("sasl") && error.contains("empty"), "{error}");
    }
}

/// A peer that sends these bytes after it has read some, and then closes or is silent.
fn says(bytes: &'static [u8], closes: bool) -> impl Transport {
    move |_: Host| async move {
        let (ours, mut theirs) = tokio::io::duplex(MEGABYTE);
        spawn(async move {
            let _ = theirs.read(&mut [0; 4096]).await;
            let _ = theirs.write_all(bytes).await;
            if !closes {
                pending::<()>().await;
            }
        });
        io::Result::Ok(ours)
    }
}

fn over(transport: impl Transport) -> Tls {
    Tls::builder().ca_pem(CERTIFICATE).over(transport).build().expect("the certificate is usable")
}

#[test]
fn a_peer_that_breaks_the_rules_of_tls_is_named() {
    const CHECK_PORT: &str = "check that the port is its `secureClientPort`";
    let cases: [(&'static [u8], bool, &str); 9] = [
        (b"", false, "the TLS handshake was not complete within"),
        (b"\x16\x03\x03\x40\x00half a record", false, "the TLS handshake was not complete within"),
        (b"", true, CHECK_PORT),
        (b"\x16\x03\x03\x40\x00half a record", true, CHECK_PORT),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, CHECK_PORT),
        // A reply to a handshake of ZooKeeper.
        (b"\0\0\0\x25\0\0\0\0\0\0\x27\x10\0\0\0\0\0\0\0\x07\0\0\0\x10", false, CHECK_PORT),
        (
            b"\x15\x03\x03\0\x02\x02\x28",
            false,
            "handshake_failure; they have no TLS version, cipher suite",
        ),
        (
            b"\x15\x03\x03\0\x02\x02\x46",
            true,
            "protocol_version; it allows no TLS version that the client has",
        ),
        (b"\x15\x03\x03\0\x02\x02\xff", true, "alert"),
    ];
    for (bytes, closes, expected) in cases {
        let label = format!("{:?}", bytes.escape_ascii().to_string());
        let error = run(async move {
            fails(&label, || over(says(bytes, closes)), |builder| builder).await.to_string()
        });
        assert!(error.contains(expected) && error.contains("in-process:2181"), "{error}");
    }
}

#[test]
fn a_server_that_closes_within_the_handshake_is_named() {
    // The first chunk is ClientHello, and the second one begins with ServerHello.
    for cut in [Cut { chunks: 1, is_torn: false }, Cut { chunks: 1, is_torn: true }] {
        let error = run(async move {
            let server = TestServer::start(ServerConfig::default());
            let network = Network::default();
            network.cut_every_connection(cut);
            fails("closes", || network.tls(&server), |builder| builder).await.to_string()
        });
        assert!(error.contains(&TlsFailure::Closed.to_string()), "{error}");
    }
}

#[test]
fn a_server_that_misses_the_certificate_of_the_client_says_so() {
    let error = run(async {
        let (server, network) = (TestServer::start(ServerConfig::default()), Network::default());
        fails("none", || over(network.encrypted(&server)), |builder| builder).await.to_string()
    });
    assert!(error.contains("requires a client certificate"), "{error}");
}

#[test]
fn a_client_without_tls_names_a_port_with_tls() {
    let error = run(async {
        let (server, network) = (TestServer::start(ServerConfig::default()), Network::default());
        fails("plain", || network.encrypted(&server), |builder| builder).await.to_string()
    });
    assert!(error.contains("a TLS port"), "{error}");
}

#[test]
fn a_session_survives_servers_that_break_the_rules_for_a_while() {
    run(async {
        let server = TestServer::start(ServerConfig::default());
        let network = Network::default();
        let client = client(network.tls(&server)).connect().await.expect("a connection");
        let session = client.session_id();
        network.cut_every_connection(Cut { chunks: 2, is_torn: true });
        network.cut_all();
        let waiting = client.sync("/");
        sleep_ms(4_000).await;
        assert_eq!(client.state(), SessionState::Suspended);
        network.stop_cutting();
        soon("the end of a request", waiting).await.ok();
        client.sync("/").await.expect("it is connected again");
        assert_eq!(client.session_id(), session);
        client.close().await;
    });
}
