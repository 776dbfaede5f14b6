//! The words that control the server, in a script and in a URL.
//!
//! A command is a verb, a parameter for some verbs, and options for some. In a URL, they are
//! `/command/VERB/PARAMETER?NAME=VALUE&…`, which is the form of ZooKeeper's own fault controller
//! (`org.apache.zookeeper.server.controller`), whose verbs are all here. In a script, a line is
//! `VERB PARAMETER NAME=VALUE…`.
//!
//! A mistake says in which of these parts it is, so that a script can say where in its line.

use std::fmt::Write as _;
use std::time::Duration;

use jute_codec::SessionId;
use zk_testserver::{Action, At, Fault, Filter};

use crate::unit;

/// What to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Command {
    Ping,
    Shutdown,
    /// Closes the connection of a session, or all connections.
    CloseConnection(Option<SessionId>),
    /// Expires a session, or all sessions.
    Expire(Option<SessionId>),
    RejectConnections,
    AddDelay(Duration),
    /// The number of requests; all of them if there is none.
    FailRequests(Option<usize>),
    NoResponse(Option<usize>),
    Reset,
    Elect(Duration),
    Inject(Fault),
    Refuse(Duration),
    Throttle(Duration),
    Lag(Duration),
    Reap,
}

/// A part of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Verb,
    Parameter,
    /// An option, by its number.
    Option(usize),
}

/// Why a command cannot be parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mistake {
    pub(crate) part: Part,
    /// A sentence that says what is wrong and what is allowed.
    pub(crate) text: String,
}

impl Part {
    fn mistake(self, text: impl Into<String>) -> Mistake {
        Mistake { part: self, text: text.into() }
    }
}

impl Command {
    /// Parses the parts of a command.
    ///
    /// # Errors
    ///
    /// Returns the first mistake.
    pub(crate) fn parse(
        verb: &str,
        parameter: Option<&str>,
        options: &[(String, String)],
    ) -> Result<Self, Mistake> {
        let name = verb.to_lowercase();
        let Some(known) = VERBS.iter().find(|known| known.name == name) else {
            let names: Vec<&str> = VERBS.iter().map(|known| known.name).collect();
            let names = names.join(", ");
            let text = format!("{verb:?} is not a command; the commands are {names}");
            return Err(Part::Verb.mistake(text));
        };
        match parameter {
            Some(parameter) if known.parameter.is_empty() => {
                let text = format!("{name} has no parameter, so {parameter:?} is not allowed");
                return Err(Part::Parameter.mistake(text));
            }
            None if !known.parameter.is_empty() && !known.parameter.starts_with('[') => {
                let text = format!("{name} needs a parameter: {}", known.parameter);
                return Err(Part::Verb.mistake(text));
            }
            Some(_) | None => {}
        }
        if let (Some((option, _)), false) = (options.first(), known.has_options) {
            let text = format!("{name} has no options, so {option:?} is not allowed");
            return Err(Part::Option(0).mistake(text));
        }
        let given = parameter.unwrap_or_default();
        let explain = |problem| Part::Parameter.mistake(format!("{name}: {problem}"));
        let duration = || unit::duration(given).map_err(explain);
        let number = || parameter.map(count).transpose().map_err(explain);
        let session = || parameter.map(session_id).transpose().map_err(explain);
        Ok(match known.name {
            "adddelay" => Self::AddDelay(match parameter {
                None => DELAY,
                Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    unit::duration(&format!("{text}ms")).map_err(explain)?
                }
                Some(_) => duration()?,
            }),
            "closeconnection" => Self::CloseConnection(session()?),
            "cut" => {
                let action = match given {
                    "before" => Action::CutBefore,
                    "after" => Action::CutAfter,
                    _ => {
                        let text = format!("cut has the parameter before or after, not {given:?}");
                        return Err(Part::Parameter.mistake(text));
                    }
                };
                Self::Inject(fault(&name, action, options)?)
            }
            "delay" => Self::Inject(fault(&name, Action::Delay(duration()?), options)?),
            "elect" => Self::Elect(duration()?),
            "electnewleader" => Self::Elect(ELECTION),
            "expire" | "expiresession" => Self::Expire(session()?),
            "failrequests" => Self::FailRequests(number()?),
            "lag" => Self::Lag(duration()?),
            "noresponse" => Self::NoResponse(number()?),
            "ping" => Self::Ping,
            "reap" => Self::Reap,
            "refuse" => Self::Refuse(duration()?),
            "rejectconnections" => Self::RejectConnections,
            "reset" => Self::Reset,
            "shutdown" => Self::Shutdown,
            "throttle" => Self::Throttle(duration()?),
            other => unreachable!("{other} is in the table"),
        })
    }
}

/// Returns the list of commands, one per line.
pub(crate) fn list() -> String {
    let mut list = String::new();
    for verb in VERBS {
        let options = if verb.has_options { " [OPTION=VALUE]..." } else { "" };
        let call = format!("{} {}{options}", verb.name, verb.parameter);
        // Writing to a string cannot fail.
        let _ = writeln!(list, "  {:<34} {}", call.trim_end(), verb.meaning);
    }
    list
}

/// Parses the options that say at which request a fault fires.
fn fault(verb: &str, action: Action, options: &[(String, String)]) -> Result<Fault, Mistake> {
    let mut filter = Filter::default();
    let (mut nth, mut refuse) = (0, None);
    for (position, (name, value)) in options.iter().enumerate() {
        let part = Part::Option(position);
        if options.iter().take(position).any(|(earlier, _)| earlier == name) {
            return Err(part.mistake(format!("{verb} has the option {name:?} twice")));
        }
        let explain = |problem| part.mistake(format!("{verb}, option {name}: {problem}"));
        match name.as_str() {
            "op" => filter.op = Some(unit::op(value).map_err(explain)?),
            "path" if value.starts_with('/') => filter.path_prefix = Some(value.clone()),
            "path" => return Err(explain(format!("{value:?} does not begin with /"))),
            "session" => filter.session = Some(session_id(value).map_err(explain)?),
            "nth" => nth = count(value).map_err(explain)?,
            "refuse" => refuse = Some(unit::duration(value).map_err(explain)?),
            _ => {
                let text = format!("{verb} has no option {name:?}; its options are {OPTIONS}");
                return Err(part.mistake(text));
            }
        }
    }
    Ok(Fault { refuse_for: refuse, ..Fault::new(At::Request { nth, filter }, action) })
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number of requests"))
}

/// Parses the id of a session: hexadecimal with `0x`, as logs print it, or decimal, as clients do.
fn session_id(text: &str) -> Result<SessionId, String> {
    let id = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        None => text.parse().ok(),
    };
    let hint = "write it as a decimal number, or as a hexadecimal one with 0x";
    id.map(SessionId).ok_or_else(|| format!("{text:?} is not a session id; {hint}"))
}

/// A verb, and what it does, for people.
struct Verb {
    name: &'static str,
    /// The parameter as it is shown, in brackets if it may be missing. Empty if there is none.
    parameter: &'static str,
    has_options: bool,
    meaning: &'static str,
}

const fn verb(name: &'static str, parameter: &'static str, meaning: &'static str) -> Verb {
    Verb { name, parameter, has_options: false, meaning }
}

/// How long ZooKeeper's controller delays requests by default.
const DELAY: Duration = Duration::from_secs(1);

/// How long an election takes if nothing else is said: about as long as among three real servers.
const ELECTION: Duration = Duration::from_millis(500);

const OPTIONS: &str = "op, path, session, nth and refuse";

const VERBS: [Verb; 18] = [
    verb("ping", "", "do nothing, successfully"),
    verb("shutdown", "", "end the program"),
    verb("closeconnection", "[SESSION]", "close the connection of a session, or all"),
    verb("expiresession", "[SESSION]", "expire a session, or all"),
    verb("rejectconnections", "", "refuse new connections until reset"),
    verb("adddelay", "[MILLISECONDS]", "delay each request, by default for 1000"),
    verb("failrequests", "[NUMBER]", "fail this many requests, or all: APIERROR"),
    verb("noresponse", "[NUMBER]", "execute this many, or all, without a reply"),
    verb("reset", "", "end all of this, and disarm all faults"),
    verb("electnewleader", "", "the same as elect 500ms"),
    Verb { has_options: true, ..verb("cut", "before|after", "end the connection at a request") },
    Verb { has_options: true, ..verb("delay", "DURATION", "reply to a request later") },
    verb("refuse", "DURATION", "refuse new connections for this long"),
    verb("throttle", "DURATION", "refuse requests for this long: THROTTLEDOP"),
    verb("lag", "DURATION", "let followers learn of writes this late"),
    verb("elect", "DURATION", "do not serve for this long: an election"),
    verb("expire", "[SESSION]", "the same as expiresession"),
    verb("reap", "", "delete due containers and TTL znodes"),
];

#[cfg(test)]
mod tests {
    use zk_testserver::OpCode;

    use super::*;

    fn parse(verb: &str, parameter: &str, options: &[(&str, &str)]) -> Result<Command, Mistake> {
        let options: Vec<(String, String)> =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Command::parse(verb, (!parameter.is_empty()).then_some(parameter), &options)
    }

    #[test]
    fn verbs_of_the_controller_are_read_in_both_cases() {
        let second = Duration::from_secs(1);
        for (verb, parameter, expected) in [
            ("PING", "", Command::Ping),
            ("shutdown", "", Command::Shutdown),
            ("CLOSECONNECTION", "1234", Command::CloseConnection(Some(SessionId(1234)))),
            ("closeconnection", "", Command::CloseConnection(None)),
            ("EXPIRESESSION", "0xffffffffffffffff", Command::Expire(Some(SessionId(-1)))),
            ("REJECTCONNECTIONS", "", Command::RejectConnections),
            ("ADDDELAY", "", Command::AddDelay(second)),
            ("ADDDELAY", "1000", Command::AddDelay(second)),
            ("adddelay", "1s", Command::AddDelay(second)),
            ("FAILREQUESTS", "", Command::FailRequests(None)),
            ("failrequests", "3", Command::FailRequests(Some(3))),
            ("NORESPONSE", "3", Command::NoResponse(Some(3))),
            ("RESET", "", Command::Reset),
            ("ELECTNEWLEADER", "", Command::Elect(ELECTION)),
        ] {
            assert_eq!(parse(verb, parameter, &[]), Ok(expected), "{verb}");
        }
    }

    #[test]
    fn a_fault_fires_at_the_request_that_the_options_describe() {
        let options = [
            ("op", "createContainer"),
            ("path", "/locks"),
            ("session", "0x10"),
            ("nth", "2"),
            ("refuse", "300ms"),
        ];
        let filter = Filter {
            session: Some(SessionId(16)),
            op: Some(OpCode::CREATE_CONTAINER),
            path_prefix: Some("/locks".to_owned()),
        };
        let fault = Fault::new(At::Request { nth: 2, filter }, Action::CutAfter);
        let fault = fault.refuse_for(Duration::from_millis(300));
        assert_eq!(parse("cut", "after", &options), Ok(Command::Inject(fault)));
        let delay = Fault::new(At::request(0), Action::Delay(Duration::from_secs(2)));
        assert_eq!(parse("delay", "2s", &[]), Ok(Command::Inject(delay)));
    }

    #[test]
    fn a_message_says_what_is_wrong_where_and_what_is_allowed() {
        use Part::{Option, Parameter, Verb};

        for (verb, parameter, options, part, expected) in [
            (
                "pong",
                "",
                &[][..],
                Verb,
                "\"pong\" is not a command; the commands are ping, shutdown, ",
            ),
            ("", "", &[], Verb, "\"\" is not a command"),
            ("reset", "1", &[], Parameter, "reset has no parameter, so \"1\" is not allowed"),
            ("cut", "", &[], Verb, "cut needs a parameter: before|after"),
            ("cut", "now", &[], Parameter, "cut has the parameter before or after, not \"now\""),
            ("refuse", "5", &[], Parameter, "refuse: \"5\" is not a duration"),
            ("refuse", "5s", &[("op", "sync")], Option(0), "refuse has no options, so \"op\" is n"),
            ("failrequests", "-1", &[], Parameter, "failrequests: \"-1\" is not a number of reque"),
            ("expire", "0xg", &[], Parameter, "expire: \"0xg\" is not a session id; write it"),
            ("adddelay", "-5", &[], Parameter, "adddelay: \"-5\" is not a duration"),
            ("cut", "after", &[("oops", "1")], Option(0), "cut has no option \"oops\"; its option"),
            ("cut", "after", &[("op", "mkdir")], Option(0), "cut, option op: \"mkdir\" is not"),
            ("cut", "after", &[("path", "a")], Option(0), "cut, option path: \"a\" does not begin"),
            ("cut", "after", &[("nth", "x")], Option(0), "cut, option nth: \"x\" is not a "),
            (
                "cut",
                "after",
                &[("nth", "1"), ("session", "x")],
                Option(1),
                "cut, option session: \"x\" is not a session id",
            ),
            (
                "cut",
                "after",
                &[("nth", "1"), ("nth", "2")],
                Option(1),
                "cut has the option \"nth\" twice",
            ),
        ] {
            let problem = parse(verb, parameter, options).expect_err(expected);
            assert!(problem.text.starts_with(expected), "{problem:?}");
            assert_eq!(problem.part, part, "{problem:?}");
        }
    }

    #[test]
    fn each_verb_of_the_list_can_be_parsed() {
        for verb in VERBS {
            let parameter = match verb.parameter {
                "" => "",
                "before|after" => "before",
                "DURATION" => "1s",
                _ => "7",
            };
            assert!(parse(verb.name, parameter, &[]).is_ok(), "{}", verb.name);
            assert!(list().contains(verb.meaning));
        }
        assert!(list().lines().all(|line| line.len() <= 80), "{}", list());
    }
}
