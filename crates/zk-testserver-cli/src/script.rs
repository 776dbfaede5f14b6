//! A script: one command per line, for the start or for later.
//!
//! Empty lines and lines that begin with `#` are comments. A line `at DURATION COMMAND` is executed
//! that long after the start, and all others at once, in their order.

use std::time::Duration;

use crate::command::Command;
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
/// Returns all problems, each with its file and line.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{file}:{number}");
        match parse_line(line) {
            Ok((at, command)) => lines.push(Line { at, command, place }),
            Err(problem) => problems.push(format!("{place}: {problem}")),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    // Lines of the same time stay in their order.
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

fn parse_line(line: &str) -> Result<(Duration, Command), String> {
    let mut words = line.split_whitespace().peekable();
    let mut at = Duration::ZERO;
    if words.next_if_eq(&"at").is_some() {
        let time = words.next().ok_or("at needs a duration and a command")?;
        at = unit::duration(time).map_err(|problem| format!("at: {problem}"))?;
    }
    let verb = words.next().ok_or("at needs a duration and a command")?;
    // The form of a URL is accepted too.
    let (verb, mut parameter) = match verb.split_once('/') {
        Some((verb, parameter)) => (verb, Some(parameter)),
        None => (verb, None),
    };
    if parameter.is_none() {
        parameter = words.next_if(|word| !word.contains('='));
    }
    let mut options = Vec::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            format!("{word:?} is no option: write NAME=VALUE, without spaces in it")
        })?;
        options.push((name.to_owned(), value.to_owned()));
    }
    Ok((at, Command::parse(verb, parameter, &options)?))
}

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
    fn all_problems_are_reported_with_their_lines() {
        let text = "ping\npong\nat soon ping\nat 1s\ncut after op = create\nat\n";
        let problems = parse("b.txt", text).unwrap_err();
        let problems: Vec<&str> = problems.lines().collect();
        for (problem, expected) in problems.iter().zip([
            "b.txt:2: \"pong\" is no command; the commands are ",
            "b.txt:3: at: \"soon\" is no duration such as ",
            "b.txt:4: at needs a duration and a command",
            "b.txt:5: \"op\" is no option: write NAME=VALUE, without spaces in it",
            "b.txt:6: at needs a duration and a command",
        ]) {
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert_eq!(problems.len(), 5);
    }
}
