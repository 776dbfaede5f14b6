//! The calls by which tests compare a page with what they have measured. They need no line in
//! `figures.txt`.

use std::ops::Range;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::super::File;
use super::pages;

/// The functions of `zk_tests::page` that check the second cell of a row, up to a semicolon.
const CELLS: &[&str] = &["check_requests", "check_round_trips"];
/// The function there that checks a text, in which `{}` is a number.
const TEXT: &str = "check_text";

const FOLDERS: &[&str] = &["crates/", "tests/exhaustive/", "tests/processes/", "tests/tests/"];
const THIS: &str = "tests/tests/tidy/";

/// A part of a page that a test checks.
pub(super) struct Call<'a> {
    /// The file of the test.
    pub(super) test: &'a str,
    pub(super) page: String,
    is_cell: bool,
    text: String,
}

/// Returns the calls of all tests. Their first two arguments have to be literals, or names that the
/// file gives to literals.
pub(super) fn calls(files: &[File]) -> Result<Vec<Call<'_>>, String> {
    let mut calls = Vec::new();
    let is_test = |path: &str| {
        path.ends_with(".rs")
            && FOLDERS.iter().any(|folder| path.starts_with(folder))
            && !path.starts_with(THIS)
    };
    for file in files.iter().filter(|file| is_test(&file.path) && file.text.contains("page::check"))
    {
        let tokens = file.text.parse().map_err(|error| format!("{}: {error}", file.path))?;
        find(file, tokens, &mut calls)?;
    }
    Ok(calls)
}

fn find<'a>(file: &'a File, tokens: TokenStream, calls: &mut Vec<Call<'a>>) -> Result<(), String> {
    let mut name = None;
    for token in tokens {
        let TokenTree::Group(group) = token else {
            name = Some(token.to_string());
            continue;
        };
        let is_cell = name.as_ref().is_some_and(|name| CELLS.contains(&&**name));
        let is_text = name.as_deref() == Some(TEXT);
        if (is_cell || is_text) && group.delimiter() == Delimiter::Parenthesis {
            let mut arguments = group.stream().into_iter().filter_map(|it| literal(file, &it));
            let (Some(page), Some(text)) = (arguments.next(), arguments.next()) else {
                let name = name.unwrap_or_default();
                return Err(format!("{}: {name} needs literals: {}", file.path, group.stream()));
            };
            calls.push(Call { test: &file.path, page, is_cell, text });
        } else {
            find(file, group.stream(), calls)?;
        }
        name = None;
    }
    Ok(())
}

/// Returns the text of a literal, or of a name for one.
fn literal(file: &File, token: &TokenTree) -> Option<String> {
    let parsed = |text: &str| syn::parse_str::<syn::LitStr>(text).ok().map(|it| it.value());
    match token {
        TokenTree::Literal(it) => parsed(&it.to_string()),
        TokenTree::Ident(name) => {
            // The last binding before the call.
            let before = file.text.get(..name.span().byte_range().start)?;
            let begins = [format!("const {name}: &str ="), format!("let {name} =")];
            let ends = begins.iter().filter_map(|it| before.rfind(it).map(|at| at + it.len()));
            parsed(before.get(ends.max()?..)?.split_once(";\n")?.0.trim())
        }
        TokenTree::Group(_) | TokenTree::Punct(_) => None,
    }
}

impl Call<'_> {
    /// Returns the parts of the page that the test checks, or nothing if the page lacks them.
    pub(super) fn parts(&self, page: &str) -> Vec<Range<usize>> {
        if self.is_cell {
            let row = format!("\n| {} | ", self.text);
            let cell = pages::place(page, &row).map(|row| {
                let rest = page.get(row.end..).unwrap_or_default();
                let length = rest.find([';', '|']).unwrap_or(rest.len());
                row.end..row.end + length
            });
            return cell.into_iter().collect();
        }
        let mut pieces = self.text.split("{}");
        let first = pieces.next().unwrap_or_default();
        let pieces: Vec<&str> = pieces.collect();
        let found = page.match_indices(first).filter_map(|(at, _)| {
            let mut end = at + first.len();
            let mut parts = Vec::new();
            for piece in &pieces {
                let rest = page.get(end..)?;
                let length = pages::length(rest);
                rest.get(length..)?.starts_with(piece).then_some(())?;
                parts.push(end..end + length);
                end += length + piece.len();
            }
            Some(parts)
        });
        let found: Vec<_> = found.collect();
        <[_; 1]>::try_from(found).map(|[parts]| parts).unwrap_or_default()
    }
}
