//! The page of the guide: its `console` blocks are what the program prints, and its tables name all
//! options and all commands.
//!
//! The blocks are one story. The first one starts the program, and those with `curl` ask this one.
//! The page has the usual ports where the test has free ones. A mark `<!-- file: NAME -->` before a
//! block makes it a file, and a mark `<!-- create: PATH -->` lets a client create a znode.

use std::fs;
use std::path::{Path, PathBuf};

use zk_session::{Client, CreateMode};

use crate::program::{Failed, Program};
use crate::tempfile;

const CONSOLE: &str = "```console\n";
/// What the page has in place of the addresses.
const CLIENTS: &str = "127.0.0.1:2181";
const COMMANDS: &str = "127.0.0.1:8080";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs/zk-testserver.md")
}

/// What the commands of the page have in common.
struct Story {
    folder: PathBuf,
    program: Option<Program>,
    status: i32,
}

impl Story {
    fn program(&self) -> &Program {
        self.program.as_ref().expect("the first command starts it")
    }

    /// Does what the text before a block asks for.
    async fn prepare(&self, text: &str) {
        let mut marks = text.split("<!-- ");
        marks.next();
        for mark in marks {
            let (mark, rest) = mark.split_once(" -->").expect("a mark ends");
            let block = rest.split("```").nth(1).and_then(|block| block.split_once('\n'));
            match mark.split_once(": ").expect("a mark has a value") {
                ("file", name) => {
                    let (_, content) = block.expect("a block follows the mark of a file");
                    fs::write(self.folder.join(name), content).expect("it is our folder");
                }
                ("create", path) => {
                    let client = Client::connect(&self.program().connect_string).await;
                    let client = client.expect("it serves");
                    client.create(path, "", CreateMode::Persistent).await.expect("there is none");
                    client.close().await;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns what a shell shows of a command.
    fn show(&mut self, command: &str) -> String {
        if command == "echo $?" {
            return format!("{}\n", self.status);
        }
        let (verb, rest) = command.split_once(' ').expect("a command has arguments");
        let words: Vec<&str> = rest.split(' ').map(|word| word.trim_matches('\'')).collect();
        match (verb, &words[..]) {
            ("curl", [url]) => {
                let path = url.strip_prefix("http://").and_then(|rest| rest.strip_prefix(COMMANDS));
                steady(&self.program().get(path.expect("it is an address of the page")).1)
            }
            ("zk-testserver", ["--port", "2181", "--http-port", "8080"]) => {
                let program = self.program.insert(Program::start(&[]));
                let lines = format!("{}\nhttp {}\n", program.connect_string, program.http);
                lines.replace(&program.connect_string, CLIENTS).replace(&program.http, COMMANDS)
            }
            ("zk-testserver", arguments) => {
                let Failed { exit_code, errors } = Program::fail_in(&self.folder, arguments);
                self.status = exit_code.expect("no signal ends it");
                errors
            }
            _ => panic!("{command:?}"),
        }
    }
}

/// Replaces the times and the ids of sessions, which differ from run to run.
fn steady(body: &str) -> String {
    let steady = replace(body, "\"at_ms\":", "512.7");
    replace(&steady, "\"0x1", "00000000010000")
}

/// Replaces the hexadecimal or decimal number that follows `prefix`, wherever it does.
fn replace(body: &str, prefix: &str, number: &str) -> String {
    let is_digit = |c: char| c.is_ascii_hexdigit() || c == '.';
    let mut parts = body.split(prefix);
    let mut steady = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        steady.push_str(prefix);
        steady.push_str(number);
        steady.push_str(part.trim_start_matches(is_digit));
    }
    steady
}

#[tokio::test]
async fn the_page_shows_what_the_program_prints() {
    let text = fs::read_to_string(page()).unwrap();
    let mut story = Story { folder: tempfile("page"), program: None, status: 0 };
    let mut parts = text.split(CONSOLE);
    let mut updated = parts.next().unwrap().to_owned();
    story.prepare(&updated).await;
    let mut commands = Vec::new();
    for part in parts {
        let (block, rest) = part.split_once("```\n").expect("a block ends");
        updated.push_str(CONSOLE);
        for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            updated.push_str(&format!("$ {command}\n{}", story.show(command)));
            commands.push(command);
        }
        updated.push_str(&format!("```\n{rest}"));
        // The tests that readers copy have files too, which .ci/clients runs.
        story.prepare(rest.split("\n## A test with").next().unwrap()).await;
    }
    assert!(commands.len() >= 7, "{commands:?}");
    fs::remove_dir_all(&story.folder).unwrap();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(page(), updated).unwrap();
    } else {
        assert!(updated == text, "the page is outdated; UPDATE_PAGES=1 and this test update it");
    }
}

#[test]
fn the_tables_of_the_page_name_all_options_and_all_commands() {
    let text = fs::read_to_string(page()).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
    let help = Program::output(&["--help"]);
    let mut option = None;
    let mut options = 0;
    for line in help.lines().map(str::trim) {
        let named = line.split([' ', ',']).find(|word| word.starts_with("--"));
        if line.starts_with('-')
            && let Some(name) = named
            && !["--help", "--version"].contains(&name)
        {
            let row = rows.iter().find(|row| row.contains(&format!("`{name}")));
            option = Some((name, *row.unwrap_or_else(|| panic!("no row has {name}"))));
            options += 1;
        }
        let default = line.split_once("[default: ").and_then(|(_, rest)| rest.strip_suffix(']'));
        if let (Some((name, row)), Some(default)) = (option, default) {
            assert!(row.contains(default), "{name}: the default {default} is not in {row}");
        }
    }
    assert!(options >= 18, "{help}");
    let commands = help.split("Commands, ").nth(1).expect("there is a list of commands");
    let verbs: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_lowercase()))
        .collect();
    assert_eq!(verbs.len(), 18, "{verbs:?}");
    for verb in verbs {
        let row = rows.iter().find(|row| row.contains(&format!("`/command/{verb}")));
        assert!(row.is_some(), "no row has {verb}");
    }
}
