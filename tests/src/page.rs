//! Blocks of the documentation that tests generate, so that a page shows what the code does.
//!
//! Such a block follows a line `<!-- generated: NAME -->`. A test that finds another text there
//! fails; with `UPDATE_PAGES=1` in the environment, it writes the text into the page instead.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

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
