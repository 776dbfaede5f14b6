//! The first sentences of the documentation in the sources, by crate, type and member.

use std::collections::BTreeMap;

use super::File;

/// The first sentence of each documented type, under an empty name, and of its public methods, its
/// fields and variants.
pub(crate) type Sentences = BTreeMap<(String, String), String>;

/// Returns the sentences in the sources below a folder, such as `crates/zk-recipes`.
pub(crate) fn sentences(files: &[File], folder: &str) -> Sentences {
    let source = format!("{folder}/src/");
    let mut found = Sentences::new();
    let is_of_crate = |file: &&File| file.path.starts_with(&source) && file.path.ends_with(".rs");
    for file in files.iter().filter(is_of_crate) {
        let parsed = syn::parse_file(&file.text).expect("it compiles");
        collect(&parsed.items, &mut found);
    }
    found
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other items have members with a page")]
fn collect(items: &[syn::Item], found: &mut Sentences) {
    for item in items {
        match item {
            syn::Item::Struct(it) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
                for field in &it.fields {
                    if let Some(name) = &field.ident {
                        note(found, &it.ident, &name.to_string(), &field.attrs);
                    }
                }
            }
            syn::Item::Enum(it) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
                for variant in &it.variants {
                    note(found, &it.ident, &variant.ident.to_string(), &variant.attrs);
                }
            }
            syn::Item::Impl(it) if it.trait_.is_none() => {
                let syn::Type::Path(of) = &*it.self_ty else { continue };
                let Some(of) = of.path.segments.last() else { continue };
                for member in &it.items {
                    let (name, attributes, visibility) = match member {
                        syn::ImplItem::Fn(it) => (&it.sig.ident, &it.attrs, &it.vis),
                        syn::ImplItem::Const(it) => (&it.ident, &it.attrs, &it.vis),
                        _ => continue,
                    };
                    if matches!(visibility, syn::Visibility::Public(_)) {
                        note(found, &of.ident, &name.to_string(), attributes);
                    }
                }
            }
            syn::Item::Type(it) => {
                note(found, &it.ident, "", &it.attrs);
                note_defaults(found, &it.ident, &it.generics);
            }
            syn::Item::Mod(it) => {
                if let Some((_, items)) = &it.content {
                    collect(items, found);
                }
            }
            _ => {}
        }
    }
}

/// Records what the type parameters are that nobody names, under the name `<>`.
fn note_defaults(found: &mut Sentences, of: &syn::Ident, generics: &syn::Generics) {
    let defaults = generics.type_params().filter_map(|parameter| {
        let Some((_, syn::Type::Path(default))) = &parameter.default else { return None };
        let default = &default.path.segments.last()?.ident;
        Some(format!("{} = {default}", parameter.ident))
    });
    let defaults: Vec<String> = defaults.collect();
    if !defaults.is_empty() {
        let text = format!("Unless they are named: {}.", defaults.join(", "));
        found.entry((of.to_string(), "<>".to_owned())).or_insert(text);
    }
}

fn note(found: &mut Sentences, of: &syn::Ident, name: &str, attributes: &[syn::Attribute]) {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(it) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &it.value else {
            return None;
        };
        it.path.is_ident("doc").then(|| text.value())
    });
    if let Some(sentence) = first_sentence(lines) {
        found.entry((of.to_string(), name.to_owned())).or_insert(sentence);
    }
}

/// Returns the first sentence of lines of documentation, without links.
fn first_sentence(lines: impl Iterator<Item = String>) -> Option<String> {
    let lines = lines.map(|line| line.trim().to_owned()).take_while(|line| !line.is_empty());
    let paragraph = lines.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    let (mut text, mut is_address) = (String::new(), false);
    let mut before = ' ';
    for character in paragraph[..end].chars() {
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
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_with_its_paragraph_and_has_no_links() {
        let first = |text: &str| first_sentence(text.lines().map(str::to_owned));
        let text = " Returns the [`Lock`](crate::Lock) (of\n this client). It\n waits.\n\n More.";
        assert_eq!(first(text).as_deref(), Some("Returns the `Lock` (of this client)."));
        assert_eq!(first(" Holds\n a lock\n\n # Errors").as_deref(), Some("Holds a lock"));
        assert_eq!(first(""), None);
    }

    #[test]
    fn members_that_are_public_have_sentences() {
        let source = "
            /// A lock.
            pub struct Lock<K: Kind = kind::Fair> { /// Its path.
                pub path: String, kind: K }
            /// A state.
            pub enum State { /// It is held.
                Held, Lost }
            impl<K: Kind> Lock<K> {
                /// Takes it.
                pub fn acquire(&self) {}
                /// Hidden.
                fn own(&self) {}
            }";
        let path = "crates/a/src/lock.rs".to_owned();
        let files = [File { path, text: source.to_owned() }];
        let found = sentences(&files, "crates/a");
        let found: Vec<_> =
            found.iter().map(|((of, name), text)| format!("{of} {name}: {text}")).collect();
        let expected = [
            "Lock : A lock.",
            "Lock <>: Unless they are named: K = Fair.",
            "Lock acquire: Takes it.",
            "Lock path: Its path.",
            "State : A state.",
            "State Held: It is held.",
        ];
        assert_eq!(found, expected);
    }
}
