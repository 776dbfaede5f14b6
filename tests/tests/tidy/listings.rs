//! Lists that have an entry for each recipe, page or suite. An entry that is missing is made of what
//! the recipe says elsewhere: the title of its page, its row in the crate's documentation, the first
//! sentence of its module or suite. Entries that exist are left as they are, so anyone may improve
//! them.

use super::{
    File,
    layout::SUITES_PAGE,
    recipes::{Recipe, SOURCE},
    tree_rules::undescribed,
};

const GUIDE: &str = "docs/SUMMARY.md";
const INTERNALS: &str = "docs/internals/SUMMARY.md";
const OVERVIEW: &str = "docs/recipes/overview.md";
const EVENTS: &str = "docs/internals/connection-loss.md";
/// How the table there begins, and how an internal page says what its recipe concludes from an event:
/// the conclusion, a bar, and why the next read is not older.
const EVENTS_HEAD: &str = "| recipe | it concludes from an event |";
const CONCLUDES: (&str, &str) = ("<!-- concludes: ", " -->");
const MAP: &str = "ARCHITECTURE.md";
/// The section of the map that lists the folders of the recipes.
const MAP_SECTION: &str = "### `crates/zk-recipes`";

/// Returns each page with lists, with all entries.
pub(crate) fn completed(files: &[File], recipes: &[Recipe]) -> Vec<(&'static str, String)> {
    vec![
        (GUIDE, with_pages(files, GUIDE, "  - ")),
        (INTERNALS, with_pages(files, INTERNALS, "- ")),
        (OVERVIEW, with_recipes(files, recipes)),
        (EVENTS, with_conclusions(files, recipes)),
        (MAP, with_folders(files, recipes)),
        (SUITES_PAGE, with_suites(files)),
    ]
}

pub(crate) fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &*file.text)
}

/// Adds the pages of recipes to the summary of a book. `bullet` begins an entry.
fn with_pages(files: &[File], summary: &str, bullet: &str) -> String {
    let book = summary.trim_end_matches("SUMMARY.md");
    let old = text(files, summary);
    let pages = files.iter().filter_map(|file| Some((file.path.strip_prefix(book)?, &file.text)));
    let pages = pages.filter(|(page, _)| page.starts_with("recipes/") && page.ends_with(".md"));
    let missing = pages.filter(|(page, _)| !old.contains(&format!("({page})")));
    let entries = missing.map(|(page, text)| {
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        format!("{bullet}[{title}]({page})")
    });
    with(old, |line| line.contains("](recipes/"), entries)
}

/// Adds the recipes to the overview.
fn with_recipes(files: &[File], recipes: &[Recipe]) -> String {
    let old = text(files, OVERVIEW);
    let crate_page = text(files, &format!("{SOURCE}lib.rs"));
    let entries = recipes.iter().filter(|it| !old.contains(&format!("`{}`", it.item))).map(|it| {
        let is_its = |row: &&str| row.contains(&format!("| [`{}`] |", it.item));
        let row = crate_page.lines().find(is_its).unwrap_or_default();
        let wanted = row.trim_start_matches("//! | ").split(" | ").next().unwrap_or_default();
        let page = [&it.folder, &it.suite].into_iter().map(|name| format!("{name}.md"));
        let mut page = page.filter(|page| !text(files, &format!("docs/recipes/{page}")).is_empty());
        match page.next() {
            Some(page) => format!("| [`{}`]({page}) | {wanted} |", it.item),
            None => format!("| `{}` | {wanted} |", it.item),
        }
    });
    with(old, |line| line.starts_with("| "), entries)
}

/// Adds what recipes conclude from events to the page about that.
fn with_conclusions(files: &[File], recipes: &[Recipe]) -> String {
    let old = text(files, EVENTS);
    let (before, rest) = old.split_once(EVENTS_HEAD).unwrap_or((old, ""));
    let (table, after) = rest.split_at(rest.find("\n\n").unwrap_or(rest.len()));
    let missing = recipes.iter().filter(|it| !table.contains(&format!("`{}`", it.item)));
    let entries = missing.filter_map(|it| {
        let source = format!("`{SOURCE}{}`", it.folder);
        let pages = files.iter().filter(|file| file.path.starts_with("docs/internals/recipes/"));
        let mut lines =
            pages.filter(|page| page.text.contains(&source)).flat_map(|page| page.text.lines());
        let conclusion =
            lines.find_map(|line| line.strip_prefix(CONCLUDES.0)?.strip_suffix(CONCLUDES.1))?;
        Some(format!("| `{}` | {conclusion} |", it.item))
    });
    let table = with(table, |line| line.starts_with("| "), entries);
    let head = if rest.is_empty() { "" } else { EVENTS_HEAD };
    format!("{before}{head}{table}{after}")
}

/// Adds the folders of recipes to the map, below all others: a new recipe may use each of them.
fn with_folders(files: &[File], recipes: &[Recipe]) -> String {
    let old = text(files, MAP);
    let (before, rest) = old.split_once(MAP_SECTION).unwrap_or((old, ""));
    let (section, after) = rest.split_at(rest.find("\n### ").unwrap_or(rest.len()));
    let missing = recipes.iter().filter(|it| !section.contains(&format!("`{}/`", it.folder)));
    let entries = missing.map(|it| {
        let module = text(files, &format!("{SOURCE}{}/mod.rs", it.folder));
        format!("- `{}/`: {}.", it.folder, lowered(&sentence(module)))
    });
    let section = with(section, |line| line.starts_with("- "), entries);
    let head = if rest.is_empty() { "" } else { MAP_SECTION };
    format!("{before}{head}{section}{after}")
}

/// Adds the suites to the page about them.
fn with_suites(files: &[File]) -> String {
    let entries = undescribed(files).into_iter().map(|suite| {
        let (folder, name) = suite.rsplit_once('/').unwrap_or(("", &suite));
        let paths = [format!("{folder}/{name}/main.rs"), format!("{folder}/{name}.rs")];
        let mut paths = paths.iter().filter(|path| !text(files, path).is_empty());
        let path = paths.next().unwrap_or(&suite);
        let shown = lowered(&sentence(text(files, path)));
        format!("| {} | `{path}` | {shown} |", name.replace('_', " "))
    });
    let is_suite = |line: &str| line.starts_with('|') && line.contains("| `tests/tests/");
    with(text(files, SUITES_PAGE), is_suite, entries)
}

/// Inserts lines behind the last one of a kind.
fn with(
    text: &str,
    is_entry: impl Fn(&str) -> bool,
    entries: impl Iterator<Item = String>,
) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.iter().rposition(|line| is_entry(line)).map_or(lines.len(), |it| it + 1);
    lines.splice(last..last, entries);
    let end = if text.ends_with('\n') { "\n" } else { "" };
    lines.join("\n") + end
}

/// Returns the first sentence of the documentation of a module, without its period.
fn sentence(module: &str) -> String {
    let lines = module.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let text = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let end = text.find(". ").unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).trim_end_matches('.').to_owned()
}

/// Returns the text with a small letter at the beginning.
fn lowered(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

mod tests {
    //! Tests that missing entries are made, and others kept.

    use super::{EVENTS, File, GUIDE, INTERNALS, MAP, OVERVIEW, SUITES_PAGE, completed};
    use crate::recipes::Recipe;

    fn tree(lists: &[(&str, &str)]) -> Vec<File> {
        let others = [
            ("docs/recipes/lamp.md", "# Lamps\n\nA lamp."),
            (
                "docs/internals/recipes/lamp.md",
                "# Lamps inside\n\nIn `crates/zk-recipes/src/lamp`.\n\n\
                <!-- concludes: it is dark | it looks -->\n",
            ),
            ("crates/zk-recipes/src/lib.rs", "//! | light in a room | [`Lamp`] | [`Light`] |\n"),
            ("crates/zk-recipes/src/lamp/mod.rs", "//! Lights\n//! rooms. And more.\n"),
            ("tests/tests/lamp/main.rs", "//! Lamps burn.\n"),
        ];
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
        lists.iter().chain(&others).map(file).collect()
    }

    #[test]
    fn missing_entries_are_made_and_others_kept() {
        let lamp = || Recipe { folder: "lamp".into(), item: "Lamp".into(), suite: "lamp".into() };
        let old = [
            (GUIDE, "- [A](recipes/overview.md)\n  - [B](recipes/b.md)\n- [C](c.md)\n"),
            (INTERNALS, "- [B](recipes/b.md)\n"),
            (OVERVIEW, "| lock | for |\n|---|---|\n| [`Oven`](oven.md) | heat |\n"),
            (
                EVENTS,
                "| recipe | it concludes from an event | why |\n|---|---|---|\n\n| `a` | b |\n",
            ),
            (MAP, "### `crates/zk-recipes`\n\n- `oven/` heats.\n\n### More\n\n- `x/`.\n"),
            (SUITES_PAGE, "| a | `tests/tests/a.rs` | b |\n| c | `d` | e |\n"),
        ];
        let new = [
            (
                GUIDE,
                "- [A](recipes/overview.md)\n  - [B](recipes/b.md)\n  - [Lamps](recipes/lamp.md)\n- [C](c.md)\n",
            ),
            (INTERNALS, "- [B](recipes/b.md)\n- [Lamps inside](recipes/lamp.md)\n"),
            (
                OVERVIEW,
                "| lock | for |\n|---|---|\n| [`Oven`](oven.md) | heat |\n\
                | [`Lamp`](lamp.md) | light in a room |\n",
            ),
            (
                EVENTS,
                "| recipe | it concludes from an event | why |\n|---|---|---|\n\
                | `Lamp` | it is dark | it looks |\n\n| `a` | b |\n",
            ),
            (
                MAP,
                "### `crates/zk-recipes`\n\n- `oven/` heats.\n- `lamp/`: lights rooms.\n\n\
                ### More\n\n- `x/`.\n",
            ),
            (
                SUITES_PAGE,
                "| a | `tests/tests/a.rs` | b |\n| lamp | `tests/tests/lamp/main.rs` | lamps burn |\n\
                | c | `d` | e |\n",
            ),
        ];
        let owned = new.map(|(path, text)| (path, text.to_owned()));
        assert_eq!(completed(&tree(&old), &[lamp()]), owned);
        assert_eq!(completed(&tree(&new), &[lamp()]), owned);
    }
}
