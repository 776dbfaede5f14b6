//! Encodes values.

use super::layout::{Body, Layout};
use super::text::encode_as_java;
use super::value::Value;

/// How text is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Spelling {
    Java,
    Utf8,
}

/// Encodes the body of a message.
pub(crate) fn encode(layout: Layout, value: &Value, spelling: Spelling) -> Vec<u8> {
    let mut out = Vec::new();
    match (layout.body(), value) {
        (Some(Body::List(list)), Value::List(elements)) => {
            for (op, element) in elements {
                let err = if list.is_of_requests() { -1 } else { err_of(element) };
                header(*op, false, err, &mut out);
                append(element, spelling, &mut out);
            }
            header(-1, true, -1, &mut out);
        }
        (_, value) => append(value, spelling, &mut out),
    }
    out
}

fn append(value: &Value, spelling: Spelling, out: &mut Vec<u8>) {
    match value {
        Value::Bool(is_set) => out.push(u8::from(*is_set)),
        Value::Buffer(bytes) => append_bytes(bytes.as_deref(), out),
        Value::Int(number) => out.extend(number.to_be_bytes()),
        Value::List(_) => unreachable!("no record contains a list"),
        Value::Long(number) => out.extend(number.to_be_bytes()),
        Value::Record(fields) => fields.iter().for_each(|(_, value)| append(value, spelling, out)),
        Value::Text(None) => append_bytes(None, out),
        Value::Text(Some(text)) => match spelling {
            Spelling::Java => append_bytes(Some(&encode_as_java(text)), out),
            Spelling::Utf8 => append_bytes(Some(text.as_bytes()), out),
        },
        Value::Vector(elements) => {
            append_count(elements.len(), out);
            elements.iter().for_each(|element| append(element, spelling, out));
        }
    }
}

fn append_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => out.extend((-1_i32).to_be_bytes()),
        Some(bytes) => {
            append_count(bytes.len(), out);
            out.extend(bytes);
        }
    }
}

fn append_count(count: usize, out: &mut Vec<u8>) {
    out.extend(u32::try_from(count).expect("it fits into a frame").to_be_bytes());
}

fn header(op: i32, done: bool, err: i32, out: &mut Vec<u8>) {
    out.extend(op.to_be_bytes());
    out.push(u8::from(done));
    out.extend(err.to_be_bytes());
}

/// Returns the code of an element that failed.
fn err_of(element: &Value) -> i32 {
    match element {
        Value::Record(fields) => match fields[..] {
            [("err", Value::Int(err))] => err,
            _ => 0,
        },
        _ => 0,
    }
}
