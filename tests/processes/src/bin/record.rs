//! Records conversations between clients and a server, in the format of `zk_tests::capture`.
//!
//! ```text
//! record SERVER:PORT FILE TITLE
//! ```
//!
//! It prints the address for clients, and records until its standard input ends or contains the
//! line `end`. The line `cut` on its standard input ends all connections.
//!
//! It forwards one request at a time. The next request, on any connection, waits until the previous
//! one has its reply and the server is silent. So the order of the lines is the order in which the
//! server has processed the requests, and events follow the request that caused them.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program between processes lives in real time"
)]

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};
use zk_tests::capture::{Conversation, Entry, Side};

/// Silence after which the server has certainly sent everything.
const SETTLED: Duration = Duration::from_millis(25);
/// Maximum wait for a reply. Some requests never get one.
const ANSWER_MAX: Duration = Duration::from_millis(700);
/// Longer frames are too large for the repository.
const FRAME_MAX: usize = 16 * 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [server, file, title] => run(server, file, title).await,
        _ => Err("usage: record SERVER:PORT FILE TITLE".to_owned()),
    };
    match result {
        // Exit at once, because the runtime would wait for the read of the standard input.
        Ok(()) => std::process::exit(0),
        Err(problem) => {
            eprintln!("record: {problem}");
            std::process::exit(1)
        }
    }
}

async fn run(server: &str, file: &str, title: &str) -> Result<(), String> {
    let mut file = File::create(file).map_err(|error| format!("{file}: {error}"))?;
    writeln!(file, "# {title}").map_err(|error| error.to_string())?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    println!("{}", listener.local_addr().map_err(|error| error.to_string())?);
    let (events, inbox) = unbounded_channel();
    tokio::spawn(accept(listener, server.to_owned(), events.clone()));
    tokio::spawn(obey(events));
    let recorder = Recorder {
        file,
        inbox,
        waiting: VecDeque::new(),
        connections: BTreeMap::new(),
        start: None,
        seconds: 0,
        working: false,
    };
    recorder.run().await
}

/// An event.
enum Event {
    Open(u64, Box<Connection>),
    Heard(u64, Side, Heard),
    /// Lines of the standard input.
    Cut,
    End,
}

enum Heard {
    Frame(Bytes),
    End,
}

struct Connection {
    to_client: OwnedWriteHalf,
    to_server: OwnedWriteHalf,
    conversation: Conversation,
}

async fn accept(listener: TcpListener, server: String, events: UnboundedSender<Event>) {
    for number in 1.. {
        let (client, _) = listener.accept().await.expect("the recorder can accept");
        let server = TcpStream::connect(&server).await.expect("the server can be reached");
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let connection = Connection { to_client, to_server, conversation: Conversation::default() };
        let _ = events.send(Event::Open(number, Box::new(connection)));
        tokio::spawn(listen(number, Side::Client, from_client, events.clone()));
        tokio::spawn(listen(number, Side::Server, from_server, events.clone()));
    }
}

async fn listen(number: u64, side: Side, mut from: OwnedReadHalf, events: UnboundedSender<Event>) {
    let mut buffer = BytesMut::new();
    loop {
        while let Some(prefix) = buffer.first_chunk::<4>() {
            let length = 4 + u32::from_be_bytes(*prefix) as usize;
            assert!(length <= FRAME_MAX, "connection {number}: a frame of {length} bytes");
            if buffer.len() < length {
                break;
            }
            let frame = Heard::Frame(buffer.split_to(length).freeze());
            let _ = events.send(Event::Heard(number, side, frame));
        }
        if !matches!(from.read_buf(&mut buffer).await, Ok(1..)) {
            let _ = events.send(Event::Heard(number, side, Heard::End));
            return;
        }
    }
}

async fn obey(events: UnboundedSender<Event>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.trim() {
            "cut" => drop(events.send(Event::Cut)),
            "end" => break,
            _ => {}
        }
    }
    let _ = events.send(Event::End);
}

struct Recorder {
    file: File,
    inbox: UnboundedReceiver<Event>,
    /// Actions of clients that were not forwarded to the server yet.
    waiting: VecDeque<Event>,
    connections: BTreeMap<u64, Connection>,
    start: Option<Instant>,
    seconds: u64,
    /// True between a request and its last effect. No time is recorded in between.
    working: bool,
}

impl Recorder {
    async fn run(mut self) -> Result<(), String> {
        loop {
            let event = match self.waiting.pop_front() {
                Some(event) => event,
                None => self.inbox.recv().await.ok_or("all senders are gone")?,
            };
            match event {
                Event::End => return Ok(()),
                Event::Cut => {
                    for (connection, _) in std::mem::take(&mut self.connections) {
                        self.write(&Entry::Close { connection, by: Side::Client }, "")?;
                    }
                }
                Event::Open(connection, halves) => {
                    self.connections.insert(connection, *halves);
                    self.write(&Entry::Open { connection }, "")?;
                }
                Event::Heard(number, Side::Server, heard) => {
                    self.answered(number, heard).await?;
                }
                Event::Heard(number, Side::Client, heard) => {
                    if self.asked(number, heard).await? {
                        self.await_answer(number).await?;
                    }
                    self.settle().await?;
                    self.working = false;
                }
            }
        }
    }

    /// Handles a frame or the end of a client. Returns whether there may be a reply.
    async fn asked(&mut self, number: u64, heard: Heard) -> Result<bool, String> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(false) };
        match heard {
            Heard::End => {
                self.connections.remove(&number);
                self.write(&Entry::Close { connection: number, by: Side::Client }, "")?;
                self.working = true;
                Ok(false)
            }
            Heard::Frame(bytes) => {
                let gloss = connection.conversation.asked(&bytes).to_string();
                let entry =
                    Entry::Frame { connection: number, from: Side::Client, bytes: bytes.clone() };
                // The frame is recorded before the server can reply. If the server is gone, its end
                // of file follows.
                let _ = connection.to_server.write_all(&bytes).await;
                self.write(&entry, &gloss)?;
                self.working = true;
                Ok(true)
            }
        }
    }

    /// Handles a frame or the end of a server. Returns whether the frame is the reply to a request.
    async fn answered(&mut self, number: u64, heard: Heard) -> Result<bool, String> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(false) };
        match heard {
            Heard::End => {
                self.connections.remove(&number);
                self.write(&Entry::Close { connection: number, by: Side::Server }, "")?;
                Ok(true)
            }
            Heard::Frame(bytes) => {
                let gloss = connection.conversation.answered(&bytes).to_string();
                // If the client is gone, its end of file follows.
                let _ = connection.to_client.write_all(&bytes).await;
                let is_event = bytes.get(4..8) == Some(&[0xff; 4][..]);
                let entry = Entry::Frame { connection: number, from: Side::Server, bytes };
                self.write(&entry, &gloss)?;
                Ok(!is_event)
            }
        }
    }

    async fn await_answer(&mut self, asked: u64) -> Result<(), String> {
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            match timeout_at(deadline, self.inbox.recv()).await {
                Err(_) | Ok(None) => return Ok(()),
                Ok(Some(Event::Heard(number, Side::Server, heard))) => {
                    if self.answered(number, heard).await? && number == asked {
                        return Ok(());
                    }
                }
                Ok(Some(event)) => self.waiting.push_back(event),
            }
        }
    }

    async fn settle(&mut self) -> Result<(), String> {
        let mut deadline = Instant::now() + SETTLED;
        while let Ok(Some(event)) = timeout_at(deadline, self.inbox.recv()).await {
            match event {
                Event::Heard(number, Side::Server, heard) => {
                    self.answered(number, heard).await?;
                    deadline = Instant::now() + SETTLED;
                }
                event @ (Event::Open(..) | Event::Heard(..) | Event::Cut | Event::End) => {
                    self.waiting.push_back(event);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, entry: &Entry, gloss: &str) -> Result<(), String> {
        let seconds = self.start.get_or_insert_with(Instant::now).elapsed().as_secs();
        let mut text = String::new();
        if seconds > self.seconds && !self.working {
            self.seconds = seconds;
            text += &format!("{}\n", Entry::Time { seconds });
        }
        text += &entry.to_string();
        if !gloss.is_empty() {
            text += &format!(" # {gloss}");
        }
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|error| error.to_string())
    }
}
