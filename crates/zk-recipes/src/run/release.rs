//! Running a release to its end.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use tracing::{Instrument as _, Span, debug, warn};
use zk_session::OpError;

use super::{Fed, Feed};
use crate::machine::Removal;
use crate::machine::release::{ReleaseStep, Released};
use crate::stats::Counters;

/// Pause after the first refusal of a removal.
const TRY_AGAIN_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const TRY_AGAIN_MAX: Duration = Duration::from_secs(60);

/// How a release ended that was run to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    Released(Released),
    /// The client stopped first. Its session has ended, or ends by itself.
    Stopped,
    Refused {
        path: ByteString,
        error: OpError,
    },
}

/// Runs a release. It survives lost connections, and ends at the latest with the session.
///
/// `create_pending`: the flight under way holds the create.
pub(crate) async fn run(feed: &mut Feed, release: &mut Removal, create_pending: bool) -> Ended {
    if create_pending && let Some(token) = feed.pending {
        // If it was not sent yet, there is no need to.
        feed.lane.recall(token);
    } else {
        feed.pending = None;
    }
    let first = release.start(create_pending && feed.pending.is_some());
    let ended = follow(feed, release, first).await;
    debug!(?ended, "released");
    if let Ended::Refused { path, error } = &ended {
        warn!(%path, %error, "a server refuses to remove the contender znode; trying again");
    }
    ended
}

/// The duty that is left to the janitor: the release, and for a tainted one another sweep after
/// the next reconnect, when the last request of the old connection may have come to light.
pub(crate) async fn duty(
    mut feed: Feed,
    mut release: Removal,
    create_pending: bool,
    counters: Arc<Counters>,
    span: Span,
) {
    feed.lane.need_lease(false);
    let ended = run(&mut feed, &mut release, create_pending).await;
    counters.replays(release.replays());
    after(&feed, release, &ended, span);
}

/// See [`duty`].
pub(crate) fn after(feed: &Feed, release: Removal, ended: &Ended, span: Span) {
    conclude(feed, release, ended, TRY_AGAIN_FIRST, span);
}

fn conclude(feed: &Feed, mut release: Removal, ended: &Ended, pause: Duration, span: Span) {
    if matches!(ended, Ended::Refused { .. }) {
        return try_again(feed, release, pause, span);
    }
    let is_clean = matches!(ended, Ended::Released(Released::Released | Released::AlreadyGone));
    if is_clean && release.is_tainted() {
        feed.lane.after_reconnect(move |lane| {
            let sweep = async move {
                let mut feed = Feed::new(lane);
                let step = release.sweep_again();
                let ended = follow(&mut feed, &mut release, step).await;
                debug!(?ended, "swept once more");
            };
            sweep.instrument(span)
        });
    }
}

/// Tries again to remove what a server has refused to remove, for as long as the session lives: its
/// znode blocks everybody until then. Keeps the session open only while it tries.
fn try_again(feed: &Feed, mut release: Removal, pause: Duration, span: Span) {
    let outer = span.clone();
    feed.lane.after_pause(pause, move |lane| {
        let attempt = async move {
            let mut feed = Feed::new(lane);
            let step = release.try_again();
            let ended = follow(&mut feed, &mut release, step).await;
            debug!(?ended, "tried to remove the contender znode again");
            conclude(&feed, release, &ended, (pause * 2).min(TRY_AGAIN_MAX), span);
        };
        attempt.instrument(outer)
    });
}

async fn follow(feed: &mut Feed, release: &mut Removal, mut step: ReleaseStep) -> Ended {
    loop {
        let until = match step {
            ReleaseStep::Done(released) => return Ended::Released(released),
            ReleaseStep::Refused { path, error } => {
                // A client that has stopped refuses everything.
                if error.is_session_over() || error == OpError::AuthFailed {
                    return Ended::Stopped;
                }
                return Ended::Refused { path, error };
            }
            ReleaseStep::Submit(flight) => match feed.submit(flight) {
                Ok(()) => None,
                Err(_) => return Ended::Stopped,
            },
            ReleaseStep::Wait(until) => until,
        };
        step = loop {
            match feed.next(until).await {
                Fed::Input(input) => break release.handle(feed.view(), input),
                Fed::AuthFailed | Fed::Closed => return Ended::Stopped,
                Fed::Connected(_) | Fed::Lapsed => {}
            }
        };
    }
}
