//! The page of the guide: each block after a mark `<!-- generated: zklock … -->` is what the program
//! prints, or takes, and each `console` block is what a shell shows.

use std::path::Path;

use crate::doctor::transcript;
use crate::queues::shared_queues;
use crate::world::{World, see, start};

const MARK: &str = "<!-- generated: zklock ";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_program_prints() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs/zklock.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let world = shared_queues().await;
    let mut parts = text.split(MARK);
    let mut updated = parts.next().unwrap().to_owned();
    let mut count = 0;
    for part in parts {
        let (arguments, rest) = part.split_once(" -->\n```text\n").expect("a block follows a mark");
        let (_, rest) = rest.split_once("\n```\n").expect("a block ends");
        if let Some(arguments) = arguments.strip_prefix("doctor ") {
            let printed = transcript(&arguments.split(' ').collect::<Vec<_>>()).await;
            updated.push_str(&format!(
                "{MARK}doctor {arguments} -->\n```text\n{printed}\n```\n{rest}"
            ));
            continue;
        }
        let mut words = arguments.split(' ');
        let mut command = world.zklock(words.next().unwrap());
        if arguments.starts_with("top ") {
            let mut top = start(command.args(words));
            let mut lines = Vec::new();
            while let Some(line) = top.line_or_empty().await {
                lines.push(line);
            }
            let printed = lines.join("\n");
            updated.push_str(&format!("{MARK}{arguments} -->\n```text\n{printed}\n```\n{rest}"));
            continue;
        }
        let seen = see(command.args(words).env_remove("ZK_CONNECT").args(
            (!arguments.ends_with("-h")).then_some(["--connect", &*world.address]).iter().flatten(),
        ))
        .await;
        let lines: Vec<&str> = seen.stdout.lines().map(str::trim_end).collect();
        let printed = lines.join("\n");
        updated.push_str(&format!("{MARK}{arguments} -->\n```text\n{printed}\n```\n{rest}"));
        count += 1;
    }
    assert!(count >= 3, "the page has transcripts");
    let updated = with_transcripts(&updated).await;
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&page, updated).unwrap();
    } else {
        assert!(updated == text, "the page is outdated; UPDATE_PAGES=1 and this test update it");
    }
}

const CONSOLE: &str = "```console\n";

/// Returns the page with what its commands print now.
async fn with_transcripts(page: &str) -> String {
    let world = shared_queues().await;
    let mut parts = page.split(CONSOLE);
    let mut updated = parts.next().unwrap().to_owned();
    let mut verbs = Vec::new();
    for part in parts {
        let (block, rest) = part.split_once("```\n").expect("a block ends");
        updated.push_str(CONSOLE);
        let mut status = 0;
        for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let printed;
            (printed, status) = shell(&world, command, status).await;
            updated.push_str(&format!("$ {command}\n{printed}"));
            verbs.extend(command.strip_prefix("zklock ").and_then(|it| it.split(' ').next()));
        }
        updated.push_str(&format!("```\n{rest}"));
    }
    for verb in ["evict", "hold", "run"] {
        assert!(verbs.contains(&verb), "the page has a transcript of {verb}");
    }
    updated
}

/// Returns what a shell shows of a command, and the exit status.
async fn shell(world: &World, command: &str, status: i32) -> (String, i32) {
    // The status of the command before, which `$?` is.
    let line = format!("exec 2>&1; (exit {status}); {command}");
    let folder = Path::new(env!("CARGO_BIN_EXE_zklock")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &line]).env("PATH", path).env("ZK_CONNECT", &world.address);
    let seen = see(shell.stdin(std::process::Stdio::null())).await;
    (seen.stdout, seen.status.code().expect("no signal ends the shell"))
}
