//! A ZooKeeper server for the tests of programs in any language.
//!
//! [`options`] reads the command line, and [`data`] a file; [`driver`] owns sockets and signals.

mod data;
mod driver;
mod options;
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
