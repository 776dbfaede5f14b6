//! An ensemble as far as it matters to a lease: who knows when that a session lives.
//!
//! A session's server (a leader, a follower, or an observer behind an ObserverMaster) notes each
//! request of the session in its *touch table*. Learners send that table to whom they follow, in the
//! answers to its pings, twice a tick, and forget it. Only what the leader knows keeps a session
//! alive. Writes and syncs go to the leader on the same stream as these answers, and commits come
//! back on the same stream as the pings.
//!
//! Any process may stand still, links may be slow or be cut in either direction, a leader may be
//! deposed and go on for as long as it does not notice, and a client may resume on any server, of the
//! old epoch or the new one. The leader's ping thread and its request threads are scheduled apart.
//!
//! Times are microseconds of the servers' clock.

#![expect(clippy::indexing_slicing, reason = "numbers of connections and requests are made here")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zk_tests::random::SplitMix64;

pub(crate) type Micros = u64;

/// Never.
pub(crate) const NEVER: Micros = u64::MAX;

/// Who runs, and may stand still.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Actor {
    Client,
    /// The server of the connection, unless it is the leader.
    Server,
    /// The ObserverMaster.
    Master,
    /// The leader of an epoch.
    Leader(usize),
}

/// What stands between the client and the leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    Leader,
    Follower,
    Observer,
}

/// A connection of the client.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// When the client begins it, and leaves the one before.
    pub(crate) at: Micros,
    pub(crate) route: Route,
    /// Whose leader the server follows.
    pub(crate) epoch: usize,
    /// When the client sends, and what.
    pub(crate) sends: Vec<(Micros, Kind)>,
    /// How many answers of the leader are followed by another write at once.
    pub(crate) eagerness: usize,
    /// From then on nothing passes between client and server, up and down.
    pub(crate) client_cut: [Micros; 2],
    /// The same between the server, or its master, and the leader.
    pub(crate) leader_cut: [Micros; 2],
    pub(crate) server_pauses: Pauses,
    pub(crate) master_pauses: Pauses,
}

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Connect,
    /// Answered by the server alone.
    Ping,
    /// Answered by the leader, deposed or not.
    Sync,
    /// Answered when a quorum has committed it.
    Write,
}

/// The time of a leader.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    pub(crate) elected: Micros,
    /// When it can commit nothing new any more. It may not know.
    pub(crate) deposed: Micros,
    pub(crate) pauses: Pauses,
}

/// Everything that is decided before a history runs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) timeout: Micros,
    pub(crate) tick: Micros,
    /// Speed of the client's clock, in thousandths.
    pub(crate) rate: u64,
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) client_pauses: Pauses,
    /// How late a message may be, usually and seldom.
    pub(crate) latency: [Micros; 2],
    /// When the ping threads begin; at random if it is not said.
    pub(crate) ping_phase: Option<Micros>,
    /// How late a ping thread may be once it is due and its server runs.
    pub(crate) ping_lag: Lag,
    /// How long a thread of a server may take between its look at the touch table and its note.
    pub(crate) note_lag: Micros,
    pub(crate) seed: u64,
}

/// How late a thread is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lag {
    Never,
    /// Sometimes, by up to that much.
    UpTo(Micros),
    /// By that much, each time that its process goes on after a pause.
    AfterPauses(Micros),
}

/// Times in which a process stands still, in order and apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(Vec<(Micros, Micros)>);

impl Pauses {
    pub(crate) fn add(&mut self, start: Micros, length: Micros) {
        let end = start + length;
        if length > 0 && !self.0.iter().any(|(a, b)| start <= *b && *a <= end) {
            self.0.push((start, end));
        }
    }

    /// When what is due at `at` is done.
    pub(crate) fn awake(&self, at: Micros) -> Micros {
        let pause = self.0.iter().find(|(start, end)| (*start..*end).contains(&at));
        pause.map_or(at, |(_, end)| *end)
    }
}

/// What the client sees, by its clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    /// The first connection has created the session.
    Created { sent: Micros, got: Micros },
    /// Another connection has resumed it.
    Resumed { sent: Micros, got: Micros },
    /// An answer on the newest connection.
    Answer { kind: Kind, sent: Micros, got: Micros },
}

/// What has happened.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) seen: Vec<Seen>,
    /// When somebody else may have the lock: the first leader with a quorum ends the session.
    pub(crate) over: Micros,
    /// For whoever reads a counterexample; empty unless asked for.
    pub(crate) trace: Vec<(Micros, String)>,
}

/// The directions of a link.
const UP: usize = 0;
const DOWN: usize = 1;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client sends the next request of a connection.
    Send(usize),
    /// A request is at the server.
    AtServer {
        connection: usize,
        number: usize,
    },
    /// A note in the touch table of the server, or of the master, is made in this generation.
    Note {
        connection: usize,
        is_master: bool,
        generation: u64,
    },
    /// A request is at the leader.
    AtLeader {
        connection: usize,
        number: usize,
    },
    /// The leader may answer it.
    Committed {
        connection: usize,
        number: usize,
    },
    /// The answer of the leader is at the server.
    Answered {
        connection: usize,
        number: usize,
    },
    /// An answer is at the client.
    AtClient {
        connection: usize,
        number: usize,
    },
    /// The ping thread of a leader is due.
    PingDue {
        connection: usize,
    },
    PingAtServer {
        connection: usize,
    },
    /// A table that names the session, or not, is at the leader.
    TableAtLeader {
        connection: usize,
        has_session: bool,
    },
    /// The same between master and observer.
    MasterPingDue {
        connection: usize,
    },
    MasterPingAtServer {
        connection: usize,
    },
    TableAtMaster {
        connection: usize,
        has_session: bool,
    },
    /// On the way between observer and leader.
    AtMasterUp {
        connection: usize,
        number: usize,
    },
    AtMasterDown {
        connection: usize,
        number: usize,
    },
}

/// A connection as it runs.
#[derive(Debug)]
struct Running {
    plan: Connection,
    requests: Vec<Request>,
    /// Answers leave in the order of requests.
    first_unanswered: usize,
    next_send: usize,
    /// When the last message of each direction arrives: client, master, leader.
    client_link: [Micros; 2],
    master_link: [Micros; 2],
    leader_link: [Micros; 2],
    /// The touch tables of server and master: their generations, and what is in them.
    server_table: Table,
    master_table: Table,
    is_left: bool,
}

#[derive(Debug)]
struct Request {
    kind: Kind,
    sent: Micros,
    is_answered: bool,
    /// It was sent because of an answer.
    is_reaction: bool,
}

#[derive(Debug, Default)]
struct Table {
    generation: u64,
    has_session: bool,
}

struct Run<'a> {
    plan: &'a Plan,
    dice: SplitMix64,
    events: BinaryHeap<Reverse<(Micros, u64, usize)>>,
    /// By the number in the heap.
    arena: Vec<Event>,
    running: VecDeque<Running>,
    /// When the leader of each epoch heard of the session last.
    known: Vec<Option<Micros>>,
    /// When its request pipeline is free again, and when the last commit was.
    pipeline: Vec<Micros>,
    seen: Vec<Seen>,
    trace: Option<Vec<(Micros, String)>>,
    now: Micros,
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan, is_traced: bool) -> History {
    let epochs = plan.epochs.len();
    let mut run = Run {
        plan,
        dice: SplitMix64::new(plan.seed),
        events: BinaryHeap::new(),
        arena: Vec::new(),
        running: plan.connections.iter().cloned().map(Running::new).collect(),
        known: vec![None; epochs],
        pipeline: vec![0; epochs],
        seen: Vec::new(),
        trace: is_traced.then(Vec::new),
        now: 0,
    };
    let last = plan.connections.iter().map(|c| c.sends.last().map_or(c.at, |(at, _)| *at)).max();
    let horizon = last.unwrap_or_default() + plan.timeout;
    for number in 0..plan.connections.len() {
        run.at(plan.connections[number].at, Event::Send(number));
        if plan.connections[number].route != Route::Leader {
            let phase = run.ping_phase();
            run.at(phase, Event::PingDue { connection: number });
        }
        if plan.connections[number].route == Route::Observer {
            let phase = run.ping_phase();
            run.at(phase, Event::MasterPingDue { connection: number });
        }
    }
    while let Some(Reverse((at, _, index))) = run.events.pop() {
        if at > horizon {
            break;
        }
        run.now = at;
        let event = run.arena[index];
        run.handle(event);
    }
    run.finish()
}

impl Running {
    fn new(plan: Connection) -> Self {
        Self {
            plan,
            requests: Vec::new(),
            first_unanswered: 0,
            next_send: 0,
            client_link: [0; 2],
            master_link: [0; 2],
            leader_link: [0; 2],
            server_table: Table::default(),
            master_table: Table::default(),
            is_left: false,
        }
    }
}

impl Run<'_> {
    fn below(&mut self, bound: Micros) -> Micros {
        self.dice.below(bound.max(1))
    }

    fn ping_phase(&mut self) -> Micros {
        let random = self.below(self.plan.tick / 2);
        self.plan.ping_phase.unwrap_or(random)
    }

    fn at(&mut self, at: Micros, event: Event) {
        let index = self.arena.len();
        self.arena.push(event);
        self.events.push(Reverse((at, index as u64, index)));
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push((now, text()));
        }
    }

    fn latency(&mut self) -> Micros {
        let [usual, seldom] = self.plan.latency;
        let bound = if self.below(40) == 0 { seldom } else { usual };
        1 + self.below(bound)
    }

    /// Who reads what arrives with this event, and when. Waits for it if it stands still.
    fn awake(&self, actor: Actor, connection: usize) -> Micros {
        let pauses = match actor {
            Actor::Client => &self.plan.client_pauses,
            Actor::Server => &self.running[connection].plan.server_pauses,
            Actor::Master => &self.running[connection].plan.master_pauses,
            Actor::Leader(epoch) => &self.plan.epochs[epoch].pauses,
        };
        pauses.awake(self.now)
    }

    fn reader(&self, event: Event) -> (Actor, usize) {
        match event {
            Event::Send(connection) | Event::AtClient { connection, .. } => {
                (Actor::Client, connection)
            }
            Event::AtServer { connection, .. }
            | Event::Answered { connection, .. }
            | Event::MasterPingAtServer { connection } => (self.server(connection), connection),
            Event::PingAtServer { connection } => {
                let is_observer = self.running[connection].plan.route == Route::Observer;
                let actor = if is_observer { Actor::Master } else { self.server(connection) };
                (actor, connection)
            }
            Event::Note { connection, is_master, .. } => {
                (if is_master { Actor::Master } else { self.server(connection) }, connection)
            }
            Event::AtLeader { connection, .. }
            | Event::Committed { connection, .. }
            | Event::PingDue { connection }
            | Event::TableAtLeader { connection, .. } => (self.leader(connection), connection),
            Event::MasterPingDue { connection }
            | Event::TableAtMaster { connection, .. }
            | Event::AtMasterUp { connection, .. }
            | Event::AtMasterDown { connection, .. } => (Actor::Master, connection),
        }
    }

    fn leader(&self, connection: usize) -> Actor {
        Actor::Leader(self.running[connection].plan.epoch)
    }

    fn server(&self, connection: usize) -> Actor {
        match self.running[connection].plan.route {
            Route::Leader => self.leader(connection),
            Route::Follower | Route::Observer => Actor::Server,
        }
    }

    /// A message on a link, behind all that were sent before. `None` if it never arrives.
    fn travel(last: &mut Micros, cut: Micros, now: Micros, latency: Micros) -> Option<Micros> {
        let arrival = (now + latency).max(*last);
        *last = arrival;
        (arrival < cut).then_some(arrival)
    }

    fn by_client(&mut self, connection: usize, direction: usize, event: Event) {
        let (now, latency) = (self.now, self.latency());
        let running = &mut self.running[connection];
        let cut = running.plan.client_cut[direction];
        if let Some(at) = Self::travel(&mut running.client_link[direction], cut, now, latency) {
            self.at(at, event);
        }
    }

    fn by_leader(&mut self, connection: usize, direction: usize, event: Event) {
        let (now, latency) = (self.now, self.latency());
        let running = &mut self.running[connection];
        let cut = running.plan.leader_cut[direction];
        if let Some(at) = Self::travel(&mut running.leader_link[direction], cut, now, latency) {
            self.at(at, event);
        }
    }

    fn by_master(&mut self, connection: usize, direction: usize, event: Event) {
        let (now, latency) = (self.now, self.latency());
        let running = &mut self.running[connection];
        if let Some(at) = Self::travel(&mut running.master_link[direction], NEVER, now, latency) {
            self.at(at, event);
        }
    }

    fn handle(&mut self, event: Event) {
        let (actor, connection) = self.reader(event);
        let awake = self.awake(actor, connection);
        if awake > self.now {
            // Threads are scheduled apart: the ping thread may be the last to go on. What has arrived
            // stays in order, because what arrived before was put back before.
            let is_ping = matches!(event, Event::PingDue { .. } | Event::MasterPingDue { .. });
            let lag = match self.plan.ping_lag {
                Lag::AfterPauses(lag) if is_ping => lag,
                Lag::UpTo(_) if is_ping => self.ping_lag(),
                Lag::AfterPauses(_) | Lag::Never | Lag::UpTo(_) => 0,
            };
            return self.at(awake + lag, event);
        }
        match event {
            Event::Send(connection) => self.send(connection),
            Event::AtServer { connection, number } => self.at_server(connection, number),
            Event::Note { connection, is_master, generation } => {
                let running = &mut self.running[connection];
                let table =
                    if is_master { &mut running.master_table } else { &mut running.server_table };
                // A table that was sent meanwhile is not looked at any more.
                table.has_session |= table.generation == generation;
            }
            Event::AtMasterUp { connection, number } => {
                self.by_leader(connection, UP, Event::AtLeader { connection, number });
            }
            Event::AtMasterDown { connection, number } => {
                self.by_master(connection, DOWN, Event::Answered { connection, number });
            }
            Event::AtLeader { connection, number } => self.at_leader(connection, number),
            Event::Committed { connection, number } => {
                let event = match self.running[connection].plan.route {
                    Route::Leader => return self.answered(connection, number),
                    Route::Follower => Event::Answered { connection, number },
                    Route::Observer => Event::AtMasterDown { connection, number },
                };
                self.by_leader(connection, DOWN, event);
            }
            Event::Answered { connection, number } => self.answered(connection, number),
            Event::AtClient { connection, number } => self.at_client(connection, number),
            Event::PingDue { connection } => {
                self.by_leader(connection, DOWN, Event::PingAtServer { connection });
                self.ping_again(Event::PingDue { connection });
            }
            Event::MasterPingDue { connection } => {
                self.by_master(connection, DOWN, Event::MasterPingAtServer { connection });
                self.ping_again(Event::MasterPingDue { connection });
            }
            Event::PingAtServer { connection } => {
                let running = &mut self.running[connection];
                let table = match running.plan.route {
                    Route::Observer => &mut running.master_table,
                    Route::Follower | Route::Leader => &mut running.server_table,
                };
                let has_session = table.take();
                self.by_leader(connection, UP, Event::TableAtLeader { connection, has_session });
            }
            Event::MasterPingAtServer { connection } => {
                let has_session = self.running[connection].server_table.take();
                self.by_master(connection, UP, Event::TableAtMaster { connection, has_session });
            }
            Event::TableAtMaster { connection, has_session } => {
                if has_session {
                    self.touch_table(connection, true);
                }
            }
            Event::TableAtLeader { connection, has_session } => {
                if has_session {
                    self.note(|| format!("the leader hears of the session ({connection})"));
                    self.learn(self.running[connection].plan.epoch);
                }
            }
        }
    }

    /// The next round of a ping thread: it sleeps for half a tick, and may be late.
    fn ping_again(&mut self, event: Event) {
        let lag = self.ping_lag();
        self.at(self.now + self.plan.tick / 2 + lag, event);
    }

    fn ping_lag(&mut self) -> Micros {
        let Lag::UpTo(most) = self.plan.ping_lag else { return 0 };
        match self.below(4) {
            0 => self.below(most),
            1 => most,
            _ => 0,
        }
    }

    fn send(&mut self, connection: usize) {
        if connection > 0 && self.seen.is_empty() {
            // The client has no session that it could resume.
            return;
        }
        for older in self.running.iter_mut().take(connection) {
            older.is_left = true;
        }
        let running = &mut self.running[connection];
        if running.is_left {
            return;
        }
        let is_first = running.requests.is_empty();
        if is_first {
            return self.send_now(connection, Kind::Connect, false);
        }
        let Some((_, kind)) = running.plan.sends.get(running.next_send).copied() else { return };
        running.next_send += 1;
        self.send_now(connection, kind, false);
        self.schedule(connection);
    }

    fn send_now(&mut self, connection: usize, kind: Kind, is_reaction: bool) {
        let now = self.now;
        let running = &mut self.running[connection];
        let number = running.requests.len();
        running.requests.push(Request { kind, sent: now, is_answered: false, is_reaction });
        self.note(|| format!("the client sends {kind:?} {connection}.{number}"));
        self.by_client(connection, UP, Event::AtServer { connection, number });
    }

    fn schedule(&mut self, connection: usize) {
        let running = &self.running[connection];
        if let Some((at, _)) = running.plan.sends.get(running.next_send) {
            self.at((*at).max(self.now), Event::Send(connection));
        }
    }

    fn at_server(&mut self, connection: usize, number: usize) {
        let kind = self.running[connection].requests[number].kind;
        let route = self.running[connection].plan.route;
        if route == Route::Leader {
            if kind != Kind::Connect {
                self.learn(self.running[connection].plan.epoch);
            }
        } else if kind != Kind::Connect {
            self.touch_table(connection, false);
        }
        match (kind, route) {
            (Kind::Ping, _) => self.answered(connection, number),
            (_, Route::Leader) => self.at_leader(connection, number),
            (_, Route::Follower) => {
                self.by_leader(connection, UP, Event::AtLeader { connection, number });
            }
            (_, Route::Observer) => {
                self.by_master(connection, UP, Event::AtMasterUp { connection, number });
            }
        }
    }

    /// A thread looks up the table, and a moment later notes the session in what may be the table
    /// no more.
    fn touch_table(&mut self, connection: usize, is_master: bool) {
        let running = &self.running[connection];
        let table = if is_master { &running.master_table } else { &running.server_table };
        let generation = table.generation;
        let lag = if self.below(8) == 0 { self.below(self.plan.note_lag) } else { 0 };
        self.at(self.now + lag, Event::Note { connection, is_master, generation });
    }

    /// The leader of an epoch hears of the session.
    fn learn(&mut self, epoch: usize) {
        if self.is_alive(epoch) {
            self.known[epoch] = Some(self.now);
        }
    }

    /// As this leader sees it.
    fn is_alive(&self, epoch: usize) -> bool {
        match self.known[epoch] {
            Some(known) => self.now < known + self.plan.timeout,
            None => epoch > 0 && self.is_alive_at_election(epoch),
        }
    }

    /// The session had not been ended when this leader began to count.
    fn is_alive_at_election(&self, epoch: usize) -> bool {
        let over = self.over_before(epoch);
        let is_created = self.known.first().is_some_and(Option::is_some);
        is_created
            && over == NEVER
            && self.now < self.plan.epochs[epoch].elected + self.plan.timeout
    }

    /// When one of the epochs before this one has ended the session; `NEVER` if none has.
    fn over_before(&self, epoch: usize) -> Micros {
        for before in 0..epoch {
            let known = match self.known[before] {
                Some(known) => known,
                None if before == 0 => return NEVER,
                None => self.plan.epochs[before].elected,
            };
            let over = known + self.plan.timeout;
            if over < self.plan.epochs[before].deposed {
                return over;
            }
        }
        NEVER
    }

    fn at_leader(&mut self, connection: usize, number: usize) {
        let epoch = self.running[connection].plan.epoch;
        if self.now < self.plan.epochs[epoch].elected {
            return;
        }
        let kind = self.running[connection].requests[number].kind;
        let is_first = kind == Kind::Connect && connection == 0;
        if !is_first && !self.is_alive(epoch) {
            return self.note(|| format!("the leader knows no session ({connection}.{number})"));
        }
        if kind == Kind::Connect && !is_first {
            self.note(|| format!("the leader is asked to resume ({connection})"));
            self.learn(epoch);
        }
        let delay = self.latency();
        let due = (self.now + delay).max(self.pipeline[epoch]);
        let needs_quorum = kind == Kind::Write || is_first;
        if needs_quorum && due >= self.plan.epochs[epoch].deposed {
            return;
        }
        let quorum = if needs_quorum { self.latency() } else { 0 };
        self.pipeline[epoch] = due + quorum;
        if is_first {
            self.known[epoch] = Some(self.now);
        }
        self.at(due + quorum, Event::Committed { connection, number });
    }

    /// The server has the answer, which leaves behind those to earlier requests.
    fn answered(&mut self, connection: usize, number: usize) {
        self.running[connection].requests[number].is_answered = true;
        loop {
            let running = &mut self.running[connection];
            let first = running.first_unanswered;
            if !running.requests.get(first).is_some_and(|request| request.is_answered) {
                break;
            }
            running.first_unanswered += 1;
            self.by_client(connection, DOWN, Event::AtClient { connection, number: first });
        }
    }

    fn at_client(&mut self, connection: usize, number: usize) {
        if self.running[connection].is_left {
            return;
        }
        let Request { kind, sent, is_reaction, .. } = self.running[connection].requests[number];
        let clock = |at: Micros| at * self.plan.rate / 1000;
        let (sent, got) = (clock(sent), clock(self.now));
        self.seen.push(match (kind, connection) {
            (Kind::Connect, 0) => Seen::Created { sent, got },
            (Kind::Connect, _) => Seen::Resumed { sent, got },
            _ => Seen::Answer { kind, sent, got },
        });
        self.note(|| format!("the client has the answer to {kind:?} {connection}.{number}"));
        if kind == Kind::Connect {
            self.schedule(connection);
        }
        let eagerness = &mut self.running[connection].plan.eagerness;
        if kind != Kind::Ping && !is_reaction && *eagerness > 0 {
            *eagerness -= 1;
            self.send_now(connection, Kind::Write, true);
        }
    }

    fn finish(self) -> History {
        let epochs = self.plan.epochs.len();
        let mut over = self.over_before(epochs);
        if over == NEVER {
            let last = epochs - 1;
            let known = self.known[last].unwrap_or(if last == 0 {
                NEVER - self.plan.timeout
            } else {
                self.plan.epochs[last].elected
            });
            over = known + self.plan.timeout;
        }
        History { seen: self.seen, over, trace: self.trace.unwrap_or_default() }
    }
}

impl Table {
    /// Empties it; whether the session was in it.
    fn take(&mut self) -> bool {
        self.generation += 1;
        std::mem::take(&mut self.has_session)
    }
}
