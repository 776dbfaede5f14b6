//! A network that can be cut at any step, to the in-process server, also behind TLS, and to real
//! servers.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a panic fails the test")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use zk_session::rustls::ServerConfig as TlsServerConfig;
use zk_session::rustls::pki_types::pem::PemObject as _;
use zk_session::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zk_session::{ClientBuilder, CreateMode, Host, SessionState, Tls, Transport};
use zk_tests::wait::soon;
use zk_tests::world::sleep_ms;
use zk_testserver::TestServer;

/// A certificate for the name `in-process`, until 2099. It is its own issuer.
pub const CERTIFICATE: &str = include_str!("../fixtures/only-for-tests.crt");
/// Its private key.
pub const KEY: &str = include_str!("../fixtures/only-for-tests.key");
/// More chunks than a reconnect has.
const CHUNKS_MAX: usize = 100;
/// The bytes of a reply to a handshake up to the end of the password.
const HANDSHAKE: usize = 40;
/// Capacity of each direction of a connection.
const PIPE: usize = 64 * 1024;

/// The network between the clients and the server.
#[derive(Clone, Default)]
pub struct Network(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Which connection to cut, counted from 0, and after how many chunks.
    cut: Mutex<Option<(usize, usize)>>,
    connections: AtomicUsize,
    /// Connections with a lower number are cut at their next chunk.
    oldest: AtomicUsize,
    /// The first bytes that the server has sent on each connection, in the clear.
    handshakes: Mutex<Vec<Vec<u8>>>,
    /// What clients have sent, in the clear.
    sent_by_clients: Mutex<Vec<u8>>,
}

impl Network {
    /// Cuts one connection after this many chunks, in both directions together.
    pub fn cut(&self, connection: usize, chunks: usize) {
        *self.0.cut.lock().unwrap() = Some((connection, chunks));
    }

    /// Cuts nothing from now on. Returns whether the cut has happened.
    pub fn stop_cutting(&self) -> bool {
        self.0.cut.lock().unwrap().take().is_none()
    }

    /// Cuts each connection that is open now, at its next chunk.
    pub fn cut_all(&self) {
        self.0.oldest.store(self.connections(), Ordering::Relaxed);
    }

    /// Returns a transport to a real server on this port of the loopback interface.
    pub fn tcp(&self, port: u16) -> impl Transport + use<> {
        let network = self.clone();
        move |_: Host| {
            let network = network.clone();
            async move { Ok(network.forward(TcpStream::connect(("127.0.0.1", port)).await?)) }
        }
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Returns the passwords of all sessions so far, as the replies to the handshakes had them.
    pub fn session_passwords(&self) -> Vec<Vec<u8>> {
        let handshakes = self.0.handshakes.lock().unwrap();
        // Length, protocol version, timeout, session id, and the length of the password. A refused
        // session has only zeros.
        let replies = handshakes.iter().filter_map(|sent| sent.get(24..HANDSHAKE));
        let mut passwords: Vec<_> = replies.map(<[u8]>::to_vec).collect();
        passwords.retain(|password| password.iter().any(|byte| *byte != 0));
        passwords.sort();
        passwords.dedup();
        passwords
    }

    /// Returns the proofs by which clients have shown that they know the password of SASL.
    pub fn sasl_proofs(&self) -> Vec<Vec<u8>> {
        let sent = self.0.sent_by_clients.lock().unwrap();
        let name = b"response=";
        let at = |begin| sent.get(begin + name.len()..begin + name.len() + 32);
        let begins = sent.windows(name.len()).enumerate().filter(|(_, text)| text == name);
        begins.filter_map(|(begin, _)| at(begin)).map(<[u8]>::to_vec).collect()
    }

    /// Returns a transport to a server without TLS.
    pub fn plain(&self, server: &TestServer) -> impl Transport + use<> {
        let (network, server) = (self.clone(), server.clone());
        move |host: Host| {
            let (network, connecting) = (network.clone(), server.connector()(host));
            async move {
                let server = connecting.await?;
                Ok(network.forward(network.overheard(server)))
            }
        }
    }

    /// Returns a transport to a server with mutual TLS.
    pub fn tls(&self, server: &TestServer) -> Tls {
        let (network, server) = (self.clone(), server.clone());
        let acceptor = acceptor();
        let over = move |host: Host| {
            let (network, acceptor) = (network.clone(), acceptor.clone());
            let connecting = server.connector()(host);
            async move {
                let server = network.overheard(connecting.await?);
                let (encrypted, client) = duplex(PIPE);
                run(async move {
                    let encrypted = acceptor.accept(encrypted).await?;
                    pump(encrypted, server, |_, _| true).await
                });
                io::Result::Ok(network.forward(client))
            }
        };
        let tls = Tls::builder().ca_pem(CERTIFICATE).client_pem(CERTIFICATE, KEY).over(over);
        tls.build().expect("the certificate is usable")
    }

    /// Records what the server sends.
    fn overheard(&self, server: DuplexStream) -> DuplexStream {
        let shared = Arc::clone(&self.0);
        let connection = {
            let mut handshakes = shared.handshakes.lock().unwrap();
            handshakes.push(Vec::new());
            handshakes.len() - 1
        };
        let (near, far) = duplex(PIPE);
        run(pump(far, server, move |is_from_server, chunk| {
            let handshake = &mut shared.handshakes.lock().unwrap()[connection];
            if !is_from_server {
                shared.sent_by_clients.lock().unwrap().extend_from_slice(chunk);
            } else if handshake.len() < HANDSHAKE {
                handshake.extend_from_slice(chunk);
            }
            true
        }));
        near
    }

    /// Forwards chunks until the connection is cut.
    fn forward<S>(&self, server: S) -> DuplexStream
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.0);
        let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
        let (near, far) = duplex(PIPE);
        let mut chunks = 0;
        run(pump(far, server, move |_, _| {
            let mut cut = shared.cut.lock().unwrap();
            if *cut == Some((connection, chunks)) {
                *cut = None;
                return false;
            }
            if connection < shared.oldest.load(Ordering::Relaxed) {
                return false;
            }
            chunks += 1;
            true
        }));
        near
    }
}

/// Cuts the connection on which a session with a watch is resumed, after each number of chunks, and
/// checks that the session and the watch survive. Returns how many cuts there were.
pub async fn survive_cuts<C>(client: C, directory: &str) -> usize
where
    C: Fn(&Network) -> ClientBuilder,
{
    for chunks in 0..CHUNKS_MAX {
        let network = Network::default();
        let client = client(&network).connect().await.expect("a connection");
        let session = client.session_id();
        let path = format!("{directory}-{chunks}");
        let (_, mut watcher) = client.exists_and_watch(&path).await.expect("a watch");
        network.cut(network.connections(), chunks);
        network.cut_all();
        let lost = client.exists("/").await.expect_err("the connection is cut");
        assert!(lost.is_connection_loss(), "cut {chunks}: {lost}");
        // This request waits for a connection, which may be the one that is cut.
        let waiting = client.sync("/").await;
        assert!(
            waiting.as_ref().err().is_none_or(zk_session::OpError::is_connection_loss),
            "cut {chunks}: {waiting:?}"
        );
        let mut states = client.states();
        while states.current().state != SessionState::Connected {
            soon("a change of the session", states.next()).await.expect("the client runs");
        }
        // The rest of the chunks pass, or the cut happens now.
        while client.sync("/").await.is_err() {
            sleep_ms(10).await;
        }
        let has_cut = network.stop_cutting();
        soon("the create", async {
            while let Err(error) = client.create(&path, "", CreateMode::Ephemeral).await {
                assert!(error.is_connection_loss(), "cut {chunks}: {error}");
            }
        })
        .await;
        let event = soon("the event", watcher.changed()).await.expect("the watch survives");
        assert_eq!(event.path, path, "cut {chunks}");
        assert_eq!(client.session_id(), session, "cut {chunks}: the session survives");
        client.close().await;
        if !has_cut {
            return chunks;
        }
    }
    panic!("there are more than {CHUNKS_MAX} chunks");
}

fn acceptor() -> TlsAcceptor {
    let certificates = || vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let provider = Arc::new(zk_session::rustls::crypto::ring::default_provider());
    let mut roots = zk_session::rustls::RootCertStore::empty();
    roots.add(certificates().remove(0)).unwrap();
    let verifier = zk_session::rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots),
        Arc::clone(&provider),
    );
    let config = TlsServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(certificates(), key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[expect(clippy::disallowed_methods, reason = "this is the network of a test")]
fn run(task: impl Future<Output = io::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        // A connection that ends is what these tests are about.
        let _ = task.await;
    });
}

/// Forwards chunks in both directions until a side ends or `permits` refuses one. `permits` gets
/// each chunk, and whether it is from the second side.
async fn pump<A, B>(
    mut a: A,
    mut b: B,
    mut permits: impl FnMut(bool, &[u8]) -> bool,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_a, mut from_b) = (vec![0; PIPE], vec![0; PIPE]);
    loop {
        tokio::select! {
            biased;
            read = b.read(&mut from_b) => {
                let chunk = Bytes::copy_from_slice(&from_b[..read?]);
                if chunk.is_empty() || !permits(true, &chunk) { return Ok(()); }
                a.write_all(&chunk).await?;
                a.flush().await?;
            }
            read = a.read(&mut from_a) => {
                let chunk = Bytes::copy_from_slice(&from_a[..read?]);
                if chunk.is_empty() || !permits(false, &chunk) { return Ok(()); }
                b.write_all(&chunk).await?;
                b.flush().await?;
            }
        }
    }
}
