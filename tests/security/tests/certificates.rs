//! Revoked certificates, certificates that are replaced in memory, and the names for which they have
//! to be valid.

#[path = "support/authority.rs"]
mod authority;
#[path = "support/network.rs"]
mod network;

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::{Authority, Identity, pem};
use network::{Network, names_of_clients, presents};
use zk_session::{
    Client, ClientBuilder, Clock, ConnectError, FailureCause, SessionState, Tls, TlsBuilder,
    TlsFailure, Transport,
};
use zk_tests::wait::soon;
use zk_tests::world::{run, sleep_ms};
use zk_testserver::{ServerConfig, TestServer};

const NAME: &str = "zk1.test";

fn to(hosts: &str, tls: Tls) -> ClientBuilder {
    Client::builder(hosts)
        .clock(Clock::tokio())
        .seed(1)
        .session_timeout(Duration::from_secs(10))
        .transport(tls)
}

/// Returns how a client fares.
async fn fares(builder: ClientBuilder) -> Result<(), TlsFailure> {
    match builder.connect_within(Duration::from_secs(5)).connect().await {
        Ok(client) => {
            client.close().await;
            Ok(())
        }
        Err(ConnectError::TimedOut { last_failure: Some(failure), .. }) => {
            let FailureCause::Tls(failure) = failure.cause else { panic!("{failure}") };
            Err(failure)
        }
        Err(error) => panic!("another error: {error}"),
    }
}

/// Returns how a client with these options fares on a server with this certificate.
fn verdict(server: &Identity, options: TlsBuilder) -> Result<(), TlsFailure> {
    let server = server.clone();
    run(async move {
        let (zookeeper, network) = (TestServer::start(ServerConfig::default()), Network::default());
        let acceptor = presents(&server.chain, &server.key, None);
        let tls = options.over(network.accepted(&zookeeper, move |_| acceptor.clone())).build()?;
        fares(to(NAME, tls)).await
    })
}

fn trusting(root: &Authority) -> TlsBuilder {
    Tls::builder().ca_pem(root.certificate())
}

#[test]
fn a_revoked_server_is_refused() {
    let root = Authority::root("root");
    let (good, bad) = (root.server(&[NAME], 7), root.server(&[NAME], 8));
    for list in [root.list([8]).into_bytes(), root.list_of((2026, 2099), [8])] {
        let options = || trusting(&root).crl(list.clone());
        assert_eq!(verdict(&good, options()), Ok(()));
        assert_eq!(verdict(&bad, options()), Err(TlsFailure::Revoked));
        assert_eq!(verdict(&bad, options().allow_unknown_revocation()), Err(TlsFailure::Revoked));
    }
    assert_eq!(verdict(&bad, trusting(&root)), Ok(()), "without a list, nothing is checked");
}

#[test]
fn each_authority_below_the_root_needs_a_list() {
    let root = Authority::root("root");
    let issuer = root.below("issuer", 5);
    let server = issuer.server(&[NAME], 7);
    let (of_root, of_issuer) = (root.list([]), issuer.list([]));
    let with = |lists: &[&str]| {
        lists.iter().fold(trusting(&root), |options, list| options.crl((*list).to_owned()))
    };
    let unknown = Err(TlsFailure::RevocationUnknown);
    assert_eq!(verdict(&server, with(&[&of_root, &of_issuer])), Ok(()));
    // Both lists in one file.
    assert_eq!(verdict(&server, with(&[&format!("{of_root}{of_issuer}")])), Ok(()));
    assert_eq!(verdict(&server, with(&[&of_root])), unknown);
    assert_eq!(verdict(&server, with(&[&of_issuer])), unknown);
    assert_eq!(verdict(&server, with(&[&of_issuer]).crl_for_servers_only()), Ok(()));
    assert_eq!(verdict(&server, with(&[&of_root]).crl_for_servers_only()), unknown);
    assert_eq!(verdict(&server, with(&[&of_root]).allow_unknown_revocation()), Ok(()));

    let revoked = Err(TlsFailure::Revoked);
    let against_issuer = root.list([5]);
    assert_eq!(verdict(&server, with(&[&against_issuer, &of_issuer])), revoked);
    assert_eq!(verdict(&server, with(&[&against_issuer]).allow_unknown_revocation()), revoked);
    let only = with(&[&against_issuer, &of_issuer]).crl_for_servers_only();
    assert_eq!(verdict(&server, only), Ok(()), "as asked for");
    assert_eq!(verdict(&server, with(&[&of_root, &issuer.list([7])])), revoked);
}

#[test]
fn a_list_of_another_authority_decides_nothing() {
    let (root, other) = (Authority::root("root"), Authority::root("other"));
    let server = root.server(&[NAME], 7);
    let options = || trusting(&root).crl(other.list([7]));
    assert_eq!(verdict(&server, options()), Err(TlsFailure::RevocationUnknown));
    assert_eq!(verdict(&server, options().allow_unknown_revocation()), Ok(()));

    let namesake = Authority::root("root");
    let text = |verdict: Result<(), TlsFailure>| match verdict {
        Err(TlsFailure::Crl(text)) => text,
        other => panic!("{other:?}"),
    };
    let forged = verdict(&server, trusting(&root).crl(namesake.list([])));
    assert!(text(forged).contains("its signature is not that of the CA"));
    let mute = root.below_without_lists("mute", 5);
    let options = trusting(&root).crl(mute.list([])).crl_for_servers_only();
    let unlawful = verdict(&mute.server(&[NAME], 7), options);
    assert!(text(unlawful).contains("the key usage of the CA lacks cRLSign"));
}

#[test]
fn the_newest_list_of_an_authority_counts() {
    let root = Authority::root("root");
    let server = root.server(&[NAME], 7);
    let (old, new) = (root.list_of((2020, 2099), []), root.list_of((2025, 2099), [7]));
    for lists in [[&old, &new], [&new, &old]] {
        let text: String = lists.iter().map(|list| pem("X509 CRL", list)).collect();
        assert_eq!(verdict(&server, trusting(&root).crl(text)), Err(TlsFailure::Revoked));
        let options =
            lists.iter().fold(trusting(&root), |options, list| options.crl((*list).clone()));
        assert_eq!(verdict(&server, options), Err(TlsFailure::Revoked));
    }
}

#[test]
fn ten_thousand_revoked_certificates_cost_little() {
    let root = Authority::root("root");
    let list = root.list_of((2026, 2099), 1_000..11_000);
    let options = || trusting(&root).crl(list.clone());
    let took = took(|| options().build().expect("the list is usable"));
    eprintln!("a list of {} bytes was read in {took:?}", list.len());
    for serial in [1_000, 6_000, 10_999] {
        let revoked = verdict(&root.server(&[NAME], serial), options());
        assert_eq!(revoked, Err(TlsFailure::Revoked), "{serial}");
    }
    assert_eq!(verdict(&root.server(&[NAME], 11_000), options()), Ok(()));
}

#[expect(clippy::disallowed_methods, reason = "this is a measurement")]
fn took<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = std::time::Instant::now();
    work();
    begun.elapsed()
}

/// A folder of a test, which is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("zk-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }

    fn file(&self, name: &str, data: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, data).expect("it can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lists_that_cannot_be_used_are_named_with_the_reason() {
    let (root, folder) = (Authority::root("root"), Folder::new("lists"));
    let der = root.list_of((2026, 2099), [7]);
    let text = pem("X509 CRL", &der);
    let expired = root.list_of((2020, 2021), []);
    let none = "it has no block BEGIN X509 CRL";
    let cases = [
        (folder.file("empty", ""), none),
        (folder.file("text", "0 is no list"), none),
        (folder.file("certificate", root.certificate()), none),
        (folder.file("half.der", &der[..der.len() / 2]), "a list is malformed"),
        (folder.file("more.der", [&der[..], b"x"].concat()), "a list is malformed"),
        (folder.file("half.pem", &text[..text.len() / 2]), "a block has no END line"),
        (folder.file("bent.pem", text.replace('M', "N")), "a list is malformed"),
        (folder.file("expired.der", &expired), "a list has expired on 2021-01-01 00:00:00 UTC"),
        (folder.file("one.pem", format!("{text}{}", pem("X509 CRL", &expired))), "has expired"),
        (folder.0.clone(), "it is not a regular file"),
        (folder.0.join("nowhere"), "No such file"),
    ];
    for (path, expected) in cases {
        let built = trusting(&root).crl_file(&path).build();
        let text = built.map(|_| ()).expect_err(expected).to_string();
        assert!(text.contains(&path.display().to_string()) && text.contains("CRL"), "{text}");
        assert!(text.contains(expected), "{text}");
        if let Ok(data) = fs::read(&path) {
            let text = trusting(&root).crl(data).build().map(|_| ()).expect_err(expected);
            let text = text.to_string();
            assert!(text.contains("the argument of `crl`") && text.contains(expected), "{text}");
        }
    }
    let server = root.server(&[NAME], 7);
    let options = || trusting(&root).allow_expired_crls();
    assert_eq!(verdict(&server, options().crl(expired)), Ok(()));
    let revoking = root.list_of((2020, 2021), [7]);
    assert_eq!(verdict(&server, options().crl(revoking)), Err(TlsFailure::Revoked));
    for options in [
        trusting(&root).allow_unknown_revocation(),
        trusting(&root).allow_expired_crls(),
        trusting(&root).crl_for_servers_only(),
    ] {
        let text = options.build().map(|_| ()).expect_err("there is no list").to_string();
        assert!(text.contains("set `crl_file` or `crl`"), "{text}");
    }
}

/// A server whose certificate can be replaced.
struct Replaceable {
    zookeeper: TestServer,
    network: Network,
    presented: Arc<Mutex<(Identity, Option<String>)>>,
}

impl Replaceable {
    fn new(presented: Identity, clients: Option<String>) -> Self {
        Self {
            zookeeper: TestServer::start(ServerConfig::default()),
            network: Network::default(),
            presented: Arc::new(Mutex::new((presented, clients))),
        }
    }

    fn replace(&self, presented: Identity, clients: Option<String>) {
        *self.presented.lock().expect("no thread panics") = (presented, clients);
    }

    fn transport(&self) -> impl Transport + use<> {
        let presented = Arc::clone(&self.presented);
        self.network.accepted(&self.zookeeper, move |_| {
            let (identity, clients) = presented.lock().expect("no thread panics").clone();
            presents(&identity.chain, &identity.key, clients.as_deref())
        })
    }
}

/// Waits until a client has no connection, for this reason.
async fn until_failure(client: &Client, expected: &TlsFailure) {
    let is_there = async {
        loop {
            let last = client.last_failure();
            if last.is_some_and(|last| last.cause == FailureCause::Tls(expected.clone())) {
                return;
            }
            sleep_ms(100).await;
        }
    };
    soon(&expected.to_string(), is_there).await;
}

#[test]
fn lists_in_files_are_read_again_and_cost_no_session() {
    run(async {
        let (root, folder) = (Authority::root("root"), Folder::new("reread"));
        let (first, second) = (root.server(&[NAME], 7), root.server(&[NAME], 8));
        let server = Replaceable::new(first, None);
        let file = folder.file("list", root.list([]));
        let tls = trusting(&root).crl_file(&file).over(server.transport()).build();
        let client = to(NAME, tls.expect("a usable list")).connect().await.expect("not revoked");
        let session = client.session_id();

        folder.file("list", root.list([7]));
        client.sync("/").await.expect("an open connection outlives a revocation");
        server.network.cut_all();
        until_failure(&client, &TlsFailure::Revoked).await;
        folder.file("list", root.list_of((2020, 2021), []));
        let expired = async {
            while !client.last_failure().is_some_and(|last| {
                let text = last.to_string();
                text.contains("has expired on 2021") && text.contains(&*file.to_string_lossy())
            }) {
                sleep_ms(100).await;
            }
        };
        soon("the expired list", expired).await;
        folder.file("list", root.list([7]));
        server.replace(second, None);
        client.sync("/").await.ok();
        client.sync("/").await.expect("the server has a new certificate");
        assert_eq!(client.session_id(), session);
    });
}

#[test]
fn what_was_replaced_in_memory_is_used_from_the_next_connection_on() {
    run(async {
        let [old, new] = ["old", "new"].map(Authority::root);
        let client_of = |ca: &Authority| ca.client("app", 1);
        let options = |ca: &Authority, identity: &Identity| {
            trusting(ca).client_pem(identity.chain.clone(), identity.key.clone())
        };
        let server = Replaceable::new(old.server(&[NAME], 7), Some(old.certificate()));
        let tls = options(&old, &client_of(&old)).over(server.transport()).build();
        let tls = tls.expect("they fit");
        let client = to(NAME, tls.clone()).connect().await.expect("mutual TLS");
        let session = client.session_id();

        // A replacement that cannot be used is refused, and changes nothing.
        let mixed = Identity { chain: client_of(&old).chain, key: client_of(&new).key };
        let refusals = [
            (options(&new, &mixed), "does not belong to its certificate"),
            (trusting(&new).ca_pem("no PEM"), "it has no block BEGIN CERTIFICATE"),
            (trusting(&new).ca_file("/nowhere/ca.crt"), "/nowhere/ca.crt"),
            (trusting(&new).crl(""), "it has no block BEGIN X509 CRL"),
            (trusting(&new).crl(new.list_of((2020, 2021), [])), "has expired"),
            (trusting(&new).server_name("a b"), "a b"),
        ];
        for (bad, expected) in refusals {
            let text = tls.replace(bad).expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
        let connections = server.network.connections();
        server.network.cut_all();
        client.sync("/").await.ok();
        client.sync("/").await.expect("the old certificates are in use");
        assert_eq!(server.network.connections(), connections + 1);

        tls.replace(options(&new, &client_of(&new))).expect("they fit");
        client.sync("/").await.expect("an open connection keeps its certificates");
        assert_eq!(server.network.connections(), connections + 1, "it stays open");
        server.network.cut_all();
        until_failure(&client, &TlsFailure::UnknownIssuer).await;
        assert_eq!(client.state(), SessionState::Suspended);
        // The transport below has stayed, so the same server is found when it has followed.
        server.replace(new.server(&[NAME], 7), Some(new.certificate()));
        client.sync("/").await.expect("both sides have the new ones");
        assert_eq!(client.session_id(), session);
    });
}

/// The certificates change at each step of connecting, on both sides at different times.
#[test]
fn certificates_that_are_replaced_while_the_client_connects_cost_no_session() {
    run(async {
        let [one, two] = ["one", "two"].map(Authority::root);
        let all = [&one, &two].map(|ca| (ca, ca.server(&[NAME], 7), ca.client("app", 1)));
        let options = |number: usize| {
            let (ca, _, client) = &all[number % 2];
            trusting(ca).client_pem(client.chain.clone(), client.key.clone())
        };
        let server = Replaceable::new(all[0].1.clone(), Some(one.certificate()));
        let tls = options(0).over(server.transport()).build().expect("they fit");
        let client = to(NAME, tls.clone()).connect().await.expect("mutual TLS");
        let session = client.session_id();
        for number in 1..60 {
            server.network.cut_all();
            let waiting = client.sync("/");
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
            let (ca, identity, _) = &all[number % 2];
            if number % 3 == 0 {
                tls.replace(options(number)).expect("they fit");
                tokio::task::yield_now().await;
                server.replace(identity.clone(), Some(ca.certificate()));
            } else {
                server.replace(identity.clone(), Some(ca.certificate()));
                tokio::task::yield_now().await;
                tls.replace(options(number)).expect("they fit");
            }
            waiting.await.ok();
            client.sync("/").await.ok();
            client.sync("/").await.expect("both sides agree");
            assert_eq!(client.session_id(), session, "{number}");
        }
        assert_eq!(server.zookeeper.sessions().len(), 1);
    });
}

#[test]
fn each_server_is_asked_for_by_its_own_name() {
    run(async {
        let root = Authority::root("root");
        let (zookeeper, network) = (TestServer::start(ServerConfig::default()), Network::default());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let names = Arc::clone(&asked);
        // Each server has a certificate for its own name only.
        let transport = {
            let certificate = root.certificate();
            let below = network.accepted(&zookeeper, move |host| {
                let name = host.name.trim_end_matches('.').to_owned();
                let identity = root.server(&[&name], 7);
                names_of_clients(&identity.chain, &identity.key, Arc::clone(&names))
            });
            Tls::builder().ca_pem(certificate).over(below).build().expect("a usable CA")
        };
        let client = to("zk1.test:2281,zk2.test/app", transport.clone()).connect().await;
        let client = client.expect("its certificate has its name");
        for (hosts, sent) in [
            ("zk2.test:2281", Some("zk2.test")),
            ("ZK1.test.:2281", Some("zk1.test")),
            ("zk_3:2281", Some("zk_3")),
            // Addresses are never sent (RFC 6066).
            ("127.0.0.1:2281", None),
            ("[::1]:2281", None),
            ("[2001:db8::7]:2281", None),
        ] {
            client.set_hosts(hosts).expect("it is valid");
            client.create("/", "", zk_session::CreateMode::Persistent).await.ok();
            client.sync("/").await.unwrap_or_else(|error| panic!("{hosts}: {error}"));
            let last =
                asked.lock().expect("no thread panics").last().cloned().expect("a connection");
            assert_eq!(last.map(|name| name.to_lowercase()).as_deref(), sent, "{hosts}");
        }
        client.close().await;
        let text = fares(to("a..b", transport)).await.expect_err("it is not a name").to_string();
        assert!(text.contains("a..b") && text.contains("set `server_name`"), "{text}");
    });
}
