//! Running a release to its end.

use std::sync::Arc;

use bytestring::ByteString;
use tracing::{Instrument as _, Span, debug, warn};
use zk_session::OpError;

use super::{Fed, Feed};
use crate::machine::Removal;
use crate::machine::release::{ReleaseStep, Released};
use crate::stats::Counters;

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
        warn!(%path, %error, "the contender znode cannot be removed; it goes with the session");
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
    let ended = run(&mut feed, &mut release, create_pending).await;
    counters.replays(release.replays());
    after(feed, release, &ended, span);
}

/// See [`duty`].
pub(crate) fn after(feed: Feed, mut release: Removal, ended: &Ended, span: Span) {
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
            ReleaseStep::Submit(flight) => match feed.submit_patiently(flight).await {
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
