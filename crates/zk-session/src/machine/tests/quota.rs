//! Thousands of limited handles.

use std::time::Duration;

use jute_codec::Response;

use super::peer::{OWNER, Pair, SESSION, config, sync};
use crate::machine::flight::{Flight, OwnerId, Token};
use crate::machine::quota::Limits;
use crate::machine::{Event, SessionConfig};

const SECOND: Duration = Duration::from_secs(1);

fn pair(handles: u64) -> Pair {
    let outstanding_limit = usize::try_from(handles * 4).unwrap();
    let mut pair = Pair::new(SessionConfig { outstanding_limit, ..config() });
    pair.connect(SESSION);
    pair
}

/// Submits a flight of this limited handle.
fn submit(pair: &mut Pair, token: u64, handle: u64, limits: Limits) {
    let flight = Flight { operations: vec![sync("/")], session: None, deadline: None };
    let quota = (OwnerId(handle), limits);
    pair.session.submit_limited(pair.now, Token(token), OWNER, flight, quota);
    pair.drain();
    pair.flush();
}

/// Replies to all requests that have arrived. Returns their number.
fn reply_to_all(pair: &mut Pair) -> u64 {
    let xids: Vec<i32> = pair.requests().into_iter().map(|(xid, _)| xid).collect();
    for xid in &xids {
        pair.reply(*xid, Ok(Response::Sync("/".into())));
    }
    pair.events.retain(|event| !matches!(event, Event::Reply { .. }));
    xids.len().try_into().unwrap()
}

/// Lets handles with both limits send three flights each, of which the last one is cancelled.
fn work(handles: u64) {
    let mut pair = pair(handles);
    let limits = Limits::new().in_flight(1).per_second(10);
    for token in 0..3 * handles {
        submit(&mut pair, token, token % handles, limits);
    }
    for token in 2 * handles..3 * handles {
        pair.session.cancel(pair.now, Token(token));
    }
    // At ten a second, two requests may be sent at once.
    assert_eq!(reply_to_all(&mut pair), handles);
    assert_eq!(reply_to_all(&mut pair), handles);
    assert_eq!(reply_to_all(&mut pair), 0);
    assert!(pair.session.flights.is_empty());
    assert_eq!(u64::try_from(pair.session.flights.limited_len()).unwrap(), handles);
    pair.sleep(SECOND);
    submit(&mut pair, 3 * handles, 0, limits);
    assert_eq!(pair.session.flights.limited_len(), 1, "idle handles are forgotten");
}

#[test]
fn the_flights_of_a_thousand_handles_are_sent_when_their_limits_allow_it() {
    work(1_000);
}

#[test]
fn each_handle_keeps_its_own_rate() {
    let mut pair = pair(100);
    // The handle with the number n may send n requests in a second.
    for handle in 1..=20 {
        for flight in 0..10 {
            submit(
                &mut pair,
                handle * 100 + flight,
                handle,
                Limits::new().per_second(handle as u32),
            );
        }
    }
    // At first one request each, and what a tenth of a second allows: two from 10 a second on.
    let at_once: u64 = (1..=20).map(|rate| 1 + rate / 10).sum();
    assert_eq!(reply_to_all(&mut pair), at_once);
    pair.sleep(SECOND / 2);
    pair.flush();
    // Of the n/2 requests of half a second and those at once, no more than 10.
    let due: u64 = (1..=20u64).map(|rate| (1 + (rate * 6) / 10).min(10)).sum();
    assert_eq!(reply_to_all(&mut pair), due - at_once);
}

#[test]
fn flights_of_all_handles_are_refused_in_their_order_when_the_client_closes() {
    let mut pair = pair(100);
    for token in 0..60 {
        submit(&mut pair, token, token % 7, Limits::new().in_flight(1));
    }
    pair.session.close(pair.now);
    pair.drain();
    let refused: Vec<u64> = pair
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Reply { token, .. } => Some(token.0),
            _ => None,
        })
        .collect();
    assert_eq!(refused, (7..60).collect::<Vec<_>>());
    assert_eq!(reply_to_all(&mut pair), 7);
}

/// A handle costs the same among many as among few. Both sides of the comparison send the same
/// number of flights, and the test measures the CPU time of this thread.
#[cfg(target_os = "linux")]
#[test]
fn the_work_for_a_handle_does_not_grow_with_the_number_of_handles() {
    use nix::time::{ClockId, clock_gettime};

    const MANY: u64 = 4_000;
    const FEW: u64 = 250;
    // It would be 16 times as much if each flight looked at each handle.
    const GROWTH_MAX: u32 = 5;

    let worked = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let measure = |handles: u64| {
        let before = worked();
        for _ in 0..MANY / handles {
            work(handles);
        }
        worked() - before
    };
    // The least of several, since other threads disturb the caches.
    let least = |handles| (0..3).map(|_| measure(handles)).min().unwrap();
    let (few, many) = (least(FEW), least(MANY));
    assert!(many <= few * GROWTH_MAX, "{many:?} instead of {few:?}");
}
