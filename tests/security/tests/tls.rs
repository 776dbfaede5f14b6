//! TLS and mutual TLS with real servers, and what each mistake says.
//!
//! `.ci/security` creates the certificates, starts the servers and runs this suite.

#[path = "support/network.rs"]
mod network;
mod support;
#[path = "support/survival.rs"]
mod survival;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use support::{SESSION_TIMEOUT, given, private_znode, until_failure, until_suspended};
use survival::survive_cuts;
use zk_session::rustls::pki_types::pem::PemObject as _;
use zk_session::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zk_session::rustls::{ClientConfig, RootCertStore};
use zk_session::{Client, ClientBuilder, FailureCause, Tls, TlsBuilder, TlsFailure};
use zk_tests::proxy::Proxy;

/// Returns a file that `tests/security/certificates` has created.
fn file(name: &str) -> PathBuf {
    PathBuf::from(given("SECURITY_CERTIFICATES")).join(name)
}

/// A server that requires client certificates.
fn mutual() -> String {
    format!("localhost:{}", given("SECURITY_MUTUAL_TLS_PORT"))
}

/// A server that asks for no client certificate.
fn one_way() -> String {
    format!("localhost:{}", given("SECURITY_TLS_PORT"))
}

fn trusting() -> TlsBuilder {
    Tls::builder().ca_file(file("ca.crt"))
}

fn with_certificate(name: &str) -> Tls {
    let (certificate, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
    trusting().client_files(certificate, key).build().expect("the files are usable")
}

fn to(server: &str, tls: Tls) -> ClientBuilder {
    Client::builder(server).transport(tls).session_timeout(SESSION_TIMEOUT)
}

/// Returns why a client cannot connect: the cause of its first failure.
async fn cause(builder: ClientBuilder) -> FailureCause {
    let client = builder.session_timeout(SESSION_TIMEOUT).start().expect("the options are valid");
    until_failure(&client, |_| true).await;
    let failure = client.last_failure().expect("it has failed");
    assert_eq!(client.session_id(), None, "the client is connected");
    client.close().await;
    failure.cause
}

async fn tls_failure(builder: ClientBuilder) -> TlsFailure {
    let cause = cause(builder).await;
    let FailureCause::Tls(failure) = cause else { panic!("another cause: {cause}") };
    failure
}

#[tokio::test]
async fn a_server_is_verified_and_asks_for_no_certificate() {
    let tls = trusting().build().expect("the file is usable");
    let client = to(&one_way(), tls).connect().await.expect("the server speaks TLS");
    client.exists("/").await.expect("requests work");
    client.close().await;
}

#[tokio::test]
async fn a_client_certificate_is_an_identity() {
    let client = to(&mutual(), with_certificate("client")).connect().await.expect("mutual TLS");
    private_znode(&client, "/own", "x509", "CN=client").await;
    assert_eq!(client.get_data("/own").await.expect("it is ours").0, "secret");
    let other = to(&mutual(), with_certificate("client2")).connect().await.expect("mutual TLS");
    let refused = other.get_data("/own").await.expect_err("it is not theirs");
    assert_eq!(refused.server_code(), Some(zk_session::ErrorCode::NO_AUTH));
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn cuts_cost_no_session_no_identity_no_watch_and_no_request() {
    let port = given("SECURITY_MUTUAL_TLS_PORT").parse().expect("a port");
    let (certificate, key) = (file("client.crt"), file("client.key"));
    let (new, resumed) = survive_cuts(
        |network| {
            let tls = trusting().client_files(&certificate, &key).over(network.tcp(port));
            to(&mutual(), tls.build().expect("the files are usable"))
        },
        "/tls-cut",
    )
    .await;
    eprintln!("{new} cuts of new sessions, and {resumed} of resumed ones");
    assert!(new >= 16 && resumed >= 20, "only {new} and {resumed} cuts");
}

#[tokio::test]
async fn a_server_is_verified_by_its_address_too() {
    let address = one_way().replace("localhost", "127.0.0.1");
    let tls = trusting().build().expect("the file is usable");
    to(&address, tls).connect().await.expect("the certificate has the address").close().await;
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused_and_the_names_are_listed() {
    let tls = trusting().server_name("zk1.internal").build().expect("the options are usable");
    let TlsFailure::WrongName { expected, presented } = tls_failure(to(&one_way(), tls)).await
    else {
        panic!("the name is wrong")
    };
    assert_eq!(expected, "zk1.internal");
    assert_eq!(presented, ["localhost", "127.0.0.1", "::1"]);
    let tls = trusting().server_name("127.0.0.2").build().expect("the options are usable");
    let failure = tls_failure(to(&one_way(), tls)).await;
    assert!(matches!(failure, TlsFailure::WrongName { .. }), "{failure}");
}

#[tokio::test]
async fn an_authority_that_is_not_trusted_is_refused() {
    let tls = Tls::builder().ca_file(file("stranger-ca.crt")).build().expect("a usable file");
    assert_eq!(tls_failure(to(&one_way(), tls)).await, TlsFailure::UnknownIssuer);
}

#[tokio::test]
async fn the_authorities_of_the_system_replace_no_own_authority() {
    match Tls::builder().build() {
        Ok(tls) => assert_eq!(tls_failure(to(&one_way(), tls)).await, TlsFailure::UnknownIssuer),
        Err(failure) => assert!(matches!(failure, TlsFailure::NoRoots(_)), "{failure}"),
    }
}

#[tokio::test]
async fn a_certificate_of_a_server_that_has_expired_is_refused() {
    let expired = format!("localhost:{}", given("SECURITY_EXPIRED_TLS_PORT"));
    let tls = trusting().build().expect("the file is usable");
    assert_eq!(tls_failure(to(&expired, tls)).await, TlsFailure::Expired);
}

#[tokio::test]
async fn a_revoked_server_is_refused_and_a_list_that_spares_it_is_not() {
    let with = |list: &str| trusting().crl_file(file(list)).build().expect("a usable list");
    to(&one_way(), with("ca.crl")).connect().await.expect("it is not revoked").close().await;
    assert_eq!(tls_failure(to(&one_way(), with("revoking.crl"))).await, TlsFailure::Revoked);
}

/// TLS 1.2 is what ZooKeeper 3.8 speaks by default.
#[tokio::test]
async fn a_configuration_of_the_program_is_an_identity() {
    let read = |name: &str| fs::read(file(name)).expect("it was created");
    let chain = CertificateDer::from_pem_slice(&read("client.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&read("client.key")).expect("a key");
    let ca = CertificateDer::from_pem_slice(&read("ca.crt")).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(ca).expect("it is that of a CA");
    let provider = Arc::new(zk_session::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has their cipher suites")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain], key)
        .expect("they fit");
    let tls = Tls::builder().client_config(config).build().expect("it is usable");
    let client = to(&mutual(), tls.clone()).connect().await.expect("mutual TLS");
    private_znode(&client, "/own-config", "x509", "CN=client").await;
    assert_eq!(client.get_data("/own-config").await.expect("it is ours").0, "secret");
    let files = trusting().client_files(file("client2.crt"), file("client2.key"));
    tls.replace(files).expect("the files are usable");
    let other = to(&mutual(), tls).connect().await.expect("mutual TLS");
    let refused = other.get_data("/own-config").await.expect_err("it is not theirs");
    assert_eq!(refused.server_code(), Some(zk_session::ErrorCode::NO_AUTH));
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn certificates_that_cannot_be_verified_are_refused_for_their_own_reason() {
    let read = |name: &str| fs::read_to_string(file(name)).expect("it was created");
    let failure = async |certificate: &str, key: &str| {
        let tls = trusting().over(network::presenting(certificate, key)).build();
        tls_failure(to("localhost:2281", tls.expect("the file is usable"))).await
    };
    let of = async |name: &str| {
        failure(&read(&format!("{name}.crt")), &read(&format!("{name}.key"))).await
    };
    assert_eq!(of("future").await, TlsFailure::NotYetValid);
    assert_eq!(of("expired").await, TlsFailure::Expired);
    // It is its own issuer.
    assert_eq!(failure(network::CERTIFICATE, network::KEY).await, TlsFailure::UnknownIssuer);
    for (name, expected) in [
        ("client", "extended key usage has to contain serverAuth"),
        ("ca", "it is the certificate of a CA; give the server a certificate of its own"),
    ] {
        let text = of(name).await.to_string();
        assert!(text.contains("the server's certificate") && text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn a_missing_client_certificate_is_reported() {
    let tls = trusting().build().expect("the file is usable");
    let failure = tls_failure(to(&mutual(), tls)).await;
    assert!(matches!(failure, TlsFailure::ClientCertificateRequired { .. }), "{failure}");
}

#[tokio::test]
async fn client_certificates_that_have_expired_or_are_from_strangers_are_refused() {
    for name in ["client-expired", "stranger"] {
        let failure = tls_failure(to(&mutual(), with_certificate(name))).await;
        let is_refused = matches!(failure, TlsFailure::ClientCertificateRefused { .. });
        assert!(is_refused, "{name}: {failure}");
    }
}

#[tokio::test]
async fn ports_of_the_other_kind_are_recognized() {
    let plain = format!("localhost:{}", given("SECURITY_PLAIN_PORT"));
    let tls = trusting().build().expect("the file is usable");
    let failure = tls_failure(to(&plain, tls)).await;
    assert!(matches!(failure, TlsFailure::Closed), "{failure}");
    let cause = cause(Client::builder(mutual())).await;
    assert!(cause.to_string().contains("a port for TLS"), "{cause}");
}

#[tokio::test]
async fn replaced_certificates_are_used_from_the_next_connection_on() {
    let folder = env::temp_dir().join(format!("zk-tls-rotation-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let (certificate, key) = (folder.join("client.crt"), folder.join("client.key"));
    let install = |name: &str| {
        fs::copy(file(&format!("{name}.crt")), &certificate).expect("it can be written");
        fs::copy(file(&format!("{name}.key")), &key).expect("it can be written");
    };
    install("client");
    let port = given("SECURITY_MUTUAL_TLS_PORT").parse().expect("a port");
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await;
    let tls = trusting().client_files(&certificate, &key).build().expect("the files are usable");
    let server = format!("localhost:{}", proxy.addr().port());
    let client = to(&server, tls).connect().await;
    let client = client.expect("mutual TLS");
    let session = client.session_id();
    private_znode(&client, "/rotated", "x509", "CN=client2").await;
    client.get_data("/rotated").await.expect_err("the first certificate is in use");

    // The files do not fit together, so the client must not connect with the old ones.
    fs::copy(file("client2.crt"), &certificate).expect("it can be written");
    proxy.cut_all();
    until_failure(&client, |text| text.contains(&TlsFailure::KeyMismatch.to_string())).await;
    until_suspended(&client).await;
    fs::write(&key, "no PEM").expect("it can be written");
    until_failure(&client, |text| text.contains("client.key")).await;

    install("client2");
    assert_eq!(client.get_data("/rotated").await.expect("the second certificate").0, "secret");
    assert_eq!(client.session_id(), session, "the session survives");
    client.close().await;
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// The Kubernetes way: all files are replaced at once, by another target of a symbolic link.
#[tokio::test]
async fn authorities_that_are_broken_for_a_while_cost_no_session() {
    let folder = env::temp_dir().join(format!("zk-tls-ca-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let ca = folder.join("ca.crt");
    let install = |source: PathBuf| {
        let new = folder.join("new");
        std::os::unix::fs::symlink(source, &new).expect("it can be created");
        fs::rename(&new, &ca).expect("it can be replaced");
    };
    install(file("ca.crt"));
    let port = given("SECURITY_TLS_PORT").parse().expect("a port");
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await;
    let tls = Tls::builder().ca_file(&ca).build().expect("the file is usable");
    let server = format!("localhost:{}", proxy.addr().port());
    let client = to(&server, tls).connect().await;
    let client = client.expect("the server is trusted");
    let session = client.session_id();
    fs::write(folder.join("empty"), "").expect("it can be written");
    let broken = [
        (folder.join("nowhere"), "No such file"),
        (folder.join("empty"), "it has no block BEGIN CERTIFICATE"),
        (file("stranger-ca.crt"), "a CA that the client does not trust"),
    ];
    for (source, expected) in broken {
        install(source);
        proxy.cut_all();
        until_failure(&client, |text| text.contains(expected)).await;
    }
    until_suspended(&client).await;
    install(file("ca.crt"));
    client.exists("/").await.expect("it is connected again");
    assert_eq!(client.session_id(), session, "the session survives");
    client.close().await;
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// The variables that replace the authorities of the system apply to a whole process, so the test
/// runs itself in another one.
#[test]
fn a_system_without_authorities_is_reported() {
    const CHILD: &str = "SECURITY_NO_ROOTS";
    if env::var(CHILD).is_ok() {
        let text = Tls::builder().build().expect_err("there is none").to_string();
        assert!(text.contains("set `ca_file` or `ca_pem`"), "{text}");
        return;
    }
    let status = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "a_system_without_authorities_is_reported"])
        .envs([(CHILD, "1"), ("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_DIR", "/nowhere")])
        .status();
    assert!(status.expect("it can be started").success());
}

#[test]
fn files_that_are_no_certificates_are_named_with_the_reason() {
    let folder = env::temp_dir().join(format!("zk-tls-files-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let written = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("it can be written");
        path
    };
    let certificate = fs::read_to_string(file("ca.crt")).expect("it was created");
    let half = certificate.replace("-----END CERTIFICATE-----", "");
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cases = [
        (written("empty", ""), "it has no block BEGIN CERTIFICATE"),
        (written("garbage", "no PEM\u{0}\n"), "it has no block BEGIN CERTIFICATE"),
        (written("half", &half), "a block has no END line"),
        (written("other", other), "a block is not a certificate"),
        (written("long", &"x".repeat(5 << 20)), "it has more than"),
        (folder.clone(), "it is not a regular file"),
        // It would block.
        (pipe, "it is not a regular file"),
        (folder.join("empty/ca.crt"), "Not a directory"),
    ];
    for (path, expected) in cases {
        for builder in
            [Tls::builder().ca_file(&path), trusting().client_files(&path, file("client.key"))]
        {
            let text = builder.build().map(|_| ()).expect_err(expected).to_string();
            assert!(text.contains(&path.display().to_string()), "{text}");
            assert!(text.contains("certificate") && text.contains(expected), "{text}");
        }
    }
    let key = written("encrypted.key", encrypted);
    let text = trusting().client_files(file("client.crt"), key).build().expect_err("no password");
    assert!(text.to_string().contains("an encrypted key is not supported"), "{text}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn unusable_files_are_reported_when_the_options_are_built() {
    let text = |builder: TlsBuilder| builder.build().expect_err("unusable").to_string();
    let missing = text(Tls::builder().ca_file("/nowhere/ca.pem"));
    assert!(missing.contains("/nowhere/ca.pem") && missing.contains("CA certificate"), "{missing}");
    let key_for_ca = text(Tls::builder().ca_file(file("ca.key")));
    assert!(key_for_ca.contains("BEGIN CERTIFICATE"), "{key_for_ca}");
    let no_key = text(trusting().client_files(file("client.crt"), file("client.crt")));
    assert!(no_key.contains("private key"), "{no_key}");
    let other_key = trusting().client_files(file("client.crt"), file("client2.key")).build();
    assert_eq!(other_key.expect_err("the key is another"), TlsFailure::KeyMismatch);
    let name = trusting().server_name("a b").build();
    assert_eq!(name.expect_err("no name"), TlsFailure::ServerName("a b".into()));
}
