//! The links between clients and servers: they delay, hold back and cut what is sent.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use zk_testserver::TestServer;

use super::clients::Life;
use super::frames::{Frames, Piece};
use super::plan::Plan;
use super::stray::Stray;
use crate::draw::Draw;
use crate::history::{History, What};

/// Capacity in bytes of each direction of a link.
const PIPE: usize = 256 * 1024;
/// The same for a narrow link, which is what a client lets a socket buffer.
const NARROW_PIPE: usize = 64 * 1024;
/// How many bytes a narrow link takes before it has sent the first of them.
const WINDOW: usize = 16 * 1024;
/// How many bytes of a narrow link arrive at once.
const SEGMENT: usize = 4 * 1024;
/// How much may be sent at one moment of virtual time, in packets.
const PACKETS_MAX: u64 = 50_000;

/// When the replies with these numbers have reached the clients with these numbers. A number that a
/// client has used in several sessions has several times.
pub type Arrivals = BTreeMap<(usize, i32), Vec<Duration>>;

/// A direction of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The network between all clients and all servers.
#[derive(Clone, Debug)]
pub struct Network {
    server: TestServer,
    history: History,
    plan: Arc<Plan>,
    jitter: Duration,
    commit: Duration,
    service: Duration,
    state: Arc<Mutex<State>>,
    packets: Arc<AtomicU64>,
    cuts: Arc<AtomicU64>,
    traffic: Arc<Mutex<BTreeMap<u64, u64>>>,
    arrivals: Arc<Mutex<Arrivals>>,
    is_stopped: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    draw: Draw,
    /// What travels in this direction arrives at this time or later.
    up_until: Instant,
    down_until: Instant,
    /// Until when everything, or every write, takes this much longer.
    slow: (Instant, Duration),
    slow_commits: (Instant, Duration),
    /// After this many bytes in this direction, a link is cut.
    cut: Option<(Direction, usize)>,
    /// Until when nothing of these clients arrives, in both directions.
    isolated: BTreeMap<usize, Instant>,
    trap: Option<Trap>,
    stray: Option<Stray>,
    /// How long a write that went astray is on its way at most.
    stray_max: Duration,
    /// Until when packets of these clients may be held back. A packet that waits already goes on to
    /// wait when the fault ends or is replaced.
    held_back: BTreeMap<usize, Instant>,
    /// Packets at this moment.
    moment: (Instant, u64),
}

/// Isolates a client right after a write of it has arrived, so that the reply does not, or right after
/// an event of a watch has arrived, so that nothing that follows does.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a list of drawn values")]
pub struct Trap {
    /// The client.
    pub client: usize,
    /// What is waited for: a write on its way up, or an event on its way down.
    pub direction: Direction,
    /// How many of them pass before.
    pub skipped: usize,
    /// For how long it is isolated.
    pub duration: Duration,
    /// Whether its connection ends, or stays open and silent.
    pub is_cut: bool,
}

/// A packet on its way.
struct Packet {
    due: Instant,
    bytes: Vec<u8>,
    /// A trap may wait for it.
    is_marked: bool,
    /// It may go astray.
    is_change: bool,
    /// The numbers of the replies that begin in it.
    replies: Vec<i32>,
}

/// A write that went astray, and the way to the server, which is still open.
struct Strayed {
    bytes: Vec<u8>,
    to: WriteHalf<DuplexStream>,
    arrives: oneshot::Receiver<()>,
}

impl Network {
    /// Creates the network of a world.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn new(server: TestServer, history: History, plan: &Plan, draw: Draw) -> Self {
        let now = Instant::now();
        let nothing = (now, Duration::ZERO);
        let state = State {
            draw,
            up_until: now,
            down_until: now,
            slow: nothing,
            slow_commits: nothing,
            cut: None,
            isolated: BTreeMap::new(),
            trap: None,
            stray: None,
            stray_max: Duration::ZERO,
            held_back: BTreeMap::new(),
            moment: (now, 0),
        };
        Self {
            server,
            history,
            plan: Arc::new(plan.clone()),
            jitter: plan.jitter,
            commit: plan.commit,
            service: plan.service,
            state: Arc::new(Mutex::new(state)),
            packets: Arc::default(),
            cuts: Arc::default(),
            traffic: Arc::default(),
            arrivals: Arc::default(),
            is_stopped: Arc::default(),
        }
    }

    /// Records an attempt to connect to a member that the client should not use.
    pub fn note_attempt(&self, client: usize, member: usize, life: &Life) {
        if life.has_left(self.history.now(), member) {
            self.history.note(What::Strayed { client, member });
        }
        if life.has_expired() {
            self.history.note(What::Revived { client });
        }
    }

    /// Holds back what travels in these directions for this long. It arrives afterwards, as with
    /// TCP.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn black_hole(&self, up: bool, down: bool, duration: Duration) {
        let until = Instant::now() + duration;
        let mut state = self.lock();
        state.up_until = if up { until } else { state.up_until };
        state.down_until = if down { until } else { state.down_until };
    }

    /// Makes everything take this much longer for a while.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn slow_down(&self, longer: Duration, duration: Duration) {
        self.lock().slow = (Instant::now() + duration, longer);
    }

    /// Makes each write take this much longer for a while.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn slow_down_commits(&self, longer: Duration, duration: Duration) {
        self.lock().slow_commits = (Instant::now() + duration, longer);
    }

    /// Holds back what this client sends and receives for this long, while the others go on. It
    /// arrives afterwards.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn isolate(&self, client: usize, duration: Duration) {
        self.lock().isolate(client, Instant::now() + duration);
    }

    /// Returns whether packets of this client may be held back because it was isolated.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn is_isolated(&self, client: usize) -> bool {
        self.lock().held_back.get(&client).is_some_and(|until| *until > Instant::now())
    }

    /// Returns how long ago the last packets of this client were held back because it was isolated.
    /// `None`: they may be still, or never were.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn free_for(&self, client: usize) -> Option<Duration> {
        let until = self.lock().held_back.get(&client).copied()?;
        Instant::now().checked_duration_since(until)
    }

    /// Isolates a client after one of its next writes or events. There is at most one trap.
    pub fn set_trap(&self, trap: Trap) {
        self.lock().trap = Some(trap);
    }

    /// Lets a write of this client go astray, after these others: its connection ends, and it arrives
    /// when [`let_arrive`](Self::let_arrive) says so, or after the longest time.
    pub(super) fn lead_astray(&self, client: usize, skipped: usize, longest: Duration) {
        let mut state = self.lock();
        (state.stray, state.stray_max) = (Some(Stray::Awaited { client, skipped }), longest);
    }

    /// Returns whether the write has gone astray.
    pub(super) fn has_strayed(&self) -> bool {
        !matches!(self.lock().stray, Some(Stray::Awaited { .. }))
    }

    /// Lets the write that went astray arrive after this many requests.
    pub(super) fn let_arrive(&self, requests: usize) {
        let mut state = self.lock();
        if let Some(Stray::Sent(arrival)) = state.stray.take() {
            state.stray = Some(Stray::Arriving { requests, arrival });
        }
    }

    /// Cuts the link on which the byte after this many others in this direction travels.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.lock().cut = Some((direction, bytes));
    }

    /// Ends all faults that wait for a packet.
    pub(super) fn disarm(&self) {
        let mut state = self.lock();
        (state.cut, state.trap, state.stray) = (None, None, None);
    }

    /// Ends all faults of the network.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    pub fn heal(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        (state.up_until, state.down_until) = (now, now);
        state.slow.0 = now;
        state.slow_commits.0 = now;
        state.cut = None;
        state.isolated.clear();
        (state.trap, state.stray) = (None, None);
    }

    /// Returns how many bytes have arrived in each second, in both directions.
    pub fn traffic(&self) -> BTreeMap<u64, u64> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when replies have arrived.
    pub fn arrivals(&self) -> Arrivals {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of packets so far.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Returns how many links have been cut.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Connects the client of this number to a member.
    ///
    /// # Errors
    ///
    /// As for [`TestServer::connect`].
    pub async fn connect(self, client: usize, member: usize) -> io::Result<DuplexStream> {
        if self.is_stopped.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        // A packet there, and one back.
        let there = self.due(client, Direction::Up, false);
        let back = self.due(client, Direction::Down, false);
        wait_until(there.max(back)).await;
        let server = self.server.member(member).connect()?;
        let pipe = if self.plan.kinds.narrow.is_some() { NARROW_PIPE } else { PIPE };
        let (near, far) = tokio::io::duplex(pipe);
        #[expect(clippy::disallowed_methods, reason = "a link is a task of the world")]
        drop(tokio::spawn(self.serve(client, far, server)));
        Ok(near)
    }

    async fn serve(self, number: usize, client: DuplexStream, server: DuplexStream) {
        let (from_client, to_client) = tokio::io::split(client);
        let (from_server, to_server) = tokio::io::split(server);
        // A direction that has ended ends the link, and drops what travels in the other one.
        let strayed = tokio::select! {
            biased;
            strayed = self.pump(number, Direction::Up, from_client, to_server) => strayed,
            strayed = self.pump(number, Direction::Down, from_server, to_client) => strayed,
        };
        let Some(Strayed { bytes, mut to, arrives }) = strayed else { return };
        let longest = self.lock().stray_max;
        // Whether it is told or nobody can tell it any more, the write arrives.
        let _ = tokio::time::timeout(longest, arrives).await;
        let _ = to.write_all(&bytes).await;
        let _ = to.shutdown().await;
    }

    /// Passes on what is sent in one direction, each packet at its time, and nothing overtakes.
    async fn pump(
        &self,
        client: usize,
        direction: Direction,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) -> Option<Strayed> {
        let mut packets: VecDeque<Packet> = VecDeque::new();
        let (mut frames, mut is_open, mut newest) = (Frames::default(), true, None);
        let narrow = self.plan.kinds.narrow;
        let mut buffer = vec![0; narrow.map_or(16 * 1024, |_| SEGMENT)];
        // When a narrow link has sent what it has taken.
        let mut sent = None;
        while is_open || !packets.is_empty() {
            let first = packets.front().map(|packet| packet.due);
            let next = narrow.zip(sent).map(|(narrow, sent)| sent - narrow.carries(WINDOW));
            tokio::select! {
                biased;
                () = wait_for(first) => {
                    // The way may have been blocked since the packet was sent.
                    let blocked_until = self.blocked_until(client, direction);
                    if first.is_some_and(|due| due < blocked_until) {
                        for packet in &mut packets {
                            packet.due = blocked_until.max(packet.due);
                        }
                        newest = newest.max(Some(blocked_until));
                        continue;
                    }
                    let Some(packet) = packets.pop_front() else { continue };
                    if let Some(arrives) = self.strays(client, &packet) {
                        return Some(Strayed { bytes: packet.bytes, to, arrives });
                    }
                    let (bytes, is_cut) = self.pass(client, direction, packet);
                    if to.write_all(&bytes).await.is_err() || is_cut {
                        return None;
                    }
                }
                count = take(&mut from, &mut buffer, next), if is_open => {
                    let Ok(count @ 1..) = count else {
                        is_open = false;
                        continue;
                    };
                    let bytes = buffer.get(..count).unwrap_or_default();
                    let is_up = direction == Direction::Up;
                    let pieces = frames.split(bytes, direction, self.service.is_zero() || !is_up);
                    let mut service = Duration::ZERO;
                    for Piece { bytes, is_marked, is_change, xids } in pieces {
                        let due = self.due(client, direction, is_marked && is_up);
                        let due = due + narrow.map_or(Duration::ZERO, |narrow| {
                            wait_to_send(&mut sent, narrow.carries(bytes.len()))
                        });
                        let due = due.max(newest.map_or(due, |newest| newest + service));
                        newest = Some(due);
                        let replies = if is_up { Vec::new() } else { xids };
                        packets.push_back(Packet { due, bytes, is_marked, is_change, replies });
                        service = self.service;
                    }
                }
            }
        }
        let _ = to.shutdown().await;
        None
    }

    /// Returns when a write arrives that goes astray.
    fn strays(&self, client: usize, packet: &Packet) -> Option<oneshot::Receiver<()>> {
        if packet.is_change { Stray::pass(&mut self.lock().stray, client) } else { None }
    }

    /// Returns when a packet that is sent now arrives.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn due(&self, client: usize, direction: Direction, is_write: bool) -> Instant {
        let now = Instant::now();
        let mut state = self.lock();
        let jitter = match self.jitter {
            Duration::ZERO => Duration::ZERO,
            longest => Duration::from_millis(
                state.draw.between(0, u64::try_from(longest.as_millis()).unwrap_or(0)),
            ),
        };
        let mut due = now + self.plan.latency_of(client) + jitter;
        if state.slow.0 > now {
            due += state.slow.1;
        }
        if is_write {
            due += self.commit;
            if state.slow_commits.0 > now {
                due += state.slow_commits.1;
            }
        }
        due.max(state.blocked_until(client, direction))
    }

    fn blocked_until(&self, client: usize, direction: Direction) -> Instant {
        self.lock().blocked_until(client, direction)
    }

    /// Returns what arrives of a packet, and whether the link is cut there. Also notices clients
    /// that send without end.
    #[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
    fn pass(&self, client: usize, direction: Direction, packet: Packet) -> (Vec<u8>, bool) {
        let Packet { due: _, mut bytes, is_marked, is_change: _, replies } = packet;
        self.packets.fetch_add(1, Ordering::Relaxed);
        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        *traffic.entry(self.history.now().as_secs()).or_default() += bytes.len() as u64;
        drop(traffic);
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        for xid in replies {
            arrivals.entry((client, xid)).or_default().push(self.history.now());
        }
        drop(arrivals);
        let now = Instant::now();
        let mut state = self.lock();
        if direction == Direction::Up {
            Stray::count(&mut state.stray);
        }
        if state.moment.0 != now {
            state.moment = (now, 0);
        }
        state.moment.1 += 1;
        if state.moment.1 == PACKETS_MAX {
            self.is_stopped.store(true, Ordering::Relaxed);
            self.history.note(What::Spinning);
        }
        let is_cut = match &mut state.cut {
            Some((cut, left)) if *cut == direction => {
                let is_here = *left < bytes.len();
                if is_here {
                    bytes.truncate(*left);
                    state.cut = None;
                } else {
                    *left -= bytes.len();
                }
                is_here
            }
            _ => false,
        };
        let is_cut = is_cut || (is_marked && state.spring_trap(client, direction, now));
        self.cuts.fetch_add(u64::from(is_cut), Ordering::Relaxed);
        (bytes, is_cut || self.is_stopped.load(Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns when the way of this client in this direction is open.
    fn blocked_until(&self, client: usize, direction: Direction) -> Instant {
        let until = if direction == Direction::Up { self.up_until } else { self.down_until };
        self.isolated.get(&client).map_or(until, |isolated| until.max(*isolated))
    }

    fn isolate(&mut self, client: usize, until: Instant) {
        self.isolated.insert(client, until);
        let held_back = self.held_back.entry(client).or_insert(until);
        *held_back = until.max(*held_back);
    }

    /// Isolates the client whose write or event arrives if that is the one to wait for. Returns whether
    /// its connection ends.
    fn spring_trap(&mut self, client: usize, direction: Direction, now: Instant) -> bool {
        let is_it = |trap: &&mut Trap| trap.client == client && trap.direction == direction;
        let Some(trap) = self.trap.as_mut().filter(is_it) else {
            return false;
        };
        if trap.skipped > 0 {
            trap.skipped -= 1;
            return false;
        }
        let trap = *trap;
        self.trap = None;
        self.isolate(client, now + trap.duration);
        trap.is_cut
    }
}

/// Takes bytes from this time on.
async fn take(
    from: &mut ReadHalf<DuplexStream>,
    buffer: &mut [u8],
    at: Option<Instant>,
) -> io::Result<usize> {
    if let Some(at) = at {
        wait_until(at).await;
    }
    from.read(buffer).await
}

/// Returns how long bytes that need this long wait until a link has sent those before and them.
#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
fn wait_to_send(sent: &mut Option<Instant>, needs: Duration) -> Duration {
    let now = Instant::now();
    let until = sent.map_or(now, |sent| sent.max(now)) + needs;
    *sent = Some(until);
    until - now
}

#[expect(clippy::disallowed_methods, reason = "the clock is virtual")]
async fn wait_until(at: Instant) {
    // A timer of tokio lasts a millisecond or more.
    if at > Instant::now() {
        sleep_until(at).await;
    }
}

async fn wait_for(at: Option<Instant>) {
    match at {
        Some(at) => wait_until(at).await,
        None => pending().await,
    }
}
