//! The removal of what an attempt may have left, after the attempt was dropped or has failed.

use std::future::Future;
use std::sync::Arc;

use tracing::{Instrument as _, Span};

use crate::engine::attended::Duty;
use crate::engine::feed::Feed;
use crate::engine::removal;
use crate::lock::recipe::LockRemoval;
use crate::lock::stats::Counters;

/// Runs the removal, and counts its replays.
pub(crate) struct RemovalDuty {
    pub(crate) counters: Arc<Counters>,
    /// The span of the attempt.
    pub(crate) span: Span,
}

impl<R: LockRemoval> Duty<R> for RemovalDuty {
    fn perform(self, mut feed: Feed, removal: R) -> impl Future<Output = ()> + Send + 'static {
        let Self { counters, span } = self;
        let outer = span.clone();
        let duty = async move {
            feed.lane.need_lease(false);
            let count = |removal: &R| counters.replays(removal.replays());
            removal::run(&mut feed, removal, span, count).await;
        };
        duty.instrument(outer)
    }
}
