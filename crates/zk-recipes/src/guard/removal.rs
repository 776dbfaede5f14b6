//! Running a removal to its end.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use tracing::{Instrument as _, Span, debug, warn};
use zk_session::OpError;

use crate::engine::attended::{RETRY_FIRST, RETRY_MAX};
use crate::engine::drive::{ClientStopped, Unattended, drive};
use crate::engine::feed::Feed;
use crate::lock::outcome::{Refusal, Released};
use crate::lock::recipe::Removal;
use crate::lock::stats::Counters;
use crate::machine::Repeating;

/// How a removal ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Released(Released),
    Refused(Refusal),
    /// The client stopped first. Its session has ended, or ends by itself.
    Stopped,
}

/// Runs a removal. The removal continues after lost connections, and ends with the session if it
/// has not ended before.
///
/// `is_creating` means that the flight with the create was the last one submitted.
pub(crate) async fn run<R: Removal>(feed: &mut Feed, removal: &mut R, is_creating: bool) -> Ended {
    match feed.pending {
        Some(token) if is_creating => {
            // If the create has not been sent yet, there is no need to send it.
            feed.lane.recall(token);
            removal.expect_create();
        }
        Some(_) | None => feed.pending = None,
    }
    let ended = follow(feed, removal).await;
    debug!(?ended, "released");
    if let Ended::Refused(Refusal { path, error }) = &ended {
        warn!(%path, %error, "a server refuses to remove the contender znode; retrying");
    }
    ended
}

/// Performs the janitor's duty after an attempt was dropped or has failed: the removal and, if the
/// outcome of a create is unknown, a sweep after the next reconnect, because the last request of
/// the old connection may have taken effect by then.
pub(crate) async fn duty<R: Removal>(
    mut feed: Feed,
    mut removal: R,
    is_creating: bool,
    counters: Arc<Counters>,
    span: Span,
) {
    feed.lane.need_lease(false);
    let ended = run(&mut feed, &mut removal, is_creating).await;
    counters.replays(removal.replays());
    after(&feed, removal, &ended, span);
}

/// Schedules the work that has to follow a removal.
pub(crate) fn after<R: Removal>(feed: &Feed, removal: R, ended: &Ended, span: Span) {
    conclude(feed, removal, ended, RETRY_FIRST, span);
}

fn conclude<R: Removal>(feed: &Feed, mut removal: R, ended: &Ended, pause: Duration, span: Span) {
    if let Ended::Refused(Refusal { path, .. }) = ended {
        return retry(feed, removal, path, pause, span);
    }
    let is_clean = matches!(ended, Ended::Released(Released::Released | Released::AlreadyGone));
    if is_clean && removal.is_tainted() {
        let path = removal.place().clone();
        feed.lane.after_reconnect(&path, move |lane| {
            let sweep = async move {
                removal.sweep_again();
                let ended = follow(&mut Feed::new(lane), &mut removal).await;
                debug!(?ended, "swept once more");
            };
            sweep.instrument(span)
        });
    }
}

/// Retries a refused removal for as long as the session lives, because the znode blocks all other
/// contenders until then. Keeps the session open only while a retry runs.
fn retry<R: Removal>(feed: &Feed, mut removal: R, path: &ByteString, pause: Duration, span: Span) {
    let outer = span.clone();
    feed.lane.after_pause(pause, path, move |lane| {
        let retry = async move {
            let mut feed = Feed::new(lane);
            removal.retry();
            let ended = follow(&mut feed, &mut removal).await;
            debug!(?ended, "retried the removal of the contender znode");
            conclude(&feed, removal, &ended, (pause * 2).min(RETRY_MAX), span);
        };
        retry.instrument(outer)
    });
}

async fn follow<R: Removal>(feed: &mut Feed, removal: &mut R) -> Ended {
    match drive(feed, &mut Repeating::new(removal), &mut Unattended).await {
        Ok(Ok(released)) => Ended::Released(released),
        // A client that has stopped refuses every request.
        Ok(Err(Refusal { error, .. }))
            if error.is_session_over() || error == OpError::AuthFailed =>
        {
            Ended::Stopped
        }
        Ok(Err(refusal)) => Ended::Refused(refusal),
        Err(ClientStopped) => Ended::Stopped,
    }
}
