//! The properties of all messages.

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use jute_codec::{DecodeError, DecodeErrorKind, NameList, Reader};

use crate::message::Message;
use crate::reference::{Fault, Layout, Spelling, Value, decode, encode};

/// Decodes the input and checks the following:
///
/// - The reference decodes the same value from the same bytes, or fails for the same reason at the
///   same offset.
/// - The value survives a round trip, does not grow, and is encoded as the reference does.
/// - Bytes after the message are left alone.
/// - Memory use is in proportion to the input.
/// - A prefix of the encoding, selected by `place`, is an error or, for handshakes, decodes to a
///   value that is encoded as this prefix.
/// - `Debug` does not depend on a secret.
pub fn fixpoint<T: Message>(layout: Layout, input: &[u8], place: u8) -> Option<T> {
    let [reader, zeros] = [input, &vec![0; input.len()]]
        .map(|bytes| format!("{:?}", Reader::new(Bytes::copy_from_slice(bytes))));
    assert_eq!(reader, zeros, "Debug shows the input");
    let (value, read) = read_twice::<T>(layout, input).ok()?;
    let wire = written(&value);
    assert!(wire.len() <= read, "longer than the input: {value:?}");
    let expected = encode(layout, &value.to_value(), Spelling::Utf8);
    assert_eq!(wire, expected, "the reference encodes {value:?} in another way");

    let tail: &[u8] = if value.is_open() { b"" } else { TAIL };
    let again = read_twice::<T>(layout, &[&wire, tail].concat());
    assert_eq!(again, Ok((value.clone(), wire.len())), "after a round trip");

    let length = wire.len() * usize::from(place) / 256;
    if let Some(prefix) = wire.get(..length).filter(|prefix| prefix.len() < wire.len()) {
        match read_twice::<T>(layout, prefix) {
            Ok((shorter, _)) => assert_eq!(written(&shorter), prefix),
            Err(DecodeErrorKind::UnexpectedEnd { need, have }) => assert!(have < need),
            Err(error) => panic!("expected an unexpected end, got: {error}"),
        }
    }

    let secret = Bytes::from(vec![b'x'; wire.len() + 1]);
    let printed = format!("{value:?}");
    if let Some(other) = value.with_secret(&secret) {
        assert_eq!(printed, format!("{other:?}"), "Debug shows a secret");
    }
    value.names().into_iter().for_each(check_names);
    Some(value)
}

/// Checks a value of the reference: the codec reads it in both spellings, and writes it in the same
/// bytes.
pub fn check_written<T: Message>(layout: Layout, value: &Value, place: u8) {
    let wire = encode(layout, value, Spelling::Utf8);
    let read = fixpoint::<T>(layout, &wire, place).expect("the reference has written it");
    assert_eq!(written(&read), wire);
    let java = encode(layout, value, Spelling::Java);
    let from_java = fixpoint::<T>(layout, &java, place).expect("the reference has written it");
    assert_eq!(from_java, read, "the spelling of text makes a difference");
}

/// Decodes the input with the codec and with the reference, which must agree. Returns the value and
/// its length.
fn read_twice<T: Message>(layout: Layout, input: &[u8]) -> Result<(T, usize), DecodeErrorKind> {
    let mut reader = Reader::new(Bytes::copy_from_slice(input));
    let mut result = None;
    let memory = measure(|| result = Some(T::read(layout, &mut reader))).bytes_max;
    let promised = 40 * input.len() + 1024;
    assert!(memory <= promised as u64, "{memory} bytes for an input of {}", input.len());

    match (result.expect("it was decoded"), decode(layout, input)) {
        (Ok(value), Ok((expected, length))) => {
            assert_eq!(value.to_value(), expected, "the reference differs: {value:?}");
            assert_eq!(reader.position(), length, "the length of {value:?}");
            assert_eq!(reader.remaining(), input.len() - length);
            assert_eq!(Some(&*reader.into_rest()), input.get(length..), "the bytes after it");
            Ok((value, length))
        }
        (Err(error), Err(expected)) => {
            assert_ne!(error.to_string(), "");
            let DecodeError { kind, offset, .. } = error;
            assert_eq!(Fault { kind: kind.clone(), offset }, expected, "the reference differs");
            Err(kind)
        }
        (codec, reference) => panic!("only one of them decodes it: {:?}", (codec, reference)),
    }
}

fn written<T: Message>(value: &T) -> Bytes {
    let mut out = BytesMut::new();
    value.write(&mut out);
    out.freeze()
}

/// Checks the iterators, the order and the length of a list.
fn check_names(names: &NameList) {
    let list: Vec<&str> = names.iter().collect();
    assert_eq!((list.len(), list.is_empty()), (names.len(), names.is_empty()));
    assert_eq!(names.iter().len(), names.len());
    assert_eq!(list.iter().collect::<NameList>(), *names);
    assert_eq!(names.clone().into_iter().len(), names.len());
    assert!(names.clone().into_iter().eq(list.iter().copied()));

    assert_ne!(format!("{:?}{:?}", names.iter(), names.clone().into_iter()), "");

    let mut expected: Vec<&[u8]> = list.iter().map(|name| name.as_bytes()).collect();
    expected.sort();
    let sorted = names.sorted();
    assert_eq!(sorted.len(), names.len(), "a sorted list has another length");
    assert!(sorted.iter().map(str::as_bytes).eq(expected), "{sorted:?} is not {names:?}, sorted");
}

/// Bytes after a message. They are not a message, so a decoder that reads them fails.
const TAIL: &[u8] = &[0xa5; 20];
