//! A write that arrives long after its connection has ended, between two requests of somebody else.
//!
//! A Keeper gives a client another session with each connection, and still executes what the old one
//! has sent. Only the end of the old session says that nothing more comes. What a recipe does about that
//! matters if the write comes at the worst moment, which a pause of a drawn length hardly ever meets: so
//! the requests that arrive before it are counted instead.

use std::time::Duration;

use tokio::sync::oneshot;

use super::World;
use super::waylay::{self, Begun};
use crate::draw::Draw;
use crate::program::queue::QUEUE;
use crate::program::settled;

/// The calls whose writes matter.
const CALLS: [&str; 10] = [
    "ack",
    "put",
    settled::WRITE,
    "transaction",
    "commit_under",
    "downgrade",
    "release",
    "acquire",
    "set",
    "update",
];
/// How often only the first two are waited for in a world with a queue, in percent.
const QUEUE_PERCENT: u64 = 80;
/// How many writes of the client arrive before the one that goes astray, at most.
const SKIPPED_MAX: usize = 2;
/// How many requests arrive before the write at most.
const REQUESTS_MAX: usize = 16;
/// How often an administrator deletes a znode of the session meanwhile, in percent.
const DELETION_PERCENT: u64 = 60;

/// What is known of the one write that arrives late.
#[derive(Debug)]
pub(super) enum Stray {
    /// A client has still to send it.
    Awaited {
        /// The client.
        client: usize,
        /// How many of its writes arrive before.
        skipped: usize,
    },
    /// It is on its way. It arrives once this is used or dropped, which ends the wait as well.
    Sent(oneshot::Sender<()>),
    /// It arrives after this many requests.
    Arriving {
        /// How many are left.
        requests: usize,
        /// It is used after the last one.
        arrival: oneshot::Sender<()>,
    },
}

impl Stray {
    /// A client sends a write. Returns when it arrives, if it is this one.
    pub(super) fn pass(stray: &mut Option<Self>, sender: usize) -> Option<oneshot::Receiver<()>> {
        let Some(Self::Awaited { client, skipped }) = stray else { return None };
        if *client != sender {
            return None;
        }
        if *skipped > 0 {
            *skipped -= 1;
            return None;
        }
        let (arrival, arrives) = oneshot::channel();
        *stray = Some(Self::Sent(arrival));
        Some(arrives)
    }

    /// A request of anybody arrives.
    pub(super) fn count(stray: &mut Option<Self>) {
        let Some(Self::Arriving { requests, .. }) = stray else { return };
        *requests = requests.saturating_sub(1);
        if *requests == 0
            && let Some(Self::Arriving { arrival, .. }) = stray.take()
        {
            // The link may have ended meanwhile.
            let _ = arrival.send(());
        }
    }
}

/// Lets a write of a call go astray, deletes a znode of its session in most cases, and lets it arrive
/// between two of the requests that follow. Returns what has happened.
pub(super) async fn strike(world: &World, draw: &mut Draw, left: Duration) -> String {
    let has_queue = world.server.stat(&format!("{QUEUE}/entries")).is_some();
    let count = if has_queue && draw.chance(QUEUE_PERCENT) { 2 } else { CALLS.len() };
    let names = CALLS.get(..count).unwrap_or(&CALLS);
    let Begun { name, client, session, until } = match waylay::begun(world, names, left).await {
        Ok(begun) => begun,
        Err(reason) => return reason,
    };
    let Some((handle, _)) = world.clients.get(client) else { return format!("no client {client}") };
    let longest = handle.status().timeout * 9 / 10;
    world.network.lead_astray(client, draw.size(0, SKIPPED_MAX), longest);
    while !world.network.has_strayed() {
        if world.history.now() >= until {
            return format!("{name} of client {client} sends no write");
        }
        world.sleep(waylay::LOOK).await;
    }
    let mut deleted = None;
    if draw.chance(DELETION_PERCENT) {
        world.sleep(draw.ms(0, waylay::round_trip(world))).await;
        let path = waylay::target(world, draw, name, session);
        deleted = path.filter(|path| world.strangers.delete_path(world, path));
    }
    let requests = draw.size(1, REQUESTS_MAX);
    world.network.let_arrive(requests);
    format!(
        "a write of {name} of {session} arrives after {requests} requests, {deleted:?} is deleted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::world::plan::{AIMS_FROM, FaultKind};

    #[test]
    fn a_write_arrives_after_as_many_requests() {
        let mut stray = Some(Stray::Awaited { client: 3, skipped: 1 });
        assert!(Stray::pass(&mut stray, 2).is_none(), "another client");
        assert!(Stray::pass(&mut stray, 3).is_none(), "its first write");
        let mut arrives = Stray::pass(&mut stray, 3).expect("its second write");
        let Some(Stray::Sent(arrival)) = stray else { panic!("{stray:?}") };
        let mut stray = Some(Stray::Arriving { requests: 2, arrival });
        Stray::count(&mut stray);
        assert_eq!(arrives.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        Stray::count(&mut stray);
        assert_eq!(arrives.try_recv(), Ok(()));
    }

    #[test]
    fn newer_keepers_execute_what_went_astray() {
        let has_some = |seed| sample::may_have(seed, FaultKind::Stray);
        assert!(!(AIMS_FROM - 300..AIMS_FROM).any(has_some), "the older ones do not");
        let count = (AIMS_FROM..AIMS_FROM + 1_000).filter(|seed| has_some(*seed)).count();
        assert!((20..100).contains(&count), "{count}");
    }
}
