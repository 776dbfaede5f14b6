//! A second implementation of the protocol, which shares no code with jute-codec. It interprets
//! `schema.jute`, so a fault of the codec that survives a round trip, such as two swapped fields,
//! makes the two differ. The fuzz targets include it by its path.

#![allow(dead_code, unused_imports, reason = "each test and the fuzz targets need parts of it")]
#![allow(clippy::wildcard_enum_match_arm, reason = "most kinds of values need nothing special")]

mod convert;
mod decode;
mod differences;
mod encode;
mod generate;
mod layout;
mod schema;
mod text;
mod value;

pub(crate) use self::convert::ToValue;
pub(crate) use self::decode::{Fault, decode};
pub(crate) use self::encode::{Spelling, encode};
pub(crate) use self::generate::{Choices, Counter, generate, generate_element, layouts};
pub(crate) use self::layout::{Body, Layout, List};
pub(crate) use self::schema::operations;
pub(crate) use self::value::Value;
