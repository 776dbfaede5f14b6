//! Generates values of every layout.

use jute_codec::OpCode;

use super::differences::{Null, Place, TTL_MAX, result_op};
use super::layout::{Body, Layout, List};
use super::schema::{Type, fields};
use super::value::Value;

/// Where the choices come from.
pub(crate) trait Choices {
    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize;

    /// Returns any number.
    fn number(&mut self) -> i64;
}

/// Choices that differ from each other, so that no two fields have the same value.
pub(crate) struct Counter(pub(crate) usize);

impl Choices for Counter {
    fn below(&mut self, end: usize) -> usize {
        self.0 += 1;
        if end < 2 { 0 } else { 1 + self.0 % (end - 1) }
    }

    fn number(&mut self) -> i64 {
        self.0 += 1;
        0x1122_3344_5566_7788 + i64::try_from(self.0).unwrap_or(0)
    }
}

/// Generates a value that jute-codec reads and writes without a difference. Returns `None` for an
/// opcode that is not allowed.
pub(crate) fn generate(layout: Layout, choices: &mut dyn Choices) -> Option<Value> {
    Some(match layout.body()? {
        Body::List(list) => {
            let count = choices.below(6);
            Value::List((0..count).map(|_| element(list, choices)).collect())
        }
        body => generate_body(body, layout.op(), false, choices),
    })
}

fn element(list: List, choices: &mut dyn Choices) -> (i32, Value) {
    let op = list.ops().get(choices.below(list.ops().len())).copied().unwrap_or(0);
    let op = if list == List::Results { result_op(op) } else { op };
    (op, generate_element(list, op, choices))
}

/// Generates an element of a list that has this opcode.
pub(crate) fn generate_element(list: List, op: i32, choices: &mut dyn Choices) -> Value {
    let body = list.body(op).expect("this opcode is allowed in the list");
    generate_body(body, op, true, choices)
}

fn generate_body(body: Body, op: i32, is_listed: bool, choices: &mut dyn Choices) -> Value {
    match body {
        Body::Record(record) => {
            let place = Place { op, is_listed, record, field: "" };
            generate_record(record, place, choices)
        }
        Body::List(_) | Body::Nothing => Value::nothing(),
    }
}

fn generate_record(record: &'static str, place: Place, choices: &mut dyn Choices) -> Value {
    let mut values = Vec::new();
    for field in fields(record) {
        let place = Place { record, field: field.name, ..place };
        values.push((field.name, generate_field(&field.ty, place, choices)));
    }
    if record.starts_with("Connect") && choices.below(4) > 0 {
        values.push(("readOnly", Value::Bool(choices.below(2) == 1)));
    }
    Value::Record(values)
}

fn generate_field(ty: &Type, place: Place, choices: &mut dyn Choices) -> Value {
    let mut is_null = |null| null == Null::Kept && choices.below(8) == 0;
    match ty {
        Type::Int if place.field == "flags" => {
            let flags = place.flags();
            let chosen = flags.get(choices.below(flags.len()));
            Value::Int(chosen.map_or(0, |(_, read)| *read))
        }
        Type::Long if place.field == "ttl" => {
            Value::Long(choices.number().rem_euclid(TTL_MAX).saturating_add(1))
        }
        Type::Boolean | Type::Int | Type::Long => {
            let value = match ty {
                Type::Boolean => Value::Bool(choices.below(2) == 1),
                Type::Int => Value::Int(choices.number() as i32),
                _ => Value::Long(choices.number()),
            };
            place.accepted(value).expect("only flags and times to live are refused")
        }
        Type::Buffer if is_null(place.null_buffer()) => Value::Buffer(None),
        Type::Buffer => {
            let length = choices.below(20);
            Value::Buffer(Some((0..length).map(|_| choices.number() as u8).collect()))
        }
        Type::Text if is_null(place.null_text()) => Value::Text(None),
        Type::Text => Value::Text(Some(generate_text(choices))),
        Type::Vector(element) => {
            let count = choices.below(4);
            let elements = (0..count).map(|_| generate_field(element, place, choices));
            Value::Vector(elements.collect())
        }
        Type::Record(record) => generate_record(record, place, choices),
    }
}

fn generate_text(choices: &mut dyn Choices) -> String {
    let pieces = choices.below(6);
    (0..pieces).map(|_| PIECES.get(choices.below(PIECES.len())).copied().unwrap_or("")).collect()
}

/// Parts of text: one, two, three and four bytes long in UTF-8, at the limits of each length, and a
/// part that makes a name long.
const PIECES: [&str; 12] = [
    "/",
    "a",
    "name-0000000001",
    "\u{7f}",
    "\u{80}",
    "\u{7ff}",
    "\u{800}",
    "\u{d7ff}",
    "\u{ffff}",
    "\u{10000}",
    "\u{1d11e}\u{10ffff}",
    "0123456789012345678901234567890123456789012345678901234567890123456789",
];

/// Returns every layout of a request or a reply with this opcode, and of a record.
pub(crate) fn layouts(ops: &[OpCode]) -> Vec<Layout> {
    let records = ["ConnectRequest", "ConnectResponse", "ReplyHeader", "RequestHeader"];
    let records = records.into_iter().chain(["WatcherEvent"]).map(Layout::Record);
    let requests = ops.iter().map(|op| Layout::Request(*op));
    let responses = ops.iter().map(|op| Layout::Response(*op));
    let layouts = records.chain(requests).chain(responses);
    layouts.filter(|layout| layout.body().is_some()).collect()
}
