//! Checks that each number of the guide and of the front page is one that something else checks, or
//! has a reason. See `figures.txt`.
//!
//! A test that measures a number compares it with the page itself: the functions of
//! `zk_tests::page` do that. `figures.txt` has the other numbers.

mod calls;
mod pages;
mod tests;
mod values;

use std::ops::Range;

use super::{File, layout::BOOKS, options, text::has_word};
use pages::Number;
pub(crate) use values::spellings_of;

const FIGURES: &str = include_str!("../figures.txt");
const FRONT_PAGE: &str = "README.md";

/// Where numbers come from, with the places of the pages that have them.
struct Entry<'a> {
    source: Source<'a>,
    places: Vec<Place<'a>>,
}

enum Source<'a> {
    /// What follows a text in a file.
    Value { path: &'a str, before: &'a str },
    /// A function that has the numbers, such as a test.
    Test { path: &'a str, function: &'a str },
    /// A function that compares the numbers with the page.
    Comparison { path: &'a str, function: &'a str },
    /// Why nothing checks the numbers.
    Reason,
}

/// A text that a page has once, with at least one number.
struct Place<'a> {
    page: &'a str,
    text: &'a str,
}

/// A page whose numbers count, and what is known about them.
struct Page<'a> {
    name: &'a str,
    text: &'a str,
    numbers: Vec<Number>,
    /// What checks each number.
    checked: Vec<Option<String>>,
}

/// Describes each number that differs from its source, that has none, or that is no longer there.
pub(crate) fn outdated(files: &[File]) -> Vec<String> {
    outdated_of(FIGURES, files)
}

/// Returns the numbers of a row, with their units.
pub(crate) fn numbers_of(row: &str) -> Vec<String> {
    pages::numbers(row).into_iter().map(|number| number.text).collect()
}

fn outdated_of(figures: &str, files: &[File]) -> Vec<String> {
    let (entries, calls) = match (entries(figures), calls::calls(files)) {
        (Ok(entries), Ok(calls)) => (entries, calls),
        (Err(problem), _) | (_, Err(problem)) => return vec![problem],
    };
    let mut pages: Vec<Page<'_>> = files.iter().filter_map(page).collect();
    let mut problems = Vec::new();
    for call in calls {
        let Some(page) = pages.iter_mut().find(|page| page.name == call.page) else { continue };
        for part in call.parts(page.text) {
            page.check(&part, call.test);
        }
    }
    for page in &mut pages {
        if let Some(table) = options::table(page.text) {
            page.check(&table, "options.rs");
        }
    }
    for entry in &entries {
        for place in &entry.places {
            let found = match pages.iter_mut().find(|page| page.name == place.page) {
                Some(page) => check_place(page, place.text, &entry.source, files),
                None => Err("there is no such page".to_owned()),
            };
            let Place { page, text } = place;
            problems.extend(found.err().map(|problem| format!("{page}: {text:?}: {problem}")));
        }
    }
    for page in &pages {
        for (number, checked) in page.numbers.iter().zip(&page.checked) {
            if checked.is_none() {
                let line = line_around(page.text, number.at.start);
                let Page { name, .. } = page;
                problems.push(format!("{name}: nothing checks {} of: {line}", number.text));
            }
        }
    }
    problems
}

fn page(file: &File) -> Option<Page<'_>> {
    let guide = BOOKS.last().expect("there is a guide");
    let is_other = |book: &&str| book != guide && file.path.starts_with(*book);
    let name = match file.path.strip_prefix(guide) {
        Some(_) if BOOKS.iter().any(is_other) || !file.path.ends_with(".md") => return None,
        Some(name) => name,
        None if file.path == FRONT_PAGE => FRONT_PAGE,
        None => return None,
    };
    let numbers = pages::numbers(&file.text);
    let checked = numbers.iter().map(|_| None).collect();
    Some(Page { name, text: &file.text, numbers, checked })
}

impl Page<'_> {
    /// Marks the numbers in a part of the page, and returns them.
    fn check(&mut self, part: &Range<usize>, by: &str) -> Vec<&Number> {
        let numbers = self.numbers.iter().zip(&mut self.checked);
        let inside = numbers
            .filter(|(number, _)| part.start <= number.at.start && number.at.end <= part.end);
        inside
            .map(|(number, checked)| {
                *checked = Some(by.to_owned());
                number
            })
            .collect()
    }
}

/// Compares the numbers of a place with their source.
fn check_place(
    page: &mut Page<'_>,
    text: &str,
    source: &Source<'_>,
    files: &[File],
) -> Result<(), String> {
    let place = pages::place(page.text, text).ok_or("the page does not have this once")?;
    let inside = |number: &Number| place.start <= number.at.start && number.at.end <= place.end;
    let twice =
        page.numbers.iter().zip(&page.checked).find(|(number, by)| inside(number) && by.is_some());
    if let Some((number, Some(by))) = twice {
        return Err(format!("{} is checked by {by} too", number.text));
    }
    let name = page.name;
    let numbers = page.check(&place, text);
    if numbers.is_empty() {
        return Err("there is no number".to_owned());
    }
    let function = |path: &str, function: &str| {
        let file = files.iter().find(|file| file.path == path);
        let file = file.ok_or_else(|| format!("there is no {path}"))?;
        let text = function_of(&file.text, function);
        Ok::<_, String>((file, text.ok_or_else(|| format!("{path} has no {function}"))?))
    };
    match *source {
        Source::Value { path, before } => {
            let [number] = numbers[..] else {
                return Err("only one number can be the value".to_owned());
            };
            let spellings = values::spellings(files, path, before);
            // Tables and scripts may have the unit elsewhere.
            let of_text = (!path.ends_with(".rs")).then_some(&number.digits);
            if !spellings.contains(&number.text)
                && !of_text.is_some_and(|it| spellings.contains(it))
            {
                let spellings = spellings.join(" or ");
                return Err(format!("{path} has {spellings:?} after {before:?}"));
            }
        }
        Source::Test { path, function: of } => {
            let (_, body) = function(path, of)?;
            let has = |number: &&Number| {
                let digits = number.digits.replace(',', "");
                let has = |digits: &str| has_word(body, digits);
                has(&digits) || has(&number.digits) || has(&number.digits.replace(',', "_"))
            };
            if let Some(missing) = numbers.iter().find(|number| !has(number)) {
                return Err(format!("{of} in {path} does not have {}", missing.digits));
            }
        }
        Source::Comparison { path, function: of } => {
            let (file, _) = function(path, of)?;
            if !file.text.contains(name) {
                return Err(format!("{path} does not read the page"));
            }
        }
        Source::Reason => {}
    }
    Ok(())
}

/// Returns a function of Rust or of a shell, which ends at a brace that has the indentation of its
/// beginning.
fn function_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begins = [format!("fn {name}("), format!("\n{name}() {{")];
    let start = begins.iter().find_map(|begin| text.find(begin))?;
    let line = text.get(..start)?.rfind('\n').map_or(0, |end| end + 1);
    let indent = text.get(line..)?.bytes().take_while(|byte| *byte == b' ').count();
    let end = format!("\n{}}}\n", " ".repeat(indent));
    let length = text.get(start..)?.find(&end)?;
    text.get(start..start + length)
}

fn line_around(text: &str, at: usize) -> &str {
    let (before, after) = text.split_at(at);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let end = after.find('\n').map_or(text.len(), |length| at + length);
    text.get(start..end).unwrap_or_default()
}

fn entries(figures: &str) -> Result<Vec<Entry<'_>>, String> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let lines = figures.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let wrong = || format!("figures.txt: {line}");
        if let Some(place) = line.strip_prefix("  ") {
            let (page, text) = place.split_once(": ").ok_or_else(wrong)?;
            entries.last_mut().ok_or_else(wrong)?.places.push(Place { page, text });
            continue;
        }
        let (kind, rest) = line.split_once(' ').ok_or_else(wrong)?;
        let source = match (kind, rest.split_once(" :: ")) {
            ("value", Some((path, before))) => Source::Value { path, before },
            ("test", Some((path, function))) => Source::Test { path, function },
            ("comparison", Some((path, function))) => Source::Comparison { path, function },
            ("reason", None) => Source::Reason,
            _ => return Err(wrong()),
        };
        entries.push(Entry { source, places: Vec::new() });
    }
    match entries.iter().any(|entry| entry.places.is_empty()) {
        true => Err("figures.txt: a source has no place".to_owned()),
        false => Ok(entries),
    }
}
