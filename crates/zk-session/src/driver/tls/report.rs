//! Translates errors of rustls into failures that say what to do.

#![expect(clippy::wildcard_enum_match_arm, reason = "the errors of rustls become more with time")]

use std::io;
use std::net::IpAddr;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error};

use super::{crl, explain};
use crate::error::TlsFailure;

pub(super) fn io_error(failure: TlsFailure) -> io::Error {
    let kind = match failure {
        TlsFailure::TimedOut(_) => io::ErrorKind::TimedOut,
        TlsFailure::File { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, failure)
}

/// Translates an error of a handshake.
pub(super) fn handshake_error(error: io::Error, presents_certificate: bool) -> io::Error {
    use io::ErrorKind as E;
    // A write that meets the end fails otherwise than a read.
    let is_end = matches!(
        error.kind(),
        E::UnexpectedEof | E::ConnectionReset | E::ConnectionAborted | E::BrokenPipe
    );
    match rustls_error(&error) {
        Some(cause) => io_error(failure(cause, presents_certificate)),
        None if is_end => io_error(TlsFailure::Closed),
        None => error,
    }
}

/// Translates an error of an open connection. With TLS 1.3, a server verifies the certificate of the
/// client only after the handshake is complete for the client.
pub(super) fn stream_error(error: io::Error, presents_certificate: bool) -> io::Error {
    match rustls_error(&error) {
        Some(cause) => io_error(failure(cause, presents_certificate)),
        None => error,
    }
}

fn rustls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

fn failure(error: &Error, presents_certificate: bool) -> TlsFailure {
    match error {
        Error::AlertReceived(alert) => alerted(*alert, presents_certificate),
        Error::InvalidCertificate(error) => certificate(error),
        Error::InvalidCertRevocationList(error) => TlsFailure::Crl(explain::revocation_list(error)),
        Error::InvalidMessage(_) => TlsFailure::NotTls,
        error => TlsFailure::Other(explain::error(error)),
    }
}

fn alerted(alert: AlertDescription, presents_certificate: bool) -> TlsFailure {
    use AlertDescription as A;
    let name = explain::alert_name(alert);
    match alert {
        A::CertificateRequired | A::NoCertificate => {
            TlsFailure::ClientCertificateRequired { alert: name }
        }
        // Java's answer to an empty list of certificates.
        A::BadCertificate if !presents_certificate => {
            TlsFailure::ClientCertificateRequired { alert: name }
        }
        A::AccessDenied
        | A::BadCertificate
        | A::CertificateExpired
        | A::CertificateRevoked
        | A::CertificateUnknown
        | A::UnknownCA
        | A::UnsupportedCertificate
            if presents_certificate =>
        {
            TlsFailure::ClientCertificateRefused { alert: name }
        }
        _ => TlsFailure::Alert { alert: name },
    }
}

fn certificate(error: &CertificateError) -> TlsFailure {
    use CertificateError as C;
    match error {
        C::Expired | C::ExpiredContext { .. } => TlsFailure::Expired,
        C::NotValidYet | C::NotValidYetContext { .. } => TlsFailure::NotYetValid,
        C::ExpiredRevocationList | C::ExpiredRevocationListContext { .. } => {
            TlsFailure::Crl(crl::expired(None))
        }
        C::Revoked => TlsFailure::Revoked,
        C::UnknownIssuer => TlsFailure::UnknownIssuer,
        C::UnknownRevocationStatus => TlsFailure::RevocationUnknown,
        C::NotValidForNameContext { expected, presented } => TlsFailure::WrongName {
            expected: expected.to_str().into_owned(),
            presented: presented.iter().map(|name| bare(name)).collect(),
        },
        error => TlsFailure::Certificate(explain::certificate(error)),
    }
}

/// Returns a name without its kind: rustls formats names as `DnsName("zk1")` and `IpAddress(::1)`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')'));
    let inner = inner.unwrap_or(name).trim_matches('"');
    inner.parse().map_or_else(|_| inner.to_owned(), |address: IpAddr| address.to_string())
}
