//! A model of an ensemble, reduced to what a lease depends on: when each server learns that a
//! session is alive.
//!
//! A session's server (a leader, a follower, or an observer behind an ObserverMaster) notes each
//! request of the session in its *touch table*. Twice a tick, learners send that table to the
//! server that they follow, in the answer to its ping, and clear it. Only touches that reach the
//! leader keep a session alive. Writes and syncs travel to the leader on the same stream as these
//! answers, and commits come back on the same stream as the pings.
//!
//! Any process may be paused, links may be slow or be cut in either direction, a leader may be
//! deposed and continue until it notices, and a client may resume on any server, of the old epoch
//! or the new one. The leader's ping thread and its request threads are scheduled independently.
//!
//! Times are microseconds of the servers' clock.

#![expect(clippy::indexing_slicing, reason = "numbers of connections and requests are made here")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zk_tests::random::SplitMix64;

pub(crate) type Micros = u64;

/// The time of an event that never happens.
pub(crate) const NEVER: Micros = u64::MAX;

/// A process, which may be paused.
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

/// The kind of server that a client is connected to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Route {
    Leader,
    Follower,
    Observer,
}

/// A connection of the client.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// When the client opens this connection and abandons the previous one.
    pub(crate) at: Micros,
    pub(crate) route: Route,
    /// The epoch of the leader that the server follows.
    pub(crate) epoch: usize,
    /// When the client sends each request, and the kind of the request.
    pub(crate) sends: Vec<(Micros, Kind)>,
    /// The number of the leader's answers after which the client sends another write at once.
    pub(crate) eagerness: usize,
    /// When the link between the client and the server is cut, upwards and downwards.
    pub(crate) client_cut: [Micros; 2],
    /// When the link between the server (or its master) and the leader is cut, upwards and
    /// downwards.
    pub(crate) leader_cut: [Micros; 2],
    pub(crate) server_pauses: Pauses,
    pub(crate) master_pauses: Pauses,
}

/// A request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Connect,
    /// The server answers it without the leader.
    Ping,
    /// The leader answers it, deposed or not.
    Sync,
    /// The leader answers it after a quorum has committed it.
    Write,
}

/// The period of one leader.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    pub(crate) elected: Micros,
    /// When the leader can no longer commit anything new. It may not notice.
    pub(crate) deposed: Micros,
    pub(crate) pauses: Pauses,
    /// When the leader's ping thread stands still although its process runs.
    pub(crate) ping_stalls: Pauses,
}

impl Epoch {
    pub(crate) fn new(elected: Micros) -> Self {
        let (pauses, ping_stalls) = (Pauses::default(), Pauses::default());
        Self { elected, deposed: NEVER, pauses, ping_stalls }
    }
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
    /// The longest delay of most messages, and the longest delay of a few slow ones.
    pub(crate) latency: [Micros; 2],
    /// When the ping threads begin, or `None` for random times.
    pub(crate) ping_phase: Option<Micros>,
    /// How late a ping thread may be when it is due and its server runs.
    pub(crate) ping_lag: Lag,
    /// How long a server thread may take between its lookup of the touch table and its note in it.
    pub(crate) note_lag: Micros,
    pub(crate) seed: u64,
}

/// How late a thread is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lag {
    Never,
    /// The thread is sometimes late, by up to this much.
    UpTo(Micros),
    /// The thread is late by this much each time its process resumes after a pause.
    AfterPauses(Micros),
}

/// The periods in which a process is paused. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(Vec<(Micros, Micros)>);

impl Pauses {
    pub(crate) fn add(&mut self, start: Micros, length: Micros) {
        let end = start + length;
        if length > 0 && !self.0.iter().any(|(a, b)| start <= *b && *a <= end) {
            self.0.push((start, end));
        }
    }

    /// Returns when the process handles an event that is due at `at`: then, or at the end of a
    /// pause.
    pub(crate) fn awake(&self, at: Micros) -> Micros {
        let pause = self.0.iter().find(|(start, end)| (*start..*end).contains(&at));
        pause.map_or(at, |(_, end)| *end)
    }
}

/// What the client observes, with the times of its own clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    /// The first connection has created the session.
    Created { sent: Micros, got: Micros },
    /// Another connection has resumed it.
    Resumed { sent: Micros, got: Micros },
    /// An answer on the newest connection.
    Answer { kind: Kind, sent: Micros, got: Micros },
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) seen: Vec<Seen>,
    /// The time at which the first leader with a quorum ends the session, so that another client
    /// may acquire the lock.
    pub(crate) over: Micros,
    /// The steps of the run, which explain a counterexample; empty unless requested.
    pub(crate) trace: Vec<(Micros, String)>,
}

/// The directions of a link.
const UP: usize = 0;
const DOWN: usize = 1;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client sends the next request of a connection.
    Send(usize),
    /// A request arrives at the server.
    AtServer {
        connection: usize,
        number: usize,
    },
    /// A thread notes the session in the touch table of the server or the master. The table had
    /// this generation when the thread looked it up.
    Note {
        connection: usize,
        is_master: bool,
        generation: u64,
    },
    /// A request arrives at the leader.
    AtLeader {
        connection: usize,
        number: usize,
    },
    /// The leader has processed the request, and answers it.
    Committed {
        connection: usize,
        number: usize,
    },
    /// The answer of the leader arrives at the server.
    Answered {
        connection: usize,
        number: usize,
    },
    /// An answer arrives at the client.
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
    /// A touch table, with or without the session, arrives at the leader.
    TableAtLeader {
        connection: usize,
        has_session: bool,
    },
    /// The ping thread of the ObserverMaster is due.
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
    /// A request on its way from the observer to the leader arrives at the master.
    AtMasterUp {
        connection: usize,
        number: usize,
    },
    AtMasterDown {
        connection: usize,
        number: usize,
    },
}

/// The state of a connection during a run.
#[derive(Debug)]
struct Running {
    plan: Connection,
    requests: Vec<Request>,
    /// The oldest request without an answer. Answers leave in the order of the requests.
    first_unanswered: usize,
    next_send: usize,
    /// When the last message in each direction arrives, on the links of the client, the master and
    /// the leader.
    client_link: [Micros; 2],
    master_link: [Micros; 2],
    leader_link: [Micros; 2],
    /// The touch tables of the server and the master.
    server_table: Table,
    master_table: Table,
    is_left: bool,
}

#[derive(Debug)]
struct Request {
    kind: Kind,
    sent: Micros,
    is_answered: bool,
    /// Whether the client sent the request in reaction to an answer.
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
    /// The events. The heap contains their indices.
    arena: Vec<Event>,
    running: VecDeque<Running>,
    /// When the leader of each epoch last learned that the session was alive.
    known: Vec<Option<Micros>>,
    /// When the request pipeline of each leader is free again, which is the time of its last
    /// commit.
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

    /// Returns when this process can next handle an event: now, or at the end of its pause.
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

    /// Sends a message on a link, behind all earlier messages. Returns when it arrives, or `None`
    /// if it never does.
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
            // Threads are scheduled independently, so the ping thread may be the last to resume.
            // Delayed messages stay in order, because earlier messages are also delayed earlier.
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
                // A note is lost if the table has been sent since the thread looked it up.
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
                let epoch = &self.plan.epochs[self.running[connection].plan.epoch];
                let due = epoch.ping_stalls.awake(self.now);
                if due > self.now {
                    return self.at(due, event);
                }
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

    /// Schedules the next round of a ping thread, which sleeps for half a tick and may be late.
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

    /// Looks up the touch table now, and notes the session in it a moment later, when the table may
    /// already have been sent.
    fn touch_table(&mut self, connection: usize, is_master: bool) {
        let running = &self.running[connection];
        let table = if is_master { &running.master_table } else { &running.server_table };
        let generation = table.generation;
        let lag = if self.below(8) == 0 { self.below(self.plan.note_lag) } else { 0 };
        self.at(self.now + lag, Event::Note { connection, is_master, generation });
    }

    /// Records that the leader of an epoch has learned that the session is alive.
    fn learn(&mut self, epoch: usize) {
        if self.is_alive(epoch) {
            self.known[epoch] = Some(self.now);
        }
    }

    /// Returns whether the session is alive according to this leader.
    fn is_alive(&self, epoch: usize) -> bool {
        match self.known[epoch] {
            Some(known) => self.now < known + self.plan.timeout,
            None => epoch > 0 && self.is_alive_at_election(epoch),
        }
    }

    /// Returns whether the session is alive if this leader has never received a touch: no earlier
    /// leader has ended it, and less than a session timeout has passed since the election.
    fn is_alive_at_election(&self, epoch: usize) -> bool {
        let over = self.over_before(epoch);
        let is_created = self.known.first().is_some_and(Option::is_some);
        is_created
            && over == NEVER
            && self.now < self.plan.epochs[epoch].elected + self.plan.timeout
    }

    /// Returns when a leader before this epoch ended the session, or `NEVER` if none did.
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

    /// Handles an answer at the server, which sends answers to the client in the order of the
    /// requests.
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
    /// Empties the table, and returns whether it contained the session.
    fn take(&mut self) -> bool {
        self.generation += 1;
        std::mem::take(&mut self.has_session)
    }
}
