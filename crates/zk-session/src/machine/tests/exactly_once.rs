//! Each flight completes exactly once, whatever happens and in whatever order.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jute_codec::{CreateMode, CreateRequest, ErrorCode, NameList, Request, Response, xid};
use proptest::prelude::*;

use super::peer::{Pair, SESSION, TIMEOUT, config, sync, watch};
use crate::machine::session::Phase;
use crate::machine::{Event, Flight, Operation, SessionState, Token};

#[derive(Clone, Debug)]
enum Step {
    /// Submit a flight with these operations, possibly with a deadline or for this session only.
    Submit(Vec<u8>, bool, bool),
    /// The transport accepts this many eighths of the bytes to send.
    Transmit(usize),
    /// The server replies to this many requests in this way.
    Answer(usize, u8),
    Recall(usize),
    Cancel(usize),
    Sleep(u64),
    Cut,
    /// The machine gets a connection. The value says whether the server knows its session.
    Connect(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let operations = proptest::collection::vec(0_u8..6, 1..4);
    prop_oneof![
        6 => (operations, any::<bool>(), any::<bool>()).prop_map(|(o, d, s)| Step::Submit(o, d, s)),
        4 => (0_usize..9).prop_map(Step::Transmit),
        6 => (1_usize..4, 0_u8..12).prop_map(|(count, how)| Step::Answer(count, how)),
        1 => (0_usize..50).prop_map(Step::Recall),
        1 => (0_usize..50).prop_map(Step::Cancel),
        2 => (1_u64..3000).prop_map(Step::Sleep),
        1 => Just(Step::Cut),
        3 => prop_oneof![5 => Just(true), 1 => Just(false)].prop_map(Step::Connect),
    ]
}

fn operation(kind: u8, number: u64) -> Operation {
    match kind {
        0 | 1 => Operation::shared_list("/d".into()),
        2 => Operation::shared_list("/e".into()),
        3 => watch(number + 1, Request::GetData, "/a"),
        4 => Operation::new(Request::Create(CreateRequest {
            path: "/d/c".into(),
            data: Some(Bytes::new()),
            acl: vec![],
            mode: CreateMode::EphemeralSequential,
            with_stat: false,
        })),
        _ => sync("/a"),
    }
}

/// The server replies to the oldest pending request that it has received.
fn answer(pair: &mut Pair, how: u8) {
    let Some((xid, request)) = pair.request() else { return };
    let response = match (how, request) {
        (0, _) => Err(ErrorCode::SESSION_EXPIRED),
        (1, _) => Err(ErrorCode::SESSION_MOVED),
        (2 | 3, Request::Sync(_) | Request::GetChildren(_) | Request::GetData(_)) => {
            Err(ErrorCode::NO_NODE)
        }
        (_, Request::Sync(path)) => Ok(Response::Sync(path)),
        (_, Request::GetChildren(_)) => Ok(Response::GetChildren(NameList::default())),
        (_, Request::GetData(_)) => Ok(super::peer::data()),
        (_, Request::Create(create)) => Ok(Response::Create(create.path)),
        _ => Ok(Response::Empty),
    };
    let response = if xid == xid::PING { Ok(Response::Empty) } else { response };
    pair.reply(xid, response);
}

/// Counts the replies to each flight.
fn answers(pair: &Pair) -> BTreeMap<Token, (usize, usize)> {
    let mut answers = BTreeMap::new();
    for event in &pair.events {
        if let Event::Reply { token, reply } = event {
            let (count, results) = answers.entry(*token).or_insert((0, 0));
            *count += 1;
            *results = reply.results.len();
        }
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_flight_is_answered_exactly_once(steps in proptest::collection::vec(step(), 1..60)) {
        let mut pair = Pair::new(config());
        pair.takes_all = false;
        let mut flights = vec![];
        let mut cancelled = vec![];
        let mut session = SESSION;
        for step in steps {
            match step {
                Step::Submit(kinds, has_deadline, is_bound) => {
                    let number = flights.len() as u64;
                    let operations: Vec<_> =
                        kinds.into_iter().map(|kind| operation(kind, number)).collect();
                    let count = operations.len();
                    let deadline = has_deadline.then(|| pair.now + Duration::from_secs(1));
                    let session = pair.session.status().session.filter(|_| is_bound);
                    let flight = Flight { operations, session, deadline };
                    flights.push((pair.submit_flight(flight), count));
                }
                Step::Transmit(eighths) => pair.transmit(pair.unsent.len() * eighths.min(8) / 8),
                Step::Answer(count, how) => (0..count).for_each(|_| answer(&mut pair, how)),
                Step::Recall(at) => if let Some((token, _)) = flights.get(at) {
                    pair.session.recall(pair.now, *token);
                    pair.drain();
                },
                Step::Cancel(at) => if let Some((token, _)) = flights.get(at) {
                    pair.session.cancel(pair.now, *token);
                    pair.drain();
                    cancelled.push(*token);
                },
                Step::Sleep(ms) => pair.sleep(Duration::from_millis(ms)),
                Step::Cut => {
                    pair.cut();
                    // No operation of an open flight was sent; all of them wait for the next
                    // connection.
                    prop_assert!(pair.session.flights.are_all_waiting());
                }
                Step::Connect(is_known) => if matches!(
                    pair.session.link.phase,
                    Phase::Idle | Phase::Connecting
                ) {
                    if pair.session.link.phase == Phase::Idle {
                        pair.events.retain(|event| !matches!(event, Event::Connect(_)));
                    }
                    pair.open();
                    pair.handshake();
                    if !is_known && pair.session.status().session.is_some() {
                        session.0 += 1;
                        pair.answer_expired();
                    } else {
                        pair.answer_handshake(session, TIMEOUT);
                    }
                },
            }
        }
        // A partly sent flight is still open.
        pair.session.close(pair.now);
        pair.drain();
        pair.sleep(TIMEOUT);
        prop_assert!(matches!(pair.session.link.phase, Phase::Stopped(SessionState::Closed)));
        let answers = answers(&pair);
        for (token, count) in flights {
            match answers.get(&token) {
                Some((1, results)) => prop_assert_eq!(*results, count),
                None => prop_assert!(cancelled.contains(&token), "{:?} has no reply", token),
                Some((more, _)) => prop_assert!(false, "{:?} has {} answers", token, more),
            }
        }
        prop_assert!(pair.session.flights.is_empty());
        prop_assert_eq!(pair.session.link.inflight().expected_bytes(), 0);
    }
}
