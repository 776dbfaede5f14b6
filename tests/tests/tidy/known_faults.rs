//! The page about the faults that the simulation has to find, which is made of its list of mutants.

use super::{File, listings::text};

pub(crate) const PAGE: &str = "docs/internals/known-faults.md";

const LIST: &str = "tests/simulation/classes.txt";
const MARK: &str = "<!-- generated -->\n";
const CLASSES: [&str; 3] = ["safety", "liveness", "cost"];
/// After how many seeds the page counts what was found.
const SEEDS: [usize; 4] = [120, 1_000, 2_000, 5_000];

/// A mutant of one of the classes.
struct Fault<'a> {
    class: &'a str,
    name: &'a str,
    result: Result<usize, &'a str>,
}

/// Returns the page as it should be.
///
/// # Panics
///
/// If the page has no mark, or the list has a line of another form.
pub(crate) fn page(files: &[File]) -> String {
    let (before, _) = text(files, PAGE).split_once(MARK).expect("the page has the mark");
    format!("{before}{MARK}{}", tables(text(files, LIST)))
}

fn tables(list: &str) -> String {
    let mut faults: Vec<Fault<'_>> = list.lines().filter_map(parse).collect();
    faults.sort_by_key(|fault| (fault.result.unwrap_or(usize::MAX), fault.name));
    let head = SEEDS.map(|seeds| format!(" within {seeds} |")).concat();
    let mut page =
        format!("\n| class | found |{head} of |\n|---|---|{}---|\n", "---|".repeat(SEEDS.len()));
    for class in CLASSES {
        let of_class = || faults.iter().filter(|fault| fault.class == class);
        let within =
            |most: usize| of_class().filter(|it| it.result.is_ok_and(|n| n <= most)).count();
        let counts = SEEDS.map(|seeds| format!(" {} |", within(seeds))).concat();
        let (found, all) = (within(usize::MAX), of_class().count());
        page += &format!("| {class} | {found} |{counts} {all} |\n");
    }
    page += "\n## Found\n\n| known fault | class | seeds |\n|---|---|---|\n";
    for Fault { class, name, result } in &faults {
        if let Ok(seeds) = result {
            page += &format!("| `{name}` | {class} | {seeds} |\n");
        }
    }
    page += "\n## Not found\n\n| known fault | class | why |\n|---|---|---|\n";
    for Fault { class, name, result } in &faults {
        if let Err(reason) = result {
            page += &format!("| `{name}` | {class} | {reason} |\n");
        }
    }
    page
}

/// Parses a line: the class, the name, and the number of seeds or why it was not found.
fn parse(line: &str) -> Option<Fault<'_>> {
    let (class, rest) = line.split_once(' ')?;
    let class = CLASSES.into_iter().find(|it| *it == class)?;
    let (name, result) = rest.split_once(' ').unwrap_or((rest, "Nobody has searched for it."));
    Some(Fault { class, name, result: result.parse().map_err(|_| result) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_in_one_table_and_counts_in_its_class() {
        let page = tables("# safety first\nsafety b 1200\ncost c\nnone d\nsafety a It needs x.\n");
        for row in [
            "| safety | 1 | 0 | 0 | 1 | 1 | 2 |",
            "| liveness | 0 | 0 | 0 | 0 | 0 | 0 |",
            "| cost | 0 | 0 | 0 | 0 | 0 | 1 |",
            "| `b` | safety | 1200 |",
            "| `a` | safety | It needs x. |",
            "| `c` | cost | Nobody has searched for it. |",
        ] {
            assert!(page.lines().any(|line| line == row), "{row}\n{page}");
        }
        assert!(!page.contains("`d`"));
    }
}
