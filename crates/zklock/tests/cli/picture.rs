//! The pictures of the README: what the program prints, drawn as a terminal. They are readable on
//! light and on dark pages, since a terminal has a background of its own.

use std::fmt::Write as _;
use std::path::Path;

use crate::queues::shared_queues;
use crate::terminal::Terminal;
use crate::world::see;

/// The size of a letter. All letters have the same width, which the pictures state, so that columns
/// stay together with each font.
const LETTER: usize = 14;
const LETTER_WIDTH: f64 = 8.4;
const LINE: usize = 19;
const SIDE: usize = 14;

/// The sequences of the terminal, and what they look like.
const STYLES: [(&str, &str); 4] =
    [("\x1b[1;31m", "bad"), ("\x1b[32m", "good"), ("\x1b[1m", "heading"), ("\x1b[7m", "selected")];

fn draw(title: &str, command: &str, rows: &[String]) -> String {
    let (columns, lines) = (80.0, rows.len() + 1);
    let width = columns * LETTER_WIDTH + 2.0 * 14.0;
    let height = lines * LINE + 2 * SIDE;
    let title = escaped(title);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: {LETTER}px ui-monospace, Menlo, Consolas, monospace; fill: #e6edf3; white-space: pre }}
.screen {{ fill: #0d1117; stroke: #3d444d }}
.bar {{ fill: #e6edf3 }}
.bad {{ fill: #ff7b72; font-weight: bold }}
.command {{ fill: #9198a1 }}
.good {{ fill: #3fb950 }}
.heading {{ font-weight: bold }}
.selected {{ fill: #0d1117 }}
</style>
<rect class="screen" x=".5" y=".5" width="{}" height="{}" rx="8"/>
"##,
        width - 1.0,
        height - 1
    );
    row(&mut svg, 0, "command", &format!("$ {command}"));
    for (number, text) in (1..).zip(rows) {
        let styled = STYLES.iter().find_map(|(it, style)| Some((*style, text.strip_prefix(*it)?)));
        let (style, text) = styled.unwrap_or(("plain", text));
        row(&mut svg, number, style, text.trim_end_matches("\x1b[m"));
    }
    svg.push_str("</svg>\n");
    svg
}

fn row(svg: &mut String, number: usize, style: &str, text: &str) {
    assert!(!text.contains('\x1b'), "{text:?} has a sequence that is not drawn");
    let letters = u32::try_from(text.chars().count()).unwrap();
    if letters == 0 {
        return;
    }
    let (top, width) = (SIDE + number * LINE, f64::from(letters) * LETTER_WIDTH);
    if style == "selected" {
        let _ = writeln!(
            svg,
            r#"<rect class="bar" x="{SIDE}" y="{top}" width="{width:.1}" height="{LINE}"/>"#
        );
    }
    let _ = writeln!(
        svg,
        r#"<text class="{style}" x="{SIDE}" y="{}" textLength="{width:.1}" xml:space="preserve">{}</text>"#,
        top + LETTER,
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Compares a picture with its file, or updates the file.
fn check(name: &str, picture: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs").join(name);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, picture).unwrap();
    } else {
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == picture, "{name} is outdated; UPDATE_PAGES=1 and this test update it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_status_is_what_the_program_prints() {
    let world = shared_queues().await;
    let paths = ["/locks/billing", "/locks/uploads"];
    let seen = see(world.zklock("status").args(paths)).await;
    let rows: Vec<String> = seen.stdout.lines().map(str::to_owned).collect();
    let title = "The queues of a lock and of a semaphore, as zklock status prints them";
    check("status.svg", &draw(title, "zklock status /locks/billing /locks/uploads", &rows));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_top_is_what_a_terminal_shows() {
    let world = shared_queues().await;
    let mut terminal = Terminal::start(&world, "xterm", "");
    let rows = terminal.until("3 locks").await;
    terminal.press("q");
    assert_eq!(terminal.ended().await, 0);
    let title = "The locks below a root on a terminal, as zklock top shows them";
    check("top.svg", &draw(title, "zklock top /locks", &rows));
}
