//! PEM and DER data, from files or from memory.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
};

use crate::error::TlsFailure;

pub(super) const CA: &str = "CA certificate";
pub(super) const CLIENT_CERTIFICATE: &str = "client certificate";
pub(super) const CLIENT_KEY: &str = "private key";
pub(super) const CRL: &str = "certificate revocation list (CRL)";
/// Maximum length of a file. One with all CAs that a system trusts is a tenth as long.
const FILE_MAX: u64 = 4 * 1024 * 1024;
/// Maximum length of a file with revocation lists. Each revoked certificate takes about 40 bytes.
const CRL_FILE_MAX: u64 = 64 * 1024 * 1024;

/// Where PEM or DER data is.
#[derive(Clone)]
pub(super) enum Source {
    File(PathBuf),
    Memory { from: &'static str, data: Bytes },
}

impl Source {
    pub(super) fn certificates(
        &self,
        what: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsFailure> {
        self.items(what, "CERTIFICATE", &self.read(what, FILE_MAX)?)
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsFailure> {
        let pem = self.read(CLIENT_KEY, FILE_MAX)?;
        PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| self.unusable(CLIENT_KEY, described(&error)))
    }

    /// Returns the lists: one in DER, or all blocks of PEM.
    pub(super) fn revocation_lists(
        &self,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFailure> {
        let data = self.read(CRL, CRL_FILE_MAX)?;
        // A sequence that is longer than 127 bytes. No text begins like that.
        if let [0x30, 0x80..=0xff, ..] = *data {
            return Ok(vec![data.to_vec().into()]);
        }
        self.items(CRL, "X509 CRL", &data)
    }

    fn items<T: PemObject>(
        &self,
        what: &'static str,
        label: &str,
        pem: &[u8],
    ) -> Result<Vec<T>, TlsFailure> {
        let found: Result<Vec<_>, _> = T::pem_slice_iter(pem).collect();
        match found {
            Ok(found) if found.is_empty() => {
                Err(self.unusable(what, format!("it has no block BEGIN {label}")))
            }
            Ok(found) => Ok(found),
            Err(error) => Err(self.unusable(what, described(&error))),
        }
    }

    fn read(&self, what: &'static str, max: u64) -> Result<Bytes, TlsFailure> {
        let path = match self {
            Self::Memory { data, .. } => return Ok(data.clone()),
            Self::File(path) => path,
        };
        let failed = |message| TlsFailure::File { what, path: path.clone(), message };
        let metadata = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        // A pipe would block, and has nothing left for the next attempt.
        if !metadata.is_file() {
            return Err(failed("it is not a regular file".to_owned()));
        }
        if metadata.len() > max {
            return Err(failed(format!("it has more than {max} bytes")));
        }
        Ok(std::fs::read(path).map_err(|error| failed(error.to_string()))?.into())
    }

    pub(super) fn unusable(&self, what: &'static str, defect: String) -> TlsFailure {
        let place = match self {
            Self::File(path) => format!("{path:?}"),
            Self::Memory { from, .. } => format!("the argument of `{from}`"),
        };
        TlsFailure::Pem { what, place, defect }
    }
}

/// Shows the name of a file, but no data.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Memory { from, .. } => f.write_str(from),
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
