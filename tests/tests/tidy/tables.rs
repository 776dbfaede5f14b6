//! Tables of pages: each row has as many cells as the head, because browsers drop those beyond it, and
//! a blank line does not cut a table, whose rest would be plain text.

pub(crate) fn tables_are_whole(_: &str, text: &str) -> Vec<String> {
    let (mut problems, mut is_code, mut width) = (Vec::new(), false, None);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code || !line.starts_with('|') {
            width = None;
            continue;
        }
        let cells = cells(line);
        match width {
            Some(width) if width != cells => {
                problems.push(format!("line {}: {cells} cells in a table of {width}", at + 1));
            }
            Some(_) => {}
            None => {
                let is_rule = |line: &str| line.chars().all(|it| "|-: ".contains(it));
                let has_head = lines.peek().is_some_and(|(_, next)| is_rule(next));
                if !has_head {
                    problems.push(format!("line {}: a table begins without a head", at + 1));
                }
                width = Some(cells);
            }
        }
    }
    problems
}

/// Returns the number of cells of a row.
fn cells(row: &str) -> usize {
    let (mut bars, mut before) = (0, ' ');
    for letter in row.trim_end().chars() {
        bars += usize::from(letter == '|' && before != '\\');
        before = letter;
    }
    bars - 1
}
