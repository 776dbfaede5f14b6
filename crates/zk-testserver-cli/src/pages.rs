//! Answers requests over HTTP: commands, and what tests observe.

use std::fmt::Write as _;

use jute_codec::{ErrorCode, SessionId};
use serde_json::{Value, json};
use tokio::task::yield_now;
use zk_testserver::{Action, At, CommitRecord, Fault, Outcome, RequestRecord};

use crate::command::{self, Command};
use crate::control::Control;
use crate::unit;

/// How many values of a list become text before the server has another turn: its only thread also
/// serves the clients, whose sessions would expire behind a hundred thousand records.
const PIECE: usize = 500;

/// An answer over HTTP.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The media type of the body.
    pub(crate) kind: &'static str,
    pub(crate) body: String,
    /// Whether the program ends when the answer has been sent.
    pub(crate) is_last: bool,
}

impl Answer {
    fn text(status: u16, mut body: String) -> Self {
        body.push('\n');
        Self { status, kind: "text/plain; charset=utf-8", body, is_last: false }
    }

    /// Answers with a list. Each value becomes text at once, since as values they would need many
    /// times the memory of a hundred thousand records.
    async fn list<T, V: Into<Value>>(values: &[T], last: usize, convert: fn(&T) -> V) -> Self {
        let mut body = "[".to_owned();
        let (_, values) = values.split_at(values.len().saturating_sub(last));
        for piece in values.chunks(PIECE) {
            for value in piece {
                if body.len() > 1 {
                    body.push(',');
                }
                // Writing to a string cannot fail.
                let _ = write!(body, "{}", convert(value).into());
            }
            yield_now().await;
        }
        body.push(']');
        Self { kind: "application/json", ..Self::text(200, body) }
    }
}

/// Answers a request of someone who may not send any.
pub(crate) fn refuse(problem: String) -> Answer {
    Answer::text(403, problem)
}

/// Answers a request. Every mistake is answered with a sentence that says what is allowed.
pub(crate) async fn answer(
    control: &Control,
    method: &str,
    path: &str,
    query: Option<&str>,
) -> Answer {
    if let Some(words) = path.strip_prefix("/command/") {
        if !matches!(method, "GET" | "POST" | "PUT") {
            return Answer::text(405, format!("a command needs GET, POST or PUT, not {method}"));
        }
        let command = match parse(words, query) {
            Ok(command) => command,
            Err(problem) => return Answer::text(400, problem),
        };
        return match control.execute(&command) {
            // ZooKeeper's controller repeats the command.
            Ok(()) => Answer {
                is_last: command == Command::Shutdown,
                ..Answer::text(200, format!("command/{words}"))
            },
            Err(problem) => Answer::text(400, problem),
        };
    }
    if !matches!(method, "GET" | "HEAD") {
        return Answer::text(405, format!("a page needs GET, not {method}"));
    }
    let page = page(control, path, query).await;
    page.unwrap_or_else(|(status, problem)| Answer::text(status, problem))
}

/// Returns a page, or the status and the text of an error.
async fn page(control: &Control, path: &str, query: Option<&str>) -> Result<Answer, (u16, String)> {
    let server = &control.server;
    let options = || parse_options(query).map_err(|problem| (400, problem));
    let none = || match options()?.first() {
        Some((name, _)) => Err((400, format!("{path} has no options, so {name:?} is not allowed"))),
        None => Ok(()),
    };
    let last = || last(path, &options()?).map_err(|problem| (400, problem));
    Ok(match path {
        "/" => Answer::text(200, format!("{PAGES}\n\nCommands:\n{}", command::list())),
        "/commits" => Answer::list(&server.commits(), last()?, commit).await,
        "/requests" => Answer::list(&server.requests(), last()?, request).await,
        "/faults" => {
            none()?;
            Answer::list(&server.pending_faults(), usize::MAX, describe).await
        }
        "/sessions" => {
            none()?;
            Answer::list(&control.sessions(), usize::MAX, SessionId::to_string).await
        }
        _ => return Err((404, format!("there is no page {path}; {PAGES}"))),
    })
}

/// Parses the option of a page that says how many records it shows.
fn last(path: &str, options: &[(String, String)]) -> Result<usize, String> {
    match options {
        [] => Ok(usize::MAX),
        [(name, value)] if name == "last" => {
            value.parse().map_err(|_| format!("{path}, option last: {value:?} is not a number"))
        }
        [(name, _)] if name != "last" => {
            Err(format!("{path} has no option {name:?}; its option is last"))
        }
        _ => Err(format!("{path} has one option: last")),
    }
}

const PAGES: &str = "the pages are /requests, /commits, /sessions, /faults and \
                     /command/VERB/PARAMETER?OPTION=VALUE; /requests and /commits have the option \
                     last=NUMBER";

fn parse(words: &str, query: Option<&str>) -> Result<Command, String> {
    let (verb, parameter) = match words.split_once('/') {
        Some((verb, parameter)) => (verb, Some(decoded(parameter)?)),
        None => (words, None),
    };
    let options = parse_options(query)?;
    Command::parse(&decoded(verb)?, parameter.as_deref(), &options).map_err(|mistake| mistake.text)
}

fn parse_options(query: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let mut options = Vec::new();
    for option in query.unwrap_or_default().split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option
            .split_once('=')
            .ok_or_else(|| format!("{option:?} is not an option: write NAME=VALUE"))?;
        options.push((decoded(name)?, decoded(&value.replace('+', " "))?));
    }
    Ok(options)
}

/// Decodes `%2F` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = byte.ok_or_else(|| format!("{text:?} has a % without two digits after it"))?;
        bytes.push(byte);
        bytes.extend_from_slice(part.get(2..).unwrap_or_default().as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not UTF-8"))
}

fn request(record: &RequestRecord) -> Value {
    let (outcome, error) = match record.outcome {
        Outcome::Applied(error) => ("applied", Some(error)),
        Outcome::AppliedUnanswered(error) => ("unanswered", Some(error)),
        Outcome::Dropped => ("dropped", None),
        Outcome::Held => ("held", None),
        Outcome::Refused(error) => ("refused", Some(error)),
        Outcome::Misreported { reported, .. } => ("misreported", Some(reported)),
        // The enum may grow.
        _ => ("other", None),
    };
    json!({
        "session": record.session.to_string(),
        "connection": record.connection,
        "xid": record.xid,
        "op": unit::op_name(record.op),
        "path": record.path,
        "outcome": outcome,
        "error": error.map(error_name),
        "zxid": record.zxid.map(|zxid| zxid.to_string()),
        "at_ms": record.at.as_secs_f64() * 1_000.0,
    })
}

fn commit(record: &CommitRecord) -> Value {
    json!({
        "zxid": record.zxid.to_string(),
        "session": record.session.to_string(),
        "op": unit::op_name(record.op),
        "path": record.path,
        "error": error_name(record.error),
    })
}

fn error_name(error: ErrorCode) -> String {
    error.name().map_or_else(|| error.0.to_string(), str::to_owned)
}

/// Describes a fault with the words that injected it.
#[expect(clippy::wildcard_enum_match_arm, reason = "commands inject three of the actions")]
fn describe(fault: &Fault) -> String {
    let mut words = match fault.action {
        Action::CutBefore => "cut before".to_owned(),
        Action::CutAfter => "cut after".to_owned(),
        Action::Delay(duration) => format!("delay {}ms", duration.as_millis()),
        _ => unreachable!("no command injects {fault:?}"),
    };
    // Writing to a string cannot fail.
    let mut add = |name: &str, value: Option<String>| {
        let _ = value.map(|value| write!(words, " {name}={value}"));
    };
    if let At::Request { nth, filter } = &fault.at {
        add("op", filter.op.map(unit::op_name));
        add("path", filter.path_prefix.clone());
        add("session", filter.session.map(|session| session.to_string()));
        add("nth", (*nth > 0).then(|| nth.to_string()));
    }
    add("refuse", fault.refuse_for.map(|duration| format!("{}ms", duration.as_millis())));
    words
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_long_list_leaves_turns_to_the_clients() {
        let numbers: Vec<usize> = (0..10 * PIECE).collect();
        let mut turns = 0;
        let mut listing = pin!(Answer::list(&numbers, usize::MAX, |number| *number));
        let answer = poll_fn(|cx| {
            turns += 1;
            listing.as_mut().poll(cx)
        });
        let listed: Vec<usize> = serde_json::from_str(&answer.await.body).expect("it is JSON");
        assert_eq!(listed, numbers);
        assert_eq!(turns, 11);
    }

    #[test]
    fn the_words_of_a_url_are_decoded() {
        let parsed = parse("cut/after", Some("path=%2Fa%20b+c&op=create&nth=1&refuse=2s&"));
        let Ok(Command::Inject(fault)) = parsed else { panic!("{parsed:?}") };
        assert_eq!(describe(&fault), "cut after op=create path=/a b c nth=1 refuse=2000ms");
        assert_eq!(parse("adddelay/%31s", None), parse("adddelay/1s", None));
        for (words, query, expected) in [
            ("cut/after", "path", "\"path\" is not an option: write NAME=VALUE"),
            ("cut/after", "path=%2", "\"%2\" has a % without two digits after it"),
            ("cut/after", "path=%zz", "\"%zz\" has a % without two digits after it"),
            ("cut/after", "path=%ff", "\"%ff\" is not UTF-8"),
            ("cut/%é", "", "\"%é\" has a % without two digits after it"),
        ] {
            assert_eq!(parse(words, Some(query)), Err(expected.to_owned()));
        }
    }
}
