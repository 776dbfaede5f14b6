//! Parses `schema.jute`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type of a field.
pub(crate) enum Type {
    Boolean,
    Buffer,
    Int,
    Long,
    Record(&'static str),
    Text,
    Vector(Box<Self>),
}

/// A field of a record.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
}

/// An operation.
pub(crate) struct Operation {
    pub(crate) op: i32,
    pub(crate) name: &'static str,
    pub(crate) request: Content,
    pub(crate) reply: Content,
    /// The oldest server that knows the operation; empty if all servers do.
    pub(crate) since: String,
    /// Whether it occurs only in lists.
    pub(crate) is_part: bool,
}

/// What follows the header of a request or a reply.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    List,
    Nothing,
    Record(&'static str),
}

/// Returns the fields of a record, in their order on the wire.
pub(crate) fn fields(record: &str) -> &'static [Field] {
    let fields = SCHEMA.records.get(record);
    fields.unwrap_or_else(|| panic!("schema.jute has no record {record}"))
}

/// Returns the operations, in the order of the file.
pub(crate) fn operations() -> &'static [Operation] {
    &SCHEMA.operations
}

struct Schema {
    records: BTreeMap<&'static str, Vec<Field>>,
    operations: Vec<Operation>,
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| parse(include_str!("schema.jute")));

fn parse(text: &'static str) -> Schema {
    let mut tokens = Tokens(text);
    let mut schema = Schema { records: BTreeMap::new(), operations: Vec::new() };
    while let Some(token) = tokens.next() {
        match token {
            "module" => parse_module(&mut tokens, &mut schema.records),
            "operations" => schema.operations = parse_operations(&mut tokens),
            other => panic!("{other} is neither a module nor the operations"),
        }
    }
    schema
}

fn parse_module(tokens: &mut Tokens, records: &mut BTreeMap<&'static str, Vec<Field>>) {
    tokens.word();
    tokens.expect("{");
    loop {
        match tokens.word() {
            "}" => break,
            "class" => {
                let record = tokens.word();
                let before = records.insert(record, parse_fields(tokens));
                assert!(before.is_none(), "{record} is defined twice");
            }
            other => panic!("{other} is not a class"),
        }
    }
}

fn parse_operations(tokens: &mut Tokens) -> Vec<Operation> {
    tokens.expect("{");
    let mut operations = Vec::new();
    loop {
        let mut token = tokens.word();
        if token == "}" {
            return operations;
        }
        let is_part = token == "part";
        if is_part {
            token = tokens.word();
        }
        let op = match token {
            "-" => format!("-{}", tokens.word()),
            digits => digits.to_owned(),
        };
        let op = op.parse().unwrap_or_else(|_| panic!("{op} is not an opcode"));
        let name = tokens.word();
        tokens.expect("(");
        let (request, _) = parse_content(tokens, &[")"]);
        let (reply, end) = parse_content(tokens, &["since", ";"]);
        let since = match end {
            "since" => tokens.by_ref().take_while(|token| *token != ";").collect(),
            _ => String::new(),
        };
        operations.push(Operation { op, name, request, reply, since, is_part });
    }
}

/// Parses a content that may be absent, and the token after it.
fn parse_content(tokens: &mut Tokens, ends: &[&str]) -> (Content, &'static str) {
    let content = match tokens.word() {
        end if ends.contains(&end) => return (Content::Nothing, end),
        "list" => Content::List,
        record => Content::Record(record),
    };
    let end = tokens.word();
    assert!(ends.contains(&end), "expected one of {ends:?}, not {end}");
    (content, end)
}

fn parse_fields(tokens: &mut Tokens) -> Vec<Field> {
    tokens.expect("{");
    let mut fields = Vec::new();
    loop {
        let token = tokens.word();
        if token == "}" {
            return fields;
        }
        let ty = parse_type(token, tokens);
        fields.push(Field { name: tokens.word(), ty });
        tokens.expect(";");
    }
}

fn parse_type(token: &'static str, tokens: &mut Tokens) -> Type {
    match token {
        "boolean" => Type::Boolean,
        "buffer" => Type::Buffer,
        "int" => Type::Int,
        "long" => Type::Long,
        "ustring" => Type::Text,
        "vector" => {
            tokens.expect("<");
            let element = parse_type(tokens.word(), tokens);
            tokens.expect(">");
            Type::Vector(Box::new(element))
        }
        record => Type::Record(record),
    }
}

/// The words and signs of the rest of a text, without comments.
struct Tokens(&'static str);

impl Tokens {
    fn word(&mut self) -> &'static str {
        self.next().expect("schema.jute ends inside a definition")
    }

    fn expect(&mut self, sign: &str) {
        assert_eq!(self.word(), sign);
    }
}

impl Iterator for Tokens {
    type Item = &'static str;

    fn next(&mut self) -> Option<&'static str> {
        loop {
            self.0 = self.0.trim_start();
            if !self.0.starts_with("//") {
                break;
            }
            self.0 = self.0.split_once('\n').map_or("", |(_, after)| after);
        }
        let is_word = |letter: char| letter.is_ascii_alphanumeric();
        let word = self.0.find(|letter| !is_word(letter)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at_checked(word.max(1))?;
        self.0 = rest;
        Some(token)
    }
}
