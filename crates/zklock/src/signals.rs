//! Signals that this process receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are forwarded to the command.
const FORWARDED: [SignalKind; 6] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::user_defined1(),
    SignalKind::user_defined2(),
];

/// The signals that have arrived, which no longer end this process.
pub(crate) struct Signals {
    streams: Vec<(i32, Signal)>,
}

impl Signals {
    /// Begins to catch signals, except those that this process was started to ignore: `nohup`
    /// ignores SIGHUP, and shells ignore SIGINT and SIGQUIT for commands in the background. The
    /// command inherits that.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut streams = Vec::new();
        for kind in FORWARDED {
            let number = kind.as_raw_value();
            if ignored & (1 << (number - 1)) == 0 {
                streams.push((number, signal(kind)?));
            }
        }
        Ok(Self { streams })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> i32 {
        poll_fn(|cx| {
            for (number, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the ignored signals in a `/proc/PID/status`, as a mask.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_as_a_mask() {
        assert_eq!(ignored("Name:\ta\nSigIgn:\t0000000000001006\n"), 0x1006);
        assert_eq!(ignored(""), 0);
    }
}
