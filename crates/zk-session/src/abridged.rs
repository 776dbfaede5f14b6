//! Paths in messages.

use std::fmt;

/// A path in a message. One that is too long to be read is shortened in the middle, behind which its
/// full length follows. `Debug` writes it with quotes, as errors do, and `Display` without, as log lines
/// do.
///
/// Paths may have as many bytes as a request, and a message that contains one may be logged for each
/// call.
#[derive(Clone, Copy)]
pub struct Abridged<'a>(pub &'a str);

/// Maximum length of a path that is shown as it is, in bytes.
const LENGTH_MAX: usize = 512;
/// Length of each of the two ends of a longer path that are shown, in bytes.
const END: usize = 128;

impl Abridged<'_> {
    /// Returns the beginning and the end of a path that is too long. The ends may be shorter than
    /// [`END`], because they do not cut characters.
    fn ends(&self) -> Option<(&str, &str)> {
        let Self(path) = self;
        if path.len() <= LENGTH_MAX {
            return None;
        }
        let begin = (0..=END).rev().find_map(|at| path.get(..at))?;
        let end = (path.len() - END..path.len()).find_map(|at| path.get(at..))?;
        Some((begin, end))
    }
}

impl fmt::Display for Abridged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends() {
            None => f.write_str(self.0),
            Some((begin, end)) => write!(f, "{begin}…{end} ({} bytes)", self.0.len()),
        }
    }
}

impl fmt::Debug for Abridged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends() {
            None => write!(f, "{:?}", self.0),
            Some((begin, end)) => {
                write!(f, "{:?} ({} bytes)", format!("{begin}…{end}"), self.0.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_it_is_unless_it_is_too_long() {
        for path in ["", "/", "/a\n", &format!("/{}", "é".repeat(200))] {
            assert_eq!(Abridged(path).to_string(), path);
            assert_eq!(format!("{:?}", Abridged(path)), format!("{path:?}"));
        }
    }

    #[test]
    fn a_long_path_shows_both_ends_and_its_length() {
        let path = format!("/begin/{}/end", "x".repeat(2_000_000));
        for shown in [Abridged(&path).to_string(), format!("{:?}", Abridged(&path))] {
            assert!(shown.len() < LENGTH_MAX, "{shown}");
            let is_complete = shown.contains("/begin/x") && shown.contains("x/end");
            assert!(is_complete && shown.ends_with(" (2000011 bytes)"), "{shown}");
        }
    }

    #[test]
    fn the_ends_do_not_cut_characters() {
        for shift in 0..3 {
            let path = format!("/{}{}", "x".repeat(shift), "語".repeat(1_000));
            assert!(Abridged(&path).to_string().contains("語…語"));
        }
    }
}
