//! What needs a terminal: the question of `evict`, and a command that reads the terminal.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::queues::shared_queues;
use crate::world::{World, start};

/// Returns a command line that `script` runs on a terminal of its own. What is written to its
/// standard input is typed there.
fn on_terminal(world: &World, line: &str) -> Command {
    let mut command = Command::new("script");
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_zklock"));
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("ZK_CONNECT", &world.address).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn evict_asks_and_deletes_only_after_a_yes() {
    let world = shared_queues().await;
    let names = world.entries("/locks/billing");
    for (answer, status, count) in [("n\n", 1, 3), ("\n", 1, 3), ("y\n", 0, 2), ("yes\n", 0, 1)] {
        let is_first = answer == "yes\n";
        let entry = if is_first { &names[0] } else { &names[1] };
        let mut running = start(&mut on_terminal(&world, &format!("evict /locks/billing {entry}")));
        let mut keyboard = running.child.stdin.take().unwrap();
        keyboard.write_all(answer.as_bytes()).await.unwrap();
        let text = running.rest().await;
        assert_eq!(running.code().await, status, "{answer:?}: {text}");
        assert!(text.contains("Delete it? [y/N]"), "{text}");
        let risk = if is_first { "It may hold the lock" } else { "It waits" };
        assert!(text.contains(risk), "{text}");
        assert_eq!(world.entries("/locks/billing").len(), count, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_foreground_reads_the_terminal() {
    let world = World::start().await;
    let line = "run --foreground /lock sh -c 'read -r line; echo \"got <$line>\"'";
    let mut running = start(&mut on_terminal(&world, line));
    let mut keyboard = running.child.stdin.take().unwrap();
    keyboard.write_all(b"hello\n").await.unwrap();
    let text = running.rest().await;
    assert!(text.contains("got <hello>"), "{text}");
    assert_eq!(running.code().await, 0);
}
