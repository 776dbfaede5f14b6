//! The command line.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use zk_testserver::{ServerConfig, ServerVersion};

use crate::command;
use crate::unit::{duration, positive_duration};

/// A ZooKeeper server for tests, which fails on demand.
///
/// Prints a connect string on the first line of its standard output, and
/// `http HOST:PORT`, the address for commands, on the second one. Ends on SIGTERM
/// and SIGINT. Do not use it in production: it stores nothing on disk, and who can
/// reach it can break it.
#[derive(Debug, Parser)]
#[command(name = "zk-testserver", version, verbatim_doc_comment)]
// The last one counts, so that the options of a container image or an alias are defaults.
#[command(after_help = after_help(), next_line_help = true, args_override_self = true)]
pub(crate) struct Options {
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub(crate) host: IpAddr,
    /// Port for clients, and of the first member; 0: a free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// Port for commands over HTTP; 0: a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    pub(crate) http_port: u16,
    /// End when the standard input ends, as it does with the parent.
    #[arg(long)]
    pub(crate) exit_with_parent: bool,
    /// File with commands, one per line; `at 500ms` delays one.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// JSON file with the znodes to create: {"/path": "data", ...}.
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// Version to imitate, from 3.4 to 3.9, or keeper.
    #[arg(long, default_value = "3.8", value_name = "VERSION", value_parser = version)]
    server_version: ServerVersion,
    /// Granularity of the expiry of sessions.
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = positive_duration)]
    tick: Duration,
    /// Shortest session timeout to grant. Default: 2 ticks.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    min_session_timeout: Option<Duration>,
    /// Longest session timeout to grant. Default: 20 ticks.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    max_session_timeout: Option<Duration>,
    /// Number of servers, each with its own port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) members: u16,
    /// How long after a commit followers learn of it.
    #[arg(long, default_value = "0ms", value_name = "DURATION", value_parser = duration)]
    lag: Duration,
    /// Longest request in bytes (jute.maxbuffer).
    #[arg(long, default_value_t = 0xf_ffff, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    pub(crate) jute_maxbuffer: u32,
    /// How many requests and commits to keep for the pages.
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    log_capacity: u32,
    /// How often due containers and TTL znodes are deleted.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = positive_duration)]
    reap_interval: Duration,
    /// Allow TTL znodes (zookeeper.extendedTypesEnabled).
    #[arg(long)]
    extended_types: bool,
    /// Refuse writes beyond a hard quota (zookeeper.enforceQuota).
    #[arg(long)]
    enforce_quota: bool,
    /// Digest of the superuser: super:base64(sha1("super:password")).
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    super_digest: Option<String>,
}

impl Options {
    /// Returns the settings of the server.
    ///
    /// # Errors
    ///
    /// Returns why options contradict each other.
    pub(crate) fn config(&self) -> Result<ServerConfig, String> {
        let shortest = self.min_session_timeout.unwrap_or(self.tick * 2);
        let longest = self.max_session_timeout.unwrap_or(self.tick * 20);
        if shortest > longest {
            return Err(format!(
                "the shortest session timeout ({shortest:?}) exceeds the longest one ({longest:?}): \
                 change --min-session-timeout, --max-session-timeout or --tick"
            ));
        }
        if usize::from(self.port) + usize::from(self.members) > 1 << 16 && self.port != 0 {
            return Err(format!("there are fewer than {} ports from {}", self.members, self.port));
        }
        let mut config = ServerConfig::default()
            .version(self.server_version)
            .tick(self.tick)
            .min_session_timeout(shortest)
            .max_session_timeout(longest)
            .members(usize::from(self.members))
            .lag(self.lag)
            .max_frame(self.jute_maxbuffer.try_into().unwrap_or(usize::MAX))
            .log_capacity(self.log_capacity.try_into().unwrap_or(usize::MAX))
            .reap_interval(self.reap_interval)
            .extended_types(self.extended_types)
            .enforce_quota(self.enforce_quota)
            .start_time_ms(now_ms());
        if let Some(digest) = &self.super_digest {
            config = config.super_digest(digest);
        }
        Ok(config)
    }
}

#[expect(clippy::disallowed_methods, reason = "znodes have the times of the machine's clock")]
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn version(text: &str) -> Result<ServerVersion, String> {
    Ok(match text {
        "3.4" => ServerVersion::V3_4,
        "3.5" => ServerVersion::V3_5,
        "3.6" => ServerVersion::V3_6,
        "3.7" => ServerVersion::V3_7,
        "3.8" => ServerVersion::V3_8,
        "3.9" => ServerVersion::V3_9,
        "keeper" => ServerVersion::Keeper,
        _ => return Err("the versions are 3.4, 3.5, 3.6, 3.7, 3.8, 3.9 and keeper".to_owned()),
    })
}

fn digest(text: &str) -> Result<String, String> {
    match text.strip_prefix("super:") {
        // The base64 of a SHA-1 hash.
        Some(hash) if hash.len() == 28 && hash.ends_with('=') => Ok(text.to_owned()),
        _ => Err("a digest is super: and the 28 characters of base64(sha1(\"super:password\"))"
            .to_owned()),
    }
}

fn after_help() -> String {
    format!(
        "Durations are 500ms, 2s, 5m or 1h.\n\n\
         Commands, over HTTP as /command/VERB/PARAMETER?OPTION=VALUE, or in a script:\n{}\n\
         The options of cut and delay choose the request:\n  \
         op=create, path=/prefix, session=0x1, nth=2 (how many of these pass before).\n\
         With refuse=2s, the server refuses new connections for this long afterwards.",
        command::list()
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent_and_the_help_fits_on_a_terminal() {
        Options::command().debug_assert();
        for help in [Options::command().render_help(), Options::command().render_long_help()] {
            let help = help.to_string();
            let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
            assert_eq!(long, [""; 0]);
        }
    }

    #[test]
    fn options_are_checked_before_anything_starts() {
        let parse = |words: &str| {
            let words = ["zk-testserver"].into_iter().chain(words.split_whitespace());
            let options = Options::try_parse_from(words).map_err(|problem| problem.to_string())?;
            options.config()
        };
        assert!(parse("--tick 100ms --members 3 --server-version 3.9 --lag 5ms").is_ok());
        assert!(parse("--server-version keeper").is_ok());
        assert!(parse("--host ::1 --host 0.0.0.0 --port 2181 --port 0").is_ok(), "the last counts");
        assert!(parse("--super-digest super:D/InIHSb7yEEbrWz8b9l71RjZJU=").is_ok());
        for (words, expected) in [
            ("--server-version 3.3", "the versions are 3.4, 3.5"),
            ("--tick 0s", "the shortest duration here is 1ms"),
            ("--tick 5", "is not a duration such as 500ms"),
            ("--members 0", "1..=99"),
            ("--min-session-timeout 60s", "exceeds the longest one (40s)"),
            ("--port 65535 --members 2", "there are fewer than 2 ports from 65535"),
            ("--super-digest secret", "a digest is super: and the 28 characters"),
            ("--host localhost", "invalid IP address"),
        ] {
            let problem = parse(words).expect_err(words);
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
