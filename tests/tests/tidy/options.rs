//! The options of locks: the table in the guide is made of the comments of the setters, its numbers
//! are constants beside them, and each option has a scene that fails without it.

use std::ops::Range;

use syn::{Attribute, Expr, ImplItem, Item, ItemImpl, Lit, Meta, Visibility};

use super::{
    File,
    figures::{numbers_of, spellings_of},
};

/// The file with the options, the page with their table, and the file with their scenes.
pub(crate) const SOURCE: &str = "crates/zk-recipes/src/lock/options.rs";
pub(crate) const PAGE: &str = "docs/recipes/fair.md";
/// The file with the constants that several recipes share.
const SHARED: &str = "crates/zk-recipes/src/machine/watch.rs";
const SCENES: &str = "tests/src/options.rs";

const MARK: &str = "<!-- generated: options -->\n\n";
const HEAD: &str = "| option | default | what it does |\n|---|---|---|\n";

/// Describes each option without a scene, and each number that is no constant.
pub(crate) fn unproven(files: &[File]) -> Vec<String> {
    let code = syn::parse_file(text(files, SOURCE)).expect("the file with the options is Rust");
    let shared = syn::parse_file(text(files, SHARED)).expect("the file with constants is Rust");
    let items = code.items.iter().chain(&shared.items);
    let known: Vec<String> = items.flat_map(constants).collect();
    let mut problems = Vec::new();
    for (option, row) in rows(&code) {
        if !text(files, SCENES).contains(&format!("fn {option}<C: Case>()")) {
            problems.push(format!("{SCENES} has no scene `{option}`"));
        }
        let wrong = numbers_of(&row).into_iter().filter(|number| !known.contains(number));
        problems.extend(wrong.map(|it| format!("{SOURCE}: {option}: {it} is no constant")));
    }
    problems
}

/// Returns the page as it should be.
///
/// # Panics
///
/// If the page has no such table.
pub(crate) fn page(files: &[File]) -> String {
    let code = syn::parse_file(text(files, SOURCE)).expect("the file with the options is Rust");
    let (before, rest) = text(files, PAGE).split_once(MARK).expect("the page has the table");
    let end = rest.find("\n\n").expect("text follows the table");
    let rows: Vec<String> = rows(&code).into_iter().map(|(_, row)| row).collect();
    format!("{before}{MARK}{HEAD}{}{}", rows.join("\n"), &rest[end..])
}

/// Returns where a page has the table.
pub(crate) fn table(page: &str) -> Option<Range<usize>> {
    let start = page.find(MARK)? + MARK.len();
    let length = page.get(start..)?.find("\n\n")?;
    Some(start..start + length)
}

fn text<'a>(files: &'a [File], path: &str) -> &'a str {
    files.iter().find(|file| file.path == path).map_or("", |file| &*file.text)
}

/// Returns the name of each setter, and its row.
fn rows(code: &syn::File) -> Vec<(String, String)> {
    let items = code.items.iter().filter_map(|item| {
        if let Item::Impl(ItemImpl { items, trait_: None, .. }) = item { Some(items) } else { None }
    });
    let setters = items.flatten().filter_map(|item| {
        let ImplItem::Fn(it) = item else { return None };
        matches!(it.vis, Visibility::Public(_)).then_some(it)
    });
    setters
        .map(|setter| {
            let (name, comment) = (setter.sig.ident.to_string(), comment(&setter.attrs));
            let row = row(&name, &comment);
            (name, row)
        })
        .collect()
}

/// Returns a comment as one line, without links.
fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(it) = &attribute.meta else { return None };
        let Expr::Lit(value) = &it.value else { return None };
        let Lit::Str(line) = &value.lit else { return None };
        it.path.is_ident("doc").then(|| line.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut plain = String::new();
    let mut parts = text.split('[');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (shown, rest) = part.split_once(']').unwrap_or((part, ""));
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        plain.push_str(shown);
        plain.push_str(target.map_or(rest, |(_, rest)| rest));
    }
    plain
}

/// Makes a row of the first sentence of a comment, and of what it says of the default.
fn row(name: &str, comment: &str) -> String {
    let sentence = |text: &str| {
        let end = text.find(". ").unwrap_or(text.len());
        text.get(..end).unwrap_or(text).trim_end_matches('.').to_owned()
    };
    let default = comment.split_once("Default: ").map_or("", |(_, rest)| rest);
    let what = sentence(comment);
    let what = what.strip_prefix("Sets ").unwrap_or(&what);
    format!("| `{name}` | {} | {what} |", sentence(default))
}

/// Returns how a page may write the value of a constant.
fn constants(item: &Item) -> Vec<String> {
    if let Item::Const(it) = item { spellings_of(&it.expr) } else { Vec::new() }
}

mod tests {
    //! Tests that an option without its row, scene or constant is noticed.

    use super::{File, HEAD, MARK, PAGE, SCENES, SOURCE, page, unproven};

    const CODE: &str = "impl<L> LockBuilder<L> {\n\
        /// Sets how long it glows, see [the\n/// lamp](crate::Lamp); `None` means never. More of it.\n\
        /// Default: 30 s\n/// ([`GLOW`]). It is warm.\n\
        pub fn glow(self) {}\n\
        pub(crate) fn checked(self) {}\n}\n\
        const GLOW: Duration = Duration::from_secs(30);\n";

    fn tree(code: &str, scenes: &str) -> [File; 3] {
        let table = format!("# A page\n\n{MARK}{HEAD}| `old` | 7 | it was |\n\nAnd more.\n");
        [(SOURCE, code), (PAGE, &*table), (SCENES, scenes)]
            .map(|(path, text)| File { path: path.into(), text: text.into() })
    }

    #[test]
    fn the_table_is_made_of_the_comments() {
        let row =
            "| `glow` | 30 s (`GLOW`) | how long it glows, see the lamp; `None` means never |";
        let expected = format!("# A page\n\n{MARK}{HEAD}{row}\n\nAnd more.\n");
        assert_eq!(page(&tree(CODE, "")), expected);
    }

    #[test]
    fn options_without_a_scene_or_a_constant_are_noticed() {
        let scene = "fn glow<C: Case>() {}";
        assert_eq!(unproven(&tree(CODE, scene)), [""; 0]);
        assert_eq!(unproven(&tree(CODE, "fn glows() {}")).len(), 1);
        assert_eq!(
            unproven(&tree(&CODE.replace("from_secs(30)", "from_secs(31)"), scene)).len(),
            1
        );
    }
}
