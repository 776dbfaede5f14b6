//! Checks that readers find pages with the words of their questions.
//!
//! The search of the book ranks sections by the words that they have. This test ranks them in the
//! same way, but without the library: a section counts for each word of the question, the more the
//! rarer the word and the shorter the section, and twice if its heading has the word.

use std::collections::BTreeMap;

use super::{File, layout::BOOKS};

/// How a line of a page begins, and ends, that has a question whose answer is on the page.
const MARK: (&str, &str) = ("<!-- question: ", " -->");

const QUESTIONS: &str = include_str!("questions.txt");

/// The page of the recipes that is about all of them.
const OVERVIEW: &str = "recipes/overview.md";
/// The folder that `book.toml` excludes from the search: the pages with all types have each word.
const NOT_SEARCHED: &str = "signatures/";
/// How many results a reader looks at.
const RESULTS_MAX: usize = 5;

/// Words whose first letters agree count as the same word, such as "expire" and "expired". This is
/// the number of these letters.
const STEM_LENGTH: usize = 5;

const STOP_WORDS: &str = "a again all although among an and another are as at be by can did do does \
    each for from has have how i if in is it its long many may my myself not of on only or other \
    others shows should some something start that the they this to was what when which while who \
    whose with without yet";

/// A heading with the text up to the next one.
struct Section<'a> {
    page: &'a str,
    /// How often each word occurs; words of headings count twice.
    words: BTreeMap<String, usize>,
    length: usize,
}

/// Returns a problem for each question whose page is not among the first results.
pub(crate) fn unanswered(files: &[File]) -> Vec<String> {
    unanswered_of(QUESTIONS, files)
}

fn unanswered_of(questions: &str, files: &[File]) -> Vec<String> {
    let guide = BOOKS.last().expect("there is a guide");
    let others: Vec<&&str> = BOOKS.iter().filter(|book| *book != guide).collect();
    let is_page = |path: &str| {
        path.ends_with(".md")
            && !path.ends_with("SUMMARY.md")
            && path.strip_prefix(guide).is_some_and(|page| !page.starts_with(NOT_SEARCHED))
    };
    let pages = files.iter().filter(|file| {
        is_page(&file.path) && !others.iter().any(|book| file.path.starts_with(**book))
    });
    let sections: Vec<Section<'_>> = pages
        .clone()
        .flat_map(|file| sections(file.path.strip_prefix(guide).expect("it begins so"), &file.text))
        .collect();
    let lines = questions.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut questions: Vec<(&str, &str)> =
        lines.map(|line| line.split_once(": ").expect("a page, a colon and a question")).collect();
    for file in pages {
        let page = file.path.strip_prefix(guide).expect("it begins so");
        let marked = |line| str::strip_suffix(str::strip_prefix(line, MARK.0)?, MARK.1);
        questions.extend(file.text.lines().filter_map(marked).map(|question| (page, question)));
    }
    let missing = questions.iter().filter_map(|(page, question)| {
        let found = search(&sections, question);
        let shown = found.join(", ");
        (!found.contains(page)).then(|| format!("{question:?} finds {shown}, and not {page}"))
    });
    let mut unasked: Vec<&str> = sections.iter().map(|section| section.page).collect();
    unasked.retain(|page| page.starts_with("recipes/") && *page != OVERVIEW);
    unasked.retain(|page| questions.iter().all(|(asked, _)| asked != page));
    unasked.dedup();
    let unasked = unasked.iter().map(|page| format!("no question is about {page}"));
    missing.chain(unasked).collect()
}

fn sections<'a>(page: &'a str, text: &str) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'a>> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if line.starts_with(MARK.0) {
            continue;
        }
        let is_heading = !is_code && line.starts_with('#');
        if is_heading {
            sections.push(Section { page, words: BTreeMap::new(), length: 0 });
        }
        let Some(section) = sections.last_mut() else { continue };
        for word in stems(line) {
            *section.words.entry(word).or_default() += if is_heading { 2 } else { 1 };
            section.length += 1;
        }
    }
    sections
}

/// Returns the words of a text that matter, each cut to its stem.
fn stems(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty() && !STOP_WORDS.split_whitespace().any(|it| it == word))
        .map(|word| word.chars().take(STEM_LENGTH).collect())
}

/// Returns the pages of the best sections.
fn search<'a>(sections: &[Section<'a>], question: &str) -> Vec<&'a str> {
    let count = sections.len() as f64;
    let mean = sections.iter().map(|it| it.length as f64).sum::<f64>() / count;
    let mut ranked: Vec<(f64, &str)> = sections.iter().map(|it| (0.0, it.page)).collect();
    for word in stems(question) {
        let having = sections.iter().filter(|it| it.words.contains_key(&word)).count() as f64;
        let rarity = (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
        for (section, (score, _)) in sections.iter().zip(&mut ranked) {
            let times = section.words.get(&word).copied().unwrap_or_default() as f64;
            let length = 0.25 + 0.75 * section.length as f64 / mean;
            *score += rarity * times * 2.2 / (times + 1.2 * length);
        }
    }
    ranked.retain(|(score, _)| *score > 0.0);
    ranked.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    ranked.into_iter().map(|(_, page)| page).take(RESULTS_MAX).collect()
}

mod tests {
    //! Tests that a page that lacks the words of a question is noticed.

    use super::{File, unanswered_of};

    fn guide(pages: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File {
            path: format!("docs/{path}"),
            text: (*text).to_owned(),
        };
        pages.iter().map(file).collect()
    }

    #[test]
    fn a_page_is_found_by_the_words_of_its_sections() {
        let pages = guide(&[
            ("lamp.md", "# Lamps\n\nA lamp shines.\n\n## Colours\n\nSome are red."),
            ("oven.md", "# Ovens\n\nAn oven heats.\n"),
        ]);
        let questions = "# a comment\n\nlamp.md: which lamp is red\noven.md: heating with an oven";
        assert_eq!(unanswered_of(questions, &pages), [""; 0]);
        let missing = unanswered_of("oven.md: which lamp is red", &pages);
        assert_eq!(missing, ["\"which lamp is red\" finds lamp.md, lamp.md, and not oven.md"]);
    }

    #[test]
    fn each_page_of_a_recipe_has_a_question() {
        let pages = guide(&[
            ("recipes/overview.md", "# Which"),
            ("recipes/lamp.md", "# Lamps\n\n## Colours"),
            ("recipes/oven.md", "# Ovens"),
        ]);
        let problems = unanswered_of("recipes/oven.md: ovens", &pages);
        assert_eq!(problems, ["no question is about recipes/lamp.md"]);
    }

    #[test]
    fn a_page_may_have_its_questions_which_are_not_searched() {
        let pages = |question: &str| {
            let lamp = format!("# Lamps\n\n## Colours\n\n<!-- question: {question} -->\n");
            unanswered_of("", &guide(&[("recipes/lamp.md", &lamp), ("oven.md", "# Oven heats")]))
        };
        assert_eq!(pages("lamps"), [""; 0]);
        assert_eq!(pages("what heats").len(), 1);
    }

    #[test]
    fn pages_of_the_internals_and_the_summary_do_not_count() {
        let pages = guide(&[
            ("SUMMARY.md", "# Lamps"),
            ("internals/lamp.md", "# Lamps"),
            ("oven.md", "# Ovens"),
        ]);
        assert_eq!(unanswered_of("internals/lamp.md: lamps", &pages).len(), 1);
    }

    #[test]
    fn only_the_first_results_count() {
        let many: Vec<String> = (0..5).map(|number| format!("lamp{number}.md")).collect();
        let mut pages: Vec<(&str, &str)> = many.iter().map(|it| (&**it, "# Lamp")).collect();
        pages.push(("oven.md", "# Oven\n\nIt has one small lamp, a door, a fan and two knobs."));
        assert_eq!(unanswered_of("oven.md: lamp", &guide(&pages)).len(), 1);
    }
}
