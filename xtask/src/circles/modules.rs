//! The modules of a crate: which file each is in, and what it declares, imports and mentions. Tests are left out.
//!
//! Files are read as tokens, not as a syntax tree: names of items, `use` trees and paths are all that is needed, and the bodies of
//! macros, which no syntax tree has, are read with them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A crate from its root file on.
#[derive(Default)]
pub(super) struct Crate {
    pub(super) files: Vec<SourceFile>,
    /// The first is the root.
    pub(super) modules: Vec<Module>,
}

/// A file, and which file declares it.
pub(super) struct SourceFile {
    /// Path from the root of the tree.
    pub(super) name: String,
    pub(super) parent: Option<usize>,
}

/// A path in the code.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// A module: a file, or a part of one between braces.
#[derive(Default)]
pub(super) struct Module {
    pub(super) file: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    /// Names of the items that are defined here.
    pub(super) defined: BTreeSet<String>,
    /// Names that imports bring in, and what they stand for; `_` for those without a name.
    pub(super) aliases: BTreeMap<String, Vec<Mention>>,
    /// Modules and enums all of whose names are imported.
    pub(super) globs: Vec<Mention>,
    /// Paths of two names and more.
    pub(super) mentions: Vec<Mention>,
    /// All identifiers of the code.
    pub(super) words: BTreeSet<String>,
}

impl Module {
    /// Whether the name is one of this module without looking through its glob imports.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.children.contains_key(name) || self.defined.contains(name) || self.aliases.contains_key(name)
    }
}

impl Crate {
    /// Reads the crate whose root file is `file`, a path from `root` on.
    pub(super) fn read(root: &Path, file: &Path) -> Result<Self, String> {
        let mut found = Self::default();
        found.read_file(root, file, None, file.parent().unwrap_or(file))?;
        Ok(found)
    }

    /// Reads a file as a module, and all below it; `folder` is where its children lie. The module's number, if it is no test.
    fn read_file(
        &mut self,
        root: &Path,
        file: &Path,
        parent: Option<usize>,
        folder: &Path,
    ) -> Result<Option<usize>, String> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{name}: {e}"))?;
        let tokens: TokenStream = text.parse().map_err(|e| format!("{name}: not Rust: {e}"))?;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        if is_test(&tokens, true) {
            return Ok(None);
        }
        let declared_in = parent.and_then(|parent| self.modules.get(parent)).map(|parent| parent.file);
        self.files.push(SourceFile { name, parent: declared_in });
        let place = Place { root, file, folder };
        self.read_module(&tokens, self.files.len() - 1, parent, &place).map(Some)
    }

    fn read_module(
        &mut self,
        tokens: &[TokenTree],
        file: usize,
        parent: Option<usize>,
        place: &Place<'_>,
    ) -> Result<usize, String> {
        let number = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        for item in items(tokens) {
            if is_test(item, false) {
                continue;
            }
            let bare = without_attributes(item);
            match bare {
                [TokenTree::Ident(word), TokenTree::Ident(name), body, ..] if word == "mod" => {
                    let name = plain(name);
                    let child =
                        if name == "tests" { None } else { self.child(number, item, &name, body, place)? };
                    if let (Some(child), Some(module)) = (child, self.modules.get_mut(number)) {
                        module.children.insert(name, child);
                    }
                }
                _ => {
                    if let Some(module) = self.modules.get_mut(number) {
                        module.defined.extend(defined_name(bare));
                        module.scan(item);
                    }
                }
            }
        }
        Ok(number)
    }

    /// Reads a module that is declared in another one.
    fn child(
        &mut self,
        parent: usize,
        item: &[TokenTree],
        name: &str,
        body: &TokenTree,
        place: &Place<'_>,
    ) -> Result<Option<usize>, String> {
        let below = place.folder.join(name);
        if let TokenTree::Group(group) = body {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let Some(file) = self.modules.get(parent).map(|module| module.file) else { return Ok(None) };
            let place = Place { folder: &below, ..*place };
            return self.read_module(&tokens, file, Some(parent), &place).map(Some);
        }
        if let Some(path) = path_attribute(item) {
            let file = place.file.parent().unwrap_or(place.file).join(path);
            let folder = file.parent().unwrap_or(&file).to_path_buf();
            return self.read_file(place.root, &file, Some(parent), &folder);
        }
        let beside = below.with_extension("rs");
        let file = if place.root.join(&beside).is_file() { beside } else { below.join("mod.rs") };
        if !place.root.join(&file).is_file() {
            // Made by a build script, or for another system.
            return Ok(None);
        }
        self.read_file(place.root, &file, Some(parent), &below)
    }
}

/// Where a module is read.
#[derive(Clone, Copy)]
struct Place<'a> {
    root: &'a Path,
    file: &'a Path,
    /// Where files of modules lie that are declared here.
    folder: &'a Path,
}

impl Module {
    /// Takes note of all names, imports and paths in these tokens.
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = tokens.get(at..).unwrap_or_default();
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let (attribute, len) = attribute(rest);
                    if attribute.as_deref().is_some_and(says_test) {
                        at += len + without_end(rest.get(len..).unwrap_or_default());
                        continue;
                    }
                    if let Some(attribute) = attribute {
                        self.scan_attribute(&attribute);
                    }
                    at += len;
                    continue;
                }
                TokenTree::Ident(word) if word == "use" => {
                    // `use<'a>` in a type says what it captures.
                    let end = rest.iter().position(|t| is_mark(t, ';')).unwrap_or(rest.len());
                    if !rest.get(1).is_some_and(|t| is_mark(t, '<')) {
                        self.import(rest.get(1..end).unwrap_or_default(), &[]);
                        at += end;
                    }
                }
                TokenTree::Ident(_) => {
                    let after = at.checked_sub(1).and_then(|before| tokens.get(before));
                    let (path, len, line) = path(rest);
                    self.words.extend(path.iter().cloned());
                    if path.len() > 1 && !after.is_some_and(|t| is_mark(t, '.')) {
                        self.mentions.push(Mention { path, line });
                    }
                    at += len;
                    continue;
                }
                TokenTree::Group(group) => self.scan(&group.stream().into_iter().collect::<Vec<_>>()),
                _ => {}
            }
            at += 1;
        }
    }

    /// Attributes name paths too, in text: `#[serde(with = "crate::hex")]`.
    fn scan_attribute(&mut self, tokens: &[TokenTree]) {
        if matches!(tokens.first(), Some(TokenTree::Ident(name)) if name == "doc") {
            return;
        }
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    self.scan_attribute(&group.stream().into_iter().collect::<Vec<_>>());
                }
                TokenTree::Literal(text) => {
                    let line = text.span().start().line;
                    let text = text.to_string();
                    let path: Vec<String> = text.trim_matches('"').split("::").map(Into::into).collect();
                    let ours = path
                        .first()
                        .is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str()));
                    if ours && path.len() > 1 {
                        self.mentions.push(Mention { path, line });
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes note of a `use` tree, without its `use` and its semicolon.
    fn import(&mut self, tokens: &[TokenTree], before: &[String]) {
        let tokens = if before.is_empty() { skip_mark(tokens, ':') } else { tokens };
        let (mut names, len, line) = path(tokens);
        let last = names.last().cloned();
        let itself = last.as_deref() == Some("self") && !(before.is_empty() && names.len() == 1);
        if itself {
            names.pop();
        }
        let full: Vec<String> = before.iter().cloned().chain(names).collect();
        let rest = skip_mark(tokens.get(len..).unwrap_or_default(), ':');
        match rest.first() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                for one in inside.split(|token| is_mark(token, ',')).filter(|one| !one.is_empty()) {
                    self.import(one, &full);
                }
            }
            Some(star) if is_mark(star, '*') => {
                let line = star.span().start().line;
                self.globs.push(Mention { path: full, line });
            }
            _ => {
                let name = match rest {
                    [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => plain(name),
                    _ => full.last().cloned().unwrap_or_default(),
                };
                self.aliases.entry(name).or_default().push(Mention { path: full, line });
            }
        }
    }
}

/// The items of a module, each with its attributes.
fn items(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let mut found = Vec::new();
    let mut rest = tokens;
    while !rest.is_empty() {
        // Attributes of the module itself stand alone.
        let (attribute, len) = attribute(rest);
        let inner = attribute.is_some() && rest.get(1).is_some_and(|t| is_mark(t, '!'));
        let end = if inner { len } else { item_length(rest) };
        let (item, after) = rest.split_at(end.clamp(1, rest.len()));
        found.push(item);
        rest = after;
    }
    found
}

/// How many tokens the first item has: values end with a semicolon, everything else also with braces.
fn item_length(tokens: &[TokenTree]) -> usize {
    let bare = without_attributes(tokens);
    let skipped = tokens.len() - bare.len();
    let value = match bare {
        [TokenTree::Ident(word), TokenTree::Ident(next), ..] if word == "const" => {
            !["fn", "unsafe", "async", "extern"].iter().any(|function| next == function)
        }
        [TokenTree::Ident(word), ..] => ["static", "type", "use", "const"].iter().any(|kind| word == kind),
        _ => false,
    };
    let ends = |token: &TokenTree| {
        is_mark(token, ';')
            || !value && matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    let end = bare.iter().position(ends).map_or(bare.len(), |end| end + 1);
    // `struct A {}` has no semicolon; a macro with braces may have one, which is an item of nothing.
    skipped + end
}

/// What is left of an item behind its attributes and its visibility.
fn without_attributes(tokens: &[TokenTree]) -> &[TokenTree] {
    let mut rest = tokens;
    loop {
        let (attribute, len) = attribute(rest);
        match rest.first() {
            _ if attribute.is_some() => rest = rest.get(len..).unwrap_or_default(),
            Some(TokenTree::Ident(word)) if word == "pub" => {
                rest = rest.get(1..).unwrap_or_default();
                if let [TokenTree::Group(group), after @ ..] = rest
                    && group.delimiter() == Delimiter::Parenthesis
                {
                    rest = after;
                }
            }
            _ => return rest,
        }
    }
}

/// The name that an item defines.
fn defined_name(item: &[TokenTree]) -> Option<String> {
    const KINDS: [&str; 10] =
        ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules", "mut"];
    let is_kind =
        |t: &TokenTree| matches!(t, TokenTree::Ident(word) if KINDS.iter().any(|kind| word == kind));
    let head = item.iter().take_while(|t| !matches!(t, TokenTree::Group(_)) && !is_mark(t, '='));
    let head: Vec<&TokenTree> = head.collect();
    if matches!(head.first(), Some(TokenTree::Ident(word)) if word == "impl" || word == "use") {
        return None;
    }
    head.windows(3).chain(head.windows(2)).find_map(|window| match window {
        [kind, TokenTree::Ident(name), ..] if is_kind(kind) && !is_kind(window.get(1)?) => Some(plain(name)),
        [kind, bang, TokenTree::Ident(name)] if is_kind(kind) && is_mark(bang, '!') => Some(plain(name)),
        _ => None,
    })
}

/// The attribute that these tokens begin with, and how many tokens it has.
fn attribute(tokens: &[TokenTree]) -> (Option<Vec<TokenTree>>, usize) {
    let inner = tokens.get(1).is_some_and(|t| is_mark(t, '!'));
    match (tokens.first(), tokens.get(1 + usize::from(inner))) {
        (Some(mark), Some(TokenTree::Group(group)))
            if is_mark(mark, '#') && group.delimiter() == Delimiter::Bracket =>
        {
            (Some(group.stream().into_iter().collect()), 2 + usize::from(inner))
        }
        _ => (None, 1),
    }
}

/// Whether the attributes at the head of these tokens say that they are for tests; with `inner`, those of a whole file.
fn is_test(tokens: &[TokenTree], inner: bool) -> bool {
    let mut rest = tokens;
    while let (Some(attribute), len) = attribute(rest) {
        let of_file = rest.get(1).is_some_and(|t| is_mark(t, '!'));
        if of_file == inner && says_test(&attribute) {
            return true;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, ...))]`; not `#[cfg(not(test))]`.
fn says_test(attribute: &[TokenTree]) -> bool {
    let word = |t: &TokenTree, text: &str| matches!(t, TokenTree::Ident(word) if word == text);
    if attribute.last().is_some_and(|last| word(last, "test")) {
        return true;
    }
    fn inside(tokens: &[TokenTree]) -> bool {
        let mut denied = false;
        tokens.iter().any(|token| match token {
            TokenTree::Group(group) => {
                !std::mem::take(&mut denied) && inside(&group.stream().into_iter().collect::<Vec<_>>())
            }
            TokenTree::Ident(word) => {
                denied = word == "not";
                word == "test"
            }
            _ => false,
        })
    }
    attribute.first().is_some_and(|first| word(first, "cfg"))
        && inside(attribute.get(1..).unwrap_or_default())
}

/// The file that `#[path = "..."]` names.
fn path_attribute(item: &[TokenTree]) -> Option<PathBuf> {
    let mut rest = item;
    while let (Some(attribute), len) = attribute(rest) {
        if let [TokenTree::Ident(word), _, TokenTree::Literal(text)] = attribute.as_slice()
            && word == "path"
        {
            return Some(text.to_string().trim_matches('"').into());
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    None
}

/// How many tokens what stands behind an attribute has: a statement, a field, an arm or an item.
fn without_end(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| {
        is_mark(token, ';')
            || is_mark(token, ',')
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |end| end + 1)
}

/// The path that these tokens begin with: its names, how many tokens it has (one at least), and its line.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize, usize) {
    let mut names = Vec::new();
    let mut len = 0;
    let line = tokens.first().map_or(0, |token| token.span().start().line);
    while let Some(TokenTree::Ident(name)) = tokens.get(len) {
        names.push(plain(name));
        len += 1;
        match tokens.get(len..len + 3) {
            Some([one, two, TokenTree::Ident(_)]) if is_mark(one, ':') && is_mark(two, ':') => len += 2,
            _ => break,
        }
    }
    (names, len.max(1), line)
}

fn plain(name: &proc_macro2::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(Into::into).unwrap_or(name)
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn skip_mark(tokens: &[TokenTree], mark: char) -> &[TokenTree] {
    let marks = tokens.iter().take_while(|token| is_mark(token, mark)).count();
    tokens.get(marks..).unwrap_or_default()
}
