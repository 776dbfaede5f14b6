//! SASL with GSSAPI: Kerberos with a real KDC and a real server.
//!
//! `.ci/security` creates the realm with `tests/security/realm`, starts the servers and runs this
//! suite. Tickets for servers are valid for six seconds only, so clients need the KDC again soon.
//!
//! Clients are the program `principal`, each in a process of its own.

#[path = "support/peer.rs"]
mod peer;
mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peer::{Peer, challenge};
use support::given;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use zk_session::SaslFailure;
use zk_tests::proxy::Proxy;
use zk_tests::scene::spawn;
use zk_tests::wait::{PATIENCE, soon};
use zk_tests::world::sleep_ms;

/// A folder for the tickets and settings of one test.
struct Scene {
    folder: PathBuf,
    settings: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zk-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self { folder, settings: realm("krb5.conf") }
    }

    /// Lets the clients of this test reach the KDC only through a proxy.
    async fn behind_proxy(name: &str) -> (Self, Proxy) {
        let mut scene = Self::new(name);
        let port = given("SECURITY_KDC_PORT");
        let proxy = Proxy::start(format!("127.0.0.1:{port}").parse().expect("an address")).await;
        scene.use_kdc(proxy.addr());
        (scene, proxy)
    }

    /// Lets the clients of this test reach the KDC only at this address.
    fn use_kdc(&mut self, address: SocketAddr) {
        let port = given("SECURITY_KDC_PORT");
        let settings = fs::read_to_string(realm("krb5.conf")).expect("the realm has started");
        let direct = format!("kdc = 127.0.0.1:{port}");
        assert!(settings.contains(&direct), "{settings}");
        self.settings = self.folder.join("krb5.conf");
        let settings = settings.replace(&direct, &format!("kdc = {address}"));
        fs::write(&self.settings, settings).expect("it can be written");
    }

    fn cache(&self) -> String {
        format!("FILE:{}", self.folder.join("cache").display())
    }

    /// Gets a ticket-granting ticket for alice.
    async fn kinit(&self, options: &[&str]) {
        let status = Command::new("kinit")
            .args(options)
            .args(["-k", "-t"])
            .arg(realm("alice.keytab"))
            .arg("alice")
            .env("KRB5_CONFIG", &self.settings)
            .env("KRB5CCNAME", self.cache())
            .status();
        assert!(soon("kinit", status).await.expect("kinit is installed").success());
    }

    /// Starts a client that uses the ticket cache of this test.
    async fn with_cache(&self, arguments: &[&str]) -> Principal {
        Principal::start(&self.settings, &[("KRB5CCNAME", &self.cache())], arguments).await
    }

    /// Starts a client that gets its own tickets with the keytab of alice.
    async fn with_keytab(&self, arguments: &[&str]) -> Principal {
        let keytab = realm("alice.keytab").display().to_string();
        let variables = [("KRB5CCNAME", "MEMORY:"), ("KRB5_CLIENT_KTNAME", &keytab)];
        Principal::start(&self.settings, &variables, arguments).await
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running client.
struct Principal {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Its first line of output.
    beginning: String,
}

impl Principal {
    async fn start(settings: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_principal"));
        command.args(arguments).env("KRB5_CONFIG", settings).env_remove("KRB5_CLIENT_KTNAME");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the program was built");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut this = Self { process, input, output, beginning: String::new() };
        this.beginning = this.line().await;
        this
    }

    async fn line(&mut self) -> String {
        let line = soon("a line of output", self.output.next_line()).await;
        line.expect("the output is text").expect("the client runs")
    }

    async fn ask(&mut self, command: &str) -> String {
        self.input.write_all(format!("{command}\n").as_bytes()).await.expect("the client runs");
        self.line().await
    }

    /// Asks until the reply contains this text.
    async fn until(&mut self, command: &str, expected: &str) {
        let mut reply = String::new();
        for _ in 0..300 {
            reply = self.ask(command).await;
            if reply.contains(expected) {
                return;
            }
            sleep_ms(100).await;
        }
        panic!("{command:?} still returns {reply:?}, without {expected:?}");
    }
}

/// Returns a file of the realm.
fn realm(name: &str) -> PathBuf {
    PathBuf::from(given("SECURITY_REALM")).join(name)
}

fn server() -> String {
    format!("localhost:{}", given("SECURITY_KERBEROS_PORT"))
}

/// Starts a proxy in front of the ZooKeeper. Returns it with its address, which has the name of the
/// server's principal.
async fn proxied() -> (Proxy, String) {
    let port = given("SECURITY_KERBEROS_PORT").parse().expect("a port");
    let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await;
    let address = format!("localhost:{}", proxy.addr().port());
    (proxy, address)
}

#[tokio::test]
async fn a_keytab_is_an_identity_on_every_connection() {
    let scene = Scene::new("keytab");
    let (proxy, address) = proxied().await;
    let mut alice = scene.with_keytab(&[&address]).await;
    assert_eq!(alice.beginning, "connected");
    assert_eq!(alice.ask("own /keytab alice").await, "created");
    let session = alice.ask("session").await;
    proxy.cut_all();
    alice.until("failure", "localhost").await;
    assert_eq!(alice.ask("read /keytab").await, "secret");
    assert_eq!(alice.ask("session").await, session, "the session survives");
}

#[tokio::test]
async fn cuts_cost_no_session_no_identity_no_watch_and_no_request() {
    let scene = Scene::new("cuts");
    let mut client = scene.with_keytab(&[&server(), "cuts=/gssapi-cut"]).await;
    assert_eq!(client.beginning, "cutting");
    // A client that gives up says what it has waited for.
    let line = timeout(PATIENCE * 2, client.output.next_line()).await.expect("the client ends");
    let line = line.expect("the output is text").expect("the client does not panic");
    let numbers: Option<Vec<usize>> = line.split(' ').map(|number| number.parse().ok()).collect();
    let Some([new, resumed]) = numbers.as_deref() else { panic!("{line}") };
    eprintln!("{new} cuts of new sessions, and {resumed} of resumed ones");
    assert!(*new >= 16 && *resumed >= 20, "only {new} and {resumed} cuts");
}

#[tokio::test]
async fn a_cache_and_explicit_names_work_too() {
    let scene = Scene::new("cache");
    scene.kinit(&[]).await;
    let names = ["client=alice@ZK.TEST", "server=zookeeper/localhost@ZK.TEST"];
    for names in [&names[..], &["exact"], &["service=zookeeper"]] {
        let server = server();
        let arguments: Vec<&str> = [&[&*server], names].concat();
        let mut alice = scene.with_cache(&arguments).await;
        assert_eq!(alice.beginning, "connected", "{names:?}");
        assert_eq!(alice.ask("own /cache alice").await, "created", "{names:?}");
        assert_eq!(alice.ask("read /cache").await, "secret");
        drop(alice.input);
        soon("the client's end", alice.process.wait()).await.expect("it can be awaited");
    }
}

#[tokio::test]
async fn a_server_that_the_realm_does_not_know_is_reported() {
    let scene = Scene::new("unknown");
    scene.kinit(&[]).await;
    let client = scene.with_cache(&[&server(), "service=nosuch"]).await;
    assert!(
        client.beginning.contains("nosuch/localhost@ZK.TEST not found"),
        "{}",
        client.beginning
    );
    // The realm has no principal for the address, and its settings forbid reverse lookups.
    let address = server().replace("localhost", "127.0.0.1");
    let client = scene.with_cache(&[&address]).await;
    assert!(client.beginning.contains("zookeeper/127.0.0.1@"), "{}", client.beginning);
}

#[tokio::test]
async fn a_ticket_for_another_service_is_refused_for_good() {
    let scene = Scene::new("other");
    scene.kinit(&[]).await;
    let client = scene.with_cache(&[&server(), "server=other/localhost@ZK.TEST"]).await;
    let refused = zk_session::ConnectError::AuthFailed.to_string();
    assert!(client.beginning.contains(&refused), "{}", client.beginning);
}

#[tokio::test]
async fn missing_credentials_are_reported() {
    let scene = Scene::new("missing");
    let client = scene.with_cache(&[&server()]).await;
    assert!(client.beginning.contains("no usable Kerberos credentials"), "{}", client.beginning);
    scene.kinit(&[]).await;
    let client = scene.with_cache(&[&server(), "client=bob@ZK.TEST"]).await;
    assert!(client.beginning.contains("no usable Kerberos credentials"), "{}", client.beginning);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let scene = Scene::new("files");
    let path = |name: &str| scene.folder.join(name).display().to_string();
    fs::write(path("garbage"), "neither a cache nor a keytab").expect("it can be written");
    let (missing, garbage, folder) = (path("missing"), path("garbage"), path("."));
    let cases = [
        (&*missing, None, &*missing),
        (&*garbage, None, &*garbage),
        (&*folder, None, &*folder),
        ("MEMORY:", None, "KRB5_CLIENT_KTNAME is not set"),
        ("MEMORY:", Some(&*missing), "/missing: No such file"),
        ("MEMORY:", Some(&*garbage), &*garbage),
        ("MEMORY:", Some(&*folder), &*folder),
    ];
    let clients = cases.map(|(cache, keytab, expected)| {
        let mut variables = vec![("KRB5CCNAME".to_owned(), cache.to_owned())];
        variables.extend(keytab.map(|file| ("KRB5_CLIENT_KTNAME".to_owned(), file.to_owned())));
        let (settings, expected) = (scene.settings.clone(), expected.to_owned());
        spawn(async move {
            let variables = variables.iter().map(|(name, value)| (&**name, &**value));
            let variables: Vec<_> = variables.collect();
            let client = Principal::start(&settings, &variables, &[&server()]).await;
            let text = client.beginning;
            assert!(text.contains("no usable Kerberos credentials"), "{text}");
            assert!(text.contains(&expected), "{text}");
        })
    });
    for client in clients {
        client.await.expect("it names its file");
    }
}

#[tokio::test]
async fn a_server_that_breaks_the_rules_is_named_and_gets_no_request() {
    let scene = Arc::new(Scene::new("rules"));
    scene.kinit(&[]).await;
    let cases: [(Peer, String); 9] = [
        (Peer::Replies(|| None), SaslFailure::NotOffered.to_string()),
        (Peer::Replies(|| Some(Bytes::new())), SaslFailure::OtherMechanism("GSSAPI").to_string()),
        (Peer::Replies(|| challenge("")), SaslFailure::OtherMechanism("GSSAPI").to_string()),
        (Peer::Replies(|| Some(vec![0x60; 64].into())), "GSSAPI failed".to_owned()),
        (Peer::Replies(|| Some(vec![0x60; 65_000].into())), "GSSAPI failed".to_owned()),
        (Peer::Replies(|| Some(vec![0x60; 1 << 20].into())), "is too long".to_owned()),
        (Peer::Replies(|| Some(vec![0x60, 0x84, 0xff, 0xff].into())), "GSSAPI failed".to_owned()),
        (Peer::RepliesTwice, "xid".to_owned()),
        (Peer::Closes, "closed the connection".to_owned()),
    ];
    let clients = cases.map(|(peer, expected)| {
        let scene = Arc::clone(&scene);
        spawn(async move {
            let (port, counts) = listen(peer).await;
            let client = scene.with_cache(&[&format!("localhost:{port}")]).await;
            assert!(client.beginning.contains(&expected), "{}", client.beginning);
            let [attempts, requests] = counts.map(|count| count.load(Ordering::Relaxed));
            assert!((1..=12).contains(&attempts), "{attempts} attempts in five seconds");
            assert_eq!(requests, 0, "nothing precedes SASL");
        })
    });
    for (number, client) in clients.into_iter().enumerate() {
        client.await.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}

/// Starts a server that breaks rules. Returns its port, and how many connections and requests it has
/// got.
async fn listen(peer: Peer) -> (u16, [Arc<AtomicUsize>; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [attempts, requests] = counts.clone();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            attempts.fetch_add(1, Ordering::Relaxed);
            spawn(peer.serve(stream, Arc::clone(&requests)));
        }
    });
    (port, counts)
}

#[tokio::test]
async fn a_server_with_another_mechanism_is_recognized() {
    let scene = Scene::new("mechanism");
    scene.kinit(&[]).await;
    let digest = format!("localhost:{}", given("SECURITY_DIGEST_PORT"));
    let client = scene.with_cache(&[&digest]).await;
    let expected = SaslFailure::OtherMechanism("GSSAPI").to_string();
    assert!(client.beginning.contains(&expected), "{}", client.beginning);
    let plain = format!("localhost:{}", given("SECURITY_PLAIN_PORT"));
    let client = scene.with_cache(&[&plain]).await;
    let expected = SaslFailure::NotOffered.to_string();
    assert!(client.beginning.contains(&expected), "{}", client.beginning);
}

#[tokio::test]
async fn a_ticket_that_expires_costs_nothing_until_the_next_connection_and_can_be_renewed() {
    let scene = Scene::new("expiry");
    scene.kinit(&["-l", "5s"]).await;
    let (proxy, address) = proxied().await;
    let mut alice = scene.with_cache(&[&address]).await;
    assert_eq!(alice.beginning, "connected");
    assert_eq!(alice.ask("own /expiry alice").await, "created");
    let session = alice.ask("session").await;
    sleep_ms(7_000).await;
    assert_eq!(alice.ask("read /expiry").await, "secret", "the connection outlives the ticket");
    proxy.cut_all();
    alice.until("failure", "expired").await;
    alice.until("session", "Suspended").await;
    scene.kinit(&[]).await;
    assert_eq!(alice.ask("read /expiry").await, "secret");
    assert_eq!(alice.ask("session").await, session, "the session survives");
}

#[tokio::test]
async fn a_kdc_that_is_down_at_a_reconnect_costs_no_session() {
    let (scene, kdc) = Scene::behind_proxy("outage").await;
    scene.kinit(&[]).await;
    let (proxy, address) = proxied().await;
    let mut alice = scene.with_cache(&[&address]).await;
    assert_eq!(alice.beginning, "connected");
    assert_eq!(alice.ask("own /outage alice").await, "created");
    let session = alice.ask("session").await;
    kdc.refuse_for(Duration::from_secs(600));
    // The ticket for the server expires, and the client needs the KDC for another one.
    sleep_ms(7_000).await;
    proxy.cut_all();
    alice.until("failure", "KDC").await;
    alice.until("session", "Suspended").await;
    kdc.admit_all();
    assert_eq!(alice.ask("read /outage").await, "secret");
    assert_eq!(alice.ask("session").await, session, "the session survives");
}

#[tokio::test]
async fn a_kdc_that_is_silent_is_named_and_holds_up_neither_a_session_nor_the_end() {
    let (scene, kdc) = Scene::behind_proxy("silence").await;
    scene.kinit(&[]).await;
    let (proxy, address) = proxied().await;
    let mut alice = scene.with_cache(&[&address]).await;
    assert_eq!(alice.beginning, "connected");
    let session = alice.ask("session").await;
    kdc.pause();
    let mut late = scene.with_keytab(&[&address]).await;
    assert!(late.beginning.contains(&SaslFailure::NotReady.to_string()), "{}", late.beginning);
    // Its Kerberos library waits for 20 s longer, but the process does not wait for its library.
    let end = timeout(Duration::from_secs(10), late.process.wait()).await;
    end.expect("the process ends").expect("it can be awaited");
    // The ticket expires, and the session goes on.
    sleep_ms(2_000).await;
    assert_eq!(alice.ask("session").await, session);
    proxy.cut_all();
    alice.until("session", "Suspended").await;
    alice.until("failure", "KDC").await;
    kdc.resume();
    alice.until("session", "Connected").await;
    assert_eq!(alice.ask("session").await, session, "the session survives");
}

/// Forwards connections to the KDC, except those that arrive while the flag is set: they stay open,
/// and nobody replies. Returns the address.
async fn swallowing_kdc(swallows: Arc<AtomicBool>) -> SocketAddr {
    let kdc = format!("127.0.0.1:{}", given("SECURITY_KDC_PORT"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    spawn(async move {
        let mut swallowed = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            if swallows.load(Ordering::Relaxed) {
                swallowed.push(client);
                continue;
            }
            let mut server = TcpStream::connect(&kdc).await.expect("the KDC runs");
            spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    address
}

#[tokio::test]
async fn a_kdc_that_has_swallowed_a_request_costs_no_session() {
    let mut scene = Scene::new("swallow");
    let swallows = Arc::new(AtomicBool::new(false));
    scene.use_kdc(swallowing_kdc(Arc::clone(&swallows)).await);
    scene.kinit(&[]).await;
    let (proxy, address) = proxied().await;
    let mut alice = scene.with_cache(&[&address]).await;
    assert_eq!(alice.beginning, "connected");
    let session = alice.ask("session").await;
    // The ticket for the server expires, and the client needs the KDC for another one.
    sleep_ms(7_000).await;
    swallows.store(true, Ordering::Relaxed);
    proxy.cut_all();
    alice.until("failure", "no first SASL message").await;
    // The Kerberos library still waits for the reply to its first request.
    swallows.store(false, Ordering::Relaxed);
    alice.until("session", "Connected").await;
    assert_eq!(alice.ask("session").await, session, "the session survives");
}

#[tokio::test]
async fn a_forwardable_ticket_is_not_forwarded() {
    let scene = Scene::new("forwardable");
    scene.kinit(&["-f"]).await;
    let client = scene.with_cache(&[&server()]).await;
    assert_eq!(client.beginning, "connected");
    // To delegate a ticket, the client would request another one for the KDC itself.
    let log = fs::read_to_string(realm("kdc.log")).expect("the KDC has a log");
    let requests: Vec<_> = log.lines().filter(|line| line.contains("TGS_REQ")).collect();
    assert!(requests.iter().any(|line| line.contains("for zookeeper/localhost")), "{log}");
    assert!(!requests.iter().any(|line| line.contains("for krbtgt/")), "{log}");
}
