//! A check of the ticket cache, before the Kerberos library reads it.
//!
//! MIT Kerberos 1.20 crashes in `krb5_cccol_have_content` if the file exists, no principal can be
//! read from it, and there is no keytab for clients: it frees a pointer that it has not set. A disk
//! that is full leaves such files.

use std::env;
use std::fs::File;
use std::io::{self, Read as _};

/// The first bytes of a file, with versions 1 to 4.
const MAGIC: u8 = 5;
const VERSION: u8 = 4;
/// Bytes that are read, far more than a principal has.
const READ_MAX: u64 = 64 * 1024;

/// Returns why the cache in the variable `KRB5CCNAME` cannot be used, or `None`. Caches that are not
/// files, and files that do not exist, are left to the library.
pub(super) fn defect() -> Option<String> {
    let name = env::var("KRB5CCNAME").ok()?;
    let path = match name.split_once(':') {
        Some(("FILE", path)) => path,
        Some(_) if !name.starts_with('/') => return None,
        Some(_) | None => &name,
    };
    match beginning(path) {
        Ok(bytes) if has_principal(&bytes) => None,
        Ok(_) => {
            Some(format!("{path} is not a ticket cache, or it is incomplete; run kinit again"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("the ticket cache {path} cannot be read: {error}")),
    }
}

fn beginning(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns whether a file begins with a principal. The versions before 4 are obsolete, and accepted
/// unseen.
fn has_principal(bytes: &[u8]) -> bool {
    match bytes {
        [MAGIC, VERSION, rest @ ..] => skip_principal(rest).is_some(),
        [MAGIC, 1..VERSION, ..] => true,
        _ => false,
    }
}

/// Skips the header, and a principal: its type, the number of its components, its realm, and them.
fn skip_principal(bytes: &[u8]) -> Option<()> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (_, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (_, rest) = rest.split_at_checked(4)?;
    let (components, mut rest) = rest.split_first_chunk()?;
    for _ in 0..=u32::from_be_bytes(*components) {
        let (length, text) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        (_, rest) = text.split_at_checked(length)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a cache of alice@ZK.TEST.
    const CACHE: &[u8] = b"\x05\x04\0\x0c\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\
                           \0\0\0\x07ZK.TEST\0\0\0\x05alice";

    #[test]
    fn a_cache_is_accepted_only_if_its_principal_is_complete() {
        assert!(has_principal(CACHE));
        assert!(has_principal(&[CACHE, &[0; 100]].concat()));
        for length in 0..CACHE.len() {
            assert!(!has_principal(&CACHE[..length]), "{length}");
        }
        assert!(has_principal(b"\x05\x03"));
        for garbage in [&b"neither a cache"[..], &[0; 100], &[5; 100], b"\x05\x04"] {
            assert!(!has_principal(garbage));
        }
        assert!(!has_principal(&[&[MAGIC, VERSION, 0, 0][..], &[0xff; 100]].concat()));
    }
}
