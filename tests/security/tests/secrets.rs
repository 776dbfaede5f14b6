//! Secrets appear neither in logs, not even at trace level, nor in `Debug` output or errors.
//!
//! Each test sets every kind of secret, and searches everything that was written for each of them
//! in its usual encodings.

#[path = "support/network.rs"]
mod network;

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jute_codec::{AuthPacket, Request, SaslToken};
use network::{CERTIFICATE, KEY, Network};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zk_session::{Client, ClientBuilder, Clock, ConnectError, CreateMode, Sasl, Tls};
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
    levels: Mutex<Vec<tracing::Level>>,
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
        self.0.levels.lock().expect("no writer has panicked").push(*event.metadata().level());
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
        ("escaped as `Bytes` does it", format!("{:?}", bytes::Bytes::copy_from_slice(secret))),
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

/// Runs a client through connecting, failures, an expiry and the end, while everything is recorded.
fn record() -> (Search, Recorder) {
    let recorder = Recorder::default();
    let search = tracing::subscriber::with_default(recorder.clone(), || {
        run(async {
            let mut search = Search::new();
            let (server, network) = (server(), Network::default());
            let tls = network.tls(&server);
            search.debug(&tls);
            let builder = client(SASL_PASSWORD).transport(tls);
            search.debug(&builder);
            let client = builder.connect().await.expect("everything is right");
            search.secrets.push(("the password of the session", network.session_password()));
            search.debug(&client);
            search.debug(&client.status());
            search.debug(&client.health());
            client.create("/a", "x", CreateMode::Ephemeral).await.expect("it is free");
            let (_, watcher) = client.exists_and_watch("/a").await.expect("a watch");
            search.debug(&watcher);
            server.disconnect_all();
            let lost = client.set_data("/a", "y", None).await;
            search.debug(&lost.as_ref().err());
            sleep_ms(2_000).await;
            client.get_data("/a").await.expect("it is connected again");
            server.expire(client.session_id().expect("it has a session"));
            sleep_ms(3_000).await;
            search.debug(&client.last_failure());
            search.debug(&client.get_data("/").await);
            client.close().await;
            search.debug(&client);
            search.debug(&refusal(&network, &server).await);
            search
        })
    });
    (search, recorder)
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
    assert!(
        recorder.0.levels.lock().expect("no writer has panicked").contains(&tracing::Level::DEBUG)
    );
    assert!(text.contains("in-process:2181"), "the log is that of the session: {text}");
    search.texts.push(text);
    search.check();
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
    search.debug(&Request::Sasl(SaslToken(Some(SASL_PASSWORD.into()))));
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
