//! A client that could protect its znodes, and does not, is warned.

use zk_recipes::{Acl, Client, ClientBuilder, FairLock, SharedValue};
use zk_session::{Attempt, Connecting, CreateMode, CreateOptions, Host, Stream, Transport};
use zk_tests::world::{World, run, sleep_ms};

use super::Recorder;

/// Returns the directories that the client is warned of while it uses two locks several times, a
/// value, and plain creates.
fn warned_of(options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Vec<String> {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        run(async {
            let world = World::new();
            world.server.admin_create("/open", b"", None);
            let client = world.client_with(1, options).await;
            for path in ["/open/a", "/open/b"] {
                for _ in 0..3 {
                    let lock = FairLock::new(&client, path).expect("the path is valid");
                    let guard = lock.acquire().await.expect("it is free");
                    guard.release().await.expect("it is held");
                }
            }
            let value = SharedValue::new(&client, "/open/value").expect("the path is valid");
            value.set("1").await.expect("it can be set");
            plain(&client).await;
        });
    });
    let lines = recorder.text();
    let of_access = lines.lines().filter(|line| line.contains("everyone may change"));
    let directory = |line: &str| {
        let (_, rest) = line.split_once("directory=\"").expect("it is named");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    of_access.map(directory).collect()
}

async fn plain(client: &Client) {
    let open = CreateOptions::from(CreateMode::Persistent).acl(Acl::open());
    let read = CreateOptions::from(CreateMode::Persistent).acl(Acl::read());
    client.create("/open/plain", "", open).await.expect("it is new");
    client.create("/open/a/read", "", read).await.expect("it is new");
}

#[test]
fn a_client_with_credentials_is_warned_once_for_each_directory() {
    let warned = warned_of(|builder| builder.auth("digest", "a:b"));
    // The first lock also creates its directory, with all ancestors that might be missing.
    assert_eq!(warned, ["/open/a", "/", "/open", "/open/b", "/open/value"]);
}

#[test]
fn a_client_without_credentials_or_with_a_default_is_not_warned() {
    assert_eq!(warned_of(|builder| builder), [""; 0]);
    let with = |acl| warned_of(|builder| builder.auth("digest", "a:b").default_acl(acl));
    assert_eq!(with(Acl::open()), [""; 0]);
    assert_eq!(with(Acl::creator_all()), [""; 0]);
}

#[test]
fn a_client_that_writes_everywhere_is_warned_of_the_first_directories() {
    let recorder = Recorder::default();
    tracing::subscriber::with_default(recorder.clone(), || {
        run(async {
            let world = World::new();
            let client = world.client_with(1, |builder| builder.auth("digest", "a:b")).await;
            for number in 0..18 {
                let path = format!("/d{number}/x");
                client.create_with_parents(&path, "", CreateMode::Persistent).await.expect("new");
            }
        });
    });
    assert_eq!(recorder.text().matches("everyone may change").count(), 16);
}

/// A transport of the test server that says whether others can read its bytes.
struct Wire {
    world: World,
    is_plaintext: bool,
}

impl Transport for Wire {
    fn connect(&self, _: Host, _: Attempt) -> Connecting {
        let world = self.world.clone();
        Box::pin(async move { Ok(Box::new(world.server.connect()?) as Box<dyn Stream>) })
    }

    fn is_plaintext(&self, _: &Host) -> bool {
        self.is_plaintext
    }
}

#[test]
fn a_client_with_credentials_is_warned_once_of_a_connection_without_tls() {
    for (has_credentials, is_plaintext) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let recorder = Recorder::default();
        tracing::subscriber::with_default(recorder.clone(), || {
            run(async {
                let world = World::new();
                let wire = Wire { world: world.clone(), is_plaintext };
                let options = |builder: ClientBuilder| {
                    let builder = builder.transport(wire).default_acl(Acl::open());
                    if has_credentials { builder.auth("digest", "a:b") } else { builder }
                };
                let client = world.client_with(1, options).await;
                for _ in 0..3 {
                    world.server.disconnect_all();
                    client.sync("/").await.ok();
                    sleep_ms(1_000).await;
                }
            });
        });
        let warnings = recorder.text().matches("authenticates without TLS").count();
        let expected = usize::from(has_credentials && is_plaintext);
        assert_eq!(warnings, expected, "{has_credentials} {is_plaintext}");
    }
}
