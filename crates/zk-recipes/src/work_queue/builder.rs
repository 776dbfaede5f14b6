//! Options of a work queue.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jute_codec::Acl;
use tokio::sync::Notify;
use zk_session::recipe::Session;
use zk_session::{Client, ConfigError, OptionDefect};

use super::core::Core;
use super::layout::Layout;
use super::stats::{Counters, METRIC};
use crate::error::check_path;
use crate::fair::FairLock;
use crate::machine::{WATCH_CHECK, WATCH_CHECK_MIN};

/// How many times less often a taker checks its place than it looks for items. A missed watch on the
/// taker ahead delays nobody for longer than an interval, because takers look for items too.
const TURN_CHECK: u32 = 8;
/// Default delay of an item that was given back.
const REDELIVERY_DELAY: Duration = Duration::from_secs(1);

/// Options of a [`WorkQueue`](crate::WorkQueue).
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct WorkQueueBuilder {
    client: Client,
    layout: Layout,
}

impl WorkQueueBuilder {
    pub(crate) fn new(client: &Client, directory: &str) -> Result<Self, ConfigError> {
        check_path("directory of the queue", directory)?;
        let layout = Layout::new(directory, Session::of(client).default_acl());
        let layout =
            Layout { watch_check: Some(WATCH_CHECK), redelivery_delay: REDELIVERY_DELAY, ..layout };
        Ok(Self { client: client.clone(), layout })
    }

    /// Sets the access control list of everything that the queue creates: items, leases, markers,
    /// places in the queue of takers, and directories. Producers need CREATE and DELETE, and takers
    /// also READ. Default: that of the client
    /// ([`ClientBuilder::default_acl`](zk_session::ClientBuilder::default_acl)).
    pub fn acl(mut self, acl: Vec<Acl>) -> Self {
        self.layout.acl = acl;
        self
    }

    /// Sets how many items the queue may have, leased ones included. A put that would exceed the
    /// limit fails with [`WorkQueueError::Full`](crate::WorkQueueError::Full).
    ///
    /// The limit applies to the puts of this value and its clones. It is not exact: a put reads the
    /// number of items before it creates its own, so puts that run at the same time can exceed the
    /// limit, each by its own items. With *p* producers that put single items one after the other,
    /// the queue never has more than the limit plus *p* - 1 items.
    ///
    /// Default: 100,000, because a consumer cannot list many more with the default
    /// [`response_limit`](zk_session::ClientBuilder::response_limit). With the default, only one put
    /// in 64 reads the number, and after one that has failed, each put until one succeeds; a client
    /// that may not read it puts its items unchecked. With a limit that you set, each put reads the
    /// number. `usize::MAX` means no limit, and no read.
    pub fn limit(mut self, items: usize) -> Self {
        self.layout.limit = Some(items);
        self
    }

    /// Sets how often the takers of this value and its clones look for items although they were not
    /// notified and it is not their turn; `None` means never. The interval must be at least 10 ms.
    /// Default: 30 s. Each taker adds up to a quarter of the interval, so that takers of different
    /// queues do not look at the same time. If there are no items, a look costs one read.
    ///
    /// This bounds the delay of items if a taker whose turn it is stops polling its future: the
    /// next takers then take items out of turn. The first item waits for up to 1.3 intervals, and
    /// later ones for a thirty-second of an interval, as long as the takers find items. Besides,
    /// every eighth interval, each taker checks its place in the queue of takers with two reads.
    pub fn watch_check(mut self, interval: Option<Duration>) -> Self {
        self.layout.watch_check = interval;
        self
    }

    /// Sets how long the takers of this value and its clones pass over an item that one of them has
    /// given back, by [`give_back`](crate::Leased::give_back), by dropping it, or with an
    /// [`ack`](crate::Leased::ack) that failed. Default: 1 s. Zero means that they may get it at once.
    ///
    /// The delay keeps a consumer that cannot work on an item from getting it again and again, and
    /// the items behind it from waiting meanwhile. It applies to this value and its clones only: the
    /// takers of other processes, and those of another queue built from the same client, may get the
    /// item at once, when it is their turn.
    pub fn redelivery_delay(mut self, delay: Duration) -> Self {
        self.layout.redelivery_delay = delay;
        self
    }

    /// Sets how long a taker of this value and its clones may have an item. Default: no limit.
    ///
    /// A lease that is older is lost with [`LostReason::HeldTooLong`](crate::LostReason::HeldTooLong),
    /// and the item returns to the queue, even if the task that has it hangs. The client does that,
    /// and the task learns it from [`Leased::state`](crate::Leased::state),
    /// [`lost`](crate::Leased::lost) and [`ack`](crate::Leased::ack). The work itself is not stopped,
    /// so choose a limit that is longer than any work on an item. A process that hangs as a whole
    /// needs no limit, because its session expires.
    pub fn lease_for(mut self, length: Duration) -> Self {
        self.layout.lease_for = Some(length);
        self
    }

    /// Checks the options, and returns the parts of the queue.
    pub(crate) fn finish(self) -> Result<Core, ConfigError> {
        let Self { client, layout } = self;
        let invalid = |option, value, defect| Err(ConfigError::Option { option, value, defect });
        if layout.limit == Some(0) {
            return invalid("limit of the queue", "0".to_owned(), OptionDefect::Zero);
        }
        if layout.lease_for == Some(Duration::ZERO) {
            return invalid("lease_for", "0ns".to_owned(), OptionDefect::Zero);
        }
        if let Some(short) = layout.watch_check.filter(|interval| *interval < WATCH_CHECK_MIN) {
            let defect = OptionDefect::ShorterThan(WATCH_CHECK_MIN);
            return invalid("watch_check", format!("{short:?}"), defect);
        }
        let turn = FairLock::builder(&client, &layout.takers)?
            .acl(layout.acl.clone())
            .watch_check(layout.watch_check.map(|interval| interval.saturating_mul(TURN_CHECK)))
            .build_as(METRIC)?;
        Ok(Core {
            layout: Arc::new(layout),
            turn,
            listed: Mutex::default(),
            aside: Mutex::default(),
            stall: Mutex::default(),
            taken_out_of_turn: Notify::new(),
            is_full: AtomicBool::new(false),
            counters: Counters::new(),
            seed: Session::of(&client).unique_id(),
            client,
        })
    }
}

impl fmt::Debug for WorkQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder").field("layout", &self.layout).finish_non_exhaustive()
    }
}
