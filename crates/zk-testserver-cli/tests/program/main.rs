//! The program as its users see it: a process with two ports, an output and an exit code.

mod faults;
mod hostile;
mod page;
mod program;

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use zk_session::{Client, CreateMode, ErrorCode, OpError, Outcome};

use crate::program::{Failed, Program};

async fn connect(program: &Program) -> Client {
    Client::connect(&program.connect_string).await.expect("the server serves")
}

fn outcome<T>(result: Result<T, OpError>) -> Option<Outcome> {
    result.err().map(|error| error.outcome())
}

#[tokio::test]
async fn a_client_works_and_what_it_did_is_listed() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    client.create("/a", "data", CreateMode::Persistent).await.unwrap();
    client.get_data("/a").await.unwrap();
    client.delete("/b", None).await.unwrap_err();

    let session = client.session_id().unwrap().to_string();
    let requests = program.json("/requests");
    let seen: Vec<_> = requests
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (&it["session"], &it["op"], &it["path"], &it["outcome"], &it["error"]))
        .collect();
    let (session, applied) = (json!(session), json!("applied"));
    let values = [
        (json!("create2"), json!("/a"), json!("OK")),
        (json!("getData"), json!("/a"), json!("OK")),
        (json!("delete"), json!("/b"), json!("NO_NODE")),
    ];
    let expected: Vec<_> =
        values.iter().map(|(op, path, error)| (&session, op, path, &applied, error)).collect();
    assert_eq!(seen, expected);
    let commits = program.json("/commits");
    let commits: Vec<_> = commits.as_array().unwrap().iter().map(|it| &it["op"]).collect();
    assert_eq!(commits, [&json!("CREATE_SESSION"), &json!("create2"), &json!("delete")]);
    assert_eq!(program.json("/sessions"), json!([session]));
}

#[tokio::test]
async fn a_cut_hits_the_request_that_its_options_describe() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    let url = "/command/cut/after?op=create2&path=/locks&nth=1&refuse=100ms";
    assert_eq!(program.get(url), (200, "command/cut/after\n".to_owned()));
    assert_eq!(
        program.json("/faults"),
        json!(["cut after op=create2 path=/locks nth=1 refuse=100ms"])
    );
    client.create("/locks", "", CreateMode::Persistent).await.unwrap();
    client.create("/other", "", CreateMode::Persistent).await.unwrap();
    let lost = client.create("/locks/a", "", CreateMode::Persistent).await;
    assert_eq!(outcome(lost), Some(Outcome::Unknown));
    assert!(client.exists("/locks/a").await.unwrap().is_some(), "it was applied");
    assert_eq!(program.json("/faults"), json!([]));

    program.ok("cut/before?path=/locks/b");
    let lost = client.create("/locks/b", "", CreateMode::Persistent).await;
    assert_eq!(outcome(lost), Some(Outcome::Unknown));
    assert!(client.exists("/locks/b").await.unwrap().is_none(), "it was not applied");
    let outcomes = program.json("/requests");
    let all = outcomes.as_array().unwrap().iter();
    let unusual: Vec<_> =
        all.map(|it| &it["outcome"]).filter(|outcome| *outcome != "applied").collect();
    assert_eq!(unusual, ["unanswered", "dropped"]);
}

#[tokio::test]
async fn the_verbs_of_the_controller_do_what_their_names_say() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    let session = client.session_id().unwrap();
    assert_eq!(program.get("/command/PING"), (200, "command/PING\n".to_owned()));

    program.ok("FAILREQUESTS/1");
    let refused = client.exists("/").await.unwrap_err();
    assert_eq!(refused.server_code(), Some(ErrorCode::API_ERROR), "{refused}");
    client.exists("/").await.unwrap();

    program.ok("noresponse/1");
    let limit = Duration::from_millis(300);
    let silent = client.create("/silent", "", CreateMode::Persistent).timeout(limit).await;
    assert_eq!(outcome(silent), Some(Outcome::Unknown));
    // The client ends the connection when it receives the reply to a later request.
    client.exists("/").await.unwrap_err();
    assert!(client.exists("/silent").await.unwrap().is_some(), "it was applied");

    program.ok("adddelay/50");
    client.exists("/").await.unwrap();
    program.ok("reset");

    let connection = client.status().connection;
    program.ok(&format!("closeconnection/{}", session.0));
    while client.exists("/").await.is_err() || client.status().connection == connection {}
    assert_eq!(client.session_id(), Some(session), "the session goes on");
}

#[tokio::test]
async fn sessions_survive_an_election() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    let session = client.session_id();
    program.ok("elect/1ms");
    while client.exists("/").await.is_err() {}
    assert_eq!(client.session_id(), session);
    assert!(client.status().connection > 1, "its connection has ended");
}

#[tokio::test]
async fn sessions_expire_and_connections_are_refused_on_command() {
    let program = Program::start(&[]);
    let client = connect(&program).await;
    let session = client.session_id().unwrap();
    program.ok(&format!("expiresession/{session}"));
    while client.exists("/").await.is_err() {}
    assert_ne!(client.session_id(), Some(session));
    let before = program.json("/sessions");
    program.ok("expire");
    // The client may have started another one already.
    assert_ne!(program.json("/sessions"), before);
    program.ok("rejectconnections");
    assert_eq!(program.word("ruok"), "", "nobody is connected");
    program.ok("reset");
    assert_eq!(program.word("ruok"), "imok");
}

#[test]
fn a_mistake_gets_a_sentence_that_says_what_is_allowed() {
    let program = Program::start(&[]);
    for (url, status, expected) in [
        ("/command/explode", 400, "\"explode\" is not a command; the commands are ping, "),
        ("/command/", 400, "\"\" is not a command; "),
        ("/command/cut", 400, "cut needs a parameter: before|after"),
        ("/command/cut/after?op=mkdir", 400, "cut, option op: \"mkdir\" is not a request; the "),
        ("/command/expire/7", 400, "0x7 is not a session; the sessions are: there are none"),
        ("/command/closeconnection/", 400, "closeconnection: \"\" is not a session id; "),
        ("/command/lag/1s", 400, "one server has no followers; start it with --members 3"),
        ("/command/adddelay/%", 400, "\"%\" has a % without two digits after it"),
        ("/ping", 404, "there is no page /ping; the pages are /requests, /commits, "),
    ] {
        let (code, body) = program.get(url);
        assert_eq!(code, status, "{url}: {body}");
        assert!(body.starts_with(expected), "{url}: {body}");
    }
    assert_eq!(program.request("DELETE", "/command/ping").0, 405);
    assert_eq!(program.request("POST", "/requests").0, 405);
    assert_eq!(program.request("POST", "/command/ping").0, 200);
    assert_eq!(program.raw(b"\0\xff\r\n\r\n").0, 400, "this is no HTTP");
    let (code, help) = program.get("/");
    assert!(code == 200 && help.contains("cut before|after"), "{help}");
}

#[tokio::test]
async fn a_script_runs_at_the_start_and_later() {
    let folder = tempfile("script");
    let script = folder.join("script.txt");
    fs::write(
        &script,
        "# The second create is cut.\ncut after op=create2 nth=1\nat 1ms expire 0x77\n",
    )
    .unwrap();
    let mut program = Program::start(&["--script", script.to_str().unwrap()]);
    let client = connect(&program).await;
    client.create("/a", "", CreateMode::Persistent).await.unwrap();
    let lost = client.create("/b", "", CreateMode::Persistent).await;
    assert_eq!(outcome(lost), Some(Outcome::Unknown));
    let complaint = program.complaint();
    assert!(complaint.contains("script.txt:3: 0x77 is not a session; "), "{complaint}");

    fs::write(&script, "at 2ms shutdown\nat 1ms expire 0x77\n").unwrap();
    let mut program = Program::start(&["--script", script.to_str().unwrap()]);
    assert_eq!(program.exit_code(), Some(0), "the script ends it");
    let complaint = program.complaint();
    assert!(complaint.contains("script.txt:2: 0x77"), "it goes on after a line that fails");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_prevents_the_start_is_named_with_its_place() {
    let folder = tempfile("start");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let script = write("script.txt", "ping\nexplode\ncut\n");
    let early = write("early.txt", "reset\nexpire 0x5\n");
    let data = write("data.json", "{\"/a\": 7}");
    let busy = Program::start(&[]);
    let port = busy.connect_string.rsplit_once(':').unwrap().1;
    for (arguments, code, expected) in [
        (&["--script", &script][..], 1, "script.txt:2:1: \"explode\" is not a command; "),
        (&["--script", &script], 1, "script.txt:3:1: cut needs a parameter: before|after"),
        (&["--script", &early], 1, "early.txt:2: 0x5 is not a session; "),
        (&["--script", "/missing"], 1, "cannot read /missing: No such file"),
        (&["--script", "/dev/zero"], 1, "cannot read /dev/zero: it is longer than 64 MiB"),
        (
            &["--data", &data],
            1,
            "data.json: invalid type: integer `7`, expected the data of \"/a\": a",
        ),
        (&["--data", folder.to_str().unwrap()], 1, ": Is a directory"),
        (&["--port", port], 1, "cannot listen on 127.0.0.1:"),
        (&["--http-port", port], 1, "for HTTP: Address already in use"),
        // An address of no machine: the server warns, and then cannot listen.
        (&["--host", "192.0.2.1"], 1, "warning: who can reach 192.0.2.1 can read and change all"),
        (&["--tick", "5"], 2, "is not a duration such as 500ms, 2s, 5m or 1h"),
        (&["--explode"], 2, "unexpected argument '--explode'"),
    ] {
        let Failed { exit_code, errors } = Program::fail(arguments);
        assert_eq!(exit_code, Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn znodes_come_from_a_file() {
    let folder = tempfile("data");
    let data = folder.join("data.json");
    let text = r#"{"/": "root", "/app/config": "a=1", "/app": null, "/bin/x": {"base64": "AP8="}}"#;
    fs::write(&data, text).unwrap();
    let program = Program::start(&["--data", data.to_str().unwrap()]);
    let client = connect(&program).await;
    for (path, expected) in
        [("/", &b"root"[..]), ("/app", b""), ("/app/config", b"a=1"), ("/bin", b"")]
    {
        assert_eq!(client.get_data(path).await.unwrap().0, expected, "{path}");
    }
    assert_eq!(client.get_data("/bin/x").await.unwrap().0, &[0, 255][..]);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn an_ensemble_has_an_address_for_each_member_and_a_lag() {
    let program = Program::start(&["--members", "3", "--tick", "100ms", "--lag", "0ms"]);
    let members: Vec<&str> = program.connect_string.split(',').collect();
    assert_eq!(members.len(), 3);
    let writer = Client::connect(members[0]).await.unwrap();
    let reader = Client::connect(members[2]).await.unwrap();
    program.ok("lag/1h");
    writer.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(reader.exists("/a").await.unwrap(), None);
    program.ok("lag/0ms");
    assert!(reader.exists("/a").await.unwrap().is_some());
    // Timeouts of 2 to 20 ticks: 30 s is too much.
    assert_eq!(reader.status().timeout, Duration::from_secs(2));
}

#[test]
fn signals_and_the_end_of_the_input_end_it_with_0() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut program = Program::start(&[]);
        program.signal(signal);
        assert_eq!(program.exit_code(), Some(0), "{signal:?}");
    }
    let mut program = Program::start(&["--exit-with-parent"]);
    program.close_input();
    assert_eq!(program.exit_code(), Some(0));

    let mut program = Program::start(&[]);
    program.close_input();
    assert_eq!(program.word("ruok"), "imok", "it goes on without its input");
    assert_eq!(program.get("/command/shutdown"), (200, "command/shutdown\n".to_owned()));
    assert_eq!(program.exit_code(), Some(0));
}

#[test]
fn the_version_that_it_imitates_can_be_chosen() {
    for (version, number) in [("3.5", "3.5.10"), ("3.9", "3.9.3")] {
        let program = Program::start(&["--server-version", version]);
        assert!(program.word("srvr").contains(number), "{version}");
    }
}

/// Creates a folder for the files of a test.
fn tempfile(test: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("zk-testserver-{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be created");
    folder
}

#[test]
fn requests_are_listed_as_json_even_if_there_are_none() {
    let program = Program::start(&[]);
    for page in ["/requests", "/commits", "/sessions", "/faults"] {
        assert_eq!(program.json(page), Value::Array(Vec::new()), "{page}");
    }
}
