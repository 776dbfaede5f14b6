//! A second implementation of the protocol, which shares no code with jute-codec. It interprets
//! `schema.jute`, so a fault of the codec that survives a round trip, such as two swapped fields,
//! makes the two differ.

mod convert;
mod decode;
mod differences;
mod encode;
mod generate;
mod layout;
mod schema;
mod text;
mod value;

pub use self::convert::ToValue;
pub use self::decode::{Fault, decode};
pub use self::encode::{Spelling, encode};
pub use self::generate::{Counter, Random, generate, generate_element, layouts};
pub use self::layout::{Body, Layout, List};
pub use self::value::Value;
