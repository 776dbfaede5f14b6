//! Tables of 80 columns.

use std::fmt;

use crate::text::{columns, padded, printable, shortened};

/// The width of a terminal that nobody has resized.
pub(crate) const WIDTH: usize = 80;
/// The minimum width of the column that is shortened.
const FLEXIBLE_MIN: usize = 12;
const GAP: usize = 2;

/// A table with a heading. One of its columns is shortened, if the rows are too long.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    flexible: usize,
}

impl<const N: usize> Table<N> {
    /// Creates a table. `flexible` is the heading of the column that is shortened.
    pub(crate) fn new(heading: &[&str; N], flexible: &str) -> Self {
        let flexible = heading.iter().position(|it| *it == flexible).unwrap_or_default();
        Self { rows: vec![heading.map(str::to_owned)], flexible }
    }

    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| printable(&cell)));
    }

    /// Returns whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Returns the lines of the table, the heading first, within a width.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let widths = self.widths(width);
        let lines = self.rows.iter().map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&padded(&shortened(cell, *width), *width));
                line.push_str(&" ".repeat(GAP));
            }
            line.trim_end().to_owned()
        });
        lines.collect()
    }

    fn widths(&self, width: usize) -> Vec<usize> {
        let longest = |column| self.rows.iter().filter_map(move |row| row.get(column));
        let mut widths: Vec<usize> = (0..N)
            .map(|column| longest(column).map(|cell| columns(cell)).max().unwrap_or(0))
            .collect();
        let used: usize = widths.iter().sum::<usize>() + GAP * (N - 1);
        if let Some(flexible) = widths.get_mut(self.flexible) {
            let excess = used.saturating_sub(width);
            *flexible = flexible.saturating_sub(excess).max(FLEXIBLE_MIN.min(*flexible));
        }
        widths
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines(WIDTH) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_cell_is_shortened_to_fit_the_terminal() {
        let mut table = Table::new(&["A", "WHAT", "B"], "WHAT");
        table.row(["1".into(), "é".repeat(100), "12345678".into()]);
        table.row(["22".into(), String::new(), "1".into()]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("1   éé") && lines[1].ends_with("é…  12345678"), "{text}");
        assert_eq!(lines[2].chars().count(), 2 + GAP + 66 + GAP + 1);
    }

    #[test]
    fn short_rows_are_not_stretched() {
        let mut table = Table::new(&["A", "WHAT"], "WHAT");
        table.row(["1".into(), "x".into()]);
        assert_eq!(table.to_string(), "A  WHAT\n1  x\n");
    }
}
