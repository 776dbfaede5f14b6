//! The numbers of a page.

use std::ops::Range;

/// Names before a version that is not ours.
const OTHERS: &[&str] = &["Apache", "Curator", "TLS", "ZooKeeper", "go-zookeeper", "kazoo"];

/// Words after a number that belong to it.
const UNITS: &[&str] =
    &["%", "KiB", "MB", "MiB", "kB", "min", "minutes", "ms", "s", "seconds", "µs"];

/// A number that a page has.
pub(super) struct Number {
    /// Where its digits are in the text of the page.
    pub(super) at: Range<usize>,
    /// Its digits, with what groups and divides them.
    pub(super) digits: String,
    /// The same with its unit, if it has one.
    pub(super) text: String,
}

/// Returns the numbers of a page that readers can take for facts. These are all but those of code,
/// of addresses, of comments and of numbered lists, and the versions of other programs.
pub(super) fn numbers(page: &str) -> Vec<Number> {
    let prose = prose(page);
    let mut numbers = Vec::new();
    let mut end = 0;
    for (start, first) in prose.char_indices() {
        let (before, rest) = prose.split_at(start);
        if start < end || !first.is_ascii_digit() {
            continue;
        }
        let length = length(rest);
        end = start + length;
        let (digits, after) = rest.split_at(length);
        if is_of_a_name(before) || is_version(before, digits) {
            continue;
        }
        let unit = after.strip_prefix(' ').unwrap_or_default();
        let unit = UNITS.iter().find(|it| {
            let next = unit.strip_prefix(**it).map(|rest| rest.chars().next());
            next.is_some_and(|next| next.is_none_or(|next| !next.is_alphanumeric()))
        });
        let text = unit.map_or_else(|| digits.to_owned(), |unit| format!("{digits} {unit}"));
        numbers.push(Number { at: start..end, digits: digits.to_owned(), text });
    }
    numbers
}

/// Returns the length of the number at the beginning of a text. Exponents and digits between commas
/// and points belong to it.
pub(super) fn length(text: &str) -> usize {
    let mut end = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let is_divided = matches!(letter, ',' | '.')
            && letters.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        if !letter.is_numeric() && !is_divided {
            break;
        }
        end = at + letter.len_utf8();
    }
    end
}

/// Returns whether a number behind this text is a part of a name, such as MD5 or X-1.
fn is_of_a_name(before: &str) -> bool {
    let mut letters = before.chars().rev();
    match letters.next() {
        Some('-') => letters.next().is_some_and(char::is_alphanumeric),
        Some(last) => last.is_alphanumeric() || matches!(last, '_' | '.'),
        None => false,
    }
}

fn is_version(before: &str, digits: &str) -> bool {
    let name =
        before.strip_suffix(' ').and_then(|before| before.split([' ', '(', '\n']).next_back());
    digits.contains('.') && name.is_some_and(|name| OTHERS.contains(&name))
}

/// Returns the page with everything blank in which numbers do not count, but as long as it was.
fn prose(page: &str) -> String {
    let mut prose = String::new();
    let mut is_block = false;
    for line in page.split_inclusive('\n') {
        let is_fence = line.starts_with("```");
        if is_block || is_fence || line.starts_with("<!--") {
            prose.push_str(&blank(line));
        } else {
            let marker = line.find(". ").filter(|end| {
                line.get(..*end).is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
            });
            let (marker, rest) = line.split_at(marker.unwrap_or_default());
            prose.push_str(&blank(marker));
            prose.push_str(&without(&without(rest, "`", "`"), "](", ")"));
        }
        is_block ^= is_fence;
    }
    prose
}

/// Returns a line with what is between two marks blank.
fn without(line: &str, open: &str, close: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((inside, after)) = after.split_once(close) else { break };
        kept.extend([before, open, &blank(inside), close]);
        rest = after;
    }
    kept + rest
}

fn blank(text: &str) -> String {
    text.chars()
        .map(|letter| if letter == '\n' { "\n".into() } else { " ".repeat(letter.len_utf8()) })
        .collect()
}

/// Returns where a page has a text, if it has it once. An ellipsis between spaces stands for
/// anything.
pub(super) fn place(page: &str, text: &str) -> Option<Range<usize>> {
    let (first, last) = text.split_once(" … ").unwrap_or((text, ""));
    let mut places = page.match_indices(first).map(|(at, _)| at..at + first.len());
    let place = places.next().filter(|_| places.next().is_none())?;
    let end = place.end + page.get(place.end..)?.find(last)? + last.len();
    Some(place.start..end)
}
