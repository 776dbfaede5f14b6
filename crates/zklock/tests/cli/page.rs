//! The page of the guide: each block after a mark `<!-- generated: zklock … -->` is what the program
//! prints, or takes.

use std::path::Path;

use crate::queues::shared_queues;
use crate::world::see;

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
        let mut words = arguments.split(' ');
        let mut command = world.zklock(words.next().unwrap());
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
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&page, updated).unwrap();
    } else {
        assert!(updated == text, "the page is outdated; UPDATE_PAGES=1 and this test update it");
    }
}
