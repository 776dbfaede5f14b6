//! What others have put into znodes, and what they keep from this client: text that a terminal would
//! obey, letters that are wide, permissions. Nothing that may not be read counts as missing.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;
use zk_recipes::zk_session::CreateOptions;
use zk_recipes::{Acl, Client, CreateMode, SessionId};

use crate::queues::shared_queues;
use crate::terminal::Terminal;
use crate::world::{Started, World, code, see, start};

const OWNER: SessionId = SessionId(0x0100_0000_00ab_0001);

/// A title, a new screen, a line that claims to be another one, the direction of writing, no UTF-8.
const HOSTILE: &[u8] = b"\x1b]0;owned\x07\x1b[2J\r\nforged\xc2\x9b31m\xe2\x80\xaedaer\xff";

/// Returns a queue whose identities are hostile, wide or long, or that are no text.
async fn hostile() -> World {
    let world = World::start().await;
    world.server.admin_create("/locks", b"", None);
    let wide = "東京都".repeat(40);
    let long = "x".repeat(100_000);
    let binary: Vec<u8> = (0..=255).collect();
    for (name, data) in [
        ("a-hostile", HOSTILE),
        ("b-wide", wide.as_bytes()),
        ("c-long", long.as_bytes()),
        ("d-binary", &binary),
        ("e-empty", b""),
    ] {
        world.server.admin_create(&format!("/locks/{name}"), b"", None);
        for number in 0..2 {
            let path = format!("/locks/{name}/{number:032x}-lock-{number:010}");
            world.server.admin_create(&path, data, Some(OWNER));
        }
    }
    world
}

fn check_rows<'a>(rows: impl Iterator<Item = &'a str>) {
    for row in rows {
        assert!(row.width() <= 80, "{} columns: {row:?}", row.width());
        let is_safe = |it: char| !it.is_control() && it != '\u{202e}';
        assert!(row.chars().all(is_safe), "{row:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_others_reaches_the_terminal_as_it_is() {
    let world = hostile().await;
    let locks = ["/locks/a-hostile", "/locks/b-wide", "/locks/c-long", "/locks/d-binary"];
    let status = see(world.zklock("status").args(locks).arg("/locks/e-empty")).await;
    assert_eq!((status.status.code(), &*status.stderr), (Some(0), ""));
    let shown = "\u{fffd}]0;owned\u{fffd}\u{fffd}[2J\u{fffd}\u{fffd}forg";
    assert!(status.stdout.contains(shown), "{}", status.stdout);
    // The age may be shorter by a digit of its hours, and then the identity is longer.
    let zeros = status.stdout.lines().find_map(|row| row.split_once("lock  000")).expect("one row");
    assert!(zeros.1.trim_start_matches('0').starts_with('…'), "{status:?}");
    check_rows(status.stdout.lines());
    let ls = see(world.zklock("ls").arg("/locks")).await;
    assert_eq!(ls.stdout.lines().count(), 6, "{}", ls.stdout);
    check_rows(ls.stdout.lines());
    // Columns stay below each other. A wide letter takes two of them.
    let at = |row: &str| row.split_once("fair").unwrap().0.width();
    assert!(ls.stdout.lines().skip(1).all(|row| at(row) == 18), "{}", ls.stdout);
    let waiting = see(world.zklock("run").args(["-w", "300ms", "/locks/a-hostile", "true"])).await;
    assert_eq!(waiting.status.code(), Some(124));
    assert!(waiting.stderr.contains("2 ahead"), "{}", waiting.stderr);
    assert!(waiting.stderr.lines().all(|row| !row.contains(char::is_control)), "{waiting:?}");
    let json = see(world.zklock("ls").args(["--json", "/locks"])).await;
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["locks"].as_array().unwrap().len(), 5);

    let mut terminal = Terminal::start(&world, "xterm", "1");
    let rows = terminal.until("5 locks").await;
    check_rows(
        rows.iter()
            .map(|row| row.trim_start_matches("\x1b[1m").trim_end_matches("\x1b[m"))
            .filter(|row| !row.starts_with("\x1b[7m")),
    );
    terminal.press("q");
    assert_eq!(terminal.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_said() {
    let world = shared_queues().await;
    let owner = Client::builder(&*world.address).auth("digest", "ops:secret");
    let owner = owner.connect().await.unwrap();
    let own = |mode| CreateOptions::from(mode).acl(Acl::creator_all());
    owner.create("/locks/secret", "", own(CreateMode::Persistent)).await.unwrap();
    // The last entry of this lock may be seen, but not read.
    let entry = "/locks/billing/ffffffffffffffffffffffffffffffff-lock-";
    let created = owner.create(entry, "hidden", own(CreateMode::EphemeralSequential)).await;
    let created = created.unwrap().path.to_string();

    let seen = see(world.zklock("status").args(["/locks/secret", "/locks/billing"])).await;
    assert_eq!(seen.status.code(), Some(125));
    assert!(seen.stderr.starts_with("zklock: /locks/secret: you may not list it"), "{seen:?}");
    assert!(seen.stdout.starts_with("/locks/secret: not known"), "{seen:?}");
    assert!(seen.stdout.contains("/locks/billing: fair, 4 entries"), "{seen:?}");
    let name = created.rsplit('/').next().unwrap();
    let row = seen.stdout.lines().find(|row| row.contains("ffffffff")).unwrap();
    assert!(row.ends_with(" ?") && row.matches(" ? ").count() >= 1, "{row}");
    let json = see(world.zklock("status").args(["--json", "/locks/billing"])).await;
    assert_eq!(json.status.code(), Some(0));
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let entries = json["locks"][0]["entries"].as_array().unwrap();
    let hidden = entries.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!((&hidden["identity"], &hidden["token"]), (&Value::Null, &Value::Null));

    let ls = see(world.zklock("ls").arg("/locks")).await;
    assert_eq!((ls.status.code(), ls.stdout.lines().count()), (Some(125), 4));
    assert!(ls.stderr.contains("locks below /locks/secret are not known"), "{ls:?}");
    let root = see(world.zklock("ls").arg("/locks/secret")).await;
    assert_eq!((root.status.code(), &*root.stdout), (Some(125), ""));
    let mut top = start(world.zklock("top").arg("/locks"));
    assert!(top.line().await.contains("3 locks"));
    assert!(top.line().await.contains("; locks below /locks/secret are not known"));
    assert_eq!(code(world.zklock("top").arg("/locks/secret")).await, 125);
    let evict = see(world.zklock("evict").args(["--yes", "/locks/secret", "1"])).await;
    assert_eq!(evict.status.code(), Some(125));
    assert!(evict.stderr.contains("you may not list it"), "{evict:?}");
    // By its name, it can be deleted: that is a permission of the directory.
    assert_eq!(code(world.zklock("evict").args(["--yes", "/locks/billing", name])).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_of_kazoo_is_one_and_a_directory_of_ids_is_not() {
    let world = World::start().await;
    for (directory, data) in [("/pool", "2"), ("/other", "")] {
        world.server.admin_create(directory, data.as_bytes(), None);
        for (id, holder) in [("b", "first"), ("a", "second")] {
            let path = format!("{directory}/{}", id.repeat(32));
            world.server.admin_create(&path, holder.as_bytes(), Some(OWNER));
        }
    }
    let ls = see(world.zklock("ls").args(["--json", "/"])).await;
    let json: Value = serde_json::from_str(&ls.stdout).unwrap();
    let locks = json["locks"].as_array().unwrap();
    assert_eq!(locks.len(), 1, "{json}");
    assert_eq!((&locks[0]["path"], &locks[0]["length"]), (&"/pool".into(), &2.into()));
    let status = see(world.zklock("status").args(["--json", "/pool"])).await;
    let json: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(json["locks"][0]["kind"], "semaphore");
    let entries = json["locks"][0]["entries"].as_array().unwrap();
    let identities: Vec<_> = entries.iter().map(|it| &it["identity"]).collect();
    assert_eq!(identities, ["first", "second"], "in the order in which they came");
    assert!(entries.iter().all(|it| it["holds"] == true && it["kind"] == "lease"), "{json}");
    // A change of a lease is a change of the semaphore.
    let mut watch = start(world.zklock("ls").args(["--watch", "--json", "/"]));
    let length =
        |line: String| serde_json::from_str::<Value>(&line).unwrap()["locks"][0]["length"].clone();
    assert_eq!(length(watch.line().await), 2);
    world.server.admin_delete(&format!("/pool/{}", "a".repeat(32)));
    assert_eq!(length(watch.line().await), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_is_missing_is_no_empty_one() {
    let world = World::start().await;
    let mut top = start(world.zklock("top").arg("/later"));
    assert_eq!(top.line().await, "zklock top /later: there is no such znode");
    let mut ls = start(world.zklock("ls").args(["--watch", "/later"]));
    assert_eq!(ls.line().await, "/later: there is no such znode");
    world.server.admin_create("/later", b"", None);
    until_line(&mut ls, "/later: no locks").await;
    until_line(&mut top, "zklock top /later: 0 locks, 0 entries, ordered by the oldest wait").await;
    world.server.admin_delete("/later");
    until_line(&mut top, "zklock top /later: there is no such znode").await;
}

async fn until_line(program: &mut Started, line: &str) {
    while program.line_or_empty().await.as_deref() != Some(line) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_nobody_reads_is_no_failure_and_a_full_disk_is_one() {
    let world = shared_queues().await;
    for verb in ["status", "ls", "top", "doctor"] {
        let mut command = world.zklock(verb);
        command.arg("/locks/billing").stderr(Stdio::piped());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command.stdout(Stdio::from(full)).spawn().unwrap();
        let output = output.wait_with_output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{verb}: {said}");
        assert!(said.contains("cannot write to standard output"), "{verb}: {said}");
        // The reader has gone before the first line.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = world.zklock(verb);
        let child = command.arg("/locks/billing").stdout(Stdio::from(writer)).spawn();
        let status = child.unwrap().wait().await.unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{verb}: {status}");
    }
    // A lock whose token nobody hears of is released.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut hold = world.zklock("hold");
    hold.args(["--no-stdin", "/unheard"]).stdout(Stdio::from(writer));
    assert_eq!(hold.spawn().unwrap().wait().await.unwrap().code(), Some(125));
    assert_eq!(world.entries("/unheard"), [""; 0]);
}
