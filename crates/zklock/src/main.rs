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
mod wire;

mod connect;
mod deadline;
mod queue;
mod report;
mod supervisor;
mod table;

mod acquire;
mod doctor;
mod evict;
mod hold;
mod run;
mod status;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

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
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            let is_error = error.use_stderr();
            // There is nobody else to tell.
            let _ = error.print();
            return if is_error { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
        }
    };
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
            Verb::Evict(options) => evict::evict(options).await,
            Verb::Doctor(options) => doctor::doctor(options).await,
        }
    });
    // A thread may still read standard input.
    runtime.shutdown_background();
    result
}
