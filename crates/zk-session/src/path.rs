//! Paths of znodes, and the part of the tree a client is confined to.

use bytestring::ByteString;

use crate::error::OpError;

/// Checks a path by the rules that servers apply to writes.
///
/// It starts with `/` and does not end with one (but for the root), has no empty, `.` or `..`
/// component and none of the characters U+0000 to U+001F, U+007F to U+009F, U+E000 to U+F8FF and
/// U+FFF0 to U+FFFF. Characters above U+FFFF are refused too: Java servers see surrogates in their
/// place. Source: `PathUtils.validatePath`.
///
/// # Errors
///
/// [`OpError::InvalidPath`] with the path and the reason.
pub fn validate(path: &str) -> Result<(), OpError> {
    validate_for_create(path, false)
}

/// Checks the path of a znode to create. A sequential mode appends a number, so the given path may
/// end with `/`.
pub(crate) fn validate_for_create(path: &str, is_sequential: bool) -> Result<(), OpError> {
    let problem = if is_sequential { problem(&format!("{path}1")) } else { problem(path) };
    match problem {
        None => Ok(()),
        Some(reason) => Err(OpError::InvalidPath { path: path.to_owned(), reason }),
    }
}

/// What is wrong with a path.
pub(crate) fn problem(path: &str) -> Option<&'static str> {
    let Some(components) = path.strip_prefix('/') else { return Some("it does not start with /") };
    if components.is_empty() {
        return None;
    }
    for component in components.split('/') {
        match component {
            "" => return Some("it has an empty component, or ends with /"),
            "." | ".." => return Some("it has a relative component"),
            _ => {}
        }
    }
    if components.chars().any(is_forbidden) {
        return Some("it has a character that servers refuse");
    }
    None
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}' | '\u{10000}'..)
}

/// The znode that a client takes for its root. Empty for the real one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Chroot(ByteString);

impl Chroot {
    /// A chroot; `""` and `"/"` stand for the real root.
    ///
    /// # Errors
    ///
    /// What is wrong with the path.
    pub fn new(path: &str) -> Result<Self, &'static str> {
        match path {
            "" | "/" => Ok(Self::default()),
            path => problem(path).map_or_else(|| Ok(Self(path.into())), Err),
        }
    }

    /// The path on the server; empty for the real root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The server's path of a path of the client's.
    pub fn to_server(&self, path: &ByteString) -> ByteString {
        if self.0.is_empty() {
            path.clone()
        } else if path.as_bytes().as_ref() == b"/" {
            self.0.clone()
        } else {
            format!("{}{path}", self.0).into()
        }
    }

    /// The client's path of a path of the server's. By components: `/application` does not lie in
    /// `/app`. A path outside the chroot stays as it is.
    pub fn to_client(&self, path: &ByteString) -> ByteString {
        match path.strip_prefix(&*self.0) {
            _ if self.0.is_empty() => path.clone(),
            Some("") => "/".into(),
            Some(inside) if inside.starts_with('/') => path.slice_ref(inside),
            Some(_) | None => path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_servers_refuse_are_named_with_the_reason() {
        for path in
            ["", "a", "//", "/a/", "/a//b", "/./a", "/a/..", "/a\u{0}", "/\u{7f}", "/\u{e000}"]
        {
            assert!(
                matches!(validate(path), Err(OpError::InvalidPath { path: p, .. }) if p == path)
            );
        }
        for path in ["/", "/a", "/a/b.c", "/...", "/ü/漢字"] {
            assert_eq!(validate(path), Ok(()));
        }
    }

    #[test]
    fn chroot_strips_whole_components_only() {
        let chroot = Chroot::new("/app").unwrap();
        assert_eq!(chroot.to_server(&"/".into()), "/app");
        assert_eq!(chroot.to_server(&"/x".into()), "/app/x");
        assert_eq!(chroot.to_client(&"/app".into()), "/");
        assert_eq!(chroot.to_client(&"/app/x".into()), "/x");
        assert_eq!(chroot.to_client(&"/application".into()), "/application");
        assert_eq!(Chroot::new("/").unwrap().to_client(&"/x".into()), "/x");
        assert!(Chroot::new("/app/").is_err());
    }
}
