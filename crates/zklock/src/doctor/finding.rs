//! What `zklock doctor` has found, and how it is printed.

use serde_json::{Value, json};

/// The width of a terminal that nobody has resized.
const WIDTH: usize = 80;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    /// Locks do not work, or do not protect.
    Problem,
    /// Locks work, but somebody should look at this.
    Warning,
    /// No server has told, so it may be right or wrong.
    Unknown,
}

/// One thing that is wrong, or not known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The name of the check, for programs.
    pub(super) check: &'static str,
    /// The server, the path, or the session that the finding is about.
    pub(super) subject: String,
    pub(super) what: String,
    /// What to do.
    pub(super) advice: &'static str,
}

/// All findings, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        level: Level,
        check: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
        advice: &'static str,
    ) {
        self.0.push(Finding { level, check, subject: subject.into(), what: what.into(), advice });
    }

    /// Returns how many findings have a level.
    pub(super) fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|finding| finding.level == level).count()
    }

    /// Returns the names of the checks that have found something, for tests.
    #[cfg(test)]
    pub(super) fn checks(&self) -> Vec<&'static str> {
        self.0.iter().map(|finding| finding.check).collect()
    }

    pub(super) fn in_words(&self) -> String {
        let mut text = String::new();
        for level in [Level::Problem, Level::Warning, Level::Unknown] {
            for finding in self.0.iter().filter(|finding| finding.level == level) {
                let Finding { check, subject, what, advice, .. } = finding;
                text.push_str(&wrapped(&format!("{}: {check}: {subject}", level.as_str()), ""));
                text.push_str(&wrapped(what, "    "));
                text.push_str(&wrapped(advice, "    "));
                text.push('\n');
            }
        }
        let (problems, warnings) = (self.count(Level::Problem), self.count(Level::Warning));
        let plural = |count| if count == 1 { "" } else { "s" };
        text.push_str(&format!(
            "{problems} problem{}, {warnings} warning{}, {} not known\n",
            plural(problems),
            plural(warnings),
            self.count(Level::Unknown)
        ));
        text
    }

    pub(super) fn in_json(&self) -> Value {
        self.0
            .iter()
            .map(|finding| {
                json!({
                    "level": finding.level.as_str(),
                    "check": finding.check,
                    "subject": finding.subject,
                    "what": finding.what,
                    "advice": finding.advice,
                })
            })
            .collect()
    }
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Unknown => "not known",
        }
    }
}

/// Breaks a text between words, so that it fits the terminal. A word that is longer stays whole.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            lines.push('\n');
            column = 0;
        }
        let before = if column == 0 { indent } else { " " };
        lines.push_str(before);
        lines.push_str(word);
        column += before.len() + length;
    }
    if column > 0 {
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_to_fit_the_terminal() {
        let text = wrapped(&"seven77 ".repeat(30), "    ");
        assert!(text.lines().all(|line| line.starts_with("    s") && line.len() <= WIDTH));
        // Nine words and their gaps need 71 columns beside the indent, and ten would need 83.
        assert_eq!(text.lines().count(), 4);
        assert_eq!(wrapped("", "  "), "");
        assert_eq!(wrapped(&"x".repeat(100), ""), format!("{}\n", "x".repeat(100)));
    }
}
