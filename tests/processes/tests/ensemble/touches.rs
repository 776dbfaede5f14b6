//! The assumptions of a lease about servers: when the leader learns that a session is active, what
//! a leader without followers does, and that a multi with only a check is a write.
//!
//! The test itself encodes the requests of its sessions, so that it decides what is sent and when.

use std::time::{Duration, Instant};

use bytes::Bytes;
use jute_codec::{
    Acl, CheckRequest, ConnectRequest, CreateMode, CreateRequest, ErrorCode, MultiOp, MultiResult,
    OpCode, ReadRequest, Reader, Record as _, ReplyHeader, Request, Response, SetDataRequest, xid,
};
use tokio::time::{sleep, sleep_until, timeout_at};
use zk_session::{Version, Zxid};
use zk_tests::ensemble::{Ensemble, Server};
use zk_tests::target::{CREDENTIALS, Fixture};
use zk_tests::wait::soon;
use zk_tests::wire::{self, Connection, new_session};

use crate::PERSISTENT;

/// A session whose requests the test encodes itself.
struct Session {
    connection: Connection,
    handshake: ConnectRequest,
    xid: i32,
}

impl Session {
    async fn begin(server: &Server) -> Self {
        Self::shake_hands(server, new_session(TIMEOUT.as_millis() as i32)).await
    }

    /// Resumes the session on another connection, to any server.
    async fn resume(&self, server: &Server) -> Self {
        let resumed = Self::shake_hands(server, self.handshake.clone()).await;
        assert_eq!(resumed.handshake.session_id, self.handshake.session_id, "it lives");
        resumed
    }

    async fn shake_hands(server: &Server, request: ConnectRequest) -> Self {
        let mut connection = Connection::open(server.address).await;
        let answer = connection.connect(&request).await.expect("a reply");
        assert_eq!(answer.timeout_ms, request.timeout_ms, "servers with other limits");
        let (session_id, password) = (answer.session_id, answer.password);
        let handshake = ConnectRequest { session_id, password, ..request };
        Self { connection, handshake, xid: 0 }
    }

    async fn send(&mut self, request: &Request) -> i32 {
        let is_ping = *request == Request::Ping;
        self.xid += i32::from(!is_ping);
        let xid = if is_ping { xid::PING } else { self.xid };
        self.connection.send(&wire::request(xid, request)).await;
        xid
    }

    async fn ask(&mut self, request: Request) -> (ReplyHeader, Reader) {
        let xid = self.send(&request).await;
        let (_, header, body) = self.connection.reply().await;
        assert_eq!(header.xid, xid);
        (header, body)
    }

    async fn ping(&mut self) {
        self.ask(Request::Ping).await;
    }

    async fn create(&mut self, path: &str, mode: CreateMode) {
        let (path, data) = (path.into(), Some(Bytes::from_static(OLD)));
        let create = CreateRequest { path, data, acl: Acl::open(), mode, with_stat: false };
        let (header, _) = self.ask(Request::Create(create)).await;
        assert_eq!(header.err, ErrorCode::OK);
    }

    async fn exists(&mut self, path: &str) -> bool {
        let read = ReadRequest { path: path.into(), watch: false };
        self.ask(Request::Exists(read)).await.0.err == ErrorCode::OK
    }

    /// Reads the data after a sync, so that it is as new as the leader's.
    async fn data(&mut self, path: &str) -> Bytes {
        self.ask(Request::Sync(path.into())).await;
        let read = ReadRequest { path: path.into(), watch: false };
        let (_, mut body) = self.ask(Request::GetData(read)).await;
        let response = Response::decode(OpCode::GET_DATA, &mut body).unwrap();
        let Response::GetData(reply) = response else { panic!("{response:?}") };
        reply.data.unwrap()
    }

    /// Sends a request again and again until the server ends the connection. Returns the number of
    /// requests.
    ///
    /// # Panics
    ///
    /// If the server acknowledges a request.
    async fn until_closed(&mut self, request: &Request) -> usize {
        let mut sent = 0;
        let closed = async {
            loop {
                self.send(request).await;
                sent += 1;
                let next = Instant::now() + REQUEST_INTERVAL;
                while let Ok(answer) = timeout_at(next.into(), self.connection.receive()).await {
                    let Some(payload) = answer else { return };
                    let header = ReplyHeader::decode(&mut Reader::new(payload)).unwrap();
                    let is_ping = header.xid == xid::PING;
                    assert!(is_ping || !header.err.is_ok(), "{request:?} was acknowledged");
                }
            }
        };
        soon("the end of the connection", closed).await;
        sent
    }
}

fn check(path: &str) -> Request {
    Request::Multi(vec![MultiOp::Check(CheckRequest { path: path.into(), version: Version::ANY })])
}

fn write(path: &str) -> Request {
    let data = Some(Bytes::from_static(b"new"));
    Request::SetData(SetDataRequest { path: path.into(), data, version: Version::ANY })
}

/// Returns requests that a server without a quorum must not acknowledge: writes, and multis with
/// only a check. The ping at the end is an exception.
fn writes(fixture: &Fixture) -> [(&'static str, Request); 4] {
    [
        ("setData", write(&fixture.full("/data"))),
        ("multi of a check", check("/")),
        ("multi of a check that fails", check("/no-such-znode")),
        // The server does acknowledge pings. Like the other requests, this ping measures when the
        // connection ends.
        ("ping", Request::Ping),
    ]
}

/// Sends each of [`writes`] in a session of its own until the server ends all connections.
async fn nothing_is_acknowledged(sessions: Vec<Session>, fixture: &Fixture, cut: Instant) {
    let mut attempts = tokio::task::JoinSet::new();
    for ((name, request), mut session) in writes(fixture).into_iter().zip(sessions) {
        attempts.spawn(async move {
            let sent = session.until_closed(&request).await;
            (name, sent, cut.elapsed())
        });
    }
    for (name, sent, closed) in attempts.join_all().await {
        eprintln!("touches:   {name} x {sent}: closed {} after the cut", seconds(closed));
    }
}

async fn at(server: &Server, count: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(Session::begin(server).await);
    }
    sessions
}

/// Only the resume itself can have informed the leader: another session pings the same follower
/// shortly before the cut, and the leader never learns of that ping.
#[tokio::test]
async fn the_leader_counts_from_a_resume_at_once_and_from_a_ping_a_tick_later() {
    let ensemble = Ensemble::take_like_the_sample().await;
    let fixture = crate::fixture().await;
    let client = fixture.client().await;
    client.create("/data", OLD, PERSISTENT).await.unwrap();
    client.close().await;
    let mut attempts = 0;
    while !one_follower_is_cut_off(&ensemble, &fixture, attempts).await {
        attempts += 1;
        assert!(attempts < ATTEMPTS_MAX, "each time the follower was cut off too late");
    }
}

/// Runs one attempt. Returns false if it shows nothing: the follower reported the last ping before
/// the cut, so it may also have reported the resume in this way, or everything took too long.
async fn one_follower_is_cut_off(ensemble: &Ensemble, fixture: &Fixture, attempt: usize) -> bool {
    let (leader, follower) = (ensemble.leader().await, ensemble.follower().await);
    let mut observer = Session::begin(&leader).await;
    let paths = NAMES.map(|name| fixture.full(&format!("/{name}-{attempt}")));
    let mut sessions = at(&follower, NAMES.len()).await;
    for (session, path) in sessions.iter_mut().zip(&paths) {
        session.create(path, CreateMode::Ephemeral).await;
    }
    let begin = Instant::now();
    sleep_until((begin + PING_AFTER).into()).await;
    let pinged = Instant::now();
    sessions[1].ping().await;
    let writers = at(&follower, writes(fixture).len()).await;
    sleep_until((begin + RESUME_AFTER).into()).await;
    let pinged_late = Instant::now();
    sessions[2].ping().await;
    let resume_sent = Instant::now();
    let _resumed = sessions[3].resume(&follower).await;
    let resumed = Instant::now();
    let fault = ensemble.cut_off(&follower).await;
    let cut = Instant::now();
    assert!(cut > pinged + TICK, "the report of the ping has had a tick");

    let (ends, ()) = tokio::join!(
        ends_of(&mut observer, &paths),
        nothing_is_acknowledged(writers, fixture, resumed)
    );
    let signs = [begin, pinged, pinged_late, resume_sent];
    let since = |moment: Instant| seconds(moment.saturating_duration_since(begin));
    let from_until = [resumed, cut].map(since).join(" to ");
    eprintln!("touches: sessions of {TIMEOUT:?} at {follower}, which was cut off at {from_until}");
    for ((name, sign), end) in NAMES.iter().zip(signs).zip(&ends) {
        let (last, end, after) = (since(sign), since(*end), seconds(*end - sign));
        eprintln!("touches:   {name}: last sign of life at {last}, ended at {end}, {after} later");
    }
    let is_early = |index: usize| ends[index] < signs[index] + TIMEOUT;
    assert!(!is_early(1), "the ping was forgotten");
    assert!(!is_early(3), "the resume was forgotten");
    assert_eq!(observer.data(&fixture.full("/data")).await, OLD);
    fault.heal().await;
    ensemble.whole().await;
    assert_eq!(observer.data(&fixture.full("/data")).await, OLD);
    // The silent session ended first, and the ping right before the resume was not reported.
    ends[0] < pinged + TIMEOUT && is_early(2)
}

/// Returns when each ephemeral was deleted.
async fn ends_of(observer: &mut Session, paths: &[String]) -> Vec<Instant> {
    let mut ends = vec![None; paths.len()];
    let begin = Instant::now();
    while ends.contains(&None) {
        assert!(begin.elapsed() < 4 * TIMEOUT, "a session does not end: {ends:?}");
        for (path, end) in paths.iter().zip(&mut ends) {
            if end.is_none() && !observer.exists(path).await {
                *end = Some(Instant::now());
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
    ends.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_leader_without_followers_acknowledges_no_write_and_closes_its_clients() {
    let ensemble = Ensemble::take_like_the_sample().await;
    let fixture = crate::fixture().await;
    let client = fixture.client().await;
    client.create("/data", OLD, PERSISTENT).await.unwrap();
    client.close().await;
    let leader = ensemble.leader().await;
    let sessions = at(&leader, writes(&fixture).len()).await;

    let cut = Instant::now();
    let fault = ensemble.cut_off(&leader).await;
    eprintln!("touches: {leader} led, cut off at 0 s to {}", seconds(cut.elapsed()));
    let (next, ()) = tokio::join!(
        async {
            let next = ensemble.leader_but(&leader).await;
            eprintln!("touches:   {next} leads at {}", seconds(cut.elapsed()));
            next
        },
        nothing_is_acknowledged(sessions, &fixture, cut),
    );
    assert_eq!(Session::begin(&next).await.data(&fixture.full("/data")).await, OLD);
    fault.heal().await;
    ensemble.whole().await;
    for server in ensemble.servers() {
        assert_eq!(Session::begin(server).await.data(&fixture.full("/data")).await, OLD);
    }
}

/// So this multi can renew a lease, whatever the result of the check.
#[tokio::test]
async fn a_multi_of_a_check_is_committed_even_if_the_check_fails() {
    let ensemble = Ensemble::take_like_the_sample().await;
    let fixture = crate::fixture().await;
    let owner = fixture.builder().auth("digest", CREDENTIALS).connect().await.unwrap();
    let locked = zk_session::CreateOptions::from(PERSISTENT).acl(Acl::creator_all());
    owner.create("/locked", "", locked).await.unwrap();
    owner.close().await;
    let checks = [
        ("/".to_owned(), MultiResult::Check),
        (fixture.full("/locked"), MultiResult::Error(ErrorCode::NO_AUTH)),
        ("/no-such-znode".to_owned(), MultiResult::Error(ErrorCode::NO_NODE)),
    ];
    let leader = ensemble.leader().await;
    let follower = ensemble.follower().await;
    let last = ensemble.follower_but(&follower).await;
    let mut sessions = [Session::begin(&leader).await, Session::begin(&follower).await];
    let mut witness = Session::begin(&last).await;
    let (mut zxid, mut zxids) = (Zxid(0), Vec::new());
    for _ in 0..3 {
        for session in &mut sessions {
            for (path, expected) in &checks {
                let (header, mut body) = session.ask(check(path)).await;
                assert_eq!(header.err, ErrorCode::OK, "{path}");
                let results = Response::decode(OpCode::MULTI, &mut body).unwrap();
                assert_eq!(results, Response::Multi(vec![expected.clone()]), "{path}");
                assert!(header.zxid > zxid, "{path}: {} after {zxid}", header.zxid);
                zxid = header.zxid;
                zxids.push(zxid);
            }
        }
    }
    // Another server has applied the multis too.
    let (header, _) = witness.ask(Request::Sync("/".into())).await;
    assert!(header.zxid >= zxid, "{} is behind {zxid}", header.zxid);
    let first = zxids[0];
    let more: Vec<i64> = zxids.iter().map(|zxid| zxid.0 - first.0).collect();
    eprintln!("touches: zxids of {} multis of one check: {first} + {more:?}", more.len());
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// The names of the sessions, which say what each of them does at the follower.
const NAMES: [&str; 4] = ["silent", "pinging", "pinging-too-late", "resuming"];
/// Tick of the servers.
const TICK: Duration = Duration::from_secs(2);
/// Session timeout. The leader learns of the activity of a session at a follower up to half a tick
/// later, and expires the session up to a tick too late. A session whose last activity was at 0 s
/// ends no later than at 11 s. A session that has pinged ends after that, and a session that has
/// resumed ends even later.
const TIMEOUT: Duration = Duration::from_secs(8);
const PING_AFTER: Duration = Duration::from_millis(4_500);
const RESUME_AFTER: Duration = Duration::from_secs(7);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
const ATTEMPTS_MAX: usize = 5;
const OLD: &[u8] = b"old";
