//! `zklock doctor`: reads what servers say of themselves, and what a session shows, and names what is
//! wrong for locks. It changes nothing: its only write deletes in the same transaction what it creates.

mod facts;
mod finding;
mod locks;
mod servers;
mod session;
mod words;

use std::time::Duration;

use serde_json::{Value, json};
use zk_recipes::Client;
use zk_recipes::zk_session::ConnectString;

use crate::connect::{close, connect, transport};
use crate::exit::{Failure, PROBLEMS};
use crate::options::Doctor;
use crate::show::print;
use crate::table::Table;
use crate::text::printable_lines;

use facts::{Facts, Release};
use finding::{Findings, Level, wrapped};
use locks::Lock;
use session::Session;
use words::{Answer, Server};

/// How long it may take to connect, and to answer one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Servers tell the time in whole milliseconds, and a smaller difference means nothing to people.
const OFFSET_SHOWN: Duration = Duration::from_millis(10);
/// The oldest release that knows a time to live. Older ones close the connection.
const TTL_SINCE: Release = Release(3, 5, 3);

/// Runs the verb.
pub(crate) async fn doctor(options: &Doctor) -> Result<u8, Failure> {
    let parsed = options.connection.connect.parse::<ConnectString>();
    let hosts = parsed.map_err(|error| Failure::own(error.to_string()))?.hosts;
    let servers = words::ask_all(&*transport(&options.connection)?, &hosts).await;
    let mut findings = Findings::default();
    servers::check(&servers, &mut findings);
    let is_up = |server: &Server| !matches!(server.srvr, Answer::Failed(_));
    let (session, locks) = if servers.iter().any(is_up) {
        with_session(options, &servers, &mut findings).await
    } else {
        (None, Vec::new())
    };
    if session.is_none() {
        findings.add(
            Level::Unknown,
            "no-session",
            "session",
            "There is no session, so its timeout, its lease, clocks and permissions are not known.",
            "Solve the problems of the servers first.",
        );
    }
    print(&if options.json {
        format!("{:#}\n", in_json(&servers, session.as_ref(), &locks, &findings))
    } else {
        printable_lines(&in_words(&servers, session.as_ref(), &locks, &findings))
    })?;
    Ok(if findings.count(Level::Problem) > 0 { PROBLEMS } else { 0 })
}

async fn with_session(
    options: &Doctor,
    servers: &[Server],
    findings: &mut Findings,
) -> (Option<Session>, Vec<Lock>) {
    let client = match connect(&options.connection, Some(PATIENCE)).await {
        Ok(client) => client,
        Err(failure) => {
            let advice = "Correct the credentials, the chroot, or what is wrong with the servers.";
            findings.add(Level::Problem, "no-connection", "session", failure.message, advice);
            return (None, Vec::new());
        }
    };
    let patient = client.with_timeout(PATIENCE);
    let mut locks = Vec::new();
    for path in &options.paths {
        let has_identity = options.connection.has_identity();
        locks.push(locks::check(&patient, path, has_identity, findings).await);
    }
    let session = look(&patient, options, servers, &locks).await;
    session::check(&session, findings);
    close(&client).await;
    (Some(session), locks)
}

/// Looks at the session. It writes below the root, or in the first directory where it may.
async fn look(client: &Client, options: &Doctor, servers: &[Server], locks: &[Lock]) -> Session {
    let requested = options.connection.session_timeout;
    let mut session = session::look(client, requested, "/").await;
    let mut directory = "/";
    for other in locks.iter().filter_map(|lock| lock.directory.as_deref()) {
        if session.commit.is_some() {
            break;
        }
        session = session::look(client, requested, other).await;
        directory = other;
    }
    let knows_ttl = |server| Facts::of(server).release.is_some_and(|it| it >= TTL_SINCE);
    if session.commit.is_some() && servers.iter().all(knows_ttl) {
        session.extended_types = session::extended_types(client, directory).await;
    }
    session
}

fn in_words(
    servers: &[Server],
    session: Option<&Session>,
    locks: &[Lock],
    findings: &Findings,
) -> String {
    let heading = ["SERVER", "VERSION", "ROLE", "TICK", "TIMEOUTS", "PER HOST", "OUTSTANDING"];
    let mut table = Table::new(&heading, "SERVER");
    for server in servers {
        let facts = Facts::of(server);
        let timeouts = facts.timeout_min.zip(facts.timeout_max);
        table.row([
            server.name.clone(),
            shown(facts.release),
            shown(facts.mode),
            shown(facts.tick.map(|tick| format!("{tick:?}"))),
            shown(timeouts.map(|(min, max)| format!("{min:?}-{max:?}"))),
            shown(facts.connections_per_host),
            shown(facts.outstanding),
        ]);
    }
    let mut text = format!("{table}\n");
    if let Some(session) = session {
        text.push_str(&session_in_words(session));
    }
    for lock in locks {
        let deleters = lock.deleters.as_ref().map(|deleters| match &deleters[..] {
            [] => "nobody".to_owned(),
            some => some.join(", "),
        });
        let line = format!("{}: entries can be deleted by {}", lock.path, shown(deleters));
        text.push_str(&wrapped(&line, ""));
    }
    if session.is_some() {
        text.push('\n');
    }
    text + &findings.in_words()
}

fn session_in_words(session: &Session) -> String {
    let lease = session.lease.map_or_else(|| "none".to_owned(), |lease| format!("{lease:.1?}"));
    let commit = session.commit.map(|commit| format!("{commit:.1?}"));
    let offset = session.offset.map(|(offset, is_ahead)| match is_ahead {
        _ if offset < OFFSET_SHOWN => "agrees with the local one".to_owned(),
        true => format!("is {offset:.1?} ahead of the local one"),
        false => format!("is {offset:.1?} behind the local one"),
    });
    let types = session.extended_types.map(|it| if it { "enabled" } else { "disabled" });
    let mut text = wrapped(
        &format!(
            "session: {:?} requested, {:?} granted, lease {lease}, commit {}",
            session.requested,
            session.granted,
            shown(commit)
        ),
        "",
    );
    let offset = offset.unwrap_or_else(|| "is not known".to_owned());
    text.push_str(&format!("clock: that of the leader {offset}\n"));
    text.push_str(&format!("znodes with a time to live: {}\n", shown(types)));
    text
}

/// Returns a value, or a question mark.
fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

fn in_json(
    servers: &[Server],
    session: Option<&Session>,
    locks: &[Lock],
    findings: &Findings,
) -> Value {
    let servers: Vec<Value> = servers.iter().map(server_in_json).collect();
    let session = session.map(|session| {
        json!({
            "requested_ms": millis(session.requested),
            "granted_ms": millis(session.granted),
            "lease_ms": session.lease.map(millis),
            "commit_ms": session.commit.map(millis),
            "clock_offset_ms": session.offset.map(|(offset, is_ahead)| {
                if is_ahead { millis(offset) } else { -millis(offset) }
            }),
            "extended_types": session.extended_types,
        })
    });
    let locks: Vec<Value> = locks
        .iter()
        .map(|lock| {
            json!({
                "path": lock.path,
                "directory": lock.directory,
                "deleters": lock.deleters,
            })
        })
        .collect();
    json!({
        "servers": servers,
        "session": session,
        "locks": locks,
        "findings": findings.in_json(),
    })
}

fn server_in_json(server: &Server) -> Value {
    let facts = Facts::of(server);
    json!({
        "server": server.name,
        "version": facts.release.map(|release| release.to_string()),
        "role": facts.mode,
        "tick_ms": facts.tick.map(millis),
        "session_timeout_min_ms": facts.timeout_min.map(millis),
        "session_timeout_max_ms": facts.timeout_max.map(millis),
        "connections_per_host": facts.connections_per_host,
        "outstanding": facts.outstanding,
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
