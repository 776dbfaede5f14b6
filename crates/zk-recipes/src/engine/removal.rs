//! Running a removal to its end, and again for as long as a server refuses it.

use std::time::Duration;

use bytestring::ByteString;
use tracing::{Instrument as _, Span, debug, warn};
use zk_session::OpError;
use zk_session::recipe::{Abridged, Notice};

use super::drive::{ClientStopped, Unattended, drive};
use super::feed::Feed;
use super::notice::is_among_first;
use crate::machine::{Refusal, Removal, Repeating, spread};

/// How a removal ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    Removed(T),
    Refused(Refusal),
    /// The client stopped first. Its session has ended, or ends by itself.
    Stopped,
}

/// Runs a removal, which continues after lost connections, and ends with the session if it has not
/// ended before. `look` is called with the removal once it has ended.
///
/// Also schedules the work that has to follow, in this span: a retry after a refusal or, if the outcome
/// of a create is unknown, a sweep after the next reconnect, because the last request of the old
/// connection may have taken effect by then.
pub(crate) async fn run<R: Removal>(
    feed: &mut Feed,
    mut removal: R,
    span: Span,
    look: impl FnOnce(&R),
) -> Ended<R::Removed> {
    let ended = follow(feed, &mut removal).await;
    debug!(?ended, "released");
    if let Ended::Refused(Refusal { path, error }) = &ended {
        let (path, removed) = (Abridged(path), R::REMOVED);
        if is_among_first(Notice::Refused, feed.lane.count_notice(Notice::Refused)) {
            warn!(%path, %error, "a server refuses to remove {removed}; retrying");
        } else {
            debug!(%path, %error, "a server refuses to remove {removed}; retrying");
        }
    }
    look(&removal);
    conclude(feed, removal, &ended, RETRY_FIRST, span);
    ended
}

fn conclude<R: Removal>(
    feed: &Feed,
    mut removal: R,
    ended: &Ended<R::Removed>,
    pause: Duration,
    span: Span,
) {
    match ended {
        Ended::Refused(Refusal { path, .. }) => retry(feed, removal, path, pause, span),
        Ended::Removed(removed) => {
            let Some(place) = removal.must_sweep_after(removed).cloned() else { return };
            feed.lane.after_reconnect(&place, move |lane| {
                let sweep = async move {
                    removal.sweep_again();
                    let ended = follow(&mut Feed::new(lane), &mut removal).await;
                    debug!(?ended, "swept once more");
                };
                sweep.instrument(span)
            });
        }
        Ended::Stopped => {}
    }
}

/// Retries a refused removal for as long as the session lives, because others may wait for the end
/// of the znode until then. Keeps the session open only while a retry runs.
fn retry<R: Removal>(feed: &Feed, mut removal: R, path: &ByteString, pause: Duration, span: Span) {
    let outer = span.clone();
    // Those that were refused together come back apart.
    let length = spread(pause, u128::from(feed.lane.seed()));
    feed.lane.after_pause(length, path, move |lane| {
        let retry = async move {
            let mut feed = Feed::new(lane);
            removal.retry();
            let ended = follow(&mut feed, &mut removal).await;
            debug!(?ended, "retried the removal");
            conclude(&feed, removal, &ended, (pause * 2).min(RETRY_MAX), span);
        };
        retry.instrument(outer)
    });
}

async fn follow<R: Removal>(feed: &mut Feed, removal: &mut R) -> Ended<R::Removed> {
    match drive(feed, &mut Repeating::new(removal), &mut Unattended).await {
        Ok(Ok(removed)) => Ended::Removed(removed),
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

/// Pause after the first refusal.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two retries.
const RETRY_MAX: Duration = Duration::from_secs(60);
