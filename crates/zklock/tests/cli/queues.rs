//! `status`, `ls` and `evict`, on queues that others share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use zk_recipes::SessionId;
use zk_testserver::ServerConfig;

use crate::world::{World, code, see, start};

/// How long the entries of a shared queue have existed: between an hour and the next, so that the
/// shown age does not depend on the moment.
const AGE: Duration = Duration::from_secs(3 * 86_400 + 4 * 3_600 + 1_800);

/// Returns a server with locks that several implementations have left.
pub(crate) async fn shared_queues() -> World {
    #[expect(clippy::disallowed_methods, reason = "ages are differences to the time of day")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = i64::try_from((now - AGE).as_millis()).unwrap();
    let world = World::with(ServerConfig::default().start_time_ms(start)).await;
    let create = |path: &str, data: &str, session: i64| {
        let owner = Some(SessionId(session)).filter(|it| it.0 != 0);
        world.server.admin_create(path, data.as_bytes(), owner);
    };
    let id = "0123456789abcdef0123456789abcdef";
    create("/locks", "", 0);
    create("/locks/billing", "", 0);
    create(
        &format!("/locks/billing/{id}-lock-0000000004"),
        "app1.example.com pid=4711 rebuild-invoices --all of the customers",
        0x0100_0000_00ab_0001,
    );
    let curator = "_c_8d3a1f6e-b8f0-4a0e-9f53-2d6a6f3f8c11-lock-0000000006";
    create(&format!("/locks/billing/{curator}"), "10.1.2.3", 0x0200_0000_00ab_0001);
    create(
        "/locks/billing/4f3a9c1be2d84a6d9b0f__lock__0000000007",
        "kazoo worker",
        0x0300_0000_00ab_0001,
    );
    create("/locks/billing/notes", "no entry", 0);
    create("/locks/nightly", &format!("{id} app2 pid=12 backup"), 0x0100_0000_00ab_0002);
    create("/locks/uploads", "2", 0);
    for number in 1..=3 {
        let path = format!("/locks/uploads/{number:032x}-permit-000000000{number}");
        create(&path, &format!("app{number} pid=1 upload"), 0x0100_0000_00ab_0010 + number);
    }
    create("/members", "", 0);
    create("/members/app1", "not a lock", 0x0100_0000_00ab_0001);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_queue_in_its_order() {
    let world = shared_queues().await;
    let paths = ["/locks/billing", "/locks/uploads", "/locks/nightly", "/free"];
    let seen = see(world.zklock("status").args(paths)).await;
    assert_eq!((seen.status.code(), &*seen.stderr), (Some(0), ""));
    assert!(seen.stdout.lines().all(|line| line.chars().count() <= 80), "{}", seen.stdout);
    let json = see(world.zklock("status").arg("--json").args(paths)).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let of = |lock: usize, what: &str| -> Vec<Value> {
        let entries = json["locks"][lock]["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry[what].clone()).collect()
    };
    assert_eq!(of(0, "holds"), [true, false, false]);
    assert_eq!(of(0, "place"), [0, 1, 2]);
    assert_eq!(of(0, "kind"), ["lock"; 3]);
    assert_eq!(of(0, "identity")[1..], ["10.1.2.3", "kazoo worker"]);
    assert_eq!(of(0, "session")[2], "0x300000000ab0001");
    assert_eq!(of(1, "holds"), [true, true, false]);
    assert_eq!(
        (of(2, "kind"), of(2, "identity")),
        (vec!["exclusive".into()], vec!["app2 pid=12 backup".into()])
    );
    assert_eq!(json["locks"][3]["kind"], Value::Null);
    let age = of(0, "age_ms")[0].as_u64().unwrap();
    assert!(u128::from(age) >= AGE.as_millis(), "{age}");
    let entry = &world.entries("/locks/billing")[0];
    let stat = world.server.stat(&format!("/locks/billing/{entry}")).unwrap();
    assert_eq!(
        (of(0, "token")[0].as_i64(), &of(0, "name")[0]),
        (Some(stat.czxid.0), &entry[..].into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_finds_all_locks_below_a_root_and_nothing_else() {
    let world = shared_queues().await;
    let json = see(world.zklock("ls").args(["/", "--json"])).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let locks = json["locks"].as_array().unwrap();
    let of = |what: &str| -> Vec<Value> { locks.iter().map(|it| it[what].clone()).collect() };
    assert_eq!(of("path"), ["/locks/billing", "/locks/nightly", "/locks/uploads"]);
    assert_eq!(of("kind"), ["fair", "exclusive", "semaphore"]);
    assert_eq!(of("length"), [3, 1, 3]);
    assert_eq!(locks[2]["holder"]["identity"], "app1 pid=1 upload");
    assert_eq!(locks[1]["oldest_wait_ms"], Value::Null);
    let table = see(world.zklock("ls").arg("/locks")).await;
    assert_eq!(table.stdout.lines().count(), 4, "{}", table.stdout);
    assert_eq!(see(world.zklock("ls").arg("/members")).await.stdout, "/members: no locks\n");
    let missing = see(world.zklock("ls").arg("/no")).await;
    assert_eq!(missing.stderr, "zklock: /no: there is no such znode\n");
    assert_eq!(missing.status.code(), Some(125));
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_reads_as_little_of_a_long_queue_as_of_a_short_one() {
    let world = World::start().await;
    world.server.admin_create("/long", b"", None);
    for number in 0..200 {
        let path = format!("/long/{number:032x}-lock-{number:010}");
        world.server.admin_create(&path, b"somebody", Some(SessionId(0x0100_0000_00ab_0001)));
    }
    world.server.clear_requests();
    let json = see(world.zklock("ls").args(["/long", "--json"])).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["locks"][0]["length"], 200);
    // A connect, a list, the holder, the first waiter, the end of the session.
    let requests = world.server.requests().len();
    assert!(requests <= 6, "{requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_deletes_the_entry_that_was_meant() {
    let world = shared_queues().await;
    let waiter = &world.entries("/locks/billing")[1];
    let path = format!("/locks/billing/{waiter}");
    let token = world.server.stat(&path).unwrap().czxid.0.to_string();
    // Nobody can be asked.
    let silent = see(world.zklock("evict").args(["/locks/billing", &token])).await;
    assert_eq!(silent.status.code(), Some(125));
    assert!(silent.stderr.contains("use --yes"), "{}", silent.stderr);
    assert!(world.server.stat(&path).is_some());
    let done = see(world.zklock("evict").args(["--yes", "/locks/billing", &token])).await;
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(done.stderr, format!("zklock: {path}: deleted\n"));
    assert!(world.server.stat(&path).is_none());
    let again = see(world.zklock("evict").args(["--yes", "/locks/billing", &token])).await;
    assert_eq!(again.status.code(), Some(1));
    assert!(again.stderr.contains("0 entries have the token"), "{}", again.stderr);
    // Only entries of locks can be deleted.
    let notes = code(world.zklock("evict").args(["--yes", "/locks/billing", "notes"])).await;
    assert_eq!(notes, 1);
    let exclusive = code(world.zklock("evict").args(["-y", "/locks/nightly", "nightly"])).await;
    assert_eq!((exclusive, world.server.stat("/locks/nightly")), (0, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_our_own_locks_as_the_library_creates_them() {
    let world = World::start().await;
    for (kind, path, shown) in [
        ("fair", "/a", "fair"),
        ("write", "/b", "read/write"),
        ("semaphore=3", "/c", "semaphore"),
        ("election", "/d", "election"),
        ("exclusive", "/e", "exclusive"),
    ] {
        let arguments = ["--no-stdin", "--kind", kind, "--identity", "me", path];
        let mut holder = start(world.zklock("hold").args(arguments));
        holder.line().await;
        let seen = see(world.zklock("status").args(["--json", path])).await;
        let json: Value = serde_json::from_str(&seen.stdout).unwrap();
        let lock = &json["locks"][0];
        assert_eq!(lock["kind"], shown);
        assert_eq!(
            (&lock["entries"][0]["holds"], &lock["entries"][0]["identity"]),
            (&true.into(), &"me".into())
        );
        let seen = see(world.zklock("ls").args(["--json", "/"])).await;
        let json: Value = serde_json::from_str(&seen.stdout).unwrap();
        let lock = json["locks"].as_array().unwrap().iter().find(|lock| lock["path"] == path);
        assert_eq!(lock.unwrap()["holder"]["holds"], true, "{kind}: {json}");
    }
}
