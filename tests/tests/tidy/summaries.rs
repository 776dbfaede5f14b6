//! The first paragraphs of the documentation in the sources, and the names of parameters, by crate,
//! type and member.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use super::File;

/// A type, or nothing for a function that belongs to none, and the name of a member, or nothing for
/// the type.
type Key = (String, String);

/// What the sources of a crate say about its public types, their public methods, fields and
/// variants, and its functions.
#[derive(Default)]
pub(crate) struct Known {
    /// The first paragraph of the documentation.
    pub(crate) summaries: BTreeMap<Key, String>,
    /// The names of the parameters, without `self`.
    pub(crate) parameters: BTreeMap<Key, Vec<String>>,
    /// The types that have another name as well, by that name: with their arguments, and without.
    aliases: BTreeMap<String, [String; 2]>,
}

/// Returns what the sources below a folder say, such as `crates/zk-recipes`.
pub(crate) fn known(files: &[File], folder: &str) -> Known {
    let source = format!("{folder}/src/");
    let mut found = Known::default();
    let is_of_crate = |file: &&File| file.path.starts_with(&source) && file.path.ends_with(".rs");
    for file in files.iter().filter(is_of_crate) {
        let parsed = syn::parse_file(&file.text).expect("it compiles");
        collect(&parsed.items, &mut found);
    }
    // An alias may be one of an alias.
    for _ in 0..2 {
        for (alias, of) in found.aliases.clone() {
            for of in of {
                copy(&mut found.summaries, &alias, &of);
                copy(&mut found.parameters, &alias, &of);
            }
        }
    }
    let with_arguments = found.summaries.keys().chain(found.parameters.keys());
    let with_arguments: BTreeSet<String> =
        with_arguments.map(|(of, _)| of.clone()).filter(|of| of.contains('<')).collect();
    for of in with_arguments {
        let own = of.split('<').next().unwrap_or_default().to_owned();
        copy(&mut found.summaries, &of, &own);
        copy(&mut found.parameters, &of, &own);
    }
    found
}

/// Lets a type have the members that are implemented for another name of it.
fn copy<T: Clone>(known: &mut BTreeMap<Key, T>, alias: &str, of: &str) {
    let members = known.iter().filter(|((own, name), _)| own == alias && !name.is_empty());
    let members: Vec<_> =
        members.map(|((_, name), it)| ((of.to_owned(), name.clone()), it.clone())).collect();
    for (key, it) in members {
        known.entry(key).or_insert(it);
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other items have members with a page")]
fn collect(items: &[syn::Item], found: &mut Known) {
    for item in items {
        match item {
            syn::Item::Struct(it) if is_public(&it.vis) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
                for field in it.fields.iter().filter(|it| is_public(&it.vis)) {
                    if let Some(name) = &field.ident {
                        note(found, &it.ident, &name.to_string(), &field.attrs);
                    }
                }
            }
            syn::Item::Enum(it) if is_public(&it.vis) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
                for variant in &it.variants {
                    note(found, &it.ident, &variant.ident.to_string(), &variant.attrs);
                    for field in &variant.fields {
                        if let Some(name) = &field.ident {
                            let name = format!("{}::{name}", variant.ident);
                            note(found, &it.ident, &name, &field.attrs);
                        }
                    }
                }
            }
            syn::Item::Impl(it) if it.trait_.is_none() => {
                let syn::Type::Path(of) = &*it.self_ty else { continue };
                let parameters = it.generics.type_params().map(|it| it.ident.to_string());
                let of = written(&of.path, &parameters.collect::<Vec<_>>());
                for member in &it.items {
                    match member {
                        syn::ImplItem::Fn(it) if is_public(&it.vis) => {
                            note_as(found, of.clone(), it.sig.ident.to_string(), &it.attrs);
                            note_parameters(found, &of, &it.sig);
                        }
                        syn::ImplItem::Const(it) if is_public(&it.vis) => {
                            note_as(found, of.clone(), it.ident.to_string(), &it.attrs);
                        }
                        _ => {}
                    }
                }
            }
            syn::Item::Type(it) if is_public(&it.vis) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
                if let syn::Type::Path(of) = &*it.ty {
                    let of = written(&of.path, &[]);
                    let own = of.split('<').next().unwrap_or_default().to_owned();
                    found.aliases.insert(it.ident.to_string(), [of, own]);
                }
            }
            syn::Item::Const(it) if is_public(&it.vis) => note(found, &it.ident, "", &it.attrs),
            syn::Item::Fn(it) if is_public(&it.vis) => {
                note_as(found, String::new(), it.sig.ident.to_string(), &it.attrs);
                note_parameters(found, "", &it.sig);
            }
            syn::Item::Macro(it) => note_tokens(found, it.mac.tokens.clone()),
            syn::Item::Mod(it) => {
                if let Some((_, items)) = &it.content {
                    collect(items, found);
                }
            }
            _ => {}
        }
    }
}

/// Returns a type without modules, such as `Lock<Lead>`, and without arguments if all of them are
/// parameters.
fn written(path: &syn::Path, parameters: &[String]) -> String {
    let Some(last) = path.segments.last() else { return String::new() };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return last.ident.to_string();
    };
    let arguments = arguments.args.iter().map(|it| {
        if let syn::GenericArgument::Type(syn::Type::Path(it)) = it {
            written(&it.path, parameters)
        } else if let syn::GenericArgument::Lifetime(it) = it {
            format!("'{}", it.ident)
        } else {
            "_".to_owned()
        }
    });
    let arguments: Vec<String> = arguments.collect();
    if arguments.iter().all(|it| parameters.contains(it) || it.starts_with('\'')) {
        return last.ident.to_string();
    }
    format!("{}<{}>", last.ident, arguments.join(", "))
}

/// Records what the type parameters are that nobody names, under the name `<>`.
fn note_defaults(found: &mut Known, of: &syn::Ident, generics: &syn::Generics) {
    let defaults = generics.type_params().filter_map(|parameter| {
        let (_, default) = parameter.default.as_ref()?;
        let default = if let syn::Type::Path(default) = default {
            default.path.segments.last()?.ident.to_string()
        } else if let syn::Type::Tuple(default) = default
            && default.elems.is_empty()
        {
            "()".to_owned()
        } else {
            return None;
        };
        Some(format!("{} = {default}", parameter.ident))
    });
    let defaults: Vec<String> = defaults.collect();
    if !defaults.is_empty() {
        let text = format!("Unless they are named: {}.", defaults.join(", "));
        found.summaries.entry((of.to_string(), "<>".to_owned())).or_insert(text);
    }
}

fn note_parameters(found: &mut Known, of: &str, signature: &syn::Signature) {
    let names = signature.inputs.iter().filter_map(|input| match input {
        syn::FnArg::Receiver(_) => None,
        syn::FnArg::Typed(it) => Some(if let syn::Pat::Ident(it) = &*it.pat {
            it.ident.to_string()
        } else {
            "_".to_owned()
        }),
    });
    let key = (of.to_owned(), signature.ident.to_string());
    found.parameters.entry(key).or_insert_with(|| names.collect());
}

/// Records the types that a macro declares, with their fields: `pub struct`, a name, and then each
/// documented name.
fn note_tokens(found: &mut Known, tokens: TokenStream) {
    let (mut of, mut is_struct) = (None, false);
    note_members(found, tokens, &mut of, &mut is_struct);
}

fn note_members(
    found: &mut Known,
    tokens: TokenStream,
    of: &mut Option<syn::Ident>,
    is_struct: &mut bool,
) {
    let mut lines: Vec<String> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => match syn::parse2::<syn::MetaNameValue>(group.stream()) {
                Ok(it) if it.path.is_ident("doc") => lines.extend(text_of(&it.value)),
                _ => note_members(found, group.stream(), of, is_struct),
            },
            TokenTree::Ident(it) if it == "pub" => {}
            TokenTree::Ident(it) if it == "struct" => *is_struct = true,
            TokenTree::Ident(it) => {
                let is_type = std::mem::take(is_struct);
                let name = if is_type { String::new() } else { it.to_string() };
                if is_type {
                    *of = Some(it);
                }
                let sentence = summary(std::mem::take(&mut lines).into_iter());
                if let (Some(of), Some(sentence)) = (&*of, sentence) {
                    found.summaries.entry((of.to_string(), name)).or_insert(sentence);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn note(found: &mut Known, of: &syn::Ident, name: &str, attributes: &[syn::Attribute]) {
    note_as(found, of.to_string(), name.to_owned(), attributes);
}

fn note_as(found: &mut Known, of: String, name: String, attributes: &[syn::Attribute]) {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(it) = &attribute.meta else { return None };
        it.path.is_ident("doc").then(|| text_of(&it.value)).flatten()
    });
    if let Some(sentence) = summary(lines) {
        found.summaries.entry((of, name)).or_insert(sentence);
    }
}

/// Returns the text of a literal.
fn text_of(value: &syn::Expr) -> Option<String> {
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else { return None };
    Some(text.value())
}

/// Returns the first paragraph of lines of documentation, and that about errors, without links.
fn summary(lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    let paragraph = |lines: &mut dyn Iterator<Item = &String>| {
        let lines = lines.skip_while(|it| it.is_empty()).take_while(|it| !it.is_empty());
        without_links(&lines.map(String::as_str).collect::<Vec<_>>().join(" "))
    };
    let mut text = paragraph(&mut lines.iter());
    let mut errors = lines.iter().skip_while(|it| *it != "# Errors").skip(1).peekable();
    if errors.peek().is_some() {
        text.push_str(" Errors: ");
        text.push_str(&paragraph(&mut errors));
    }
    (!text.is_empty()).then_some(text)
}

fn without_links(paragraph: &str) -> String {
    let (mut text, mut is_address) = (String::new(), false);
    let mut before = ' ';
    for character in paragraph.chars() {
        match character {
            '[' => {}
            ']' => {}
            '(' if before == ']' => is_address = true,
            ')' if is_address => is_address = false,
            _ if is_address => {}
            other => text.push(other),
        }
        before = character;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_first_paragraph_and_the_errors_without_links() {
        let first = |text: &str| summary(text.lines().map(str::to_owned));
        let text = " Returns the [`Lock`](crate::Lock) (of\n this client). It\n waits.\n\n More.";
        assert_eq!(first(text).as_deref(), Some("Returns the `Lock` (of this client). It waits."));
        let text = " Holds\n a lock\n\n # Errors\n\n [`Closed`](A::Closed).\n\n More.";
        assert_eq!(first(text).as_deref(), Some("Holds a lock Errors: `Closed`."));
        assert_eq!(first(""), None);
    }

    #[test]
    fn what_is_public_has_summaries_and_parameters() {
        let source = "
            /// A lock.
            pub struct Lock<K: Kind = kind::Fair> { /// Its path.
                pub path: String, kind: K }
            /// A state.
            pub enum State { /// It is held.
                Held, Lost { /// Why.
                    reason: u8 } }
            impl<K: Kind> Lock<K> {
                /// Takes it.
                pub fn acquire(&self) {}
                /// Hidden.
                fn own(&self) {}
            }
            /// Hidden.
            struct Own;
            pub type Gate = Lock<kind::Gate>;
            impl Gate {
                /// Opens it.
                pub fn open<T>(self, times: u32, by: T) {}
            }
            impl Lock<kind::Door> {
                /// Opens the door.
                pub fn open(self) {}
            }
            /// Adds.
            pub fn add(one: u8, other: u8) {}
            counters! {
                /// Numbers.
                pub struct Stats
                counts { /// How often.
                    attempts = Counter \"total\";
                    lost; }
            }";
        let path = "crates/a/src/lock.rs".to_owned();
        let files = [File { path, text: source.to_owned() }];
        let known = known(&files, "crates/a");
        let found: Vec<_> = known
            .summaries
            .iter()
            .filter(|((of, _), _)| of != "Gate")
            .map(|((of, name), text)| format!("{of} {name}: {text}"))
            .collect();
        let expected = [
            " add: Adds.",
            "Lock : A lock.",
            "Lock <>: Unless they are named: K = Fair.",
            "Lock acquire: Takes it.",
            "Lock open: Opens it.",
            "Lock path: Its path.",
            "Lock<Door> open: Opens the door.",
            "Lock<Gate> open: Opens it.",
            "State : A state.",
            "State Held: It is held.",
            "State Lost::reason: Why.",
            "Stats : Numbers.",
            "Stats attempts: How often.",
        ];
        assert_eq!(found, expected);
        let of = |of: &str, name: &str| known.parameters[&(of.to_owned(), name.to_owned())].clone();
        assert_eq!(of("Lock<Gate>", "open"), ["times", "by"]);
        assert_eq!(of("Lock<Door>", "open"), [""; 0]);
        assert_eq!(of("", "add"), ["one", "other"]);
    }
}
