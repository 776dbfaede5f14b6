//! A ZooKeeper server for the tests of programs in any language, with faults over HTTP.
//!
//! [`options`] reads the command line, and [`data`] a file. [`command`] parses the words of a URL,
//! and [`control`] executes them. [`pages`] answers requests over HTTP without doing any I/O;
//! [`driver`] owns sockets, signals and tasks.

mod command;
mod control;
mod data;
mod driver;
mod options;
mod pages;
mod unit;

use std::process::ExitCode;

use clap::Parser as _;

use crate::options::Options;

fn main() -> ExitCode {
    match driver::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("zk-testserver: {problem}");
            ExitCode::FAILURE
        }
    }
}
