//! Commands that end by themselves: what they are given, and what is returned.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;

use crate::world::{World, code, scratch, see, start};

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_that_of_the_command() {
    let world = World::start().await;
    assert_eq!(code(&mut world.script("exit 0")).await, 0);
    assert_eq!(code(&mut world.script("exit 7")).await, 7);
    assert_eq!(code(&mut world.script("kill -9 $$")).await, 128 + 9);
    assert_eq!(code(&mut world.script("kill -15 $$")).await, 128 + 15);
    assert_eq!(world.server.sessions(), [], "each session was closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_run_has_the_status_of_shells() {
    let world = World::start().await;
    let missing = see(world.zklock("run").args(["/lock", "no-such-command"])).await;
    assert_eq!(missing.status.code(), Some(127));
    assert_eq!(missing.stderr, "zklock: cannot run no-such-command: there is no such command\n");
    let plain = see(world.zklock("run").args(["/lock", "/etc/passwd"])).await;
    assert_eq!(plain.status.code(), Some(126));
    assert_eq!(plain.stderr, "zklock: cannot run /etc/passwd: it is not an executable file\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_its_own_have_a_status_and_a_sentence() {
    let world = World::start().await;
    for (arguments, sentence) in [
        (&["/lock"][..], "required arguments"),
        (&["--no-such-option", "/lock", "true"], "unexpected argument"),
        (&["--kind", "mutex", "/lock", "true"], "write fair, read, write"),
        (&["--timeout", "soon", "/lock", "true"], "write a number and a unit"),
        (&["--timeout", "0", "/lock", "true"], "use --try"),
        (&["lock", "true"], "lock"),
        (&["--kill-after", "9s", "/lock", "true"], "--kill-after 9s is too long"),
        (&["--events", "77", "/lock", "true"], "--events 77: No such file"),
        (&["--digest-file", "/no-such-file", "/lock", "true"], "--digest-file /no-such-file"),
    ] {
        let seen = see(world.zklock("run").args(arguments)).await;
        assert_eq!(seen.status.code(), Some(125), "{arguments:?}");
        assert!(seen.stderr.contains(sentence), "{arguments:?}: {}", seen.stderr);
        assert_eq!(seen.stdout, "");
    }
    let nobody = see(world.zklock("run").args([
        "--connect",
        "127.0.0.1:1",
        "--session-timeout",
        "100ms",
        "/lock",
        "true",
    ]))
    .await;
    assert_eq!(nobody.status.code(), Some(125));
    assert!(nobody.stderr.starts_with("zklock: cannot connect to 127.0.0.1:1: "), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_has_the_token_the_standard_input_and_the_output() {
    let world = World::start().await;
    let mut command =
        world.script("echo $ZKLOCK_PATH $ZKLOCK_TOKEN $ZKLOCK_SESSION; cat; echo >&2 x");
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    input.write_all(b"a line\n").await.unwrap();
    drop(input);
    let output = running.wait_with_output().await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let commits = world.server.commits();
    let created = commits.iter().find(|commit| commit.zxid.0.to_string() == words[1]).unwrap();
    assert!(created.path.as_ref().is_some_and(|path| path.starts_with("/lock/")), "{created:?}");
    assert_eq!(stdout, format!("/lock {} {}\na line\n", created.zxid.0, created.session));
    assert_eq!(output.stderr, b"x\n", "there is no progress without a wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_a_lock_and_shared_ones_have_no_token() {
    let world = World::start().await;
    for (kind, path, token) in [
        ("fair", "/fair", "yes"),
        ("read", "/rw", "no"),
        ("write", "/rw", "yes"),
        ("exclusive", "/exclusive", "yes"),
        ("semaphore=2", "/semaphore", "no"),
        ("election", "/election", "yes"),
    ] {
        let script = "test -n \"$ZKLOCK_TOKEN\" && echo yes || echo no";
        let mut command = world.zklock("run");
        let seen = see(command.args(["--kind", kind, path, "--", "sh", "-c", script])).await;
        assert_eq!(
            (seen.status.code(), &*seen.stdout),
            (Some(0), &*format!("{token}\n")),
            "{kind}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command() {
    let world = World::start().await;
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")]
    {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut running = start(&mut world.script(&script));
        assert_eq!(running.line().await, "ready");
        running.signal(signal);
        assert_eq!(running.code().await, 9, "{name}");
    }
    // A signal that the command does not catch ends it.
    let mut running = start(&mut world.script("echo ready; exec sleep 1000"));
    assert_eq!(running.line().await, "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.code().await, 128 + 15);
    // So does one that the terminal has stopped, or somebody else.
    let mut running = start(&mut world.script("echo ready; kill -STOP $$; sleep 1000"));
    assert_eq!(running.line().await, "ready");
    running.signal(Signal::TERM);
    assert_eq!(running.code().await, 128 + 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_running_ends_before_the_lock_is_released() {
    let world = World::start().await;
    // The second one has left the process group and the session, the third ignores SIGTERM.
    let script = "sleep 1000 & setsid sleep 1000 & (trap '' TERM; exec sleep 1000) & exit 3";
    let mut command = world.script(script);
    let mut running = start(command.arg("--").env("ZKLOCK_KILL_AFTER", "200ms"));
    assert_eq!(running.rest().await, "");
    assert_eq!(running.code().await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn contending_shells_need_no_other_lock() {
    const SHELLS: usize = 5;
    const TURNS: usize = 3;
    let world = World::start().await;
    let file = scratch("counter");
    std::fs::write(&file, "0").unwrap();
    let mut shells = Vec::new();
    for _ in 0..SHELLS {
        let mut command = tokio::process::Command::new("sh");
        let script = "for turn in $(seq \"$TURNS\"); do \"$ZKLOCK\" run -q /lock sh -c \
                      'n=$(cat \"$FILE\"); sleep 0.01; echo $((n + 1)) >\"$FILE\"' || exit; done";
        command.args(["-c", script]).env("FILE", &file).env("TURNS", TURNS.to_string());
        command.env("ZKLOCK", env!("CARGO_BIN_EXE_zklock")).env("ZK_CONNECT", &world.address);
        shells.push(start(&mut command));
    }
    for shell in &mut shells {
        assert_eq!(shell.code().await, 0);
    }
    let count = std::fs::read_to_string(&file).unwrap();
    assert_eq!(count.trim(), (SHELLS * TURNS).to_string());
    std::fs::remove_file(file).unwrap();
}
