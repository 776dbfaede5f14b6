//! Values without a Rust type for each record.

/// A value of the protocol, as both implementations read it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Buffer(Option<Vec<u8>>),
    Int(i32),
    /// The elements of a multi or a multiRead, with the opcodes of their headers.
    List(Vec<(i32, Self)>),
    Long(i64),
    /// The fields by their names in `schema.jute`, in the order of the wire.
    Record(Vec<(&'static str, Self)>),
    Text(Option<String>),
    Vector(Vec<Self>),
}

impl Value {
    /// Returns a record without fields.
    pub(crate) fn nothing() -> Self {
        Self::Record(Vec::new())
    }
}
