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
use crate::tap::Heard;

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
    let longest = clients.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let (count, short) = (clients.len(), short_ids(server));
    let diagram = Diagram { count, lane: longest + 2, directory, from, short };
    let mut text = diagram.head(clients);
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

/// Draws the frames of one client in both directions, with handshakes and replies. The times count
/// from `from`, and the ids of sessions are letters, in the order of appearance.
pub fn draw_frames(name: &str, heard: &[(Duration, Heard)], from: Duration) -> String {
    let diagram =
        Diagram { count: 1, lane: name.len() + 2, directory: "/", from, short: BTreeMap::new() };
    let mut text = diagram.head(&[(name, SessionId::NONE)]);
    let mut sessions = vec![];
    let note =
        |at: Duration, text: &str| diagram.note(&Note { at, client: 0, text: text.to_owned() });
    for (at, heard) in heard {
        text.push_str(&match heard {
            Heard::Begin => note(*at, "a connection begins"),
            Heard::End => note(*at, "the connection ends"),
            Heard::Frame(Side::Client, message) => {
                diagram.line(0, *at, '├', '▶', &gloss(message, &mut sessions))
            }
            Heard::Frame(Side::Server, message) => {
                diagram.line(0, *at, '◀', '┤', &gloss(message, &mut sessions))
            }
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
        Message::Reply(header, _) => format!("ok, zxid {}", header.zxid.0),
        Message::Failure(header) => header.err.to_string(),
        Message::Event(_, event) => format!("event: {} {}", event.path, happened(event.kind)),
        Message::Unknown(_) => "?".to_owned(),
    }
}

struct Diagram<'a> {
    count: usize,
    /// Number of characters from one client to the next one.
    lane: usize,
    directory: &'a str,
    from: Duration,
    /// A letter for each random id, in the order of appearance.
    short: BTreeMap<String, char>,
}

impl Diagram<'_> {
    fn head(&self, clients: &[(&str, SessionId)]) -> String {
        let mut head = " ".repeat(MARGIN);
        for (name, _) in clients {
            let _ = write!(head, "{name:<width$}", width = self.lane);
        }
        head.push_str("server\n");
        head
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
            Outcome::Held => (", and it is executed later".to_owned(), true),
            Outcome::Dropped => (" is lost".to_owned(), false),
            other => (format!(": {other:?}"), true),
        };
        let head = if is_received { '▶' } else { '✗' };
        self.line(lane, request.at, '├', head, &format!("{}{note}", what.trim_end()))
    }

    fn event(&self, lane: usize, event: &EventRecord) -> String {
        let text = format!("event: {} {}", self.name(&event.path), happened(event.kind));
        self.line(lane, event.at, '◀', '┤', &text)
    }

    fn note(&self, note: &Note) -> String {
        let at = note.at.saturating_sub(self.from).as_millis();
        let mut line = format!("{at:>5} ms ");
        for column in 0..self.count {
            line.push(if column == note.client { '●' } else { '│' });
            line.extend(std::iter::repeat_n(' ', self.lane - 1));
        }
        let _ = writeln!(line, "│ {}", note.text);
        line
    }

    /// Draws an arrow between a client and the server, which crosses the clients between them.
    fn line(&self, lane: usize, at: Duration, left: char, right: char, text: &str) -> String {
        let at = at.saturating_sub(self.from).as_millis();
        let mut line = format!("{at:>5} ms ");
        for column in 0..self.count {
            let (mark, fill) = match column {
                before if before < lane => ('│', ' '),
                own if own == lane => (left, '─'),
                _ => ('┼', '─'),
            };
            line.push(mark);
            line.extend(std::iter::repeat_n(fill, self.lane - 1));
        }
        line.push(right);
        let _ = writeln!(line, " {text}");
        line
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
        OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => "list",
        OpCode::GET_DATA => "read",
        OpCode::SET_DATA => "write",
        OpCode::MULTI => "multi",
        OpCode::SYNC => "sync",
        OpCode::SET_WATCHES | OpCode::SET_WATCHES2 => "restore watches",
        OpCode::AUTH => "auth",
        OpCode::PING => "ping",
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
