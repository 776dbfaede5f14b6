//! What is wrong with the servers, as they describe themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use super::facts::{Facts, Release};
use super::finding::{Findings, Level};
use super::words::{Answer, Server};

/// The tick that the lease of this program assumes, which is ZooKeeper's default.
const TICK_MAX: Duration = Duration::from_secs(2);
/// Each `zklock` has one connection, so fewer of them are soon too few for the jobs of a host.
const CONNECTIONS_MIN: u64 = 20;
/// Servers that keep up have a handful. They stop reading at 1,000, by default.
const OUTSTANDING_MAX: u64 = 100;

/// A fault of releases from `first` up to, but not including, `fixed`.
struct Fault {
    first: Release,
    fixed: Release,
    what: &'static str,
}

/// Faults that can give a lock to two contenders, or keep it from all of them.
///
/// The releases are those whose sources contain the fix, which is not what the issues say: branch 3.8
/// got that of ZOOKEEPER-4785 right after 3.8.4, and never that of ZOOKEEPER-4712.
const FAULTS: [Fault; 7] = [
    Fault { first: Release(3, 5, 0), fixed: Release(3, 5, 10), what: DIFFER },
    Fault { first: Release(3, 6, 0), fixed: Release(3, 6, 3), what: DIFFER },
    Fault { first: Release(3, 8, 0), fixed: Release(3, 8, 5), what: JOINING },
    Fault { first: Release(3, 9, 0), fixed: Release(3, 9, 2), what: JOINING },
    Fault {
        first: Release(3, 8, 0),
        fixed: Release(3, 9, 3),
        what: "a follower that stops can leave its data inconsistent (ZOOKEEPER-4712)",
    },
    Fault {
        first: Release(3, 9, 3),
        fixed: Release(3, 9, 4),
        what: "a follower that has joined late and then leads can lose transactions of others \
               (ZOOKEEPER-4925)",
    },
    Fault {
        first: Release(3, 5, 0),
        fixed: Release(3, 8, 0),
        what: "the releases 3.5, 3.6 and 3.7 get no fixes any more",
    },
];
const DIFFER: &str =
    "servers can differ for ever after a leader has crashed (ZOOKEEPER-3642, -3911)";
const JOINING: &str = "a follower that joins can lose transactions (ZOOKEEPER-4785)";
/// The oldest release that the library supports.
const OLDEST: Release = Release(3, 5, 0);

/// Checks all servers of the connect string.
pub(super) fn check(servers: &[Server], findings: &mut Findings) {
    let all: Vec<Facts> = servers.iter().map(Facts::of).collect();
    for (server, facts) in servers.iter().zip(&all) {
        reach(server, findings);
        release(server, facts, findings);
        settings(server, facts, findings);
        load(server, facts, findings);
    }
    roles(servers, &all, findings);
    differences(&all, findings);
}

fn reach(server: &Server, findings: &mut Findings) {
    let name = &*server.name;
    match &server.srvr {
        Answer::Failed(reason) => findings.add(
            Level::Problem,
            "unreachable",
            name,
            reason,
            "Start the server, or correct the connect string, the firewall or the TLS options. The \
             other servers may carry on without it, but one failure more may stop all locks.",
        ),
        Answer::NotServing => findings.add(
            Level::Problem,
            "not-serving",
            name,
            "It runs, but it has no quorum: it has no leader, or cannot reach it.",
            "Look at its log, and at the network between the servers.",
        ),
        Answer::NotAllowed => findings.add(
            Level::Unknown,
            "word-not-allowed",
            name,
            "It does not allow srvr, so its version, its role and its load are not known.",
            "Add srvr to 4lw.commands.whitelist.",
        ),
        Answer::Text(_) => {}
    }
    if matches!(server.srvr, Answer::Text(_) | Answer::NotAllowed) {
        let missing = |answer: &Answer| !matches!(answer, Answer::Text(_));
        if missing(&server.conf) {
            findings.add(
                Level::Unknown,
                "word-not-allowed",
                name,
                "It does not answer conf, so its tickTime, its limits of session timeouts and \
                 maxClientCnxns are not known.",
                "Add conf to 4lw.commands.whitelist, or compare zoo.cfg with the guide.",
            );
        }
        if missing(&server.mntr) {
            findings.add(
                Level::Unknown,
                "word-not-allowed",
                name,
                "It does not answer mntr, so its file descriptors, its followers and whether its \
                 data agree with the leader's are not known.",
                "Add mntr to 4lw.commands.whitelist.",
            );
        }
    }
}

fn release(server: &Server, facts: &Facts, findings: &mut Findings) {
    let Some(release) = facts.release else { return };
    if release < OLDEST {
        findings.add(
            Level::Problem,
            "version-unsupported",
            &*server.name,
            format!("It runs {release}, and the oldest supported version is {OLDEST}."),
            "Upgrade the servers.",
        );
    }
    for fault in FAULTS.iter().filter(|it| it.first <= release && release < it.fixed) {
        findings.add(
            Level::Warning,
            "version-fault",
            &*server.name,
            format!("It runs {release}: {}.", fault.what),
            "Upgrade to the newest release of 3.9.",
        );
    }
}

fn settings(server: &Server, facts: &Facts, findings: &mut Findings) {
    let name = &*server.name;
    if let Some(tick) = facts.tick.filter(|tick| *tick > TICK_MAX) {
        findings.add(
            Level::Problem,
            "tick-too-long",
            name,
            format!(
                "Its tickTime is {tick:?}, and the lease assumes {TICK_MAX:?} at most: a command \
                 can run for too long after its lock is lost."
            ),
            "Set tickTime=2000, and minSessionTimeout and maxSessionTimeout to what you need.",
        );
    }
    if let Some(count) = facts.connections_per_host.filter(|it| (1..CONNECTIONS_MIN).contains(it)) {
        findings.add(
            Level::Warning,
            "few-connections",
            name,
            format!(
                "Its maxClientCnxns is {count}: it refuses a host's connections beyond that, and \
                 each running zklock has one. Containers behind one address share the limit."
            ),
            "Increase maxClientCnxns.",
        );
    }
}

fn load(server: &Server, facts: &Facts, findings: &mut Findings) {
    let name = &*server.name;
    if let Some(count) = facts.outstanding.filter(|count| *count >= OUTSTANDING_MAX) {
        findings.add(
            Level::Warning,
            "overloaded",
            name,
            format!("{count} requests wait in it, so locks are late and leases short."),
            "Look at its disk, its load and its garbage collection.",
        );
    }
    if let Some((open, max)) = facts.descriptors.filter(|(open, max)| *open >= *max / 10 * 9) {
        findings.add(
            Level::Warning,
            "few-descriptors",
            name,
            format!(
                "{open} of its {max} file descriptors are open. It refuses clients without one."
            ),
            "Increase the limit of open files (ulimit -n).",
        );
    }
    if let Some(count) = facts.digest_mismatches.filter(|count| *count > 0) {
        findings.add(
            Level::Problem,
            "data-differ",
            name,
            format!("Its data have differed from the leader's {count} times."),
            "Stop the server, move its data away, and let it copy the leader's.",
        );
    }
    if let Some((present, all)) = facts.followers.filter(|(present, all)| present < all) {
        findings.add(
            Level::Warning,
            "followers-missing",
            name,
            format!("{present} of its {all} followers have joined."),
            "Look at the servers that are missing.",
        );
    }
}

/// Compares the roles. Two that lead are two ensembles, and a lock in each of them is another lock.
fn roles(servers: &[Server], all: &[Facts], findings: &mut Findings) {
    let having = |modes: &[&str]| -> Vec<&str> {
        let is_one = |facts: &Facts| facts.mode.as_deref().is_some_and(|it| modes.contains(&it));
        let found = servers.iter().zip(all).filter(|(_, facts)| is_one(facts));
        found.map(|(server, _)| &*server.name).collect()
    };
    let followers = having(&["follower", "observer"]);
    let leaders = having(&["leader", "standalone"]);
    let alone = having(&["standalone"]);
    if leaders.len() > 1 || (!alone.is_empty() && !followers.is_empty()) {
        findings.add(
            Level::Problem,
            "several-ensembles",
            leaders.join(", "),
            "These servers are not one ensemble: each of them decides alone who holds a lock, so \
             two contenders can hold it. Right after an election, ask again.",
            "Name only the servers of one ensemble in the connect string, and give all of them the \
             same server lines in zoo.cfg.",
        );
    }
    for name in having(&["read-only"]) {
        findings.add(
            Level::Problem,
            "not-serving",
            name,
            "It has no quorum, and answers only reads.",
            "Look at its log, and at the network between the servers.",
        );
    }
    if !leaders.is_empty() {
        return;
    }
    if !followers.is_empty() {
        findings.add(
            Level::Unknown,
            "leader-not-listed",
            followers.join(", "),
            "These servers follow a leader that is not among those that answered.",
            "Name all servers that vote in the connect string.",
        );
    } else if servers.iter().any(|server| server.srvr == Answer::NotAllowed) {
        // Those that do not tell may have a leader among them.
    } else {
        findings.add(
            Level::Problem,
            "no-leader",
            "all servers",
            "No server leads or follows, so nobody can get or release a lock.",
            "Start a majority of the servers.",
        );
    }
}

fn differences(all: &[Facts], findings: &mut Findings) {
    let releases: BTreeSet<Release> = all.iter().filter_map(|facts| facts.release).collect();
    if releases.len() > 1 {
        let list: Vec<String> = releases.iter().map(Release::to_string).collect();
        findings.add(
            Level::Warning,
            "mixed-versions",
            "all servers",
            format!("The servers run {}.", list.join(" and ")),
            "Finish the upgrade: an operation works only if the server of the moment knows it.",
        );
    }
    let settings: BTreeSet<_> =
        all.iter().filter_map(|it| Some((it.tick?, it.timeout_min?, it.timeout_max?))).collect();
    if settings.len() > 1 {
        findings.add(
            Level::Warning,
            "mixed-settings",
            "all servers",
            "tickTime or the limits of session timeouts differ, so a session has another timeout \
             after a reconnect, and another deadline after an election.",
            "Give all servers the same zoo.cfg.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, srvr: &str) -> Server {
        let text = Answer::Text(String::new());
        let srvr = Answer::Text(srvr.to_owned());
        Server { name: name.to_owned(), srvr, conf: text.clone(), mntr: text }
    }

    fn checks(servers: &[Server]) -> Vec<&'static str> {
        let mut findings = Findings::default();
        check(servers, &mut findings);
        findings.checks()
    }

    #[test]
    fn servers_of_one_ensemble_have_one_leader() {
        let with = |modes: &[&str]| {
            let one = |mode| server("a", &format!("Mode: {mode}\n"));
            checks(&modes.iter().map(one).collect::<Vec<_>>())
        };
        assert_eq!(with(&["standalone"]), [""; 0]);
        assert_eq!(with(&["leader", "follower", "observer"]), [""; 0]);
        assert_eq!(with(&["leader", "leader", "follower"]), ["several-ensembles"]);
        assert_eq!(with(&["standalone", "follower"]), ["several-ensembles",]);
        assert_eq!(with(&["follower", "follower"]), ["leader-not-listed"]);
        assert_eq!(with(&["read-only"]), ["not-serving", "no-leader"]);
    }

    #[test]
    fn a_server_that_does_not_tell_may_lead() {
        let mut silent = server("a", "");
        silent.srvr = Answer::NotAllowed;
        assert_eq!(checks(&[silent.clone()]), ["word-not-allowed"]);
        silent.srvr = Answer::NotServing;
        assert_eq!(checks(&[silent]), ["not-serving", "no-leader"]);
    }

    #[test]
    fn faults_end_with_the_release_that_fixes_them() {
        for (number, count) in
            [("3.5.9", 2), ("3.5.10", 1), ("3.6.2", 2), ("3.7.2", 1), ("3.8.4", 2), ("3.8.6", 1)]
                .into_iter()
                .chain([("3.9.1", 2), ("3.9.2", 1), ("3.9.3", 1), ("3.9.4", 0)])
        {
            let srvr = format!("Zookeeper version: {number}-x, built\nMode: leader\n");
            let found = checks(&[server("a", &srvr)]);
            assert_eq!(found, vec!["version-fault"; count], "{number}");
        }
        let old = server("a", "Zookeeper version: 3.4.14-x\nMode: leader\n");
        assert_eq!(checks(&[old]), ["version-unsupported"]);
    }

    #[test]
    fn figures_of_mntr_are_judged() {
        let mut lone = server("a", "Mode: leader\nOutstanding: 100\n");
        lone.mntr = Answer::Text(
            "zk_open_file_descriptor_count\t950\nzk_max_file_descriptor_count\t1024\n\
             zk_digest_mismatches_count\t2\nzk_quorum_size\t3\nzk_synced_followers\t1\n"
                .to_owned(),
        );
        let expected = ["overloaded", "few-descriptors", "data-differ", "followers-missing"];
        assert_eq!(checks(&[lone]), expected);
    }
}
