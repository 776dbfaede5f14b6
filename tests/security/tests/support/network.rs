//! A network that can be cut at any step, to the in-process server, also behind TLS, and to real
//! servers.

#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a panic fails the test")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use zk_session::rustls::ServerConfig as TlsServerConfig;
use zk_session::rustls::pki_types::pem::PemObject as _;
use zk_session::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zk_session::rustls::server::{ClientHello, ResolvesServerCert};
use zk_session::rustls::sign::CertifiedKey;
use zk_session::{Host, Tls, Transport};
use zk_testserver::TestServer;

/// A certificate for the name `in-process`, until 2099. It is its own issuer.
pub const CERTIFICATE: &str = include_str!("../fixtures/only-for-tests.crt");
/// Its private key.
pub const KEY: &str = include_str!("../fixtures/only-for-tests.key");
/// The bytes of a reply to a handshake up to the end of the password.
const HANDSHAKE: usize = 40;
/// Capacity of each direction of a connection.
const PIPE: usize = 64 * 1024;

/// The network between the clients and the server.
#[derive(Clone, Default)]
pub struct Network(Arc<Shared>);

/// Where to cut a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// The chunks that pass before the cut, in both directions together.
    pub chunks: usize,
    /// Whether half of the next chunk passes too, so that the cut is within a message.
    pub is_torn: bool,
}

impl Cut {
    /// Returns the cuts at this chunk: before it, and within it.
    pub fn at(chunks: usize) -> [Self; 2] {
        [false, true].map(|is_torn| Self { chunks, is_torn })
    }
}

#[derive(Default)]
struct Shared {
    cut: Mutex<Option<(usize, Cut)>>,
    /// Where to cut every connection.
    cut_every: Mutex<Option<Cut>>,
    connections: AtomicUsize,
    /// Connections with a lower number are cut at their next chunk.
    oldest: AtomicUsize,
    /// The first bytes that the server has sent on each connection, in the clear.
    handshakes: Mutex<Vec<Vec<u8>>>,
    /// What clients have sent, in the clear.
    sent_by_clients: Mutex<Vec<u8>>,
}

impl Network {
    /// Cuts one connection, counted from 0.
    pub fn cut(&self, connection: usize, cut: Cut) {
        *self.0.cut.lock().unwrap() = Some((connection, cut));
    }

    /// Cuts each connection from now on.
    pub fn cut_every_connection(&self, cut: Cut) {
        *self.0.cut_every.lock().unwrap() = Some(cut);
    }

    /// Cuts nothing from now on. Returns whether the cut has happened.
    pub fn stop_cutting(&self) -> bool {
        *self.0.cut_every.lock().unwrap() = None;
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

    /// Listens for clients of other processes, and connects them with a real server on this port of
    /// the loopback interface. Returns the port on which it listens.
    pub async fn listen(&self, port: u16) -> u16 {
        let network = self.clone();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        run(async move {
            loop {
                let (client, _) = listener.accept().await?;
                let server = TcpStream::connect(("127.0.0.1", port)).await?;
                run(pump(client, network.forward(server), |_, chunk| chunk.len()));
            }
        });
        own
    }

    /// Listens for clients of other processes with TLS, and connects them with an in-process server.
    /// Returns the port on which it listens.
    pub async fn listen_with_tls(&self, server: &TestServer, acceptor: TlsAcceptor) -> u16 {
        let (network, server) = (self.clone(), server.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        run(async move {
            loop {
                let (client, _) = listener.accept().await?;
                let host = Host { name: "in-process".into(), port };
                let connecting = server.connector()(host);
                let (network, acceptor) = (network.clone(), acceptor.clone());
                run(async move {
                    let client = acceptor.accept(client).await?;
                    let server = network.forward(connecting.await?);
                    pump(client, server, |_, chunk| chunk.len()).await
                });
            }
        });
        port
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
        let tls = Tls::builder().ca_pem(CERTIFICATE).client_pem(CERTIFICATE, KEY);
        tls.over(self.encrypted(server)).build().expect("the certificate is usable")
    }

    /// Returns the transport below TLS.
    pub fn encrypted(&self, server: &TestServer) -> impl Transport + use<> {
        let acceptor = acceptor();
        self.accepted(server, move |_| acceptor.clone())
    }

    /// Returns the transport below TLS to a server that behaves as this says for each host.
    pub fn accepted<F>(&self, server: &TestServer, acceptor: F) -> impl Transport + use<F>
    where
        F: Fn(&Host) -> TlsAcceptor + Send + Sync + 'static,
    {
        let (network, server) = (self.clone(), server.clone());
        move |host: Host| {
            let (network, acceptor) = (network.clone(), acceptor(&host));
            let connecting = server.connector()(host);
            async move {
                let server = network.overheard(connecting.await?);
                let (encrypted, client) = duplex(PIPE);
                run(async move {
                    let encrypted = acceptor.accept(encrypted).await?;
                    pump(encrypted, server, |_, chunk| chunk.len()).await
                });
                io::Result::Ok(network.forward(client))
            }
        }
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
            chunk.len()
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
        run(pump(far, server, move |_, chunk| {
            if connection < shared.oldest.load(Ordering::Relaxed) {
                return 0;
            }
            let mut next = shared.cut.lock().unwrap();
            if let Some((_, cut)) = next.filter(|next| next.0 == connection)
                && cut.chunks == chunks
            {
                *next = None;
                return if cut.is_torn { chunk.len() / 2 } else { 0 };
            }
            if let Some(cut) = *shared.cut_every.lock().unwrap()
                && cut.chunks == chunks
            {
                return if cut.is_torn { chunk.len() / 2 } else { 0 };
            }
            chunks += 1;
            chunk.len()
        }));
        near
    }
}

/// Returns a transport to a server with TLS that presents this certificate, in PEM, and then
/// replies to nothing.
pub fn presenting(certificate: &str, key: &str) -> impl Transport + use<> {
    let acceptor = presents(certificate, key, None);
    move |_: Host| {
        let (client, server) = duplex(PIPE);
        let accepting = acceptor.accept(server);
        run(async move {
            let mut stream = accepting.await?;
            while stream.read(&mut [0; 1024]).await? > 0 {}
            Ok(())
        });
        async move { io::Result::Ok(client) }
    }
}

fn acceptor() -> TlsAcceptor {
    presents(CERTIFICATE, KEY, Some(CERTIFICATE))
}

/// Returns what accepts TLS connections, presents this chain of certificates, and demands a
/// certificate that this CA has issued, all in PEM.
pub fn presents(chain: &str, key: &str, clients: Option<&str>) -> TlsAcceptor {
    let certificates = |pem: &str| -> Vec<_> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
    };
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(zk_session::rustls::crypto::ring::default_provider());
    let builder = TlsServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = zk_session::rustls::RootCertStore::empty();
            roots.add(certificates(ca).remove(0)).unwrap();
            let verifier = zk_session::rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                provider,
            );
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = builder.with_single_cert(certificates(chain), key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Returns what accepts TLS connections, and records the names that clients ask for.
pub fn names_of_clients(
    chain: &str,
    key: &str,
    names: Arc<Mutex<Vec<Option<String>>>>,
) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(zk_session::rustls::crypto::ring::default_provider());
    let key = CertifiedKey::from_der(chain, key, &provider).unwrap();
    let config = TlsServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Recorded { key: Arc::new(key), names }));
    TlsAcceptor::from(Arc::new(config))
}

#[derive(Debug)]
struct Recorded {
    key: Arc<CertifiedKey>,
    names: Arc<Mutex<Vec<Option<String>>>>,
}

impl ResolvesServerCert for Recorded {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.names.lock().unwrap().push(hello.server_name().map(str::to_owned));
        Some(Arc::clone(&self.key))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the network of a test")]
fn run(task: impl Future<Output = io::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        // A connection that ends is what these tests are about.
        let _ = task.await;
    });
}

/// Forwards chunks in both directions until a side ends, or until `permits` returns fewer bytes than
/// the chunk has: these still pass. It gets each chunk, and whether it is from the second side.
async fn pump<A, B>(
    mut a: A,
    mut b: B,
    mut permits: impl FnMut(bool, &[u8]) -> usize,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_a, mut from_b) = (vec![0; PIPE], vec![0; PIPE]);
    loop {
        let goes_on = tokio::select! {
            biased;
            read = b.read(&mut from_b) => {
                let chunk = &from_b[..read?];
                forward(&mut a, chunk, permits(true, chunk)).await?
            }
            read = a.read(&mut from_a) => {
                let chunk = &from_a[..read?];
                forward(&mut b, chunk, permits(false, chunk)).await?
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// Writes the first bytes of a chunk. Returns whether these are all, and not the end of the stream.
async fn forward<S: AsyncWrite + Unpin>(
    to: &mut S,
    chunk: &[u8],
    permitted: usize,
) -> io::Result<bool> {
    to.write_all(&chunk[..permitted]).await?;
    to.flush().await?;
    Ok(!chunk.is_empty() && permitted == chunk.len())
}
