//! Judges the log of contenders that somebody else has started, such as `.ci/clients`.
//!
//! Arguments: file of the log, number of processes, least number of grants of each.
#![expect(clippy::print_stdout, reason = "this is a program")]

use std::process::ExitCode;

use zk_tests::grants::{Expected, check, read};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match judge(&arguments) {
        Ok(verdict) => {
            println!("{verdict}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            eprintln!("{problems}");
            ExitCode::FAILURE
        }
    }
}

fn judge(arguments: &[String]) -> Result<String, String> {
    let [file, processes, grants_min] = arguments else {
        return Err("three arguments, please".to_owned());
    };
    let number = |text: &String| text.parse().map_err(|error| format!("{text}: {error}"));
    let (processes, grants_min) = (number(processes)?, number(grants_min)?);
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let log = read(&text)?;
    let expected = Expected { processes, grants_min, mark: 0 };
    let summary = check(&log, &expected).map_err(|problems| problems.join("\n"))?;
    Ok(format!("{} grants, each later than the one before and after its end", summary.grants))
}
