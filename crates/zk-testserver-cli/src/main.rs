//! A ZooKeeper server for the tests of programs in any language, with faults over HTTP.
//!
//! [`options`] reads the command line, [`data`] and [`script`] read files. [`command`] parses the
//! words that a script and a URL have in common, and [`control`] executes them. [`caller`] says whose
//! requests over HTTP are served, and [`pages`] answers them without doing any I/O; [`driver`] owns
//! sockets, signals and tasks.

mod caller;
mod command;
mod control;
mod data;
mod driver;
mod options;
mod pages;
mod script;
mod unit;

use std::process::ExitCode;

use clap::Parser as _;

use crate::options::Options;

fn main() -> ExitCode {
    match driver::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            driver::complain(&problem);
            ExitCode::FAILURE
        }
    }
}
