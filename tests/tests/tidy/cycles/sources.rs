//! The modules of a crate: the names that each module defines or imports, and the paths that it
//! mentions.

use std::collections::{BTreeMap, HashMap};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemImpl, ItemMacro, ItemMod, ItemUse, Macro, Path, Type, UseTree,
    Visibility,
    visit::{self, Visit},
};

/// Indexes [`Crate::modules`].
pub(crate) type ModuleId = usize;

pub(crate) struct Crate {
    /// All modules. The first one is the root.
    pub(crate) modules: Vec<Module>,
    /// The module that defines a macro by example, by the macro's name.
    pub(crate) macros: HashMap<String, ModuleId>,
}

impl Crate {
    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        self.modules.get(id).expect("ids are positions in this list")
    }
}

pub(crate) struct Module {
    pub(crate) parent: Option<ModuleId>,
    /// The path from the root of the repository. An inline module shares the file of its parent.
    pub(crate) file: String,
    /// The names in scope. A name may have several meanings, for example a function and a module.
    pub(crate) names: BTreeMap<String, Vec<Name>>,
    /// The modules (or enums) of which this module imports everything.
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) mentions: Vec<Mention>,
    /// The types for which this module has an inherent `impl`.
    pub(crate) impls: Vec<Vec<String>>,
}

pub(crate) enum Name {
    /// An item that is defined here, but is not a module.
    Item,
    Module(ModuleId),
    /// An imported item. The path is relative to the importing module.
    Import(Vec<String>),
}

pub(crate) struct Mention {
    pub(crate) kind: MentionKind,
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum MentionKind {
    Import,
    GlobImport,
    ReExport,
    /// A path in an item or in an expression.
    Use,
    /// The name of a macro that is invoked.
    Invocation,
}

/// Reads all modules of the crate with this root file, except for modules that exist only in tests.
pub(crate) fn read(root: &str, text_of: &dyn Fn(&str) -> Option<String>) -> Crate {
    let mut reader = Reader {
        text_of,
        module: 0,
        module_path: Vec::new(),
        found: Crate { modules: Vec::new(), macros: HashMap::new() },
    };
    reader.read_file(root.to_owned(), None);
    reader.found
}

struct Reader<'a> {
    text_of: &'a dyn Fn(&str) -> Option<String>,
    module: ModuleId,
    /// The names of the modules from the root to `module`.
    module_path: Vec<String>,
    found: Crate,
}

impl Reader<'_> {
    fn read_file(&mut self, file: String, parent: Option<ModuleId>) -> ModuleId {
        let text = (self.text_of)(&file).unwrap_or_else(|| panic!("{file} cannot be read"));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.read_module(file, parent, &parsed.items)
    }

    fn read_module(&mut self, file: String, parent: Option<ModuleId>, items: &[Item]) -> ModuleId {
        let id = self.found.modules.len();
        self.found.modules.push(Module {
            parent,
            file,
            names: BTreeMap::new(),
            globs: Vec::new(),
            mentions: Vec::new(),
            impls: Vec::new(),
        });
        let outer = std::mem::replace(&mut self.module, id);
        for item in items {
            if !is_for_tests(attributes(item)) {
                self.define(item);
                self.visit_item(item);
            }
        }
        self.module = outer;
        id
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other items define no name")]
    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => return self.define_of_macro(item),
            _ => return,
        };
        self.add_name(name.to_string(), Name::Item);
    }

    /// Guesses the items that a macro invocation defines. Macros that declare types commonly repeat
    /// the keyword.
    fn define_of_macro(&mut self, item: &ItemMacro) {
        if let Some(name) = &item.ident {
            self.found.macros.insert(name.to_string(), self.module);
            return;
        }
        let tokens: Vec<TokenTree> = item.mac.tokens.clone().into_iter().collect();
        for pair in tokens.windows(2) {
            if let [TokenTree::Ident(keyword), TokenTree::Ident(name)] = pair
                && ["const", "enum", "fn", "struct", "trait", "type"].iter().any(|k| keyword == k)
            {
                self.add_name(name.to_string(), Name::Item);
            }
        }
    }

    fn add_name(&mut self, name: String, what: Name) {
        self.module().names.entry(name).or_default().push(what);
    }

    fn mention(&mut self, kind: MentionKind, path: Vec<String>, line: usize) {
        self.module().mentions.push(Mention { kind, path, line });
    }

    fn module(&mut self) -> &mut Module {
        self.found.modules.get_mut(self.module).expect("it was pushed before it was entered")
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], kind: MentionKind) {
        let path_to = |name: &str| {
            let mut path = prefix.to_vec();
            // `use a::{self}` names `a`.
            if name != "self" || prefix.is_empty() {
                path.push(name.to_owned());
            }
            path
        };
        let (ident, name, path) = match tree {
            UseTree::Path(inner) => {
                let path = path_to(&inner.ident.to_string());
                return self.import(&inner.tree, &path, kind);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|inner| self.import(inner, prefix, kind));
            }
            UseTree::Glob(glob) => {
                self.module().globs.push(prefix.to_vec());
                let kind = if kind == MentionKind::Import { MentionKind::GlobImport } else { kind };
                let line = glob.star_token.spans[0].start().line;
                return self.mention(kind, prefix.to_vec(), line);
            }
            UseTree::Name(leaf) => {
                let path = path_to(&leaf.ident.to_string());
                (&leaf.ident, path.last().cloned().unwrap_or_default(), path)
            }
            UseTree::Rename(leaf) => {
                (&leaf.ident, leaf.rename.to_string(), path_to(&leaf.ident.to_string()))
            }
        };
        self.add_name(name, Name::Import(path.clone()));
        self.mention(kind, path, line_of(ident));
    }

    /// Collects the paths in the arguments or the definition of a macro, which `syn` does not
    /// parse.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut tokens = tokens.into_iter().peekable();
        // Whether a dot or a dollar sign precedes the next identifier.
        let (mut is_field, mut is_variable) = (false, false);
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    if path.is_empty() {
                        line = line_of(&ident);
                    }
                    // `$name` stands for an argument, but `$crate` is the root.
                    if is_field || (is_variable && name != "crate") {
                        path.clear();
                    } else {
                        path.push(name);
                    }
                    (is_field, is_variable) = (false, false);
                    if !is_path_separator(tokens.peek()) {
                        self.end_of_path(&mut path, line);
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => {
                    // This skips the second colon. Anything but an identifier after it ends the
                    // path.
                    tokens.next();
                    if !matches!(tokens.peek(), Some(TokenTree::Ident(_))) {
                        self.end_of_path(&mut path, line);
                    }
                }
                TokenTree::Punct(mark) => {
                    is_field = mark.as_char() == '.' && mark.spacing() == Spacing::Alone;
                    is_variable = mark.as_char() == '$';
                }
                TokenTree::Group(group) => {
                    (is_field, is_variable) = (false, false);
                    self.end_of_path(&mut path, line);
                    self.scan(group.stream());
                    debug_assert!(group.delimiter() != Delimiter::None || path.is_empty());
                }
                TokenTree::Literal(_) => (is_field, is_variable) = (false, false),
            }
        }
    }

    fn end_of_path(&mut self, path: &mut Vec<String>, line: usize) {
        if !path.is_empty() {
            self.mention(MentionKind::Use, std::mem::take(path), line);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        let outer = self.module;
        self.module_path.push(name.clone());
        let id = match &item.content {
            Some((_, items)) => {
                let file = self.module().file.clone();
                self.read_module(file, Some(outer), items)
            }
            None => {
                let file = self.file_of_child(item);
                self.read_file(file, Some(outer))
            }
        };
        self.module_path.pop();
        self.add_name(name, Name::Module(id));
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_some() {
            return;
        }
        let is_private = matches!(item.vis, Visibility::Inherited);
        let kind = if is_private { MentionKind::Import } else { MentionKind::ReExport };
        self.import(&item.tree, &[], kind);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let (None, Type::Path(of)) = (&item.trait_, &*item.self_ty) {
            let path = names(&of.path);
            self.module().impls.push(path);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            self.mention(MentionKind::Use, names(path), line_of_path(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        let line = line_of_path(&invoked.path);
        self.mention(MentionKind::Invocation, names(&invoked.path), line);
        self.scan(invoked.tokens.clone());
    }

    /// Skips attributes, because their arguments are not code of this crate.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

impl Reader<'_> {
    fn file_of_child(&mut self, item: &ItemMod) -> String {
        let has_path = item.attrs.iter().any(|attribute| attribute.path().is_ident("path"));
        assert!(!has_path, "`mod {}` has a #[path], which this check does not follow", item.ident);
        let root = self.found.modules.first().expect("the root is the first module");
        let folder = root.file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let base = format!("{folder}/{}", self.module_path.join("/"));
        let flat = format!("{base}.rs");
        if (self.text_of)(&flat).is_some() { flat } else { format!("{base}/mod.rs") }
    }
}

fn is_path_separator(next: Option<&TokenTree>) -> bool {
    matches!(next, Some(TokenTree::Punct(mark))
        if mark.as_char() == ':' && mark.spacing() == Spacing::Joint)
}

fn names(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn line_of_path(path: &Path) -> usize {
    path.segments.first().map_or(0, |segment| line_of(&segment.ident))
}

fn line_of(ident: &Ident) -> usize {
    ident.span().start().line
}

/// Returns whether the attributes contain `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut is_found = attribute.path().is_ident("test");
        if attribute.path().is_ident("cfg") {
            // An error is ignored: an attribute that is not a list of conditions cannot contain the
            // condition `test`.
            let _ = attribute.parse_nested_meta(|condition| {
                is_found |= condition.path.is_ident("test");
                if condition.path.is_ident("all") {
                    condition.parse_nested_meta(|inner| {
                        is_found |= inner.path.is_ident("test");
                        Ok(())
                    })?;
                }
                Ok(())
            });
        }
        is_found
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other items are not used here")]
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
