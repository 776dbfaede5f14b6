//! The messages of all errors, as reviewed in `messages.txt`.

use std::fmt::Write as _;

use crate::error::{DecodeError, DecodeErrorKind, EncodeError, FrameError};

/// Appends the messages of examples of an enum. A variant that is missing here does not compile, and
/// a variant without an example fails.
macro_rules! messages {
    ($out:ident, $type:ident { $($variant:ident),+ $(,)? }, [$($example:expr),+ $(,)?]) => {{
        let name = |value: &$type| match value {
            $($type::$variant { .. } => stringify!($variant),)+
        };
        let mut missing = vec![$(stringify!($variant)),+];
        for example in [$($example),+] {
            let variant = name(&example);
            missing.retain(|other| *other != variant);
            writeln!($out, "{}::{variant}: {example}", stringify!($type)).expect("it is a string");
        }
        assert!(missing.is_empty(), "{} without an example: {missing:?}", stringify!($type));
    }};
}

/// Compares the messages with the reviewed ones. Prints all of them if one differs.
fn check(found: &str, reviewed: &str) {
    let differs = found.lines().zip(reviewed.lines()).find(|(found, reviewed)| found != reviewed);
    assert!(
        found == reviewed,
        "{differs:?} differ; review messages.txt, which should be:\n{found}"
    );
}

#[test]
fn every_message_is_the_reviewed_one() {
    let mut out = String::new();
    messages!(
        out,
        DecodeErrorKind {
            IllegalFlags,
            IllegalTtl,
            NegativeLength,
            NotText,
            Null,
            TooLong,
            UnexpectedEnd,
            UnexpectedOp,
        },
        [
            DecodeErrorKind::IllegalFlags { op: 21, flags: 1 },
            DecodeErrorKind::IllegalTtl(0),
            DecodeErrorKind::NegativeLength(-2),
            DecodeErrorKind::NotText,
            DecodeErrorKind::Null,
            DecodeErrorKind::TooLong(268_435_456),
            DecodeErrorKind::UnexpectedEnd { need: 8, have: 3 },
            DecodeErrorKind::UnexpectedOp(99),
        ]
    );
    let outside = DecodeError::new(DecodeErrorKind::Null, 4);
    writeln!(out, "DecodeError: {outside}").expect("it is a string");
    writeln!(out, "DecodeError: {}", outside.within("Stat", "czxid")).expect("it is a string");
    messages!(out, EncodeError { TooLong }, [EncodeError::TooLong { length: 9, limit: 8 }]);
    writeln!(out, "FrameError: {}", FrameError { length: -1 }).expect("it is a string");
    check(&out, include_str!("messages.txt"));
}
