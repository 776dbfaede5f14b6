//! The program `zklock` with TLS: what it prints for each mistake names what is wrong, where, and what
//! to do about it with its own options.
//!
//! `.ci/security` builds the program with TLS, and runs this suite.

#[path = "support/authority.rs"]
mod authority;
#[path = "support/network.rs"]
mod network;
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use authority::{Authority, Identity};
use network::{Network, presents};
use support::given;
use tokio::process::Command;
use zk_testserver::{ServerConfig, TestServer};

/// A server behind TLS, an authority, and a folder with files for the program.
struct Scene {
    root: Authority,
    folder: PathBuf,
    server: TestServer,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zk-zklock-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let scene = Self {
            root: Authority::root("root"),
            folder,
            server: TestServer::start(ServerConfig::default()),
        };
        scene.file("ca.crt", scene.root.certificate());
        scene
    }

    fn file(&self, name: &str, data: impl AsRef<[u8]>) -> String {
        let path = self.folder.join(name);
        fs::write(&path, data).expect("it can be written");
        path.into_os_string().into_string().expect("it is ASCII")
    }

    fn identity(&self, name: &str, identity: &Identity) -> [String; 2] {
        [
            self.file(&format!("{name}.crt"), &identity.chain),
            self.file(&format!("{name}.key"), &identity.key),
        ]
    }

    /// Listens with this certificate. Returns the port.
    async fn listen(&self, identity: &Identity, clients: Option<&str>) -> u16 {
        let acceptor = presents(&identity.chain, &identity.key, clients);
        Network::default().listen_with_tls(&self.server, acceptor).await
    }

    /// Runs `zklock run … echo done` with these options beside `--connect`.
    async fn run(&self, host: &str, port: u16, options: &[&str]) -> Output {
        Command::new(given("SECURITY_ZKLOCK"))
            .args(["run", "--connect", &format!("{host}:{port}"), "--session-timeout", "4s"])
            .args(["-w", "2s"])
            .args(options)
            .args(["/lock", "--", "echo", "done"])
            .current_dir(&self.folder)
            .env_clear()
            .output()
            .await
            .expect("the program can be started")
    }

    /// Checks what the program prints when it cannot connect.
    async fn refuses(&self, port: u16, host: &str, options: &[&str], expected: &[&str]) {
        let output = self.run(host, port, options).await;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        for part in expected {
            assert!(text.contains(part), "{options:?}: no {part:?} in: {text}");
        }
        for method in ["ca_pem", "client_pem", "server_name", "crl_file", "allow_", "crypto_prov"] {
            assert!(!text.contains(method), "the terminal has no {method}: {text}");
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

#[tokio::test]
async fn a_command_runs_behind_tls_mutual_tls_and_with_a_list() {
    let scene = Scene::new("works");
    let server = scene.root.server(&["localhost", "127.0.0.1"], 7);
    let port = scene.listen(&server, None).await;
    succeeded(&scene.run("localhost", port, &["--tls-ca", "ca.crt"]).await);
    succeeded(&scene.run("127.0.0.1", port, &["--tls-ca", "ca.crt"]).await);
    scene.identity("app", &scene.root.client("app", 8));
    let mutual = ["--tls-ca", "ca.crt", "--tls-cert", "app.crt", "--tls-key", "app.key"];
    let demanding = scene.listen(&server, Some(&scene.root.certificate())).await;
    succeeded(&scene.run("localhost", demanding, &mutual).await);
    scene.file("lists", scene.root.list([9]));
    let with_list = ["--tls-ca", "ca.crt", "--tls-crl", "lists"];
    succeeded(&scene.run("localhost", port, &with_list).await);
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_named_with_the_remedy() {
    let scene = Scene::new("servers");
    let server = scene.root.server(&["localhost"], 7);
    let port = scene.listen(&server, None).await;
    let at = format!("localhost:{port}");
    let ca = ["--tls-ca", "ca.crt"];

    scene.file("other.crt", Authority::root("other").certificate());
    let other = ["--tls-ca", "other.crt"];
    let expected = [&*at, "issued by a CA that the client does not trust", "--tls-ca"];
    scene.refuses(port, "localhost", &other, &expected).await;

    let address = format!("127.0.0.1:{port}");
    let expected = [&*address, "not valid for \"127.0.0.1\", but for: localhost", "connect string"];
    scene.refuses(port, "127.0.0.1", &ca, &expected).await;

    scene.file("revoking", scene.root.list([7]));
    let list = ["--tls-ca", "ca.crt", "--tls-crl", "revoking"];
    scene
        .refuses(port, "localhost", &list, &[&at, "was revoked", "give the server a new one"])
        .await;

    scene.file("unrelated", Authority::root("other").list([7]));
    let list = ["--tls-ca", "ca.crt", "--tls-crl", "unrelated"];
    let expected = [&*at, "no CRL tells", "to the file of --tls-crl"];
    scene.refuses(port, "localhost", &list, &expected).await;

    let demanding = scene.listen(&server, Some(&scene.root.certificate())).await;
    let expected = ["requires a client certificate", "set --tls-cert and --tls-key"];
    scene.refuses(demanding, "localhost", &ca, &expected).await;
    scene.identity("stranger", &Authority::root("other").client("app", 8));
    let stranger = ["--tls-cert", "stranger.crt", "--tls-key", "stranger.key"];
    let expected = ["refused the client's certificate", "the server trusts the CA that issued it"];
    scene.refuses(demanding, "localhost", &[&ca[..], &stranger].concat(), &expected).await;

    let plain = TestServer::start(ServerConfig::default());
    let plain = plain.listen("127.0.0.1:0").await.expect("a free port").port();
    let expected = ["check that the port is its `secureClientPort`"];
    scene.refuses(plain, "localhost", &ca, &expected).await;
    let expected = ["a TLS port"];
    scene.refuses(port, "localhost", &[], &expected).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_before_anything_is_connected() {
    let scene = Scene::new("files");
    scene.identity("app", &scene.root.client("app", 8));
    scene.identity("app2", &scene.root.client("app", 9));
    scene.file("empty", "");
    scene.file("expired", scene.root.list_of((2020, 2021), []));
    let ca = ["--tls-ca", "ca.crt"];
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--tls-ca", "nowhere"], &["CA certificate", "nowhere", "No such file"]),
        (&["--tls-ca", "app.key"], &["CA certificate", "app.key", "no block BEGIN CERTIFICATE"]),
        (&["--tls-cert", "nowhere", "--tls-key", "app.key"], &["client certificate", "nowhere"]),
        (&["--tls-cert", "app.crt", "--tls-key", "app.crt"], &["private key", "app.crt"]),
        (
            &["--tls-cert", "app.crt", "--tls-key", "app2.key"],
            &["private key of the client does not belong to its certificate"],
        ),
        (&["--tls-cert", "app.crt"], &["--tls-key"]),
        (&["--tls-crl", "nowhere"], &["CRL", "nowhere", "No such file"]),
        (&["--tls-crl", "empty"], &["CRL", "empty", "no block BEGIN X509 CRL"]),
        (&["--tls-crl", "expired"], &["CRL", "expired on 2021-01-01", "fetch the next one"]),
    ];
    for (options, expected) in cases {
        // Nothing listens on this port.
        let with_ca = if options[0] == "--tls-ca" { vec![] } else { ca.to_vec() };
        scene.refuses(1, "localhost", &[&with_ca[..], options].concat(), expected).await;
    }
    scene.refuses(1, "localhost", &["--tls-crl", "empty"], &["--tls-ca"]).await;
    scene.refuses(1, "localhost", &["--tls-cert", "app.crt"], &["--tls-ca"]).await;
}
