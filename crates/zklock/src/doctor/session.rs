//! What a session shows: the timeout and the lease that the servers allow, how long a commit takes,
//! the leader's clock, and whether znodes may have a time to live.

use std::time::{Duration, SystemTime};

use zk_recipes::zk_session::{MultiError, Ttl};
use zk_recipes::{Client, CreateMode, ErrorCode, Lease, Multi, MultiOutcome, Version};

use crate::clock::{boot_now, day_now};

use super::finding::{Findings, Level};

/// The clocks of machines that ask a time server differ by less.
const OFFSET_MAX: Duration = Duration::from_secs(1);
/// The version of a znode that no znode has.
const NO_VERSION: Version = Version(i32::MIN);
/// Any legal time to live, in milliseconds. Nothing is created with it.
const TTL_MS: i64 = 60_000;

/// What the program knows of its session.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) requested: Duration,
    pub(super) granted: Duration,
    pub(super) lease: Option<Duration>,
    /// How long a write took.
    pub(super) commit: Option<Duration>,
    /// How far the leader's clock is from the local one, and whether it is ahead.
    pub(super) offset: Option<(Duration, bool)>,
    pub(super) extended_types: Option<bool>,
}

/// Looks at a session. `directory` is where the program may create a znode, which the same
/// transaction deletes.
pub(super) async fn look(client: &Client, requested: Duration, directory: &str) -> Session {
    let health = client.health();
    // A new session whose timeout is too short for a lease is nevertheless safe for a moment.
    let lease = health.lease.filter(|_| health.timeout >= Lease::default().timeout_min());
    let mut session = Session { requested, granted: health.timeout, lease, ..Session::default() };
    let path = probe(client, directory);
    // A znode that exists only within a transaction is left behind by no lost connection.
    let write = Multi::new()
        .create(&path, "", CreateMode::Ephemeral)
        .set_data(&path, "1", None)
        .delete(&path, None);
    let (sent, sent_day) = (boot_now(), day_now());
    if let Ok(outcomes) = client.commit(write).await {
        session.commit = Some(boot_now().saturating_sub(sent));
        let written = outcomes.iter().find_map(|outcome| {
            if let MultiOutcome::DataSet(stat) = outcome { Some(stat.mtime) } else { None }
        });
        session.offset = written.map(|written| offset(sent_day, written, day_now()));
    }
    session
}

/// Returns whether znodes may have a time to live. Nothing is created: the transaction always fails.
/// Only servers that know the operation may be asked.
pub(super) async fn extended_types(client: &Client, directory: &str) -> Option<bool> {
    let ttl = CreateMode::PersistentTtl(Ttl::from_millis(TTL_MS)?);
    let attempt =
        Multi::new().create(&probe(client, directory), "", ttl).check(directory, Some(NO_VERSION));
    match client.commit(attempt).await {
        Err(MultiError::Refused { index: 0, code: ErrorCode::UNIMPLEMENTED, .. }) => Some(false),
        Err(MultiError::Refused { index: 1, .. }) => Some(true),
        Ok(_) | Err(_) => None,
    }
}

/// Tries to create and to delete a child of a directory, in a transaction that always fails. Returns
/// the position of what failed and why, where 2 means that both are allowed.
pub(super) async fn rehearse(
    client: &Client,
    directory: &str,
) -> Result<(usize, ErrorCode), String> {
    let path = probe(client, directory);
    let attempt = Multi::new()
        .create(&path, "", CreateMode::Ephemeral)
        .delete(&path, None)
        .check(directory, Some(NO_VERSION));
    match client.commit(attempt).await {
        Err(MultiError::Refused { index, code, .. }) => Ok((index, code)),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("the server has applied a transaction that must fail".to_owned()),
    }
}

/// Returns a path that no lock uses.
fn probe(client: &Client, directory: &str) -> String {
    let session = client.session_id().map_or_else(String::new, |it| it.to_string());
    crate::queue::child(directory, &format!("zklock-doctor-{session}"))
}

/// Returns how far a time is outside the interval in which it was taken, and whether it is ahead.
fn offset(sent: SystemTime, written: SystemTime, got: SystemTime) -> (Duration, bool) {
    match written.duration_since(got) {
        Ok(ahead) => (ahead, true),
        Err(_) => (sent.duration_since(written).unwrap_or_default(), false),
    }
}

pub(super) fn check(session: &Session, findings: &mut Findings) {
    let Session { requested, granted, .. } = *session;
    let subject = "session";
    if session.lease.is_none() {
        let needed = Lease::default().timeout_min();
        findings.add(
            Level::Problem,
            "no-lease",
            subject,
            format!(
                "The servers grant a session timeout of {granted:?}, and a lease needs {needed:.1?}: \
                 a command can run for too long after its lock is lost."
            ),
            "Use a longer --session-timeout, or increase maxSessionTimeout of the servers.",
        );
    }
    if granted < requested {
        findings.add(
            Level::Warning,
            "timeout-shortened",
            subject,
            format!(
                "The servers grant {granted:?} of the {requested:?} that were asked for, so locks \
                 survive only shorter outages."
            ),
            "Increase maxSessionTimeout of the servers, or ask for less.",
        );
    }
    if granted > requested {
        findings.add(
            Level::Warning,
            "timeout-lengthened",
            subject,
            format!(
                "The servers grant {granted:?} where {requested:?} were asked for, so the lock of a \
                 holder that has crashed is free later."
            ),
            "Decrease minSessionTimeout of the servers, or ask for more.",
        );
    }
    if let Some(commit) = session.commit.filter(|commit| *commit > granted / 20) {
        findings.add(
            Level::Warning,
            "slow-commits",
            subject,
            format!(
                "A write took {commit:.1?}. The lease is renewed each {:.1?}, so it is short, or \
                 there is none.",
                granted / 20
            ),
            "Give the servers a faster disk for dataLogDir, or use a longer --session-timeout.",
        );
    }
    match session.offset {
        Some((offset, is_ahead)) if offset > OFFSET_MAX => findings.add(
            Level::Warning,
            "clock",
            "leader",
            format!(
                "Its clock is {offset:.1?} {} of the local one. Locks do not depend on it, but the \
                 ages that status shows do.",
                if is_ahead { "ahead" } else { "behind" }
            ),
            "Let both machines ask a time server.",
        ),
        Some(_) => {}
        None => findings.add(
            Level::Unknown,
            "clock",
            "leader",
            "This client may not write, so the leader's clock and the time of a commit are not \
             known.",
            "Give a path where this client may create znodes.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_time_between_sending_and_receiving_has_no_offset() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(offset(at(10), at(11), at(12)).0, Duration::ZERO);
        assert_eq!(offset(at(10), at(15), at(12)), (Duration::from_secs(3), true));
        assert_eq!(offset(at(10), at(8), at(12)), (Duration::from_secs(2), false));
    }
}
