//! Measures how fast the link carries replies, and limits how many bytes of them may be on the way.
//!
//! A server replies in order, so the reply to a renewal or a ping waits behind all replies that were
//! requested before it. On a slow link these must be few, or the lease ends although every renewal
//! was committed. So the replies on the way may take a 25th of the session timeout together. A
//! lease survives commits of that length, and replies delay a renewal as slow commits do.
//!
//! The requests of writes need not wait for that: their replies are short, and the commits that they
//! prove count from when they were sent.
//!
//! Only the wait for the rest of a reply counts, from when its first part has arrived: neither the
//! latency of the link nor that of a commit says how many bytes fit through it. While this task does
//! not run, bytes gather in the socket, and the link seems faster or slower than it is. So one sample
//! raises the limit to no more than twice its value, and the next one corrects one that is too low.

use std::time::Duration;

use crate::time::Time;

/// Maximum bytes of replies on the way, however fast the link is. Above it, all requests wait.
pub(super) const EXPECTED_MAX: u64 = 4 * 1024 * 1024;
/// Minimum of the limit.
const EXPECTED_MIN: u64 = 16 * 1024;
/// The limit of a link that has not been measured: two replies of unknown length.
const UNMEASURED: u64 = 2 * 1024 * 1024;
/// Bytes of one sample.
const SAMPLE: u64 = 64 * 1024;
/// Divides the session timeout; the result is how long the replies on the way may take.
const SHARE: u32 = 25;

/// Tracks the bytes that arrive. The limit outlives the connection, because the next one usually takes
/// the same way.
#[derive(Debug)]
pub(super) struct Downlink {
    /// The last bytes ended with a part of a reply: when, and its number of bytes.
    unfinished: Option<(Time, usize)>,
    /// Bytes of the current sample.
    bytes: u64,
    /// Time for which they were awaited.
    awaited: Duration,
    limit: u64,
}

impl Downlink {
    pub(super) fn new() -> Self {
        Self { unfinished: None, bytes: 0, awaited: Duration::ZERO, limit: UNMEASURED }
    }

    /// Returns the state of a connection after many bytes have arrived at once.
    #[cfg(test)]
    pub(super) fn fast() -> Self {
        Self { limit: EXPECTED_MAX, ..Self::new() }
    }

    /// Records that a new connection begins.
    pub(super) fn connected(&mut self) {
        self.unfinished = None;
    }

    /// Returns the limit on the expected bytes of replies.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Records that bytes have arrived. `length` counts them and the part of a reply that had
    /// arrived before.
    pub(super) fn received(&mut self, now: Time, length: usize, session_timeout: Duration) {
        let Some((since, before)) = self.unfinished.take() else { return };
        self.bytes += length.saturating_sub(before) as u64;
        self.awaited += now.saturating_since(since);
        if self.bytes < SAMPLE {
            return;
        }
        let most = u128::from(self.bytes) * (session_timeout / SHARE).as_nanos()
            / self.awaited.as_nanos().max(1);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        self.limit = most.min(self.limit * 2).clamp(EXPECTED_MIN, EXPECTED_MAX);
        self.bytes = 0;
        self.awaited = Duration::ZERO;
    }

    /// Records that the bytes so far end with a part of a reply of which `length` bytes are kept.
    pub(super) fn part_received(&mut self, now: Time, length: usize) {
        self.unfinished = Some((now, length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const MB: u64 = 1_000_000;

    /// Receives a reply in chunks of 10 kB over a link that carries this many bytes per second.
    /// Returns when its last byte has arrived.
    fn receive(link: &mut Downlink, begun: Time, length: u64, rate: u64) -> Time {
        let (mut now, mut arrived) = (begun, 0);
        while arrived < length {
            let chunk = (length - arrived).min(10_000);
            arrived += chunk;
            now = now + Duration::from_secs(chunk) / u32::try_from(rate).unwrap();
            link.received(now, usize::try_from(arrived).unwrap(), TIMEOUT);
            if arrived < length {
                link.part_received(now, usize::try_from(arrived).unwrap());
            }
        }
        now
    }

    #[test]
    fn the_limit_is_what_the_link_carries_in_a_25th_of_the_session_timeout() {
        for (rate, most) in [(1_000, EXPECTED_MIN), (100_000, 120_000), (250_000, 300_000)] {
            let mut link = Downlink::new();
            let mut now = Time::default();
            for _ in 0..5 {
                now = receive(&mut link, now, MB, rate);
                assert!(link.limit().abs_diff(most) <= 1, "{} at {rate} B/s", link.limit());
                // The link is idle, or the server is slow.
                now = now + TIMEOUT;
            }
        }
        let mut link = Downlink::new();
        receive(&mut link, Time::default(), MB, 100 * MB);
        assert_eq!(link.limit(), EXPECTED_MAX);
    }

    #[test]
    fn short_replies_and_whole_ones_measure_nothing() {
        let mut link = Downlink::new();
        let mut now = Time::default();
        for _ in 0..1000 {
            now = receive(&mut link, now, 9_000, 1_000);
        }
        assert_eq!(link.limit(), UNMEASURED);
    }

    /// A task that did not run finds everything in the socket.
    #[test]
    fn a_slow_link_that_seems_fast_for_a_moment_is_asked_for_twice_as_much_at_most() {
        let mut link = Downlink::new();
        let now = receive(&mut link, Time::default(), MB, 100_000);
        let before = link.limit();
        link.part_received(now, 100);
        link.received(now, 100_000, TIMEOUT);
        assert_eq!(link.limit(), 2 * before);
        receive(&mut link, now, 100_000, 100_000);
        assert!(link.limit().abs_diff(before) <= 1, "{}", link.limit());
    }
}
