//! Searches for words in source text.

/// Reports each line that contains one of the words as a whole identifier.
pub(crate) fn forbid(text: &str, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let found = words.iter().filter(|word| has_word(line, word));
        problems.extend(found.map(|word| format!("line {number} has `{word}`")));
    }
    problems
}

pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|l| l.is_alphanumeric() || l == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, found) = line.split_at(at);
        let after = found.strip_prefix(word).unwrap_or_default();
        let joins_before = is_part(word.chars().next()) && is_part(before.chars().next_back());
        let joins_after = is_part(word.chars().next_back()) && is_part(after.chars().next());
        !joins_before && !joins_after
    })
}

/// Removes line comments from the text, but keeps the line numbers.
pub(crate) fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}
