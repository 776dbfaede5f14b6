//! PEM data, from files or from memory.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsFailure;

pub(super) const CA: &str = "CA certificate";
pub(super) const CLIENT_CERTIFICATE: &str = "client certificate";
pub(super) const CLIENT_KEY: &str = "private key";
/// Maximum length of a file. One with all CAs that a system trusts is a tenth as long.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// Where PEM data is.
#[derive(Clone)]
pub(super) enum Source {
    File(PathBuf),
    Pem { from: &'static str, pem: Bytes },
}

impl Source {
    pub(super) fn certificates(
        &self,
        what: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
        let pem = self.read(what)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match found {
            Ok(found) if found.is_empty() => {
                Err(self.unusable(what, "it has no block BEGIN CERTIFICATE".to_owned()))
            }
            Ok(found) => Ok(found),
            Err(error) => Err(self.unusable(what, described(&error))),
        }
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsFailure> {
        let pem = self.read(CLIENT_KEY)?;
        PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| self.unusable(CLIENT_KEY, described(&error)))
    }

    fn read(&self, what: &'static str) -> Result<Bytes, TlsFailure> {
        let path = match self {
            Self::Pem { pem, .. } => return Ok(pem.clone()),
            Self::File(path) => path,
        };
        let failed = |message| TlsFailure::File { what, path: path.clone(), message };
        let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        // A pipe would block, and has nothing left for the next attempt.
        if !metadata.is_file() {
            return Err(failed("it is not a regular file".to_owned()));
        }
        if metadata.len() > FILE_MAX {
            return Err(failed(format!("it has more than {FILE_MAX} bytes")));
        }
        Ok(std::fs::read(path).map_err(|error| failed(error.to_string()))?.into())
    }

    pub(super) fn unusable(&self, what: &'static str, defect: String) -> TlsFailure {
        let place = match self {
            Self::File(path) => format!("{path:?}"),
            Self::Pem { from, .. } => format!("the argument of `{from}`"),
        };
        TlsFailure::Pem { what, place, defect }
    }
}

/// Shows the name of a file, but no PEM data.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Pem { from, .. } => f.write_str(from),
        }
    }
}

/// Describes an error without the data. The library's own text contains lines of the file.
fn described(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no END line",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "a block is not base64",
        pem::Error::NoItemsFound => "it has no such block (an encrypted key is not supported)",
        pem::Error::Io(_) | pem::Error::SectionTooLarge | _ => {
            "it is not PEM; convert it, for example with `openssl x509` or `openssl pkcs8`"
        }
    }
    .to_owned()
}
