//! Paths of znodes, and the subtree that a client is confined to.

use bytestring::ByteString;

use crate::error::{OpError, PathDefect};

/// Checks a path against the rules that servers apply to writes.
///
/// A valid path starts with `/` and, unless it is the root, does not end with it. It has no empty,
/// `.` or `..` component and none of the characters U+0000 to U+001F, U+007F to U+009F, U+E000 to
/// U+F8FF and U+FFF0 to U+FFFF. Characters above U+FFFF are invalid too, because Java servers see
/// surrogates in their place. Source: `PathUtils.validatePath`.
///
/// # Errors
///
/// Returns [`OpError::InvalidPath`] with the path and the reason why it is invalid.
pub fn validate(path: &str) -> Result<(), OpError> {
    validate_for_create(path, false)
}

/// Checks the path of a znode to create. With a sequential mode it may end with `/`, because the
/// server appends a number.
pub(crate) fn validate_for_create(path: &str, is_sequential: bool) -> Result<(), OpError> {
    let defect = if is_sequential { defect(&format!("{path}1")) } else { defect(path) };
    match defect {
        None => Ok(()),
        Some(defect) => Err(OpError::InvalidPath { path: path.to_owned(), defect }),
    }
}

/// Returns why a path is invalid, or `None` if it is valid.
fn defect(path: &str) -> Option<PathDefect> {
    // Each operation checks its path, and nearly all paths are plain.
    if is_plain(path.as_bytes()) { None } else { defect_of_any(path) }
}

fn defect_of_any(path: &str) -> Option<PathDefect> {
    let Some(components) = path.strip_prefix('/') else { return Some(PathDefect::NotAbsolute) };
    if components.is_empty() {
        return None;
    }
    for component in components.split('/') {
        match component {
            "" => return Some(PathDefect::EmptyComponent),
            "." | ".." => return Some(PathDefect::RelativeComponent),
            _ => {}
        }
    }
    components.chars().any(is_forbidden).then_some(PathDefect::ForbiddenCharacter)
}

/// Returns true if a path is certainly valid: it consists of printable ASCII characters, its end is
/// not a `/`, and no component is empty or begins with a dot. The loops have no branches, so that
/// the compiler can let each step check several bytes.
fn is_plain(path: &[u8]) -> bool {
    let is_absolute = path.first() == Some(&b'/');
    let is_open = path.last() == Some(&b'/');
    let is_printable = path.iter().fold(true, |before, byte| before & (b' '..=b'~').contains(byte));
    let pairs = path.iter().zip(path.iter().skip(1));
    let is_odd = pairs.fold(false, |before, (this, next)| {
        before | ((*this == b'/') & ((*next == b'/') | (*next == b'.')))
    });
    is_absolute & is_printable & !is_open & !is_odd
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}' | '\u{10000}'..)
}

/// The znode that a client uses as its root. The path is empty if that is the root of the server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Chroot(ByteString);

impl Chroot {
    /// Creates a chroot. Both `""` and `"/"` mean the root of the server.
    ///
    /// # Errors
    ///
    /// Returns why the path is invalid.
    pub fn new(path: &str) -> Result<Self, PathDefect> {
        match path {
            "" | "/" => Ok(Self::default()),
            path => defect(path).map_or_else(|| Ok(Self(path.into())), Err),
        }
    }

    /// Returns the path on the server, which is empty for the root of the server.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the chroot at a valid path below this one.
    pub(crate) fn join(&self, path: &str) -> Self {
        if path == "/" { self.clone() } else { Self(format!("{}{path}", self.0).into()) }
    }

    /// Translates a path of the client to the path on the server.
    pub fn to_server(&self, path: &ByteString) -> ByteString {
        if self.0.is_empty() {
            path.clone()
        } else if path.as_bytes().as_ref() == b"/" {
            self.0.clone()
        } else {
            format!("{}{path}", self.0).into()
        }
    }

    /// Translates a path on the server to the path that the client sees. Whole components are
    /// compared: `/application` is not inside `/app`. A path outside of the chroot is not changed.
    pub fn to_client(&self, path: &ByteString) -> ByteString {
        self.inside(path).unwrap_or_else(|| path.clone())
    }

    /// Takes the chroot off a path. `None` if the path is outside of the chroot.
    pub(crate) fn inside(&self, path: &ByteString) -> Option<ByteString> {
        match path.strip_prefix(&*self.0)? {
            _ if self.0.is_empty() => Some(path.clone()),
            "" => Some("/".into()),
            inside => inside.starts_with('/').then(|| path.slice_ref(inside)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_path_that_is_plain_is_valid(path in "/?[a~ /.\u{1f}\u{7f}\u{e000}é]{0,40}") {
            assert_eq!(defect(&path), defect_of_any(&path));
        }

        #[test]
        fn an_ordinary_path_is_plain(path in "(/[ -\\-0-~][ -.0-~]{0,20}){1,5}") {
            assert!(is_plain(path.as_bytes()), "{path}");
        }
    }

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
