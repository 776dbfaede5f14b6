//! Lists of names, which are decoded as a whole and split when a caller iterates.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use jute_codec::{DecodeError, NameList, Reader, Record};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn names_of_any_length_survive_a_round_trip() {
    let lengths = [0, 1, 127, 128, 129, 255, 256, 16_383, 16_384, 16_385, 1, 0];
    let names: Vec<String> = lengths.iter().map(|length| "n".repeat(*length)).collect();
    check(&names);
    for name in &names {
        check(std::slice::from_ref(name));
    }
    check(&["a", "b", "longer", "c", "d"].map(str::to_owned));
    check(&["é", "𝄞", "日本"].map(str::to_owned));
    check(&[]);
}

#[test]
fn a_list_of_short_names_is_read_without_an_allocation() {
    let names: NameList = (0..1000).map(|number| format!("x-lock-{number:010}")).collect();
    let wire = wire(&names);
    // The first slice of a buffer allocates its reference count.
    let shared = wire.clone();
    let mut found = 0;
    let allocations = measure(|| {
        let names = read(&wire).unwrap();
        found = names.iter().filter(|name| name.ends_with('7')).count();
    });
    assert_eq!((allocations.count_total, found), (0, 100));
    drop(shared);
}

#[test]
fn an_owned_name_is_a_slice_of_the_frame() {
    let wire = wire(&["first", "second"].into_iter().collect());
    let names: Vec<ByteString> = read(&wire).unwrap().into();
    assert_eq!(names, ["first", "second"]);
    for name in names {
        assert!(wire.as_ptr_range().contains(&name.as_ptr()));
    }
}

#[test]
fn a_sorted_list_has_the_same_names() {
    let names: NameList = ["b", "aa", "a", "b"].into_iter().collect();
    assert_eq!(names.sorted(), ["a", "aa", "b", "b"].into_iter().collect());
}

#[test]
fn null_is_an_empty_list_and_halves_of_surrogate_pairs_are_joined() {
    assert_eq!(read(&Bytes::from_static(&[0xff; 4])), Ok(NameList::default()));
    let clef = b"\0\0\0\x02\0\0\0\x06\xed\xa0\xb4\xed\xb4\x9e\0\0\0\x01a";
    assert_eq!(read(&Bytes::from_static(clef)), Ok(["𝄞", "a"].into_iter().collect()));
}

#[test]
fn malformed_lists_are_refused_when_they_are_decoded() {
    let error = |wire: &'static [u8]| read(&Bytes::from_static(wire)).unwrap_err().to_string();
    assert_eq!(error(b""), "4 bytes needed, 0 left at byte 0");
    assert_eq!(error(b"\xff\xff\xff\xfe"), "negative length -2 at byte 0");
    assert_eq!(error(b"\0\0\0\x01"), "4 bytes needed, 0 left at byte 4");
    assert_eq!(error(b"\x7f\xff\xff\xff\0\0\0\x01a"), "4 bytes needed, 0 left at byte 9");
    assert_eq!(error(b"\0\0\0\x02\0\0\0\x01a\0\0\0\x02b"), "2 bytes needed, 1 left at byte 9");
    assert_eq!(error(b"\0\0\0\x01\x7f\xff\xff\xffa"), "2147483647 bytes needed, 1 left at byte 4");
    let null = b"\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff";
    assert_eq!(error(null), "null where a value is required at byte 9");
    assert_eq!(error(b"\0\0\0\x01\xff\xff\xff\xfe"), "negative length -2 at byte 4");
    assert_eq!(error(b"\0\0\0\x02\0\0\0\x01a\0\0\0\x01\xff"), "text is not UTF-8 at byte 9");
    // Without the length between them, the bytes of the two names would form a character.
    let split = b"\0\0\0\x02\0\0\0\x01\xc3\0\0\0\x01\xa9";
    assert_eq!(error(split), "text is not UTF-8 at byte 4");
}

/// The length 0xc3 and the first byte of the name after it would form a character.
#[test]
fn a_length_is_never_decoded_as_text() {
    let mut wire = BytesMut::from(&b"\0\0\0\x01\0\0\0\xc3\xa9"[..]);
    wire.extend_from_slice(&[b'a'; 0xc2]);
    assert_eq!(read(&wire.freeze()).unwrap_err().to_string(), "text is not UTF-8 at byte 4");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_bytes_decode_like_a_vector_of_text(
        bytes in vec(prop_oneof![4 => Just(0), 2 => 0_u8..6, 1 => any::<u8>()], 0..60),
    ) {
        let wire = Bytes::from(bytes);
        let mut list = Reader::new(wire.clone());
        let mut vector = Reader::new(wire);
        let names = NameList::decode(&mut list).map(Vec::from);
        prop_assert_eq!(&names, &Vec::<ByteString>::decode(&mut vector));
        if names.is_ok() {
            prop_assert_eq!(list.position(), vector.position());
        }
    }

    #[test]
    fn lists_of_the_same_names_are_equal(names in vec("[a-zé]{0,4}", 0..6)) {
        let list: NameList = names.iter().collect();
        prop_assert_eq!(&read(&wire(&list)), &Ok(list.clone()));
        let others: Vec<_> = names.iter().skip(1).collect();
        prop_assert_eq!(others.into_iter().collect::<NameList>() == list, names.is_empty());
    }
}

#[track_caller]
fn check(names: &[String]) {
    let list: NameList = names.iter().collect();
    let mut expected = BytesMut::new();
    names.iter().cloned().map(ByteString::from).collect::<Vec<_>>().encode(&mut expected);
    assert_eq!(wire(&list), expected);
    let read = read(&wire(&list)).unwrap();
    assert_eq!(read, list);
    assert_eq!((read.len(), read.is_empty()), (names.len(), names.is_empty()));
    assert_eq!(read.iter().len(), names.len());
    assert_eq!(read.iter().collect::<Vec<_>>(), names);
    assert_eq!(format!("{read:?}"), format!("{names:?}"));
    assert_eq!(read.clone().into_iter().len(), names.len());
    assert_eq!(Vec::<ByteString>::from(read), names);
}

fn wire(names: &NameList) -> Bytes {
    let mut wire = BytesMut::new();
    names.encode(&mut wire);
    wire.freeze()
}

fn read(wire: &Bytes) -> Result<NameList, DecodeError> {
    NameList::decode(&mut Reader::new(wire.clone()))
}
