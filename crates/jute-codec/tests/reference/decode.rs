//! Decodes bytes as `schema.jute` says.

use jute_codec::DecodeErrorKind;

use super::differences::{Null, Place, result_op};
use super::layout::{Body, Layout, List};
use super::schema::{Type, fields};
use super::text;
use super::value::Value;

/// Why the bytes are not a value, and where.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: DecodeErrorKind,
    pub(crate) offset: usize,
}

/// Decodes what is at the front of the bytes. Returns it with its length.
pub(crate) fn decode(layout: Layout, bytes: &[u8]) -> Result<(Value, usize), Fault> {
    let mut input = Input { bytes, at: 0 };
    let Some(body) = layout.body() else {
        return Err(input.fault(DecodeErrorKind::UnexpectedOp(layout.op())));
    };
    let place = Place { op: layout.op(), is_listed: false, record: "", field: "" };
    let value = input.body(body, place)?;
    Ok((value, input.at))
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn body(&mut self, body: Body, place: Place) -> Result<Value, Fault> {
        match body {
            Body::List(list) => self.list(list),
            Body::Nothing => Ok(Value::nothing()),
            Body::Record(record) => self.record(record, place),
        }
    }

    fn record(&mut self, record: &'static str, place: Place) -> Result<Value, Fault> {
        let mut values = Vec::new();
        for field in fields(record) {
            let place = Place { record, field: field.name, ..place };
            let offset = self.at;
            let value = self.value(&field.ty, place)?;
            let value = place.accepted(value).map_err(|kind| Fault { kind, offset })?;
            values.push((field.name, value));
        }
        if record.starts_with("Connect") && self.at < self.bytes.len() {
            values.push(("readOnly", self.value(&Type::Boolean, place)?));
        }
        Ok(Value::Record(values))
    }

    fn value(&mut self, ty: &Type, place: Place) -> Result<Value, Fault> {
        let offset = self.at;
        let refused = |kind| Fault { kind, offset };
        Ok(match ty {
            Type::Boolean => Value::Bool(self.number::<1>()? != [0]),
            Type::Int => Value::Int(i32::from_be_bytes(self.number()?)),
            Type::Long => Value::Long(i64::from_be_bytes(self.number()?)),
            Type::Record(record) => self.record(record, place)?,
            Type::Buffer => match (self.bytes()?, place.null_buffer()) {
                (Some(bytes), _) => Value::Buffer(Some(bytes.to_vec())),
                (None, Null::Empty) => Value::Buffer(Some(Vec::new())),
                (None, _) => Value::Buffer(None),
            },
            Type::Text => match (self.bytes()?, place.null_text()) {
                (Some(bytes), _) => {
                    let text = text::decode(bytes);
                    Value::Text(Some(text.ok_or_else(|| refused(DecodeErrorKind::NotText))?))
                }
                (None, Null::Empty) => Value::Text(Some(String::new())),
                (None, Null::Kept) => Value::Text(None),
                (None, Null::Refused) => return Err(refused(DecodeErrorKind::Null)),
            },
            Type::Vector(element) => {
                let count = self.count()?.unwrap_or(0);
                let mut elements = Vec::new();
                for _ in 0..count {
                    elements.push(self.value(element, place)?);
                }
                Value::Vector(elements)
            }
        })
    }

    fn list(&mut self, list: List) -> Result<Value, Fault> {
        let mut elements = Vec::new();
        loop {
            let begin = self.at;
            let op = i32::from_be_bytes(self.number()?);
            let done = self.number::<1>()? != [0];
            // Nobody reads the field err: the record of a failed element repeats it.
            self.number::<4>()?;
            if done {
                return Ok(Value::List(elements));
            }
            let Some(body) = list.body(op) else {
                return Err(Fault { kind: DecodeErrorKind::UnexpectedOp(op), offset: begin });
            };
            let place = Place { op, is_listed: true, record: "", field: "" };
            let value = self.body(body, place)?;
            let op = if list == List::Results { result_op(op) } else { op };
            elements.push((op, value));
        }
    }

    /// Reads a length and that many bytes. The offset of an error is that of the length.
    fn bytes(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        let offset = self.at;
        let Some(length) = self.count()? else { return Ok(None) };
        self.take(length).map(Some).map_err(|fault| Fault { offset, ..fault })
    }

    fn count(&mut self) -> Result<Option<usize>, Fault> {
        let offset = self.at;
        match i32::from_be_bytes(self.number()?) {
            -1 => Ok(None),
            count if count < 0 => {
                Err(Fault { kind: DecodeErrorKind::NegativeLength(count), offset })
            }
            count => Ok(Some(count as usize)),
        }
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        Ok(self.take(N)?.try_into().expect("it has this length"))
    }

    fn take(&mut self, need: usize) -> Result<&'a [u8], Fault> {
        let have = self.bytes.len() - self.at;
        let Some(taken) = self.bytes.get(self.at..self.at + need) else {
            return Err(self.fault(DecodeErrorKind::UnexpectedEnd { need, have }));
        };
        self.at += need;
        Ok(taken)
    }

    fn fault(&self, kind: DecodeErrorKind) -> Fault {
        Fault { kind, offset: self.at }
    }
}
