//! Rules for the two books: the guide, which a user reads to its end, and the internals.

use super::{File, layout::BOOKS};

/// The maximum number of words of the guide, without code. If a page grows, move what only those
/// need who change or audit the project to the internals.
const GUIDE_WORDS_MAX: usize = 20_000;

/// Pages about programs, which those read who use a program and not the crates, and lists of types and
/// of log lines, in which a reader looks something up.
const APART: &[&str] = &["docs/log-lines.md", "docs/programs/", "docs/signatures/"];

/// The maximum length of a line of code in the guide, which `docs/book.css` has room for.
const CODE_COLUMNS_MAX: usize = 100;

/// The maximum number of columns of a table in the guide. A phone shows about ten characters of each.
const TABLE_COLUMNS_MAX: usize = 4;

/// The crate that compiles the code of pages, and the script that extracts their files.
const COMPILED: &str = "crates/zk-recipes/src/lib.rs";
const FILE_MARK: &str = "<!-- file: ";

/// What the table at the beginning of a page of a recipe says, as beginnings of words.
const TABLE: &[&str] = &["limits", "errors", "permissions", "| how it works | "];

/// Returns the pages of a book, with its summary.
pub(crate) fn pages_of<'a>(book: &str, files: &'a [File]) -> impl Iterator<Item = &'a File> {
    let of = |path: &str| BOOKS.iter().find(|book| path.starts_with(**book)).copied();
    files.iter().filter(move |file| file.path.ends_with(".md") && of(&file.path) == Some(book))
}

pub(crate) fn guide_is_short(files: &[File]) -> Vec<String> {
    let guide = BOOKS.last().expect("there is a guide");
    let is_apart = |page: &&File| APART.iter().any(|folder| page.path.starts_with(folder));
    let pages = pages_of(guide, files).filter(|page| !is_apart(page));
    let words: usize = pages.map(|page| words(&page.text)).sum();
    let excess = words.saturating_sub(GUIDE_WORDS_MAX);
    let problem = format!("{guide} has {words} words, which is {excess} too many");
    (excess > 0).then_some(problem).into_iter().collect()
}

/// Counts words outside of code. The address of a link is not read.
fn words(page: &str) -> usize {
    let text: String = page.split("\n```").step_by(2).collect();
    let is_shown = |line: &&str| !line.starts_with("<!-- ");
    let text = text.lines().filter(is_shown).collect::<Vec<_>>().join("\n");
    let links = text.split("](").enumerate();
    let read = links.map(|(number, part)| match part.split_once(')') {
        Some((_, rest)) if number > 0 => rest,
        _ => part,
    });
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    read.map(|part| part.split_whitespace().filter(is_word).count()).sum()
}

/// Checks that code fits on a screen and tables on a phone, and that no heading of a page repeats: the
/// sidebar and the search show headings alone.
pub(crate) fn guide_is_readable(files: &[File]) -> Vec<String> {
    let guide = BOOKS.last().expect("there is a guide");
    let mut problems = Vec::new();
    for page in pages_of(guide, files) {
        let mut headings = Vec::new();
        let mut is_code = false;
        for line in page.text.lines() {
            is_code ^= line.starts_with("```");
            if is_code {
                if line.chars().count() > CODE_COLUMNS_MAX {
                    problems.push(format!("{}: this code is too long: {line}", page.path));
                }
            } else if line.starts_with('|') {
                let columns = line.matches('|').count() - line.matches("\\|").count() - 1;
                if columns > TABLE_COLUMNS_MAX {
                    problems.push(format!("{}: {columns} columns: {line}", page.path));
                }
            } else if line.starts_with('#') {
                headings.push(line.trim_start_matches(['#', ' ']));
            }
        }
        headings.sort_unstable();
        let repeated = headings.windows(2).filter(|pair| pair.first() == pair.last());
        problems.extend(
            repeated.map(|pair| format!("{}: these headings are the same: {pair:?}", page.path)),
        );
    }
    problems
}

/// Checks that the Rust code of each page is compiled, or is a file of a crate that a script tests.
pub(crate) fn code_of_pages_is_compiled(files: &[File]) -> Vec<String> {
    let compiled = files.iter().find(|file| file.path == COMPILED).map_or("", |file| &*file.text);
    let mut problems = Vec::new();
    for page in BOOKS.iter().flat_map(|book| pages_of(book, files)) {
        let is_included = compiled.contains(&format!("../../../{}\"", page.path));
        let mut mark = "";
        let mut is_inside = false;
        for line in page.text.lines() {
            if let Some(language) = line.strip_prefix("```").filter(|_| !is_inside) {
                let is_file = mark.starts_with(FILE_MARK);
                let is_tested = language.starts_with("rust") && !language.contains("ignore");
                if language.starts_with("rust") && !is_file && !(is_included && is_tested) {
                    problems.push(format!("{}: nothing compiles the block {language}", page.path));
                }
            }
            is_inside ^= line.starts_with("```");
            mark = line;
        }
    }
    problems
}

/// Checks that a page of a recipe begins with code, and with a table of what users ask for.
pub(crate) fn recipes_begin_with_use(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in files.iter().filter(|file| file.path.starts_with("docs/recipes/")) {
        if page.path.ends_with("/overview.md") {
            continue;
        }
        let mut blocks = page.text.splitn(3, "```");
        let title = blocks.next().unwrap_or_default();
        if title.lines().filter(|line| !line.is_empty()).count() != 1 || blocks.next().is_none() {
            problems.push(format!("{}: the code does not follow the title", page.path));
        }
        let rest = blocks.next().unwrap_or_default();
        let table: Vec<&str> = rest.lines().take_while(|line| !line.starts_with("## ")).collect();
        let has = |word: &str| table.iter().any(|row| row.starts_with('|') && row.contains(word));
        let missing = TABLE.iter().filter(|word| !has(word));
        problems.extend(missing.map(|word| format!("{}: the table lacks {word:?}", page.path)));
    }
    problems
}
