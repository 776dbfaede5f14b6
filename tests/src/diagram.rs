//! Sequence diagrams of what clients and the in-process server have said to each other, drawn from
//! the journal of the server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use jute_codec::{
    ConnectRequest, ConnectResponse, ErrorCode, EventType, OpCode, Request, Response, SessionId,
    Zxid,
};
use zk_testserver::{EventRecord, Outcome, RequestRecord, TestServer};

use crate::capture::{Message, Side};
use crate::tap::{Ends, Heard, Record};

/// Number of characters in front of the first client. Diagrams are narrow, because phones show about
/// 40 characters of a line.
const MARGIN: usize = 9;

/// What a client has noticed without a request, such as the state of a lock.
#[derive(Clone, Debug)]
pub struct Note {
    /// The time since the start of the server.
    pub at: Duration,
    /// The index of the client.
    pub client: usize,
    /// What it has noticed.
    pub text: String,
}

/// Draws what these clients have sent since the journal was cleared, the events that they got, and
/// what they have noticed, which is sorted by time. The times count from `from`, and the paths are
/// below the directory.
pub fn draw(
    server: &TestServer,
    clients: &[(&str, SessionId)],
    directory: &str,
    from: Duration,
    notes: &[Note],
) -> String {
    let lanes: BTreeMap<_, _> =
        clients.iter().enumerate().map(|(lane, (_, session))| (*session, lane)).collect();
    let names = clients.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let short = short_ids(server);
    let diagram = Diagram { clients: &names, servers: &["server"], directory, from, short };
    let mut text = diagram.head();
    let created = created(server);
    let events = server.events();
    let draw_events = |number: usize, is_due: &dyn Fn(Duration) -> bool| {
        let due = events.iter().filter(|event| event.requests_before == number && is_due(event.at));
        due.filter_map(|event| Some(diagram.event(*lanes.get(&event.session)?, event)))
            .collect::<String>()
    };
    let mut notes = notes.iter().peekable();
    let mut draw_notes = |is_due: &dyn Fn(Duration) -> bool| {
        let mut lines = String::new();
        while let Some(note) = notes.next_if(|note| is_due(note.at)) {
            lines.push_str(&diagram.note(note));
        }
        lines
    };
    let requests = server.requests();
    for (number, request) in requests.iter().enumerate() {
        text.push_str(&draw_notes(&|at| at < request.at));
        // Events are recorded before the request that has caused them. Earlier ones have another
        // cause, such as the end of a session.
        text.push_str(&draw_events(number, &|at| at < request.at));
        if let Some(lane) = lanes.get(&request.session) {
            text.push_str(&diagram.request(*lane, request, &created));
        }
        text.push_str(&draw_events(number, &|at| at >= request.at));
    }
    text.push_str(&draw_events(requests.len(), &|_| true));
    text.push_str(&draw_notes(&|_| true));
    text
}

/// Draws the frames between clients and servers in both directions, with handshakes and replies. The
/// times count from `from`, and the ids of sessions are letters, in the order of appearance.
pub fn draw_frames(
    clients: &[&str],
    servers: &[&str],
    records: &[Record],
    from: Duration,
) -> String {
    let diagram = Diagram { clients, servers, directory: "/", from, short: BTreeMap::new() };
    let mut text = diagram.head();
    let mut sessions = vec![];
    for Record { at, ends, heard } in records {
        let arrow = |side: &Side, text: &str| match side {
            Side::Client => diagram.line(*ends, *at, '├', '▶', text),
            Side::Server => diagram.line(*ends, *at, '◀', '┤', text),
        };
        // If there are several servers, the diagram has to say which one is meant.
        let connection = |text: &str| {
            let server = (servers.len() > 1).then_some(ends.server);
            diagram.mark(ends.client, server, *at, text)
        };
        text.push_str(&match heard {
            Heard::Refused => diagram.line(*ends, *at, '├', '✗', "refused"),
            Heard::Begin => connection("a connection begins"),
            Heard::End => connection("the connection ends"),
            Heard::Leave => connection("the client disconnects"),
            Heard::Note(text) => diagram.mark(ends.client, None, *at, text),
            Heard::Word(side, word) => arrow(side, word),
            Heard::Frame(side, message) => arrow(side, &gloss(message, &mut sessions)),
        });
    }
    text
}

/// Says what a frame contains, as far as a handshake depends on it.
#[expect(clippy::wildcard_enum_match_arm, reason = "the name of the rest is enough")]
fn gloss(message: &Message, sessions: &mut Vec<SessionId>) -> String {
    let mut session = |id: SessionId| {
        if id == SessionId::NONE {
            return "0".to_owned();
        }
        let known = sessions.iter().position(|known| *known == id);
        let place = known.unwrap_or_else(|| {
            sessions.push(id);
            sessions.len() - 1
        });
        ('A'..='Z').nth(place).expect("there are few sessions").to_string()
    };
    match message {
        Message::Connect(ConnectRequest { session_id, last_zxid_seen, .. }) => {
            format!("connect: session {}, zxid {}", session(*session_id), last_zxid_seen.0)
        }
        Message::Connected(ConnectResponse { session_id, timeout_ms, .. }) => {
            format!("session {}, {timeout_ms} ms", session(*session_id))
        }
        Message::Request(header, request) => {
            let what = match request {
                Request::SetWatches(watches) => format!(", zxid {}", watches.relative_zxid.0),
                Request::SetWatches2(watches) => format!(", zxid {}", watches.relative_zxid.0),
                Request::Auth(packet) => format!(" {}", packet.scheme),
                _ => message.path().map(|path| format!(" {path}")).unwrap_or_default(),
            };
            format!("{}{what}", verb(header.op))
        }
        Message::Reply(_, Response::GetChildren(names)) => {
            format!("[{}]", names.iter().collect::<Vec<_>>().join(", "))
        }
        Message::Reply(_, Response::GetEphemerals(paths)) => {
            format!("[{}]", paths.iter().map(|path| &**path).collect::<Vec<_>>().join(", "))
        }
        Message::Reply(header, _) => format!("ok, zxid {}", header.zxid.0),
        Message::Failure(header) => header.err.to_string(),
        Message::Event(_, event) => format!("event: {} {}", event.path, happened(event.kind)),
        Message::Unknown(_) => "?".to_owned(),
    }
}

struct Diagram<'a> {
    clients: &'a [&'a str],
    servers: &'a [&'a str],
    directory: &'a str,
    from: Duration,
    /// A letter for each random id, in the order of appearance.
    short: BTreeMap<String, char>,
}

impl Diagram<'_> {
    fn head(&self) -> String {
        let mut head = " ".repeat(MARGIN);
        for (name, width) in self.clients.iter().chain(self.servers).zip(self.widths()) {
            let _ = write!(head, "{name:<width$}");
        }
        format!("{}\n", head.trim_end())
    }

    /// Number of characters from one party to the next one, for each client and each server.
    fn widths(&self) -> impl Iterator<Item = usize> {
        let widths = [self.clients, self.servers].map(|names| {
            let longest = names.iter().map(|name| name.len()).max().unwrap_or_default();
            std::iter::repeat_n(longest + 2, names.len())
        });
        widths.into_iter().flatten()
    }

    fn request(
        &self,
        lane: usize,
        request: &RequestRecord,
        created: &BTreeMap<Zxid, Vec<String>>,
    ) -> String {
        let path = match request.zxid.and_then(|zxid| created.get(&zxid)) {
            Some(paths) => paths.iter().map(|path| self.name(path)).collect::<Vec<_>>().join(", "),
            None => request.path.as_deref().map(|path| self.name(path)).unwrap_or_default(),
        };
        let colon = if request.op == OpCode::MULTI && !path.is_empty() { ":" } else { "" };
        let what = format!("{}{colon} {path}", verb(request.op));
        let (note, is_received) = match request.outcome {
            Outcome::Applied(ErrorCode::OK) => (String::new(), true),
            Outcome::Applied(code) | Outcome::Refused(code) => (format!(": {code}"), true),
            Outcome::AppliedUnanswered(_) => (", and the reply is lost".to_owned(), true),
            Outcome::Misreported { reported, .. } => {
                (format!(", and the reply says: {reported}"), true)
            }
            Outcome::Held => (", and it is executed later".to_owned(), true),
            Outcome::Dropped => (" is lost".to_owned(), false),
            other => (format!(": {other:?}"), true),
        };
        let head = if is_received { '▶' } else { '✗' };
        self.line(
            Ends { client: lane, server: 0 },
            request.at,
            '├',
            head,
            &format!("{}{note}", what.trim_end()),
        )
    }

    fn event(&self, lane: usize, event: &EventRecord) -> String {
        let text = format!("event: {} {}", self.name(&event.path), happened(event.kind));
        self.line(Ends { client: lane, server: 0 }, event.at, '◀', '┤', &text)
    }

    fn note(&self, note: &Note) -> String {
        self.mark(note.client, None, note.at, &note.text)
    }

    /// Draws what has happened to a client, or between a client and a server, without an arrow.
    fn mark(&self, client: usize, server: Option<usize>, at: Duration, text: &str) -> String {
        let server = server.map(|server| self.clients.len() + server);
        self.row(at, text, |column| {
            let is_meant = column == client || Some(column) == server;
            (if is_meant { '●' } else { '│' }, ' ')
        })
    }

    /// Draws an arrow between a client and a server, which crosses the parties between them.
    fn line(&self, ends: Ends, at: Duration, left: char, right: char, text: &str) -> String {
        let (client, server) = (ends.client, self.clients.len() + ends.server);
        self.row(at, text, |column| match column {
            own if own == client => (left, '─'),
            own if own == server => (right, ' '),
            between if (client..server).contains(&between) => ('┼', '─'),
            _ => ('│', ' '),
        })
    }

    /// Draws a row with a mark for each client and each server, and what fills the space behind it.
    fn row(&self, at: Duration, text: &str, mark: impl Fn(usize) -> (char, char)) -> String {
        let at = at.saturating_sub(self.from).as_millis();
        let mut row = format!("{at:>5} ms ");
        for (column, width) in self.widths().enumerate() {
            let (mark, fill) = mark(column);
            row.push(mark);
            row.extend(std::iter::repeat_n(fill, width - 1));
        }
        format!("{} {text}\n", row.trim_end())
    }

    /// Shortens a path: without the directory, with a letter for each random id, and without the
    /// zeros of sequence numbers.
    fn name(&self, path: &str) -> String {
        let relative = path.strip_prefix(self.directory).unwrap_or(path);
        let relative = relative.trim_start_matches('/');
        let mut name = if relative.is_empty() { path } else { relative }.to_owned();
        for (id, letter) in &self.short {
            name = name.replace(id, &letter.to_string());
        }
        // Of sequence numbers, one digit is enough.
        name.replace("-000000000", "-").replace("__000000000", "__")
    }
}

fn happened(kind: EventType) -> &'static str {
    match kind {
        EventType::NODE_CREATED => "created",
        EventType::NODE_DELETED => "deleted",
        EventType::NODE_DATA_CHANGED => "changed",
        EventType::NODE_CHILDREN_CHANGED => "has other children",
        _ => "has an event",
    }
}

fn verb(op: OpCode) -> String {
    match op {
        OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER => "create",
        OpCode::DELETE => "delete",
        OpCode::EXISTS => "exists",
        OpCode::ADD_WATCH => "watch",
        OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => "list",
        OpCode::GET_DATA => "read",
        OpCode::GET_EPHEMERALS => "list ephemerals",
        OpCode::SET_DATA => "write",
        OpCode::MULTI => "multi",
        OpCode::SYNC => "sync",
        OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => "restore watches",
        OpCode::AUTH => "auth",
        OpCode::PING => "ping",
        OpCode::CLOSE_SESSION => "close session",
        other => return format!("{other:?}"),
    }
    .to_owned()
}

/// The paths of each transaction, in which the server has replaced the sequence numbers.
fn created(server: &TestServer) -> BTreeMap<Zxid, Vec<String>> {
    let mut paths: BTreeMap<Zxid, Vec<String>> = BTreeMap::new();
    for commit in server.commits() {
        paths.entry(commit.zxid).or_default().extend(commit.path);
    }
    paths
}

/// A letter for each random id of 32 hexadecimal digits in the recorded paths.
fn short_ids(server: &TestServer) -> BTreeMap<String, char> {
    let mut short = BTreeMap::new();
    let mut letters = 'A'..='Z';
    for request in server.requests() {
        let path = request.path.unwrap_or_default();
        for part in path.split(|letter: char| !letter.is_ascii_hexdigit()) {
            if part.len() == 32 && !short.contains_key(part) {
                short.insert(part.to_owned(), letters.next().expect("there are few ids"));
            }
        }
    }
    short
}
