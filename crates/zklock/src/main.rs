//! The program `zklock`: ZooKeeper locks for shell scripts and people at a terminal.

// The lowest layer first.
mod clock;
mod duration;
mod ending;
mod exec;
mod exit;
mod family;
mod kind;
mod options;
mod signals;
mod text;
mod wire;

mod config;
mod connect;
mod deadline;
mod queue;
mod report;
mod supervisor;
mod survey;
mod table;

mod follow;
mod panel;
mod screen;
mod show;

mod acquire;
mod doctor;
mod evict;
mod hold;
mod run;
mod status;
mod top;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::exec::complain;
use crate::exit::{FAILED, Failure};
use crate::options::{Options, Verb};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The program starts itself in these roles, which are not part of its command line.
    if let [_, role, rest @ ..] = &arguments[..] {
        match role.to_str() {
            Some(supervisor::ARGUMENT) => return supervisor::main(rest),
            Some(exec::ARGUMENT) => return exec::main(rest),
            Some(_) | None => {}
        }
    }
    let typed = arguments.clone();
    let arguments = match config::with_file(arguments) {
        Ok(arguments) => arguments,
        Err(defect) => {
            complain(&defect);
            return ExitCode::from(FAILED);
        }
    };
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            let is_error = error.use_stderr();
            // There is nobody else to tell.
            let _ = error.print();
            if let Some(origin) = config::origin(&typed, &error) {
                complain(&origin);
            }
            return if is_error { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
    if let Verb::Completions { shell } = options.verb {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Options::command(), "zklock", &mut script);
        // It is not a failure if the reader has seen enough.
        let _ = std::io::stdout().write_all(&script);
        return ExitCode::SUCCESS;
    }
    let status = perform(&options.verb).unwrap_or_else(|Failure { status, message }| {
        complain(&message);
        status
    });
    ExitCode::from(status)
}

fn perform(verb: &Verb) -> Result<u8, Failure> {
    // The supervisor must be a child of the main thread: the kernel tells it of the thread's end.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::own(format!("no runtime: {error}")))?;
    let result = runtime.block_on(async {
        match verb {
            Verb::Run(options) => run::run(options).await,
            Verb::Hold(options) => hold::hold(options).await,
            Verb::Status(options) => status::status(options).await,
            Verb::Ls(options) => status::ls(options).await,
            Verb::Top(options) => top::top(options).await,
            Verb::Evict(options) => evict::evict(options).await,
            Verb::Doctor(options) => doctor::doctor(options).await,
            Verb::Completions { .. } => Ok(0),
        }
    });
    // A thread may still read standard input.
    runtime.shutdown_background();
    result
}
