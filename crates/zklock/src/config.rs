//! The configuration file: options that are used if neither the command line nor the environment has
//! them.
//!
//! They become arguments directly after the verb, so all rules for arguments apply to them
//! too.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command, CommandFactory as _, Error};
use toml::{Table, Value};

use crate::options::Options;

/// The option that names the file. It precedes the verb.
const FLAG: &str = "--config";
const VARIABLE: &str = "ZKLOCK_CONFIG";

/// Adds the options of the configuration file, if there is one, to the arguments of the program.
pub(crate) fn with_file(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let Some(file) = named(&arguments) else { return Ok(arguments) };
    let shown = file.display();
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|error| format!("{FLAG} {shown}: {error}"))?;
    let is_set = |variable: &OsStr| std::env::var_os(variable).is_some();
    merged(arguments, &text, is_set).map_err(|defect| format!("{FLAG} {shown}: {defect}"))
}

/// Returns where the value of an option comes from, if that is not the command line. The value is wrong,
/// and the message about it speaks of arguments.
pub(crate) fn origin(arguments: &[OsString], error: &Error) -> Option<String> {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return None };
    let long = wrong.strip_prefix("--")?.split([' ', '=']).next()?;
    let program = Options::command();
    let verb = arguments.get(verb_at(arguments))?.to_str()?;
    let arg = option(program.find_subcommand(verb)?, long)?;
    let is_typed = arguments.iter().any(|argument| {
        let argument = argument.to_string_lossy();
        let rest = argument.strip_prefix("--").and_then(|it| it.strip_prefix(long));
        let is_short = |short| argument.strip_prefix('-').is_some_and(|it| it.starts_with(short));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            || arg.get_short().is_some_and(is_short)
    });
    if is_typed {
        return None;
    }
    match arg.get_env().filter(|variable| std::env::var_os(variable).is_some()) {
        Some(variable) => Some(format!("--{long} is set by the variable {}", variable.display())),
        None => Some(format!("--{long} is set in {}", named(arguments)?.display())),
    }
}

fn named(arguments: &[OsString]) -> Option<OsString> {
    let first = arguments.get(1)?;
    let named = if first == FLAG {
        arguments.get(2).cloned()
    } else {
        let value = first.to_str().and_then(|first| first.strip_prefix(FLAG)?.strip_prefix('='));
        value.map(OsString::from)
    };
    named.or_else(|| std::env::var_os(VARIABLE).filter(|file| !file.is_empty()))
}

/// Returns the place of the verb.
fn verb_at(arguments: &[OsString]) -> usize {
    match arguments.get(1) {
        Some(first) if first == FLAG => 3,
        Some(first) if Path::new(first).to_string_lossy().starts_with(FLAG) => 2,
        _ => 1,
    }
}

fn merged(
    mut arguments: Vec<OsString>,
    text: &str,
    is_set: impl Fn(&OsStr) -> bool,
) -> Result<Vec<OsString>, String> {
    let table: Table = text.parse().map_err(|error| format!("{error}"))?;
    let program = Options::command();
    let at = verb_at(&arguments);
    let verb = arguments.get(at).and_then(|verb| verb.to_str()).unwrap_or_default().to_owned();
    let mut added = Vec::new();
    // The options of a verb come last, because the last one counts.
    for (name, value) in table.iter().filter(|(_, value)| !value.is_table()) {
        let known: Vec<(&Command, &Arg)> = program
            .get_subcommands()
            .filter_map(|command| Some((command, option(command, name)?)))
            .collect();
        if known.is_empty() {
            return Err(format!("no verb has an option --{name}"));
        }
        if let Some((_, arg)) = known.iter().find(|(command, _)| command.get_name() == verb) {
            added.extend(argument(arg, name, value, &is_set)?);
        }
    }
    for (name, value) in &table {
        let Value::Table(options) = value else { continue };
        let command = program.find_subcommand(name);
        let command = command.ok_or_else(|| format!("there is no verb {name}"))?;
        for (key, value) in options {
            let arg = option(command, key)
                .ok_or_else(|| format!("the verb {name} has no option --{key}"))?;
            let argument = argument(arg, key, value, &is_set)?;
            if *name == verb {
                added.extend(argument);
            }
        }
    }
    let at = (at + 1).min(arguments.len());
    arguments.splice(at..at, added);
    Ok(arguments)
}

fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(name))
}

/// Returns an option as an argument, or `None` if it is off, or the environment has it.
fn argument(
    arg: &Arg,
    name: &str,
    value: &Value,
    is_set: impl Fn(&OsStr) -> bool,
) -> Result<Option<OsString>, String> {
    let text = if arg.get_action().takes_values() {
        let number = || value.as_integer().map(|number| number.to_string());
        let text = value.as_str().map(str::to_owned).or_else(number);
        let text = text.ok_or_else(|| format!("{name}: write a text or a whole number"))?;
        format!("--{name}={text}")
    } else if value.as_bool().ok_or_else(|| format!("{name}: write true or false"))? {
        format!("--{name}")
    } else {
        return Ok(None);
    };
    Ok(Some(text.into()).filter(|_| !arg.get_env().is_some_and(is_set)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    const FILE: &str = "
        connect = 'zk1,zk2'
        timeout = 30
        [run]
        kill-after = '9s'
        quiet = true
        foreground = false
        timeout = '1m'
    ";

    fn merge(arguments: &[&str], text: &str, set: &str) -> Result<Vec<String>, String> {
        let arguments = arguments.iter().map(OsString::from).collect();
        let merged = merged(arguments, text, |variable| variable == set)?;
        Ok(merged.into_iter().map(|it| it.into_string().unwrap()).collect())
    }

    #[test]
    fn options_of_the_file_follow_the_verb_that_has_them() {
        let added = |arguments: &[&str], set| merge(arguments, FILE, set).unwrap().join(" ");
        let of_run = "--connect=zk1,zk2 --timeout=30 --kill-after=9s --quiet --timeout=1m";
        assert_eq!(added(&["zklock", "run", "/a", "x"], ""), format!("zklock run {of_run} /a x"));
        assert_eq!(added(&["zklock", "ls"], ""), "zklock ls --connect=zk1,zk2");
        assert_eq!(added(&["zklock", "ls"], "ZK_CONNECT"), "zklock ls");
        assert_eq!(
            added(&["zklock", "--config", "f", "hold", "/a"], "ZKLOCK_TIMEOUT"),
            "zklock --config f hold --connect=zk1,zk2 /a"
        );
        assert_eq!(added(&["zklock"], ""), "zklock");
    }

    #[test]
    fn the_file_of_the_guide_is_accepted() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs/zklock.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, block) = page.split_once("options in TOML:\n\n```toml\n").unwrap();
        let (block, _) = block.split_once("```\n").unwrap();
        let merged = merge(&["zklock", "run", "/a", "x"], block, "").unwrap();
        assert_eq!(merged.len(), 8, "{merged:?}");
        Options::try_parse_from(&merged).unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("conect = 'a'", "no verb has an option --conect"),
            ("[rum]", "there is no verb rum"),
            ("[ls]\nkill-after = '1s'", "the verb ls has no option --kill-after"),
            ("connect = true", "connect: write a text"),
            ("quiet = 'yes'", "quiet: write true or false"),
            ("connect = ", "line 1"),
        ] {
            let error = merge(&["zklock", "run"], text, "").unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
