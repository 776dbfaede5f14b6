//! The page with all lines that the client and the recipes log at INFO and above has each of them, and
//! no other.

use super::{File, listings::text};

const PAGE: &str = "docs/log-lines.md";
const SOURCES: [&str; 2] = ["crates/zk-session/src/", "crates/zk-recipes/src/"];
const LEVELS: [&str; 3] = ["info", "warn", "error"];
/// What stands for the rest of a message.
const REST: &str = "…";

/// Returns what the page lacks, and what nobody logs.
///
/// # Panics
///
/// If the sources log fewer lines than they did, because their form has changed.
pub(crate) fn unlisted(files: &[File]) -> Vec<String> {
    let logged: Vec<(&str, String)> = files
        .iter()
        .filter(|file| SOURCES.iter().any(|folder| file.path.starts_with(folder)))
        .flat_map(|file| logged(&file.text))
        .collect();
    assert!(logged.len() >= 35, "saw only {} lines", logged.len());
    let listed = listed(text(files, PAGE));
    let is_listed = |line: &&(&str, String)| !listed.iter().any(|row| fits(row, line));
    let missing = logged.iter().filter(is_listed);
    let missing = missing.map(|(level, line)| format!("{PAGE} lacks {level} `{line}`"));
    let is_logged = |row: &&(String, &str)| !logged.iter().any(|line| fits(row, line));
    let surplus = listed.iter().filter(is_logged);
    let surplus = surplus.map(|(level, line)| format!("nobody logs {level} `{line}` of {PAGE}"));
    missing.chain(surplus).collect()
}

/// Returns the levels and the messages of the rows.
fn listed(page: &str) -> Vec<(String, &str)> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| {
        let (level, rest) = row.split_once(" `")?;
        Some((level.to_lowercase(), rest.split_once('`')?.0))
    })
    .collect()
}

/// Returns whether a row of the page is about a line, of which it may leave out the end. What a line
/// fills in is its end, too.
fn fits((level, row): &(String, &str), (logged, line): &(&str, String)) -> bool {
    let fixed = line.split('{').next().unwrap_or_default();
    let begin = row.trim_end_matches(REST).trim_end();
    let is_whole = row.ends_with(REST) || fixed.len() < line.len() || fixed == *row;
    level == logged && is_whole && (fixed.starts_with(begin) || begin.starts_with(fixed))
}

/// Returns the levels and the messages of the lines that a file logs outside of its tests.
fn logged(source: &str) -> Vec<(&'static str, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut lines = Vec::new();
    for level in LEVELS {
        for (at, mark) in source.match_indices(&format!("{level}!(")) {
            if source[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let Some(message) = literals(&source[at + mark.len()..]).pop() else { continue };
            let name = message.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let messages = match name {
                Some(name) => values(source, name),
                None => vec![message],
            };
            lines.extend(messages.into_iter().map(|message| (level, message)));
        }
    }
    lines
}

/// Returns the values that a file gives to a variable or a constant of this name.
fn values(source: &str, name: &str) -> Vec<String> {
    let begins = [format!("let {name} ="), format!("const {name}: &str =")];
    let places = begins.iter().flat_map(|begin| source.match_indices(begin.as_str()));
    places.filter_map(|(at, begin)| literals(&source[at + begin.len()..]).pop()).collect()
}

/// Returns the literals of text up to the end of the statement or of the arguments.
fn literals(source: &str) -> Vec<String> {
    let (mut literals, mut depth, mut chars) = (Vec::new(), 0, source.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut literal = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    if c != '\\' {
                        literal.push(c);
                    } else if let Some(escaped) = chars.next().filter(|c| *c != '\n') {
                        literal.push(escaped);
                    } else {
                        // The spaces at the beginning of the next line do not belong to it.
                        let rest = chars.as_str().trim_start();
                        chars = rest.chars();
                    }
                }
                literals.push(literal);
            }
            '(' | '{' => depth += 1,
            ')' | '}' if depth == 0 => break,
            ')' | '}' => depth -= 1,
            ';' if depth == 0 => break,
            _ => {}
        }
    }
    literals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_with_its_level_and_its_message() {
        let source = "warn!(%path, \"a {reason}\");\nlet message = \"b \\\n    c\";\n\
                      info!(x = f(\"d\"), \"{message}\"); debug!(\"e\");";
        let expected = [("info", "b c".to_owned()), ("warn", "a {reason}".to_owned())];
        assert_eq!(logged(source), expected);
    }

    #[test]
    fn a_row_fits_the_line_that_it_names() {
        let row = |row| ("warn".to_owned(), row);
        let line = |line: &str| ("warn", line.to_owned());
        for (listed, logged) in
            [("a b", "a b"), ("a …", "a b"), ("a: …", "a: {b}"), ("a b", "a {x}")]
        {
            assert!(fits(&row(listed), &line(logged)), "{listed}");
        }
        assert!(!fits(&row("a"), &line("a b")), "it is not the whole line");
        assert!(!fits(&row("c …"), &line("a b")));
        assert!(!fits(&row("a"), &("info", "a".to_owned())));
    }
}
