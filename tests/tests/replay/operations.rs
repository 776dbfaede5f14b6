//! What the captures cover: each operation of the protocol, asked and answered, with every message as
//! the reference of the codec's tests reads it.

#[path = "../../../crates/jute-codec/tests/reference/mod.rs"]
mod reference;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jute_codec::{OpCode, Reader, Record as _, RequestHeader};
use zk_tests::capture::{Conversation, Entry, Message, Side};

use self::reference::{Layout, ToValue, Value, decode, operations};
use super::captures;

/// Operations that no captured server has executed, with the reason.
const NEVER_ANSWERED: &[(&str, &str)] =
    &[("reconfig", "the servers that were recorded are no ensemble")];

#[test]
fn each_operation_was_recorded_and_the_reference_reads_it_as_the_codec_does() {
    let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for capture in captures() {
        let mut links: BTreeMap<u64, (Conversation, BTreeMap<i32, OpCode>)> = BTreeMap::new();
        for (line, entry) in &capture.entries {
            let Entry::Frame { connection, from, bytes } = entry else { continue };
            let (conversation, ops) = links.entry(*connection).or_default();
            let place = format!("{}:{line}", capture.name);
            match from {
                Side::Client => {
                    let message = conversation.asked(bytes);
                    if let Message::Request(header, request) = &message {
                        let body = body(bytes, REQUEST_HEADER);
                        check(&place, Layout::Request(header.op), &body, &request.to_value());
                        asked.insert(header.op);
                    }
                    // A server may also answer a request that the codec refuses.
                    let mut header = Reader::new(body(bytes, 0));
                    if let Ok(header) = RequestHeader::decode(&mut header)
                        && !matches!(message, Message::Connect(_))
                    {
                        ops.insert(header.xid, header.op);
                    }
                }
                Side::Server => {
                    if let Message::Reply(header, response) = conversation.answered(bytes) {
                        let op = *ops.get(&header.xid).expect("the reply to a known request");
                        let body = body(bytes, REPLY_HEADER);
                        check(&place, Layout::Response(op), &body, &response.to_value());
                        answered.insert(op);
                    }
                }
            }
        }
    }
    let missing = |recorded: &BTreeSet<OpCode>| -> Vec<&str> {
        let ops = operations().iter().filter(|it| !it.is_part);
        ops.filter(|it| !recorded.contains(&OpCode(it.op))).map(|it| it.name).collect()
    };
    let unanswered: Vec<&str> = NEVER_ANSWERED.iter().map(|(name, _)| *name).collect();
    let rule = "record a flow with it: see CONTRIBUTING.md";
    assert_eq!((missing(&asked), missing(&answered)), (vec![], unanswered), "{rule}");
}

/// Checks that the reference reads the same value.
fn check(place: &str, layout: Layout, body: &Bytes, value: &Value) {
    match decode(layout, body) {
        Ok((expected, length)) => assert_eq!((value, body.len()), (&expected, length), "{place}"),
        Err(fault) => panic!("{place}: only the codec reads it: {fault:?}"),
    }
}

/// Returns what follows the length and the header of a frame.
fn body(frame: &Bytes, header: usize) -> Bytes {
    frame.slice(frame.len().min(4 + header)..)
}

const REQUEST_HEADER: usize = 8;
const REPLY_HEADER: usize = 16;
