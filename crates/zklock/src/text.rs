//! Text of other programs, as a terminal may show it.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns a text without what a terminal would obey, or what would change the text beside it: control
/// characters, invisible ones, and those that change the direction of writing. Anyone who may create an
/// entry chooses its name and its data.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|it| if disturbs(it) { char::REPLACEMENT_CHARACTER } else { it }).collect()
}

/// Does the same for each line of a text.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

fn disturbs(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns how many columns a text takes. Some letters take two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Returns a text that takes at most this many columns.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |it: &char| {
        let is_fitting = it.width().unwrap_or(0) <= left;
        left = left.saturating_sub(it.width().unwrap_or(0));
        is_fitting
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{kept}…")
}

/// Pads a text with spaces to this many columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(
            printable("a\x1b[31mb\n\u{9b}2J\x7f"),
            "a\u{fffd}[31mb\u{fffd}\u{fffd}2J\u{fffd}"
        );
        assert_eq!(printable("pay\u{202e}txt.exe"), "pay\u{fffd}txt.exe");
        assert_eq!(printable("Jürgen 東京 🔒"), "Jürgen 東京 🔒");
        assert_eq!(printable_lines("a\r\nb\x07"), "a\u{fffd}\nb\u{fffd}");
    }

    #[test]
    fn wide_letters_take_two_columns() {
        assert_eq!((columns("東京"), columns("é")), (4, 1));
        assert_eq!(shortened("東京都", 6), "東京都");
        assert_eq!(shortened("東京都", 5), "東京…");
        assert_eq!(shortened("東京都", 4), "東…");
        assert_eq!(padded("東", 4), "東  ");
    }
}
