//! Blocks of the documentation that tests generate, so that a page shows what the code does.
//!
//! Such a block follows a line `<!-- generated: NAME -->`. A test that finds another text there
//! fails; with `UPDATE_PAGES=1` in the environment, it writes the text into the page instead.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use jute_codec::OpCode;

/// Held while a page is read and written, since several tests update one page.
static PAGES: Mutex<()> = Mutex::new(());

/// Checks that the block of a page has this text, or updates the block. `page` is a path below
/// `docs`.
///
/// # Panics
///
/// If the page has no such block, or if the block has another text and must not be updated.
pub fn check(page: &str, name: &str, text: &str) {
    let _pages = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let old = std::fs::read_to_string(&path).expect("the page exists");
    let mark = format!("<!-- generated: {name} -->\n\n```text\n");
    let (before, rest) = old.split_once(&mark).expect("the page has the block");
    let (shown, after) = rest.split_once("```").expect("the block ends");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        let new = format!("{before}{mark}{text}```{after}");
        std::fs::write(path, new).expect("the page can be written");
    } else {
        assert_eq!(shown, text, "{page} is outdated; UPDATE_PAGES=1 and this test update it");
    }
}

/// Checks that a page says what requests cost that were sent together: the number of round trips, and
/// of writes. `page` is a path below `docs`, `row` is the first cell of the row. What the cell has
/// after a semicolon is not checked.
///
/// # Panics
///
/// If the page says something else.
pub fn check_round_trips(page: &str, row: &str, round_trips: usize, sent: &[OpCode]) {
    let writes = sent.iter().filter(|op| is_write(**op)).count();
    let text = format!("{}, {}", count(round_trips, "round trip"), count(writes, "write"));
    assert_eq!(cost(page, row), text, "{page}: {row}");
}

/// Checks that a page says which requests were sent, the last `behind` of them in the background, like
/// [`check_round_trips`].
///
/// # Panics
///
/// If the page says something else.
pub fn check_requests(page: &str, row: &str, sent: &[OpCode], behind: usize) {
    let (waited_for, later) = sent.split_at(sent.len() - behind);
    let writes = waited_for.iter().filter(|op| is_write(**op)).count();
    let reads = waited_for.len() - writes;
    let mut parts = Vec::new();
    parts.extend((reads > 0).then(|| count(reads, "read")));
    parts.extend((writes > 0).then(|| count(writes, "write")));
    parts.extend((behind > 0).then(|| format!("and {} in the background", later.len())));
    assert_eq!(cost(page, row), parts.join(", "), "{page}: {row}");
}

/// Checks that a page has a text in which each `{}` is the next of these numbers. `page` is a path below
/// `docs`.
///
/// # Panics
///
/// If the page has another text.
pub fn check_text(page: &str, text: &str, numbers: &[usize]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let shown = std::fs::read_to_string(&path).expect("the page exists");
    assert_eq!(text.matches("{}").count(), numbers.len(), "{text}");
    let with = |written: fn(usize) -> String| {
        numbers.iter().fold(text.to_owned(), |text, it| text.replacen("{}", &written(*it), 1))
    };
    let (plain, grouped) = (with(|number| number.to_string()), with(grouped));
    assert!(shown.contains(&plain) || shown.contains(&grouped), "{page} does not say: {grouped}");
}

/// Returns a number with a comma between each three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

fn is_write(op: OpCode) -> bool {
    let writes = [OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::DELETE, OpCode::MULTI];
    writes.contains(&op) || op == OpCode::SET_DATA
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Returns the second cell of a row, up to a semicolon.
fn cost(page: &str, row: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).expect("the page exists");
    let begin = format!("| {row} | ");
    let rest = text.lines().find_map(|line| line.strip_prefix(&begin));
    let cell = rest.unwrap_or_else(|| panic!("{page} has no row {row:?}"));
    cell.split([';', '|']).next().unwrap_or_default().trim_end().to_owned()
}

/// Checks that a generated file has this text, or updates it. `file` is a path below `docs`.
///
/// # Panics
///
/// If the file has another text and must not be updated.
pub fn check_file(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(path, text).expect("the file can be written");
    } else {
        let shown = std::fs::read_to_string(&path).expect("the file exists");
        assert_eq!(shown, text, "{file} is outdated; UPDATE_PAGES=1 and this test update it");
    }
}
