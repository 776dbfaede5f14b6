//! Paths of znodes: validation, parents and ancestors.

/// Built-in znodes, which cannot be deleted.
pub(crate) const SPECIAL: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", CONFIG];

/// The znode with the servers of the ensemble.
pub(crate) const CONFIG: &str = "/zookeeper/config";

/// Returns whether a znode may have this path.
pub(crate) fn is_valid(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.is_empty()
        || rest.split('/').all(|name| {
            !matches!(name, "" | "." | "..") && !name.chars().any(is_forbidden_character)
        })
}

fn is_forbidden_character(c: char) -> bool {
    // Java checks UTF-16 code units, so a character above U+FFFF is a pair of forbidden surrogates.
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// Returns the parent as servers derive it, even for illegal paths. Returns `None` if there is no
/// `/`.
pub(crate) fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// Returns the last component.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the path itself, then its ancestors from the bottom up.
pub(crate) fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| if *path == "/" { None } else { parent(path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_must_be_printable_and_not_dots() {
        for path in ["/", "/a", "/a/b", "/a.b/..c", "/ä", "/\u{d7ff}", "/\u{ffef}"] {
            assert!(is_valid(path), "{path:?}");
        }
        for path in [
            "",
            "a",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/a/..",
            "/a\0",
            "/\u{1}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{10000}",
        ] {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn ancestry_ends_at_the_root() {
        assert_eq!(ancestry("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestry("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestry("x").collect::<Vec<_>>(), ["x"]);
    }
}
