//! A configuration of rustls that the program has made: its verifier decides, may block, and may
//! panic, and does not hold up the client.

#[path = "support/authority.rs"]
mod authority;
#[path = "support/network.rs"]
mod network;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::{Authority, Identity};
use network::{CERTIFICATE, KEY, Network, presents};
use tokio::io::{AsyncReadExt as _, duplex};
use zk_session::rustls::client::Resumption;
use zk_session::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use zk_session::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use zk_session::rustls::pki_types::pem::PemObject as _;
use zk_session::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use zk_session::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
};
use zk_session::{
    Client, ClientBuilder, ConnectError, FailureCause, Host, SessionState, Tls, TlsFailure,
    Transport, rustls,
};
use zk_tests::wait::soon;
use zk_testserver::{ServerConfig, TestServer};

const NAME: &str = "zk1.test";

/// What a verifier decides about the certificate of a server.
type Decide = dyn Fn(&CertificateDer<'_>) -> Result<(), Error> + Send + Sync;

/// A verifier that trusts no CA.
struct Verifier {
    provider: Arc<CryptoProvider>,
    decide: Box<Decide>,
}

impl Verifier {
    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a secret of the verifier")
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        (self.decide)(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

/// Returns a configuration with a verifier.
fn config(
    decide: impl Fn(&CertificateDer<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier { provider: Arc::clone(&provider), decide: Box::new(decide) };
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has their cipher suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

fn stranger() -> Identity {
    Authority::root("stranger").server(&["other.test"], 7)
}

/// Returns the transport below TLS to a server with this certificate.
fn below(network: &Network, identity: &Identity) -> impl Transport + use<> {
    let zookeeper = TestServer::start(ServerConfig::default());
    let acceptor = presents(&identity.chain, &identity.key, None);
    network.accepted(&zookeeper, move |_| acceptor.clone())
}

fn to(tls: Tls) -> ClientBuilder {
    Client::builder(NAME).transport(tls).session_timeout(Duration::from_secs(2))
}

async fn failure(tls: Tls) -> FailureCause {
    match to(tls).connect_within(Duration::from_secs(1)).connect().await {
        Err(ConnectError::TimedOut { last_failure: Some(failure), .. }) => failure.cause,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("the client is connected"),
    }
}

/// The server has a certificate of an unknown CA for another name, which is the one that is pinned.
#[tokio::test]
async fn the_verifier_of_a_configuration_decides_alone() {
    let (pinned, network) = (stranger(), Network::default());
    let calls = Arc::new(AtomicUsize::new(0));
    let config = || {
        let der = CertificateDer::from_pem_slice(pinned.chain.as_bytes()).expect("a certificate");
        let calls = Arc::clone(&calls);
        config(move |presented| {
            calls.fetch_add(1, Ordering::SeqCst);
            if *presented == der {
                return Ok(());
            }
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        })
    };
    let tls = |config: ClientConfig, identity: &Identity| {
        let options = Tls::builder().client_config(config);
        options.over(below(&network, identity)).build().expect("it is usable")
    };
    let reconnect = async |config: ClientConfig| {
        let client = to(tls(config, &pinned)).connect().await.expect("it is pinned");
        for number in 1..4 {
            let connections = network.connections();
            network.cut_all();
            client.sync("/").await.ok();
            client.sync("/").await.expect("it is pinned");
            assert_eq!(network.connections(), connections + 1, "{number}");
        }
        client.close().await;
        calls.swap(0, Ordering::SeqCst)
    };
    assert_eq!(reconnect(config()).await, 1, "rustls resumes TLS sessions, unless told not to");
    let mut each = config();
    each.resumption = Resumption::disabled();
    assert_eq!(reconnect(each).await, 4);
    let refused = failure(tls(config(), &stranger())).await.to_string();
    assert!(refused.contains("the verifier of `client_config` refused it"), "{refused}");
    assert!(!format!("{:?}", tls(config(), &pinned)).contains("secret"));
}

#[tokio::test]
async fn what_a_verifier_says_is_passed_on() {
    let network = Network::default();
    let said = "no stapled OCSP reply";
    let other = move || rustls::OtherError(Arc::new(io::Error::other(said)));
    let cases: [fn(rustls::OtherError) -> Error; 3] = [
        |_| Error::General("no stapled OCSP reply".to_owned()),
        |other| Error::InvalidCertificate(CertificateError::Other(other)),
        Error::Other,
    ];
    for case in cases {
        let config = config(move |_| Err(case(other())));
        let tls = Tls::builder().client_config(config).over(below(&network, &stranger()));
        let text = failure(tls.build().expect("it is usable")).await.to_string();
        assert!(text.contains(said), "{text}");
    }
    let revoked = config(|_| Err(Error::InvalidCertificate(CertificateError::Revoked)));
    let tls = Tls::builder().client_config(revoked).over(below(&network, &stranger()));
    let cause = failure(tls.build().expect("it is usable")).await;
    assert_eq!(cause, FailureCause::Tls(TlsFailure::Revoked));
}

/// A verifier that waits for a reply.
fn blocking() -> (ClientConfig, std::sync::mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (answer, answers) = channel();
    let answers: Mutex<Receiver<()>> = Mutex::new(answers);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let mut config = config(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        answers.lock().expect("no verifier panics").recv().ok();
        Ok(())
    });
    config.resumption = Resumption::disabled();
    (config, answer, calls)
}

/// On a runtime with one thread, which a verifier in the session's task would block.
#[tokio::test(flavor = "current_thread")]
async fn a_verifier_that_blocks_holds_up_neither_the_client_nor_its_program() {
    let network = Network::default();
    let (config, answer, calls) = blocking();
    let tls = Tls::builder().client_config(config).over(below(&network, &stranger()));
    let tls = tls.build().expect("it is usable");
    answer.send(()).expect("the verifier lives");
    let client = to(tls.clone()).connect().await.expect("the verifier has replied");
    let session = client.session_id();
    network.cut_all();
    client.sync("/").await.ok();
    let until_asked = async {
        while calls.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    };
    soon("the question", until_asked).await;
    let error = client.sync("/").timeout(Duration::from_millis(50)).await;
    error.expect_err("the session's task goes on while the verifier blocks");
    assert_eq!(client.state(), SessionState::Suspended);
    // The session outlives one attempt, or is replaced: both need another reply.
    for _ in 0..8 {
        answer.send(()).expect("the verifier lives");
    }
    soon("a connection", async {
        while client.sync("/").await.is_err() && client.session_id() == session {}
    })
    .await;
    client.close().await;

    // Nobody replies any more, and the program ends all the same.
    let (config, answer, _) = blocking();
    let tls = Tls::builder().client_config(config).over(below(&network, &stranger()));
    let cause = failure(tls.build().expect("it is usable")).await;
    assert!(matches!(cause, FailureCause::Tls(TlsFailure::TimedOut(_))), "{cause}");
    drop(answer);
}

#[tokio::test]
async fn a_verifier_that_panics_ends_its_handshake_only() {
    let (network, calls) = (Network::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let config = config(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) < 2 {
            std::panic::resume_unwind(Box::new("as planned"));
        }
        Ok(())
    });
    let tls = Tls::builder().client_config(config).over(below(&network, &stranger()));
    let client = to(tls.build().expect("it is usable")).start().expect("valid options");
    soon("the third handshake", client.sync("/")).await.expect("the verifier works");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    client.close().await;
}

/// As clients of OCSP over HTTP do that block.
#[tokio::test]
async fn a_verifier_may_run_a_runtime_of_its_own() {
    let network = Network::default();
    let config = config(|_| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { tokio::task::yield_now().await });
        Ok(())
    });
    let tls = Tls::builder().client_config(config).over(below(&network, &stranger()));
    let client = to(tls.build().expect("it is usable")).connect().await.expect("it agrees");
    client.close().await;
}

/// More attempts than there are threads, to a peer that never completes its handshake: each thread
/// ends with its attempt.
#[tokio::test]
async fn a_peer_that_does_not_end_the_handshake_keeps_no_thread() {
    let (network, attempts) = (Network::default(), Arc::new(AtomicUsize::new(0)));
    let good = Arc::new(below(&network, &stranger()));
    let count = Arc::clone(&attempts);
    let transport = move |host: Host| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let good = Arc::clone(&good);
        async move {
            if number >= 6 {
                let attempt = zk_session::Attempt::new(0, Duration::from_secs(10));
                return good.connect(host, attempt).await;
            }
            let (ours, mut theirs) = duplex(1 << 16);
            spawn(async move { while theirs.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {} });
            Ok(Box::new(ours) as Box<dyn zk_session::Stream>)
        }
    };
    let tls = Tls::builder().client_config(config(|_| Ok(()))).over(transport);
    let client = to(tls.build().expect("it is usable")).session_timeout(Duration::from_millis(500));
    let client = client.start().expect("valid options");
    soon("the seventh handshake", client.sync("/")).await.expect("that server replies");
    assert_eq!(attempts.load(Ordering::SeqCst), 7);
    client.close().await;
}

#[expect(clippy::disallowed_methods, reason = "a peer serves while the test waits")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

#[test]
fn options_that_a_configuration_replaces_are_refused() {
    let own = || Tls::builder().client_config(config(|_| Ok(())));
    let provider = Arc::new(ring::default_provider());
    let cases = [
        (own().ca_file("/nowhere"), "ca_file"),
        (own().ca_pem(CERTIFICATE), "ca_pem"),
        (own().system_roots(), "system_roots"),
        (own().client_files("/nowhere", "/nowhere"), "client_files"),
        (own().client_pem(CERTIFICATE, KEY), "client_pem"),
        (own().crl_file("/nowhere"), "crl_file"),
        (own().allow_unknown_revocation(), "crl"),
        (own().crypto_provider(provider), "crypto_provider"),
    ];
    for (options, name) in cases {
        let text = options.build().map(|_| ()).expect_err(name).to_string();
        assert!(text.contains("`client_config` replaces `") && text.contains(name), "{text}");
    }
    let built = own().server_name(NAME).build().expect("these have another purpose");
    assert!(!built.has_identity());
    let tls = Tls::builder().ca_pem(CERTIFICATE).client_pem(CERTIFICATE, KEY);
    let tls = tls.build().expect("they fit");
    assert!(tls.has_identity());
    tls.clone().replace(own()).expect("it is usable");
    assert!(!tls.has_identity(), "the clone has replaced it for both");
}
