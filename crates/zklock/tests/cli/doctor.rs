//! `doctor`, which has to name each mistake that is planted here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use zk_testserver::{ServerConfig, ServerVersion};

use crate::world::{World, code, scratch, see, write_secret, zklock_at};

const CONF: &str = "clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\n\
                    maxSessionTimeout=40000\nserverId=0\n";
const MNTR: &str = "zk_version\t3.9.5\nzk_quorum_size\t0\nzk_digest_mismatches_count\t0\n";
const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The replies of a server to `srvr`, `conf` and `mntr`.
#[derive(Clone)]
struct Words([String; 3]);

impl Words {
    /// Returns the replies of a server without a mistake.
    fn of(version: &str, mode: &str, outstanding: u32) -> Self {
        let srvr = format!(
            "Zookeeper version: {version}-a1, built on 2024-10-17\nLatency min/avg/max: 0/0.1/3\n\
             Outstanding: {outstanding}\nMode: {mode}\n"
        );
        Self([srvr, CONF.to_owned(), MNTR.to_owned()])
    }

    fn conf(mut self, key: &str, value: &str) -> Self {
        let line = self.0[1].lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        self.0[1] = self.0[1].replace(&line, &format!("{key}={value}"));
        self
    }

    /// Listens in front of a server, answers words with these replies, and forwards all else.
    async fn before(self, address: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = listener.local_addr().unwrap().to_string();
        let address = address.to_owned();
        #[expect(clippy::disallowed_methods, reason = "a server serves while the test waits")]
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (words, address) = (self.clone(), address.clone());
                // A connection that breaks is the business of the program.
                tokio::spawn(async move { words.converse(client, &address).await });
            }
        });
        front
    }

    async fn converse(&self, mut client: TcpStream, address: &str) -> std::io::Result<()> {
        let mut word = [0; 4];
        client.read_exact(&mut word).await?;
        let [srvr, conf, mntr] = &self.0;
        let reply = match &word {
            b"srvr" => srvr,
            b"conf" => conf,
            b"mntr" => mntr,
            _ => {
                let mut server = TcpStream::connect(address).await?;
                server.write_all(&word).await?;
                copy_bidirectional(&mut client, &mut server).await?;
                return Ok(());
            }
        };
        client.write_all(reply.as_bytes()).await?;
        client.shutdown().await
    }
}

/// Returns a server of a version without known faults, with the right time.
fn healthy() -> ServerConfig {
    #[expect(clippy::disallowed_methods, reason = "the clocks of the server and of the test agree")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    ServerConfig::default().version(ServerVersion::V3_9).start_time_ms(now)
}

/// Runs `zklock doctor --json`, and returns its exit status, what it prints, and each finding as its
/// level and check, in its order.
async fn diagnosed(connect: &str, arguments: &[&str]) -> (Option<i32>, Value, Vec<String>) {
    let seen = see(zklock_at(connect, "doctor").arg("--json").args(arguments)).await;
    assert_eq!(seen.stderr, "");
    let json: Value = serde_json::from_str(&seen.stdout).unwrap();
    let findings = json.get("findings").and_then(Value::as_array).unwrap().iter().map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap().to_owned();
        assert!(!text("what").is_empty() && !text("advice").is_empty(), "{finding}");
        format!("{} {} {}", text("level"), text("check"), text("subject"))
    });
    let findings = findings.collect();
    (seen.status.code(), json, findings)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_has_no_finding() {
    let world = World::with(healthy()).await;
    let front = Words::of("3.9.5", "standalone", 0).before(&world.address).await;
    let (status, json, findings) = diagnosed(&front, &[]).await;
    assert_eq!((status, findings), (Some(0), vec![]));
    let server = &json["servers"][0];
    assert_eq!((&server["version"], &server["tick_ms"]), (&"3.9.5".into(), &2_000.into()));
    let session = &json["session"];
    assert_eq!(session["granted_ms"], 10_000);
    assert_eq!(session["extended_types"], false);
    assert!(session["lease_ms"].as_i64().unwrap() > 5_000, "{session}");
    assert_eq!(world.server.children("/").unwrap(), ["zookeeper"], "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_what_servers_say_are_named() {
    let world = World::with(healthy()).await;
    let good = || Words::of("3.9.5", "standalone", 0);
    for (words, expected) in [
        (good().conf("tickTime", "3000"), "problem tick-too-long"),
        (good().conf("maxClientCnxns", "3"), "warning few-connections"),
        (Words::of("3.9.3", "standalone", 0), "warning version-fault"),
        (Words::of("3.4.14", "standalone", 0), "problem version-unsupported"),
        (Words::of("3.9.5", "standalone", 700), "warning overloaded"),
        (Words::of("3.9.5", "follower", 0), "not known leader-not-listed"),
    ] {
        let front = words.before(&world.address).await;
        let (status, _, findings) = diagnosed(&front, &[]).await;
        assert_eq!(findings, [format!("{expected} {front}")]);
        assert_eq!(status, Some(i32::from(expected.starts_with("problem"))), "{expected}");
    }
    let unlimited = good().conf("maxClientCnxns", "0").before(&world.address).await;
    assert_eq!(diagnosed(&unlimited, &[]).await.2, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_no_ensemble_are_named() {
    let world = World::with(healthy()).await;
    let leader = Words::of("3.9.5", "leader", 0).before(&world.address).await;
    let follower = Words::of("3.9.5", "follower", 0).before(&world.address).await;
    let of = |other: &str| format!("{leader},{other}");
    assert_eq!(diagnosed(&of(&follower), &[]).await.2, [""; 0]);

    let second = Words::of("3.9.5", "leader", 0).before(&world.address).await;
    let expected = format!("problem several-ensembles {leader}, {second}");
    assert_eq!(diagnosed(&of(&second), &[]).await.2, [expected]);

    let older = Words::of("3.9.4", "follower", 0).before(&world.address).await;
    assert_eq!(diagnosed(&of(&older), &[]).await.2, ["warning mixed-versions all servers"]);

    let words = Words::of("3.9.5", "follower", 0).conf("minSessionTimeout", "8000");
    let other = words.before(&world.address).await;
    assert_eq!(diagnosed(&of(&other), &[]).await.2, ["warning mixed-settings all servers"]);

    // A port on which nobody listens.
    let gone = "127.0.0.1:1";
    let (status, _, findings) = diagnosed(&of(gone), &[]).await;
    assert_eq!((status, findings), (Some(1), vec![format!("problem unreachable {gone}")]));

    let alone = Words([NOT_SERVING, NOT_SERVING, NOT_SERVING].map(str::to_owned));
    let alone = alone.before(&world.address).await;
    let expected = format!("problem not-serving {alone}");
    assert_eq!(diagnosed(&of(&alone), &[]).await.2, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_nothing_else_is_claimed() {
    let (status, json, findings) = diagnosed("127.0.0.1:1", &["/lock"]).await;
    let expected = [
        "problem unreachable 127.0.0.1:1",
        "problem no-leader all servers",
        "not known no-session session",
    ];
    assert_eq!((status, &findings[..]), (Some(1), &expected.map(str::to_owned)[..]));
    assert_eq!((&json["session"], &json["locks"]), (&Value::Null, &Value::Array(vec![])));
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_that_allow_no_lease_and_wrong_clocks_are_named() {
    let config = ServerConfig::default().version(ServerVersion::V3_9);
    let config = config.min_session_timeout(Duration::from_secs(1)).extended_types(true);
    let config = config.max_session_timeout(Duration::from_secs(2));
    // The time of day of this server is that of its start, in 2023.
    let world = World::with(config).await;
    let front = Words::of("3.9.5", "standalone", 0).before(&world.address).await;
    let (status, json, findings) = diagnosed(&front, &[]).await;
    let expected =
        ["problem no-lease session", "warning timeout-shortened session", "warning clock leader"];
    assert_eq!((status, &findings[..]), (Some(1), &expected.map(str::to_owned)[..]));
    assert_eq!(json["session"]["extended_types"], true);
    assert!(json["session"]["clock_offset_ms"].as_i64().unwrap() < -86_400_000, "{json}");
    let more = diagnosed(&front, &["--session-timeout", "100ms"]).await.2;
    assert!(!more.contains(&"warning timeout-shortened session".to_owned()), "{more:?}");

    let config = healthy().min_session_timeout(Duration::from_secs(12));
    let world = World::with(config).await;
    let front = Words::of("3.9.5", "standalone", 0).before(&world.address).await;
    assert_eq!(diagnosed(&front, &[]).await.2, ["warning timeout-lengthened session"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_and_those_who_could_delete_an_entry_are_named() {
    let world = World::with(healthy()).await;
    let front = Words::of("3.9.5", "standalone", 0).before(&world.address).await;
    world.server.admin_create("/open", b"", None);
    let (status, json, findings) = diagnosed(&front, &["/open", "/open/later/on"]).await;
    assert_eq!((status, findings), (Some(0), vec!["warning anyone-deletes /open".to_owned(); 2]));
    assert_eq!(json["locks"][0]["deleters"][0], "world:anyone");

    let secret = scratch("doctor-digest");
    write_secret(&secret, "ops:secret\n");
    let digest = ["--digest-file", secret.to_str().unwrap()];
    let mut owner = zklock_at(&front, "run");
    assert_eq!(code(owner.args(digest).args(["/closed", "true"])).await, 0);
    let (status, json, findings) = diagnosed(&front, &[&digest[..], &["/closed"]].concat()).await;
    assert_eq!((status, findings), (Some(0), vec![]));
    assert_eq!(json["locks"][0]["deleters"][0], "digest:ops");
    let (status, _, findings) = diagnosed(&front, &["/closed"]).await;
    assert_eq!(status, Some(1));
    assert!(findings.contains(&"problem may-not-create /closed".to_owned()), "{findings:?}");
    assert!(findings.contains(&"problem may-not-read /closed".to_owned()), "{findings:?}");
    assert_eq!(world.server.children("/open").unwrap(), [""; 0], "nothing is left behind");
    std::fs::remove_file(secret).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_tell_is_not_known() {
    // This server does not allow `conf`, and its version has a known fault.
    let world = World::with(healthy().version(ServerVersion::V3_8)).await;
    let seen = see(world.zklock("doctor").arg("/lock")).await;
    assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""));
    let text = &seen.stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let row = text.lines().nth(1).unwrap();
    assert!(row.contains("3.8.0") && row.contains("standalone") && row.contains(" ? "), "{text}");
    for part in [
        &*format!("warning: version-fault: {}\n", world.address),
        "warning: anyone-deletes: /\n",
        &*format!("not known: word-not-allowed: {}\n", world.address),
        "/lock: entries can be deleted by world:anyone\n",
        "clock: that of the leader agrees with the local one\n",
        "\n0 problems, 3 warnings, 1 not known\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_standalone_servers_are_two_ensembles() {
    let first = World::with(healthy()).await;
    let second = World::with(healthy()).await;
    let both = format!("{},{}", first.address, second.address);
    let (status, _, findings) = diagnosed(&both, &[]).await;
    assert_eq!(status, Some(1));
    assert!(findings.iter().any(|it| it.starts_with("problem several-ensembles")), "{findings:?}");
}

/// Returns what `zklock doctor` prints of three servers, of which one is gone, and the others have long
/// ticks. Their addresses, and what depends on the moment, are replaced.
pub(crate) async fn transcript(arguments: &[&str]) -> String {
    let world = World::with(healthy()).await;
    let secret = scratch("doctor-transcript");
    write_secret(&secret, "ops:secret\n");
    let digest = ["--digest-file", secret.to_str().unwrap()];
    let path = arguments.last().unwrap();
    let mut owner = zklock_at(&world.address, "run");
    assert_eq!(code(owner.args(digest).args([path, "true"])).await, 0);

    let slow = |mode: &str| {
        let words = Words::of("3.9.5", mode, 0).conf("tickTime", "3000");
        words.conf("minSessionTimeout", "6000").conf("maxSessionTimeout", "60000")
    };
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let servers = [
        slow("leader").before(&world.address).await,
        slow("follower").before(&world.address).await,
        gone.to_string(),
    ];
    let mut doctor = zklock_at(&servers.join(","), "doctor");
    let seen = see(doctor.env_remove("ZKLOCK_SESSION_TIMEOUT").args(digest).args(arguments)).await;
    assert_eq!((seen.status.code(), &*seen.stderr), (Some(1), ""), "{}", seen.stdout);
    std::fs::remove_file(secret).unwrap();

    let mut lines: Vec<String> = seen.stdout.lines().map(str::to_owned).collect();
    // The first column is as wide as the longest address.
    let width = servers.iter().map(String::len).max().unwrap();
    let names = ["SERVER", "zk1:2181", "zk2:2181", "zk3:2181"];
    for (line, name) in lines.iter_mut().zip(names) {
        *line = format!("{name:8}{}", line.get(width..).unwrap());
    }
    for line in &mut lines {
        if let Some((before, _)) = line.split_once(", lease ") {
            *line = format!("{before}, lease 28.5s, commit 2.1ms");
        }
        for (address, name) in servers.iter().zip(&names[1..]) {
            *line = line.replace(address, name);
        }
    }
    lines.join("\n")
}
