//! The program as its users see it: a process with a port, an output and an exit code.

mod program;

use std::fs;
use std::time::Duration;

use zk_session::Client;

use crate::program::{Failed, Program};

async fn connect(program: &Program) -> Client {
    Client::connect(&program.connect_string).await.expect("the server serves")
}

#[test]
fn what_prevents_the_start_is_named_with_its_place() {
    let folder = tempfile("start");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = write("data.json", "{\"/a\": 7}");
    let busy = Program::start(&[]);
    let port = busy.connect_string.rsplit_once(':').unwrap().1;
    for (arguments, code, expected) in [
        (&["--data", &data][..], 1, "data.json: \"/a\": the data is a string, null, or an object"),
        (&["--port", port], 1, "cannot listen on 127.0.0.1:"),
        (&["--data", "/missing"], 1, "cannot read /missing: No such file"),
        // An address of no machine: the server warns, and then cannot listen.
        (&["--host", "192.0.2.1"], 1, "warning: who can reach 192.0.2.1 can read and change all"),
        (&["--tick", "5"], 2, "is no duration such as 500ms, 2s, 5m or 1h"),
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
async fn an_ensemble_has_an_address_for_each_member() {
    let program = Program::start(&["--members", "3", "--tick", "100ms", "--lag", "0ms"]);
    let members: Vec<&str> = program.connect_string.split(',').collect();
    assert_eq!(members.len(), 3);
    let reader = Client::connect(members[2]).await.unwrap();
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
