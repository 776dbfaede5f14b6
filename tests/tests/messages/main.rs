//! What the most common mistakes say: each mistake is made on the in-process server, and its
//! message is compared with the reviewed one in `misuses.txt`, which `UPDATE_PAGES=1` writes.
//!
//! The messages of all variants are reviewed in `messages.txt` of the crates that define them.

mod conversions;
mod locks;
mod operations;
mod options;

use std::fmt::{Display, Write as _};
use std::path::Path;

use zk_tests::world::run;

/// The messages of the mistakes that were made so far.
#[derive(Debug, Default)]
struct Report(String);

impl Report {
    /// Appends the message of a mistake. Numbers that a client chooses are replaced by a word.
    fn add<T>(&mut self, mistake: &str, made: Result<T, impl Display>) {
        let message = match made {
            Ok(_) => "accepted".to_owned(),
            Err(error) => anonymous(&error.to_string()),
        };
        writeln!(self.0, "{mistake}\n    {message}").expect("it is a string");
    }
}

/// Replaces the ids of attempts and sessions.
fn anonymous(message: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for next in message.chars().map(Some).chain([None]) {
        match next {
            Some(digit) if digit.is_ascii_hexdigit() => digits.push(digit),
            other => {
                let is_id = digits.len() >= 14;
                out.push_str(if is_id { "ID" } else { &digits });
                digits.clear();
                out.extend(other);
            }
        }
    }
    out
}

#[test]
fn every_mistake_says_what_was_given_and_what_to_do() {
    let found = run(async {
        let mut report = Report::default();
        options::make(&mut report).await;
        operations::make(&mut report).await;
        locks::make(&mut report).await;
        report.0
    });
    let reviewed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/misuses.txt");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&reviewed, &found).expect("the file can be written");
    }
    let reviewed = std::fs::read_to_string(reviewed).expect("the file exists");
    assert!(!found.contains("hunter2"), "a secret is shown:\n{found}");
    let differs = found.lines().zip(reviewed.lines()).find(|(found, reviewed)| found != reviewed);
    assert!(
        found == reviewed,
        "{differs:?} differ; UPDATE_PAGES=1 and this test write misuses.txt: review it"
    );
}
