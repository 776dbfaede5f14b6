//! How many files a contributor has to touch for something new: the tables of `CONTRIBUTING.md` may
//! not grow. What a command writes is not in them.

use super::{File, listings::text, recipes::GUIDE};

/// The sections with a limit, and the number of files.
pub(crate) const LIMITS: &[(&str, usize)] = &[
    ("Adding a metric", 2),
    ("Adding an option of a lock", 4),
    ("Adding a recipe", 14),
    ("Adding an operation", 18),
];

/// Describes each section whose tables name more files than its limit, or none.
pub(crate) fn oversized(files: &[File], limits: &[(&str, usize)]) -> Vec<String> {
    let guide = text(files, GUIDE);
    let problem = |(heading, limit): &(&str, usize)| {
        let section = guide.split_once(&format!("\n## {heading}\n")).map_or("", |(_, rest)| rest);
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let count: usize = cells.map(places).sum();
        let is_wrong = count == 0 || count > *limit;
        is_wrong.then(|| {
            format!("{GUIDE}: {heading} names {count} files, and may name {limit}: derive one")
        })
    };
    limits.iter().filter_map(problem).collect()
}

/// Counts the paths of a cell. Of alternatives, the longest one counts.
fn places(cell: &str) -> usize {
    let counts = cell.split(", or ").map(|places| places.matches('`').count() / 2);
    let is_place = cell != "place";
    // A place may be described in words.
    counts.max().unwrap_or(0).max(usize::from(is_place))
}

mod tests {
    //! Tests that a table that grows is noticed.

    use super::{File, GUIDE, oversized};

    const PAGE: &str = "# A\n\n## Adding a lamp\n\n| place | what |\n|---|---|\n\
        | `a`, `b`, or `c` | x |\n| the place in `d` | `e` |\n| the rest | x |\n\n\
        ## Adding more\n\n| `f` | x |\n";

    fn problems(limits: &[(&str, usize)]) -> usize {
        oversized(&[File { path: GUIDE.into(), text: PAGE.into() }], limits).len()
    }

    #[test]
    fn a_section_may_not_name_more_files_than_its_limit() {
        assert_eq!(problems(&[("Adding a lamp", 4), ("Adding more", 1)]), 0);
        assert_eq!(problems(&[("Adding a lamp", 3)]), 1);
        assert_eq!(problems(&[("Adding an oven", 3)]), 1);
    }
}
