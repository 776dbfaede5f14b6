//! A script: one command per line, for the start or for later.
//!
//! Empty lines and lines that begin with `#` are comments. A line `at DURATION COMMAND` is executed
//! that long after the start, and all others at once, in their order.

use std::time::Duration;

use crate::command::{Command, Part};
use crate::unit;

/// A line of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    /// When to execute it: the time since the start.
    pub(crate) at: Duration,
    pub(crate) command: Command,
    /// The file and the number of the line, for messages.
    pub(crate) place: String,
}

/// Parses a script. Returns its lines in the order of their times.
///
/// # Errors
///
/// Returns all problems, each with its file, line and column.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let mut problems = Vec::new();
    // Some editors begin a file with a mark that says that it is UTF-8.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let words = words(line);
        if words.first().is_none_or(|first| first.text.starts_with('#')) {
            continue;
        }
        let place = format!("{file}:{number}");
        match parse_line(&words) {
            Ok((at, command)) => lines.push(Line { at, command, place }),
            Err((column, problem)) => problems.push(format!("{place}:{column}: {problem}")),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    // Lines of the same time stay in their order.
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

/// A word of a line, or a part of one.
#[derive(Clone, Copy)]
struct Word<'a> {
    /// The number of its first character, from 1.
    column: usize,
    text: &'a str,
}

fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut column = 1;
    for part in line.split_inclusive(char::is_whitespace) {
        let text = part.trim_end();
        if !text.is_empty() {
            words.push(Word { column, text });
        }
        column += part.chars().count();
    }
    words
}

/// Parses the words of a line, of which there is one at least. A problem has the column in which it
/// begins.
fn parse_line(words: &[Word<'_>]) -> Result<(Duration, Command), (usize, String)> {
    let mut words = words.iter().copied().peekable();
    let mut at = Duration::ZERO;
    if let Some(word) = words.next_if(|word| word.text == "at") {
        let time = words.next().ok_or_else(|| (word.column, AT.to_owned()))?;
        at = unit::duration(time.text).map_err(|text| (time.column, format!("at: {text}")))?;
        if words.peek().is_none() {
            return Err((word.column, AT.to_owned()));
        }
    }
    let Some(mut verb) = words.next() else { return Err((1, AT.to_owned())) };
    // The form of a URL is accepted too.
    let mut parameter = None;
    if let Some((name, rest)) = verb.text.split_once('/') {
        let column = verb.column + name.chars().count() + 1;
        parameter = Some(Word { column, text: rest });
        verb.text = name;
    }
    if parameter.is_none() {
        parameter = words.next_if(|word| !word.text.contains('='));
    }
    let mut options = Vec::new();
    let mut columns = Vec::new();
    for word in words {
        let (name, value) = word.text.split_once('=').ok_or_else(|| {
            let text = word.text;
            let hint = "write NAME=VALUE, without spaces in it";
            (word.column, format!("{text:?} is not an option: {hint}"))
        })?;
        options.push((name.to_owned(), value.to_owned()));
        columns.push(word.column);
    }
    let command = Command::parse(verb.text, parameter.map(|word| word.text), &options);
    let command = command.map_err(|mistake| {
        let column = match mistake.part {
            Part::Verb => Some(verb.column),
            Part::Parameter => parameter.map(|word| word.column),
            Part::Option(number) => columns.get(number).copied(),
        };
        (column.unwrap_or(verb.column), mistake.text)
    })?;
    Ok((at, command))
}

const AT: &str = "at needs a duration and a command";

#[cfg(test)]
mod tests {
    use zk_testserver::{Action, At, Fault, OpCode};

    use super::*;

    #[test]
    fn lines_are_executed_at_their_times_and_in_their_order() {
        let text = "# Cuts.\n\nat 2s reset\ncut after op=create\n  at 1s closeconnection/0x1f\n\
                    failrequests 3\n";
        let lines = parse("a.txt", text).unwrap();
        let cut = Fault::new(At::op(OpCode::CREATE), Action::CutAfter);
        let found: Vec<_> = lines.iter().map(|line| (line.at.as_secs(), &line.command)).collect();
        let session = Some(jute_codec::SessionId(31));
        assert_eq!(
            found,
            [
                (0, &Command::Inject(cut)),
                (0, &Command::FailRequests(Some(3))),
                (1, &Command::CloseConnection(session)),
                (2, &Command::Reset),
            ]
        );
        assert_eq!(lines[3].place, "a.txt:3");
    }

    #[test]
    fn all_problems_are_reported_with_their_lines_and_columns() {
        let text = "\u{feff}ping\n  pong\nat soon ping\n at 1s\ncut after op = create\nat\r\n\
                    # é\n\u{a0}cut\u{3000}after op=é nth=x\ncut after op=sync nth=x\nrefuse/5\n\
                    reset now\n";
        let problems = parse("b.txt", text).unwrap_err();
        let problems: Vec<&str> = problems.lines().collect();
        let expected = [
            "b.txt:2:3: \"pong\" is not a command; the commands are ",
            "b.txt:3:4: at: \"soon\" is not a duration such as ",
            "b.txt:4:2: at needs a duration and a command",
            "b.txt:5:11: \"op\" is not an option: write NAME=VALUE, without spaces in it",
            "b.txt:6:1: at needs a duration and a command",
            "b.txt:8:12: cut, option op: \"é\" is not a request; the requests are ",
            "b.txt:9:19: cut, option nth: \"x\" is not a number of requests",
            "b.txt:10:8: refuse: \"5\" is not a duration such as ",
            "b.txt:11:7: reset has no parameter, so \"now\" is not allowed",
        ];
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}, not {expected}");
        }
        assert_eq!(problems.len(), expected.len());
    }
}
