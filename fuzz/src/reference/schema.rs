//! Parses `schema.jute`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type of a field.
pub enum Type {
    Boolean,
    Buffer,
    Int,
    Long,
    Record(&'static str),
    Text,
    Vector(Box<Self>),
}

/// A field of a record.
pub struct Field {
    pub name: &'static str,
    pub ty: Type,
}

/// Returns the fields of a record, in their order on the wire.
pub fn fields(record: &str) -> &'static [Field] {
    SCHEMA.get(record).unwrap_or_else(|| panic!("schema.jute has no record {record}"))
}

static SCHEMA: LazyLock<BTreeMap<&str, Vec<Field>>> =
    LazyLock::new(|| parse(include_str!("../schema.jute")));

fn parse(text: &'static str) -> BTreeMap<&'static str, Vec<Field>> {
    let mut tokens = Tokens(text);
    let mut records = BTreeMap::new();
    while let Some(token) = tokens.next() {
        assert_eq!(token, "module");
        tokens.word();
        tokens.expect("{");
        loop {
            match tokens.word() {
                "}" => break,
                "class" => {
                    let record = tokens.word();
                    let before = records.insert(record, parse_fields(&mut tokens));
                    assert!(before.is_none(), "{record} is defined twice");
                }
                other => panic!("{other} is not a class"),
            }
        }
    }
    records
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
