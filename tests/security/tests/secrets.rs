//! Secrets appear neither in logs, not even at trace level, nor in `Debug` output or errors.
//!
//! Each test sets every kind of secret, and searches everything that was written for each of them
//! in its usual encodings.

#[path = "support/network.rs"]
mod network;

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use jute_codec::{
    AuthPacket, ConnectRequest, ConnectResponse, Request, Response, SaslToken, SessionId, Zxid,
};
use network::{CERTIFICATE, KEY, Network};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zk_recipes::{FairLock, Guard, WorkQueue, kind};
use zk_session::recipe::Session;
use zk_session::{
    Client, ClientBuilder, Clock, ConnectError, CreateMode, Sasl, SessionTicket, Tls, WatchMode,
};
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

const DIGEST_PASSWORD: &str = "digest-correct-horse";
const SASL_PASSWORD: &str = "sasl-battery-staple";
const WRONG_PASSWORD: &str = "sasl-wrong-guess";

/// Records everything, at every level.
#[derive(Clone, Default)]
struct Recorder(Arc<Recorded>);

#[derive(Default)]
struct Recorded {
    text: Mutex<String>,
    spans: AtomicU64,
    /// The levels and targets of the events.
    kinds: Mutex<BTreeSet<(tracing::Level, String)>>,
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0, " {field}={value:?}").expect("it is a string");
    }
}

impl Recorder {
    fn text(&self) -> String {
        self.0.text.lock().expect("no writer has panicked").clone()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Line(&mut self.0.text.lock().expect("no writer has panicked")));
        Id::from_u64(self.0.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut self.0.text.lock().expect("no writer has panicked")));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let kind = (*event.metadata().level(), event.metadata().target().to_owned());
        self.0.kinds.lock().expect("no writer has panicked").insert(kind);
        event.record(&mut Line(&mut self.0.text.lock().expect("no writer has panicked")));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Everything that was written, and the secrets.
#[derive(Default)]
struct Search {
    texts: Vec<String>,
    secrets: Vec<(&'static str, Vec<u8>)>,
}

impl Search {
    fn new() -> Self {
        let mut search = Self::default();
        let passwords = [
            ("the password of digest", DIGEST_PASSWORD),
            ("the password of SASL", SASL_PASSWORD),
            ("a wrong password of SASL", WRONG_PASSWORD),
        ];
        search.secrets.extend(passwords.map(|(name, secret)| (name, secret.as_bytes().to_vec())));
        // Lines of a key are base64 already.
        for line in KEY.lines().filter(|line| !line.starts_with("-----")) {
            search.secrets.push(("a line of the private key", line.as_bytes().to_vec()));
            let der = BASE64_STANDARD.decode(line).expect("it is base64");
            search.secrets.push(("a part of the private key", der));
        }
        search
    }

    fn debug(&mut self, value: &dyn Debug) {
        self.texts.push(format!("{value:?} {value:#?}"));
    }

    fn debug_client(&mut self, client: &Client) {
        self.debug(client);
        self.debug(&client.status());
        self.debug(&client.health());
        self.texts.push(client.health().to_string());
        self.debug(&client.stats());
        self.debug(&client.states());
        self.debug(&Session::of(client));
        self.debug(&Session::of(client).lane());
    }

    /// Searches all texts for all secrets.
    fn check(&self) {
        for (name, secret) in &self.secrets {
            for (encoding, encoded) in encodings(secret) {
                for text in &self.texts {
                    assert!(!text.contains(&encoded), "{name} is {encoding} in:\n{text}");
                }
            }
        }
    }
}

/// Returns a secret in each form in which code might print it.
fn encodings(secret: &[u8]) -> Vec<(&'static str, String)> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    // The end of base64 depends on what follows, so only whole groups are searched for.
    let groups =
        BASE64_STANDARD.encode(secret.chunks_exact(3).flatten().copied().collect::<Vec<_>>());
    let list = format!("{secret:?}");
    let inner = list.trim_matches(['[', ']']).to_owned();
    vec![
        ("as text", String::from_utf8_lossy(secret).into_owned()),
        ("escaped", secret.escape_ascii().to_string()),
        ("escaped as `Bytes` does it", format!("{:?}", Bytes::copy_from_slice(secret))),
        ("in hexadecimal digits", hex.to_uppercase()),
        ("in hexadecimal digits", hex),
        ("in base64", groups),
        ("as a list", inner.replace(", ", ",\n    ")),
        ("as a list", inner),
    ]
}

fn server() -> TestServer {
    let config = ServerConfig::default().sasl_user("alice", SASL_PASSWORD).sasl_required(true);
    TestServer::start(config)
}

fn client(password: &str) -> ClientBuilder {
    Client::builder("in-process/app")
        .clock(Clock::tokio())
        .auth("digest", format!("user:{DIGEST_PASSWORD}"))
        .sasl(Sasl::digest_md5("alice", password))
        .session_timeout(Duration::from_secs(6))
}

/// Runs clients and locks through connecting, failures, an expiry, a hand-over and the end, while
/// everything is recorded.
fn record() -> (Search, Recorder) {
    let recorder = Recorder::default();
    // Threads for work that blocks, such as reading certificates, have no other subscriber.
    tracing::subscriber::set_global_default(recorder.clone()).expect("it is the only one");
    let search = run(async {
        let mut search = Search::new();
        let (server, network) = (server(), Network::default());
        let tls = network.tls(&server);
        search.debug(&tls);
        let builder = client(SASL_PASSWORD).transport(tls.clone());
        search.debug(&builder);
        let client = builder.connect().await.expect("everything is right");
        search.debug_client(&client);
        client.create("/a", "x", CreateMode::Ephemeral).await.expect("it is free");
        let (_, watcher) = client.exists_and_watch("/a").await.expect("a watch");
        let stream = client.watch("/a", WatchMode::Recursive).await.expect("a watch");
        let guard = use_recipes(&client, &mut search).await;
        server.disconnect_all();
        let write = client.set_data("/a", "y", None);
        search.debug(&write);
        search.debug(&write.await.as_ref().err());
        sleep_ms(2_000).await;
        client.get_data("/a").await.expect("it is connected again");
        guard.validate().await.expect("the session survives");
        search.debug(&guard);
        server.expire(client.session_id().expect("it has a session"));
        sleep_ms(3_000).await;
        search.debug(&guard.validate().await.expect_err("the session has ended"));
        search.debug(&guard);
        drop(guard);
        search.debug(&client.last_failure());
        search.debug(&client.get_data("/").await);
        search.debug(&watcher);
        search.debug(&stream);
        hand_over(&client, &tls, &mut search).await;
        search.debug_client(&client);
        search.debug(&refusal(&network, &server).await);
        search.debug(&server);
        let passwords = network.session_passwords();
        assert!(passwords.len() >= 2, "the session that expired, and the next one");
        for password in passwords {
            search.secrets.push(("the password of a session", password));
        }
        let proofs = network.sasl_proofs();
        assert!(proofs.len() >= 4, "one for each connection");
        search.secrets.extend(proofs.into_iter().map(|proof| ("a proof of SASL", proof)));
        search
    });
    (search, recorder)
}

/// Uses locks and a queue. Returns a guard that is held.
async fn use_recipes(client: &Client, search: &mut Search) -> Guard<kind::Fair> {
    let lock = FairLock::new(client, "/lock").expect("the path is legal");
    search.debug(&lock);
    let guard = lock.acquire().await.expect("it is free");
    search.debug(&guard);
    search.debug(&guard.state());
    let acquiring = lock.acquire().timeout(Duration::from_millis(100));
    search.debug(&acquiring.await.expect_err("it is held"));
    let queue = WorkQueue::new(client, "/queue").expect("the path is legal");
    queue.put("item").await.expect("the server answers");
    search.debug(&queue);
    let leased = queue.take().await.expect("there is one");
    search.debug(&leased);
    leased.ack().await.expect("it is leased");
    guard
}

/// Hands the session over to another client, and lets a third one come too late.
async fn hand_over(client: &Client, tls: &Tls, search: &mut Search) {
    let ticket = client.hand_over().await.expect("there is a session");
    search.secrets.push(("the text of a ticket", ticket.to_secret_text().into_bytes()));
    search.debug(&ticket);
    search.debug(&ticket.to_secret_text().replace("zk", "x").parse::<SessionTicket>());
    let resume = |ticket| self::client(SASL_PASSWORD).transport(tls.clone()).resume(ticket);
    search.debug(&resume(ticket.clone()));
    let heir = resume(ticket.clone()).connect().await.expect("it lives");
    search.debug_client(&heir);
    heir.close().await;
    let late = resume(ticket).connect().await;
    search.texts.push(late.as_ref().expect_err("it was closed").to_string());
    search.debug(&late);
}

/// Returns the error of a client with a wrong password.
async fn refusal(network: &Network, server: &TestServer) -> ConnectError {
    let refused = client(WRONG_PASSWORD).transport(network.plain(server)).connect().await;
    refused.expect_err("the password is wrong")
}

#[test]
fn logs_at_trace_level_and_debug_output_contain_no_secret() {
    let (mut search, recorder) = record();
    let text = recorder.text();
    let kinds = recorder.0.kinds.lock().expect("no writer has panicked").clone();
    for target in ["zk_session", "zk_recipes"] {
        let is_debug = |(level, module): &(tracing::Level, String)| {
            *level == tracing::Level::DEBUG && module.starts_with(target)
        };
        assert!(kinds.iter().any(is_debug), "{target}: {kinds:?}");
    }
    assert!(text.contains("in-process:2181"), "the log is that of the session: {text}");
    search.texts.push(text);
    search.check();
}

/// Handshakes, whose records have the password of the session.
fn handshakes(search: &mut Search) {
    let (session_id, password) = (SessionId(7), Bytes::from_static(b"0123-session-456"));
    search.secrets.push(("the password in a handshake", password.to_vec()));
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: Zxid(0),
        timeout_ms: 1,
        session_id,
        password: password.clone(),
        read_only: None,
    };
    search.debug(&request);
    let (protocol_version, timeout_ms, read_only) = (0, 1, None);
    let response =
        ConnectResponse { protocol_version, timeout_ms, session_id, password, read_only };
    search.debug(&response);
    let text = "zk-session-1:7:303132332d73657373696f6e2d343536:0:1:1000:1000";
    let ticket = text.parse::<SessionTicket>();
    assert!(ticket.is_ok(), "the format is another one");
    search.debug(&ticket);
}

#[test]
fn options_and_messages_contain_no_secret() {
    let mut search = Search::new();
    search.debug(&Sasl::digest_md5("alice", SASL_PASSWORD));
    search.debug(&client(SASL_PASSWORD));
    let builder = || Tls::builder().ca_pem(CERTIFICATE).client_pem(CERTIFICATE, KEY);
    search.debug(&builder());
    search.debug(&builder().build().expect("it is usable"));
    let auth = Some(format!("user:{DIGEST_PASSWORD}").into());
    search.debug(&Request::Auth(AuthPacket { scheme: "digest".into(), auth }));
    let token = SaslToken(Some(SASL_PASSWORD.into()));
    search.debug(&Request::Sasl(token.clone()));
    search.debug(&Response::Sasl(token));
    handshakes(&mut search);
    let config = ServerConfig::default().sasl_user("alice", SASL_PASSWORD);
    search.debug(&config.super_digest(DIGEST_PASSWORD));
    for invalid in [
        client(SASL_PASSWORD).request_limit(0),
        client(SASL_PASSWORD).auth("", DIGEST_PASSWORD),
        client(SASL_PASSWORD).sasl(Sasl::digest_md5("", SASL_PASSWORD)),
        client(SASL_PASSWORD).auth("digest", DIGEST_PASSWORD.repeat(100_000)),
    ] {
        search.debug(&invalid);
        search.debug(&invalid.start().err());
    }
    let file = |name| format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let [certificate, key] = ["only-for-tests.crt", "only-for-tests.key"].map(file);
    for (certificate, key) in [(&certificate, &key), (&key, &certificate), (&key, &key)] {
        let tls = Tls::builder().ca_file(certificate).client_files(certificate, key);
        search.debug(&tls);
        search.debug(&tls.build());
    }
    // Mistakes, whose errors quote what was wrong.
    let broken_keys = [
        KEY.replace("-----END", "-----"),
        KEY.replace("PRIVATE KEY", "SOMETHING"),
        KEY.replace('\n', " "),
        KEY.replacen("MIGH", "@@@@", 1),
        KEY.replacen("MIGH", "MIGG", 1),
        format!("{CERTIFICATE}{KEY}\u{0}").replace("-----BEGIN PRIVATE KEY-----", "-----BEGIN"),
    ];
    for key in broken_keys {
        let tls = Tls::builder().ca_pem(CERTIFICATE).client_pem(CERTIFICATE, key.clone()).build();
        let failure = tls.expect_err("the key is broken");
        search.texts.push(failure.to_string());
        search.debug(&failure);
        let as_certificate = Tls::builder().ca_pem(key).build();
        search.debug(&as_certificate.err());
    }
    search.check();
    let no_colon = Client::builder("zk").auth("digest", DIGEST_PASSWORD);
    search.texts.push(format!("{no_colon:?}"));
    search.check();
}

#[test]
fn the_search_finds_each_encoding() {
    for (name, secret) in Search::new().secrets {
        for (encoding, encoded) in encodings(&secret) {
            let search = Search {
                texts: vec![format!("field={encoded} and more")],
                secrets: vec![(name, secret.clone())],
            };
            let found = std::panic::catch_unwind(|| search.check());
            assert!(found.is_err(), "{name} {encoding} was not found");
        }
    }
}
