//! The connection to the servers.

use std::fs;
use std::path::Path;
use std::time::Duration;

use zk_recipes::zk_session::{Tcp, Transport};
use zk_recipes::{Acl, Client, SessionState};

use crate::exit::Failure;
use crate::options::{Access, Connection};

/// How long the program waits at its end for the servers to confirm the end of the session.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The same without a connection.
const SUSPENDED_CLOSE_MAX: Duration = Duration::from_millis(500);

/// Connects to the servers, within the session timeout and this limit.
pub(crate) async fn connect(
    options: &Connection,
    limit: Option<Duration>,
) -> Result<Client, Failure> {
    let timeout = options.session_timeout;
    let within = limit.map_or(timeout, |limit| whole_millis(limit).min(timeout));
    let mut builder = Client::builder(&*options.connect)
        .session_timeout(timeout)
        .connect_within(within)
        // A full pipe behind standard error must not cost the session.
        .dedicated_thread();
    if let Some(file) = &options.digest_file {
        builder = builder.auth("digest", secret(file)?);
    }
    let is_open = options.digest_file.is_none();
    let acl = options.acl.unwrap_or(if is_open { Access::Open } else { Access::Creator });
    builder = builder.default_acl(match acl {
        Access::Creator => Acl::creator_all(),
        Access::Open => Acl::open(),
    });
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(options)? {
        builder = builder.transport(tls);
    }
    builder.connect().await.map_err(|error| {
        let error = in_options(error.to_string());
        Failure::own(format!("cannot connect to {}: {error}", options.connect))
    })
}

/// Returns how to open connections to the servers: with TCP, or with TLS if the options say so.
pub(crate) fn transport(options: &Connection) -> Result<Box<dyn Transport>, Failure> {
    #[cfg(feature = "tls")]
    if let Some(tls) = tls(options)? {
        return Ok(Box::new(tls));
    }
    // Without the feature, no option can ask for TLS.
    let _ = options;
    Ok(Box::new(Tcp::new()))
}

#[cfg(feature = "tls")]
fn tls(options: &Connection) -> Result<Option<zk_recipes::Tls>, Failure> {
    let Some(ca) = &options.tls_ca else { return Ok(None) };
    let mut tls = zk_recipes::Tls::builder().ca_file(ca);
    if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
        tls = tls.client_files(certificate, key);
    }
    if let Some(crl) = &options.tls_crl {
        tls = tls.crl_file(crl);
    }
    tls.build().map(Some).map_err(|error| Failure::own(in_options(error.to_string())))
}

/// Returns a message of the library in terms of the command line: the library tells programs which
/// method to call.
pub(crate) fn in_options(message: String) -> String {
    const TERMS: [(&str, &str); 9] = [
        ("set `ca_file` or `ca_pem`", "add it to the file of --tls-ca"),
        ("set `client_files` or `client_pem`", "set --tls-cert and --tls-key"),
        ("; set `server_name`", "; use another name of the server in --connect"),
        (", or set `server_name`", ""),
        (
            "set `crl_file` for the CRL of each CA that issued one of them, or set \
             `crl_for_servers_only` or `allow_unknown_revocation`",
            "add the CRL of each CA that issued one of them to the file of --tls-crl",
        ),
        (", or set `allow_expired_crls`", ""),
        (", or choose another `crypto_provider`", ""),
        ("the next attempt reads both again", "try again when both are there"),
        ("check its `auth` and `sasl`", "check --digest-file"),
    ];
    TERMS.iter().fold(message, |message, (term, option)| message.replace(term, option))
}

/// Rounds up to milliseconds. The error of a connection that takes too long shows this time, and what
/// is left of a limit has nine digits.
fn whole_millis(limit: Duration) -> Duration {
    let millis = limit.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Ends the session, so that everything that it holds is free at once.
pub(crate) async fn close(client: &Client) {
    let is_connected = client.state() == SessionState::Connected;
    // Without a server, the session ends when it expires.
    client.close_within(if is_connected { CLOSE_MAX } else { SUSPENDED_CLOSE_MAX }).await;
}

/// Reads a secret, without the end of its line.
fn secret(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::own(format!("--digest-file {}: {error}", file.display())))?;
    let line = text.trim_end_matches(['\n', '\r']);
    if line.contains('\n') || !line.contains(':') {
        let what = "it must have one line, of the form user:password";
        return Err(Failure::own(format!("--digest-file {}: {what}", file.display())));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_options_and_no_methods() {
        let message = |text: &str| in_options(text.to_owned());
        assert_eq!(
            message("not trusted; set `ca_file` or `ca_pem`"),
            "not trusted; add it to the file of --tls-ca"
        );
        assert_eq!(message("in the connect string, or set `server_name`"), "in the connect string");
        assert_eq!(message("nothing of the library"), "nothing of the library");
    }

    #[test]
    fn what_is_left_of_a_limit_is_shown_without_its_nanoseconds() {
        assert_eq!(whole_millis(Duration::from_nanos(1_999_999_329)), Duration::from_secs(2));
        assert_eq!(whole_millis(Duration::from_millis(1_500)), Duration::from_millis(1_500));
    }
}
