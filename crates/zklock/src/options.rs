//! The command line. Each flag can also be set by an environment variable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::duration::{parse as duration, positive};
use crate::exit;
use crate::kind::{LockKind, Naming};

/// Runs a command while it holds a ZooKeeper lock, and ends the command before
/// the lock can pass to another contender.
#[derive(Debug, Parser)]
#[command(name = "zklock", version, after_help = exit::TABLE, max_term_width = 80)]
#[command(disable_help_subcommand = true, args_override_self = true)]
pub(crate) struct Options {
    /// File of options, in TOML; the command line and the environment override them
    // The file is read before the other arguments are understood.
    #[arg(long, env = "ZKLOCK_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Runs a command while the lock is held
    Run(Run),
    /// Holds the lock until standard input closes or a signal arrives
    Hold(Hold),
    /// Shows the holders and the queue of locks
    Status(Status),
    /// Lists the locks below a path
    Ls(Ls),
    /// Shows the locks below a path as they change
    Top(Top),
    /// Deletes the entry of a holder or waiter
    Evict(Evict),
    /// Names what is wrong for locks with the servers and permissions
    Doctor(Doctor),
    /// Prints the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How to reach the servers.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Servers, and a chroot, as host:port,host:port/chroot
    #[arg(long, env = "ZK_CONNECT", hide_env_values = true, value_name = "SERVERS")]
    pub(crate) connect: String,
    /// Session timeout to request; servers grant 2 to 20 of their ticks. Connecting
    /// for the first time takes no longer than this
    #[arg(long, env = "ZKLOCK_SESSION_TIMEOUT", hide_env_values = true, value_name = "TIME")]
    #[arg(default_value = "30s", value_parser = positive)]
    pub(crate) session_timeout: Duration,
    /// File with `user:password` for the scheme `digest`
    #[arg(long, env = "ZKLOCK_DIGEST_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) digest_file: Option<PathBuf>,
    /// File with `user:password` for SASL with DIGEST-MD5
    #[cfg(feature = "sasl-digest-md5")]
    #[arg(long, env = "ZKLOCK_SASL_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) sasl_file: Option<PathBuf>,
    #[cfg(feature = "sasl-gssapi")]
    #[command(flatten)]
    pub(crate) kerberos: Kerberos,
    /// Who may change what is created [default: creator with --digest-file or SASL,
    /// else open]
    #[arg(long, env = "ZKLOCK_ACL", hide_env_values = true)]
    pub(crate) acl: Option<Access>,
    /// Connects with TLS, and trusts the CAs of this file
    #[cfg(feature = "tls")]
    #[arg(long, env = "ZKLOCK_TLS_CA", hide_env_values = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate of the client, with --tls-key
    #[cfg(feature = "tls")]
    #[arg(long, env = "ZKLOCK_TLS_CERT", hide_env_values = true, value_name = "FILE")]
    #[arg(requires = "tls_ca", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the client
    #[cfg(feature = "tls")]
    #[arg(long, env = "ZKLOCK_TLS_KEY", hide_env_values = true, value_name = "FILE")]
    #[arg(requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Refuses servers that these revocation lists (CRLs) revoke, in PEM or DER
    #[cfg(feature = "tls")]
    #[arg(long, env = "ZKLOCK_TLS_CRL", hide_env_values = true, value_name = "FILE")]
    #[arg(requires = "tls_ca")]
    pub(crate) tls_crl: Option<PathBuf>,
}

impl Connection {
    /// Returns whether the client authenticates itself by any means.
    pub(crate) fn has_identity(&self) -> bool {
        let has_identity = self.digest_file.is_some();
        #[cfg(feature = "sasl-digest-md5")]
        let has_identity = has_identity || self.sasl_file.is_some();
        #[cfg(feature = "sasl-gssapi")]
        let has_identity = has_identity || self.kerberos.sasl_gssapi;
        #[cfg(feature = "tls")]
        let has_identity = has_identity || self.tls_cert.is_some();
        has_identity
    }
}

/// How to authenticate with Kerberos, whose library finds the credentials.
#[cfg(feature = "sasl-gssapi")]
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Kerberos {
    /// Authenticates with SASL and GSSAPI, with the credentials of KRB5CCNAME or
    /// KRB5_CLIENT_KTNAME
    #[arg(long, env = "ZKLOCK_SASL_GSSAPI", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    #[cfg_attr(feature = "sasl-digest-md5", arg(conflicts_with = "sasl_file"))]
    pub(crate) sasl_gssapi: bool,
    /// Principal of the client, if there are credentials of several
    #[arg(long, env = "ZKLOCK_SASL_PRINCIPAL", hide_env_values = true, value_name = "NAME")]
    #[arg(requires = "sasl_gssapi")]
    pub(crate) sasl_principal: Option<String>,
    /// The principal of all servers [default: zookeeper/HOST]
    #[arg(long, env = "ZKLOCK_SASL_SERVER_PRINCIPAL", hide_env_values = true)]
    #[arg(value_name = "NAME", requires = "sasl_gssapi")]
    pub(crate) sasl_server_principal: Option<String>,
}

/// Who may change the znodes that are created.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Access {
    /// Those with the credentials of this client
    Creator,
    /// Everyone
    Open,
}

/// How to obtain a lock.
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct Obtain {
    /// Path of the lock: the directory of its queue, or the znode of an exclusive lock
    pub(crate) path: String,
    /// Does not wait for other contenders; --timeout then has no effect
    #[arg(long = "try", short = 'n', env = "ZKLOCK_TRY", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) is_try: bool,
    /// Gives up after this time, such as 30s; it includes connecting, but not the up to
    /// 5s in which the servers confirm that the entry is gone
    #[arg(long, short = 'w', env = "ZKLOCK_TIMEOUT", hide_env_values = true, value_name = "TIME")]
    #[arg(value_parser = positive)]
    pub(crate) timeout: Option<Duration>,
    /// fair, read, write, exclusive, semaphore=N or election
    #[arg(long, env = "ZKLOCK_KIND", hide_env_values = true, default_value = "fair")]
    pub(crate) kind: LockKind,
    /// Whose queue it joins. All contenders of a path need the same
    #[arg(long, env = "ZKLOCK_NAMING", hide_env_values = true, default_value = "curator")]
    pub(crate) naming: Naming,
    /// What others see in the queue [default: host, process and command]
    #[arg(long, env = "ZKLOCK_IDENTITY", hide_env_values = true, value_name = "TEXT")]
    pub(crate) identity: Option<String>,
    /// Exit status if the lock is not obtained in time
    #[arg(long, short = 'E', env = "ZKLOCK_CONFLICT_EXIT_CODE", hide_env_values = true)]
    #[arg(value_name = "N", default_value_t = exit::NOT_OBTAINED)]
    pub(crate) conflict_exit_code: u8,
    /// Exit status if the lock is lost
    #[arg(long, env = "ZKLOCK_LOST_EXIT_CODE", hide_env_values = true)]
    #[arg(value_name = "N", default_value_t = exit::LOST)]
    pub(crate) lost_exit_code: u8,
    /// Prints no progress to standard error
    #[arg(long, short = 'q', env = "ZKLOCK_QUIET", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,
    /// Writes events as lines of JSON to this descriptor, which the shell has opened
    #[arg(long, env = "ZKLOCK_EVENTS", hide_env_values = true, value_name = "FD")]
    pub(crate) events: Option<u32>,
}

#[derive(Args, Debug)]
#[command(after_help = exit::TABLE)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) obtain: Obtain,
    /// What to do with the command if the lock is lost
    #[arg(long, env = "ZKLOCK_ON_LOSS", hide_env_values = true, default_value = "term")]
    pub(crate) on_loss: OnLoss,
    /// Time between SIGTERM and SIGKILL [default: 5s, but at most a sixth of the
    /// session timeout]
    #[arg(long, short = 'k', env = "ZKLOCK_KILL_AFTER", hide_env_values = true)]
    #[arg(value_name = "TIME", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// Begins the command only when there is a lease, which may take two ticks of the
    /// servers longer
    #[arg(long, env = "ZKLOCK_REQUIRE_LEASE", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) require_lease: bool,
    /// Leaves the command in the process group of zklock, so that it can read the
    /// terminal
    #[arg(long, env = "ZKLOCK_FOREGROUND", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The command with its arguments, which no shell interprets
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLoss {
    /// SIGTERM, and SIGKILL after a time of grace, before the lock can pass on
    Term,
    /// SIGKILL, before the lock can pass on
    Kill,
    /// A warning
    Ignore,
}

#[derive(Args, Debug)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) obtain: Obtain,
    /// Does not read standard input: only a signal ends the lock
    #[arg(long, env = "ZKLOCK_NO_STDIN", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) no_stdin: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// How and how often something is printed.
#[derive(Args, Debug)]
pub(crate) struct Printing {
    /// Prints JSON
    #[arg(long, env = "ZKLOCK_JSON", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
    /// Prints it again after each change
    #[arg(long, env = "ZKLOCK_WATCH", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Paths of locks
    #[arg(required = true)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Where to begin
    #[arg(default_value = "/")]
    pub(crate) root: String,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Where to begin
    #[arg(default_value = "/")]
    pub(crate) root: String,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    /// Path of the lock
    pub(crate) path: String,
    /// The entry: its token, as `status` shows it, or the name of its znode
    pub(crate) entry: String,
    /// Deletes without asking
    #[arg(long, short = 'y', env = "ZKLOCK_YES", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
#[command(after_help = exit::TABLE)]
pub(crate) struct Doctor {
    /// Paths of locks, whose permissions are checked
    pub(crate) paths: Vec<String>,
    /// Prints JSON
    #[arg(long, env = "ZKLOCK_JSON", hide_env_values = true)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn run(arguments: &[&str]) -> Run {
        let before = ["zklock", "run", "--connect", "zk1", "/a"];
        let parsed = Options::try_parse_from(before.iter().chain(arguments));
        let verb = parsed.unwrap_or_else(|error| panic!("{error}")).verb;
        let Verb::Run(run) = verb else { panic!("{verb:?}") };
        run
    }

    #[test]
    fn the_definition_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn no_option_of_ours_follows_the_first_word_of_the_command() {
        let parsed = run(&["--try", "rsync", "--timeout", "5", "-n", "--", "-q"]);
        assert!(parsed.obtain.is_try && parsed.obtain.timeout.is_none() && !parsed.obtain.quiet);
        assert_eq!(parsed.command, ["rsync", "--timeout", "5", "-n", "--", "-q"]);
        assert_eq!(run(&["--", "--try"]).command, ["--try"]);
        assert_eq!(run(&["-w", "2", "--", "true", "--", "x"]).command, ["true", "--", "x"]);
    }
}
